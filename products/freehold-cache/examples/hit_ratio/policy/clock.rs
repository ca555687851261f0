//! CLOCK: a FIFO with second chances.

use super::Policy;
use crate::lists::{Lists, Marks};

pub(crate) struct Clock {
    capacity: usize,
    lists: Lists<1>,
    used: Marks<bool>,
}

impl Clock {
    pub(crate) fn new(capacity: usize) -> Self {
        Clock { capacity, lists: Lists::new(), used: Marks::new() }
    }
}

impl Policy for Clock {
    fn access(&mut self, key: u64) -> bool {
        if self.lists.list_of(key).is_some() {
            self.used.set(key, true);
            return true;
        }
        while self.lists.len(0) == self.capacity {
            let Some(oldest) = self.lists.pop(0) else { break };
            if self.used.take(oldest) {
                self.lists.push(0, oldest);
            }
        }
        self.lists.push(0, key);
        false
    }
}

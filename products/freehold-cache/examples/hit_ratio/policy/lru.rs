//! Exact LRU, the yardstick of all others.

use super::Policy;
use crate::lists::Lists;

pub(crate) struct Lru {
    capacity: usize,
    lists: Lists<1>,
}

impl Lru {
    pub(crate) fn new(capacity: usize) -> Self {
        Lru { capacity, lists: Lists::new() }
    }
}

impl Policy for Lru {
    fn access(&mut self, key: u64) -> bool {
        if self.lists.list_of(key).is_some() {
            self.lists.renew(0, key);
            return true;
        }
        if self.lists.len(0) == self.capacity {
            self.lists.pop(0);
        }
        self.lists.push(0, key);
        false
    }
}

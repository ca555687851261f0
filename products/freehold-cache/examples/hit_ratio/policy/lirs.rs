//! LIRS (Jiang and Zhang, SIGMETRICS 2002): one frame in a hundred, and at least two, for keys of
//! long reuse distance. The history is limited to twice the capacity.

use super::Policy;
use crate::lists::{Lists, Marks};

pub(crate) struct Lirs {
    capacity: usize,
    /// How many keys may be hot.
    hot_max: usize,
    hot: usize,
    /// The stack of recent keys, hot, cold or evicted; the oldest is hot.
    stack: Lists<1>,
    /// The cached keys that are not hot.
    cold: Lists<1>,
    /// The evicted keys that are on the stack.
    ghosts: Lists<1>,
    is_hot: Marks<bool>,
}

impl Lirs {
    pub(crate) fn new(capacity: usize) -> Self {
        let hot_max = capacity - (capacity / 100).max(2);
        let [stack, cold, ghosts] = [Lists::new(), Lists::new(), Lists::new()];
        Lirs { capacity, hot_max, hot: 0, stack, cold, ghosts, is_hot: Marks::new() }
    }

    /// Drops keys off the stack until the oldest is hot.
    fn prune(&mut self) {
        while let Some(key) = self.stack.oldest(0).filter(|&key| !self.is_hot.get(key)) {
            self.stack.remove(key);
            if self.ghosts.list_of(key).is_some() {
                self.ghosts.remove(key);
            }
        }
    }

    fn touch(&mut self, key: u64) -> bool {
        let was_there = self.stack.list_of(key).is_some();
        if was_there {
            self.stack.remove(key);
        }
        self.stack.push(0, key);
        was_there
    }

    /// Makes the key hot, and the oldest hot one cold.
    fn heat(&mut self, key: u64) {
        self.is_hot.set(key, true);
        self.hot += 1;
        if self.hot > self.hot_max {
            self.prune();
            if let Some(oldest) = self.stack.pop(0) {
                self.is_hot.set(oldest, false);
                self.hot -= 1;
                self.cold.push(0, oldest);
            }
        }
        self.prune();
    }
}

impl Policy for Lirs {
    fn access(&mut self, key: u64) -> bool {
        if self.is_hot.get(key) {
            self.touch(key);
            self.prune();
            return true;
        }
        if self.cold.list_of(key).is_some() {
            if self.touch(key) {
                self.cold.remove(key);
                self.heat(key);
            } else {
                self.cold.renew(0, key);
            }
            return true;
        }
        if self.hot + self.cold.len(0) == self.capacity
            && let Some(victim) = self.cold.pop(0)
            && self.stack.list_of(victim).is_some()
        {
            self.ghosts.push(0, victim);
        }
        if self.ghosts.list_of(key).is_some() {
            self.ghosts.remove(key);
        }
        if self.ghosts.len(0) > 2 * self.capacity
            && let Some(ghost) = self.ghosts.pop(0)
        {
            self.stack.remove(ghost);
        }
        if self.touch(key) || self.hot < self.hot_max {
            self.heat(key);
        } else {
            self.cold.push(0, key);
        }
        false
    }
}

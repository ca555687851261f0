//! ARC (Megiddo and Modha, FAST 2003).

use super::Policy;
use crate::lists::Lists;

const ONCE: usize = 0;
const OFTEN: usize = 1;
const GHOST_ONCE: usize = 2;
const GHOST_OFTEN: usize = 3;

pub(crate) struct Arc {
    capacity: usize,
    target: f64,
    lists: Lists<4>,
}

impl Arc {
    pub(crate) fn new(capacity: usize) -> Self {
        Arc { capacity, target: 0.0, lists: Lists::new() }
    }

    fn replace(&mut self, is_often: bool) {
        let once = self.lists.len(ONCE) as f64;
        let is_over = once > self.target || (is_often && once == self.target);
        let (list, ghost) = match (once > 0.0 && is_over) || self.lists.len(OFTEN) == 0 {
            true => (ONCE, GHOST_ONCE),
            false => (OFTEN, GHOST_OFTEN),
        };
        if let Some(key) = self.lists.pop(list) {
            self.lists.push(ghost, key);
        }
    }

    fn make_room(&mut self) {
        let len = |list| self.lists.len(list);
        let once = len(ONCE) + len(GHOST_ONCE);
        let all = once + len(OFTEN) + len(GHOST_OFTEN);
        if once == self.capacity {
            if len(ONCE) < self.capacity {
                self.lists.pop(GHOST_ONCE);
                self.replace(false);
            } else {
                self.lists.pop(ONCE);
            }
        } else if all >= self.capacity {
            if all == 2 * self.capacity {
                self.lists.pop(GHOST_OFTEN);
            }
            self.replace(false);
        }
    }
}

impl Policy for Arc {
    fn access(&mut self, key: u64) -> bool {
        let ghosts = |list| self.lists.len(list) as f64;
        let (once, often) = (ghosts(GHOST_ONCE), ghosts(GHOST_OFTEN));
        match self.lists.list_of(key) {
            Some(ONCE | OFTEN) => {
                self.lists.renew(OFTEN, key);
                return true;
            }
            Some(GHOST_ONCE) => {
                self.target = (self.target + (often / once).max(1.0)).min(self.capacity as f64);
                self.replace(false);
                self.lists.renew(OFTEN, key);
            }
            Some(_) => {
                self.target = (self.target - (once / often).max(1.0)).max(0.0);
                self.replace(true);
                self.lists.renew(OFTEN, key);
            }
            None => {
                self.make_room();
                self.lists.push(ONCE, key);
            }
        }
        false
    }
}

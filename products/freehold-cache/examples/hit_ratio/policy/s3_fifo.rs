//! S3-FIFO (Yang and others, SOSP 2023): a tenth of the frames for the small queue, as many ghosts
//! as main frames, and counts up to three. Two hits in the small queue move a key to the main one.

use super::Policy;
use crate::lists::{Lists, Marks};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

pub(crate) struct S3Fifo {
    capacity: usize,
    small: usize,
    lists: Lists<3>,
    hits: Marks<u8>,
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        let small = (capacity / 10).max(1);
        S3Fifo { capacity, small, lists: Lists::new(), hits: Marks::new() }
    }

    fn make_room(&mut self) {
        while self.lists.len(SMALL) + self.lists.len(MAIN) >= self.capacity {
            if self.lists.len(SMALL) >= self.small || self.lists.len(MAIN) == 0 {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
    }

    fn evict_small(&mut self) {
        while let Some(key) = self.lists.pop(SMALL) {
            if self.hits.take(key) > 1 {
                self.lists.push(MAIN, key);
                if self.lists.len(MAIN) > self.capacity - self.small {
                    self.evict_main();
                    return;
                }
            } else {
                self.lists.push(GHOST, key);
                if self.lists.len(GHOST) > self.capacity - self.small {
                    self.lists.pop(GHOST);
                }
                return;
            }
        }
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.lists.pop(MAIN) {
            match self.hits.take(key) {
                0 => return,
                hits => {
                    self.hits.set(key, hits - 1);
                    self.lists.push(MAIN, key);
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, key: u64) -> bool {
        match self.lists.list_of(key) {
            Some(SMALL | MAIN) => {
                self.hits.set(key, (self.hits.get(key) + 1).min(3));
                true
            }
            Some(_) => {
                self.lists.remove(key);
                self.make_room();
                self.lists.push(MAIN, key);
                false
            }
            None => {
                self.make_room();
                self.lists.push(SMALL, key);
                false
            }
        }
    }
}

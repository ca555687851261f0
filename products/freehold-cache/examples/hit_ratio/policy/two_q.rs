//! The full version of 2Q (Johnson and Shasha, VLDB 1994), with the sizes that they recommend:
//! a quarter of the frames for the first queue, and half as many ghosts as frames.

use super::Policy;
use crate::lists::Lists;

const IN: usize = 0;
const OUT: usize = 1;
const MAIN: usize = 2;

pub(crate) struct TwoQ {
    capacity: usize,
    kin: usize,
    kout: usize,
    lists: Lists<3>,
}

impl TwoQ {
    pub(crate) fn new(capacity: usize) -> Self {
        let (kin, kout) = ((capacity / 4).max(1), (capacity / 2).max(1));
        TwoQ { capacity, kin, kout, lists: Lists::new() }
    }

    fn make_room(&mut self) {
        let lists = &mut self.lists;
        if lists.len(IN) + lists.len(MAIN) < self.capacity {
            return;
        }
        if lists.len(IN) > self.kin || lists.len(MAIN) == 0 {
            if let Some(key) = lists.pop(IN) {
                lists.push(OUT, key);
            }
            if lists.len(OUT) > self.kout {
                lists.pop(OUT);
            }
        } else {
            lists.pop(MAIN);
        }
    }
}

impl Policy for TwoQ {
    fn access(&mut self, key: u64) -> bool {
        match self.lists.list_of(key) {
            Some(MAIN) => {
                self.lists.renew(MAIN, key);
                true
            }
            Some(IN) => true,
            Some(_) => {
                self.lists.remove(key);
                self.make_room();
                self.lists.push(MAIN, key);
                false
            }
            None => {
                self.make_room();
                self.lists.push(IN, key);
                false
            }
        }
    }
}

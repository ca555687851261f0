//! Which blocks are allocated, as far as a recording says.

use std::collections::HashMap;

use crate::event::ORDER_MAX;

/// Blocks that are allocated, each with something that is known of it.
#[derive(Clone, Debug)]
pub struct Live<T> {
    /// By the first frame.
    blocks: HashMap<u64, Block<T>>,
    frames: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block<T> {
    order: u8,
    known: T,
}

/// What a free has given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed<T> {
    /// A block as it was allocated.
    Whole(T),
    /// A part of a block, whose other parts are still allocated, each by itself.
    Part(T),
    /// What was not known to be allocated, or not as one block.
    Unknown,
}

impl<T> Default for Live<T> {
    fn default() -> Self {
        Live { blocks: HashMap::new(), frames: 0 }
    }
}

impl<T: Copy> Live<T> {
    /// Frames that are allocated.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// A block is allocated. Returns the blocks that were thought to be allocated and share frames
    /// with it, each with its first frame and its order: their frees were lost.
    ///
    /// # Panics
    ///
    /// The order is above [`ORDER_MAX`], or the block does not begin at a multiple of its size.
    pub fn alloc(&mut self, pfn: u64, order: u8, known: T) -> Vec<(u64, u8, T)> {
        assert!(order <= ORDER_MAX && pfn.trailing_zeros() >= order.into(), "{order} at {pfn:#x}");
        let mut lost: Vec<_> =
            self.around(pfn, order).and_then(|at| self.remove(at)).into_iter().collect();
        // Smaller ones within it.
        if order > 0 {
            let frames = pfn..=pfn + ((1 << order) - 1);
            lost.extend(frames.filter_map(|pfn| self.remove(pfn)));
        }
        self.insert(pfn, order, known);
        lost
    }

    /// A block is freed. One that does not begin at a multiple of its size is unknown.
    pub fn free(&mut self, pfn: u64, order: u8) -> Freed<T> {
        let aligned = pfn.trailing_zeros() >= order.into();
        let block = self.around(pfn, order).filter(|_| aligned).and_then(|at| self.remove(at));
        let Some((_, whole, known)) = block else { return Freed::Unknown };
        if whole == order {
            return Freed::Whole(known);
        }
        // What is beside the part, in the largest blocks.
        for order in order..whole {
            let half = pfn >> order << order;
            self.insert(half ^ 1 << order, order, known);
        }
        Freed::Part(known)
    }

    /// All blocks that are allocated, in no order.
    pub fn into_blocks(self) -> impl Iterator<Item = (u64, u8, T)> {
        self.blocks.into_iter().map(|(pfn, block)| (pfn, block.order, block.known))
    }

    /// The first frame of the block that contains all of this one.
    fn around(&self, pfn: u64, order: u8) -> Option<u64> {
        (order..=ORDER_MAX).find_map(|larger| {
            let at = pfn >> larger << larger;
            self.blocks.get(&at).filter(|block| block.order == larger).map(|_| at)
        })
    }

    fn insert(&mut self, pfn: u64, order: u8, known: T) {
        self.blocks.insert(pfn, Block { order, known });
        self.frames += 1 << order;
    }

    fn remove(&mut self, pfn: u64) -> Option<(u64, u8, T)> {
        let Block { order, known } = self.blocks.remove(&pfn)?;
        self.frames -= 1 << order;
        Some((pfn, order, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_and_go_in_parts() {
        let mut live = Live::default();
        assert_eq!(live.alloc(8, 3, 'a'), []);
        assert_eq!(live.free(11, 0), Freed::Part('a'));
        assert_eq!(live.frames(), 7);
        assert_eq!(live.free(11, 0), Freed::Unknown, "twice");
        assert_eq!(live.free(12, 2), Freed::Whole('a'), "the upper half is a block by now");
        assert_eq!(live.free(8, 2), Freed::Unknown, "no longer one block");
        assert_eq!((live.free(8, 1), live.free(10, 0)), (Freed::Whole('a'), Freed::Whole('a')));
        assert_eq!(live.frames(), 0);
    }

    #[test]
    fn what_is_allocated_twice_was_freed_in_between() {
        let mut live = Live::default();
        live.alloc(0, 2, 'a');
        live.alloc(4, 0, 'b');
        live.alloc(6, 1, 'c');
        assert_eq!(live.alloc(1, 0, 'd'), [(0, 2, 'a')], "within a larger one, which is gone");
        assert_eq!(live.alloc(4, 2, 'e'), [(4, 0, 'b'), (6, 1, 'c')], "over smaller ones");
        assert_eq!(live.frames(), 1 + 4);
        let mut blocks: Vec<_> = live.into_blocks().collect();
        blocks.sort_unstable();
        assert_eq!(blocks, [(1, 0, 'd'), (4, 2, 'e')]);
    }
}

#[cfg(test)]
mod fuzz {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// All frames, each of which is in one block.
    fn frames(live: &Live<usize>) -> BTreeSet<u64> {
        let mut frames = BTreeSet::new();
        for (pfn, order, _) in live.clone().into_blocks() {
            let is_apart = (pfn..=pfn + ((1 << order) - 1)).all(|frame| frames.insert(frame));
            assert!(is_apart, "{pfn:#x}, order {order}, shares frames with another");
        }
        assert_eq!(live.frames(), frames.len() as u64);
        frames
    }

    /// Four bytes a call: whether it frees, an order, and where.
    #[test]
    fn any_calls_keep_the_books() {
        bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
            let mut live = Live::default();
            for (number, call) in bytes.chunks_exact(4).take(64).enumerate() {
                let before = frames(&live);
                let order = call[1] % 6;
                let near = u64::from(u16::from_le_bytes([call[2], call[3]]) % 128);
                let pfn = (if call[0] & 2 == 0 { near } else { u64::MAX - near }) >> order << order;
                let block: BTreeSet<_> = (pfn..=pfn + ((1 << order) - 1)).collect();
                if call[0] & 1 == 0 {
                    let lost = live.alloc(pfn, order, number);
                    assert_eq!(lost.is_empty(), before.is_disjoint(&block));
                    assert!(frames(&live).is_superset(&block));
                } else if live.free(pfn, order) == Freed::Unknown {
                    assert_eq!(frames(&live), before);
                } else {
                    assert_eq!(frames(&live), &before - &block);
                    assert!(before.is_superset(&block));
                }
            }
        });
    }
}

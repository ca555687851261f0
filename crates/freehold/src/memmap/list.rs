//! Doubly linked lists of blocks, linked through the records of their head frames, as in Linux:
//! unlinking a block writes to both its neighbours' records.

use crate::memmap::index::FrameIndex;
use crate::platform::SharedCell;

/// The link that ends a list. The frame table never has that many records.
pub const NIL: u32 = u32::MAX;

/// A table with a record for each frame, through which blocks are linked.
pub trait LinkTable {
    /// What holds a link.
    type Cell: SharedCell<u32>;

    /// The links of the block whose head is `block`.
    fn links(&self, block: FrameIndex) -> Links<'_, Self::Cell>;
}

/// The links in one record. Guarded by the lock of the list that the block is on.
pub struct Links<'a, C> {
    pub next: &'a C,
    pub prev: &'a C,
}

/// The ends of a list. `C` is the platform's cell or, for the lists of one CPU, its local cell.
/// Guarded, like the links, by the lock of the list's owner.
pub struct ListHead<C> {
    first: C,
    last: C,
}

/// Which end of a list a block goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that allocations take from.
    Front,
    /// The end that drains take from, and where a block goes whose merge is likely soon.
    Back,
}

/// The block that a link leads to.
pub fn decode(link: u32) -> Option<FrameIndex> {
    (link != NIL).then_some(FrameIndex(link))
}

impl<C: SharedCell<u32>> ListHead<C> {
    /// An empty list.
    pub fn new() -> Self {
        ListHead { first: C::new(NIL), last: C::new(NIL) }
    }

    /// The block at the front.
    #[inline]
    pub fn first(&self) -> Option<FrameIndex> {
        decode(self.first.get())
    }

    /// The block at the back.
    #[inline]
    pub fn last(&self) -> Option<FrameIndex> {
        decode(self.last.get())
    }

    /// Whether the list has no block.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.get() == NIL
    }

    /// Links `block` at one end. It must be on no list.
    #[inline]
    pub fn push<T: LinkTable>(&self, frames: &T, block: FrameIndex, end: End) {
        let record = frames.links(block);
        match end {
            End::Front => {
                let next = self.first.get();
                record.next.set(next);
                record.prev.set(NIL);
                match decode(next) {
                    Some(next) => frames.links(next).prev.set(block.0),
                    None => self.last.set(block.0),
                }
                self.first.set(block.0);
            }
            End::Back => {
                let prev = self.last.get();
                record.prev.set(prev);
                record.next.set(NIL);
                match decode(prev) {
                    Some(prev) => frames.links(prev).next.set(block.0),
                    None => self.first.set(block.0),
                }
                self.last.set(block.0);
            }
        }
    }

    /// Unlinks `block`, which must be on this list.
    #[inline]
    pub fn remove<T: LinkTable>(&self, frames: &T, block: FrameIndex) {
        let record = frames.links(block);
        let (next, prev) = (record.next.get(), record.prev.get());
        match decode(prev) {
            Some(prev) => frames.links(prev).next.set(next),
            None => self.first.set(next),
        }
        match decode(next) {
            Some(next) => frames.links(next).prev.set(prev),
            None => self.last.set(prev),
        }
    }

    /// Unlinks the block at the front and returns it.
    #[inline]
    pub fn pop_front<T: LinkTable>(&self, frames: &T) -> Option<FrameIndex> {
        let block = self.first()?;
        self.set_first(frames, decode(frames.links(block).next.get()));
        Some(block)
    }

    /// Unlinks up to `count` blocks at the front and calls `each` with them; returns how many there
    /// were. Cheaper than one by one: writes the ends once.
    #[inline]
    pub fn pop_front_many<T: LinkTable>(
        &self,
        frames: &T,
        count: usize,
        mut each: impl FnMut(FrameIndex),
    ) -> usize {
        let (mut first, mut popped) = (self.first(), 0);
        while let Some(block) = first
            && popped < count
        {
            first = decode(frames.links(block).next.get());
            each(block);
            popped += 1;
        }
        if popped > 0 {
            self.set_first(frames, first);
        }
        popped
    }

    /// Links blocks at the front, the last one foremost; returns how many there were. Cheaper than
    /// one by one: writes the ends once.
    #[inline]
    pub fn push_front_many<T: LinkTable>(
        &self,
        frames: &T,
        blocks: impl Iterator<Item = FrameIndex>,
    ) -> usize {
        let (mut first, mut pushed) = (self.first.get(), 0);
        for block in blocks {
            frames.links(block).next.set(first);
            match decode(first) {
                Some(next) => frames.links(next).prev.set(block.0),
                None => self.last.set(block.0),
            }
            first = block.0;
            pushed += 1;
        }
        if let Some(block) = decode(first)
            && pushed > 0
        {
            frames.links(block).prev.set(NIL);
            self.first.set(first);
        }
        pushed
    }

    /// Cuts off the front of the list up to `last`, as a chain of blocks that link to each other.
    pub fn cut_front<T: LinkTable>(&self, frames: &T, last: FrameIndex) {
        self.set_first(frames, decode(frames.links(last).next.get()));
        frames.links(last).next.set(NIL);
    }

    /// Cuts off the back of the list from `first`, as a chain of blocks that link to each other.
    pub fn cut_back<T: LinkTable>(&self, frames: &T, first: FrameIndex) {
        let last = frames.links(first).prev.get();
        match decode(last) {
            Some(last) => frames.links(last).next.set(NIL),
            None => self.first.set(NIL),
        }
        self.last.set(last);
        frames.links(first).prev.set(NIL);
    }

    /// Links a chain, from `first` to `last`, before the front.
    pub fn splice_front<T: LinkTable>(&self, frames: &T, first: FrameIndex, last: FrameIndex) {
        let front = self.first.get();
        frames.links(last).next.set(front);
        match decode(front) {
            Some(front) => frames.links(front).prev.set(last.0),
            None => self.last.set(last.0),
        }
        self.first.set(first.0);
    }

    /// Moves all blocks of `other` behind the last one, in their order.
    pub fn append<T: LinkTable>(&self, frames: &T, other: &Self) {
        let (Some(first), Some(last)) = (other.first(), other.last()) else { return };
        match self.last() {
            Some(back) => {
                frames.links(back).next.set(first.0);
                frames.links(first).prev.set(back.0);
            }
            None => self.first.set(first.0),
        }
        self.last.set(last.0);
        other.first.set(NIL);
        other.last.set(NIL);
    }

    /// Makes `first` the block at the front, cutting off those before it.
    #[inline(always)]
    fn set_first<T: LinkTable>(&self, frames: &T, first: Option<FrameIndex>) {
        match first {
            Some(first) => {
                self.first.set(first.0);
                frames.links(first).prev.set(NIL);
            }
            None => {
                self.first.set(NIL);
                self.last.set(NIL);
            }
        }
    }

    /// The blocks from front to back.
    pub fn iter<'a, T: LinkTable>(&self, frames: &'a T) -> impl Iterator<Item = FrameIndex> + 'a {
        core::iter::successors(self.first(), |&block| Self::behind(frames, block))
    }

    /// The block behind `block` on the list or chain that it is on.
    #[inline]
    pub fn behind<T: LinkTable>(frames: &T, block: FrameIndex) -> Option<FrameIndex> {
        decode(frames.links(block).next.get())
    }

    /// The block before `block` on the list that it is on.
    #[inline]
    pub fn before<T: LinkTable>(frames: &T, block: FrameIndex) -> Option<FrameIndex> {
        decode(frames.links(block).prev.get())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::platform::Platform;
    use crate::testing::TestPlatform;
    use std::vec;
    use std::vec::Vec;

    type Cell = <TestPlatform as Platform>::Cell<u32>;
    type Head = ListHead<Cell>;

    /// The next and the previous block of each frame.
    struct Frames(Vec<[Cell; 2]>);

    impl LinkTable for Frames {
        type Cell = Cell;

        fn links(&self, block: FrameIndex) -> Links<'_, Cell> {
            let [next, prev] = &self.0[block.0 as usize];
            Links { next, prev }
        }
    }

    fn frames() -> Frames {
        Frames((0..16).map(|_| [Cell::new(NIL), Cell::new(NIL)]).collect())
    }

    /// The blocks forwards, after checking that they are the same backwards.
    fn blocks(list: &Head, frames: &Frames) -> Vec<u32> {
        let forwards: Vec<_> = list.iter(frames).map(|block| block.0).collect();
        let before = |block: &FrameIndex| Head::before(frames, *block);
        let backwards = core::iter::successors(list.last(), before).map(|block| block.0);
        assert_eq!(
            backwards.collect::<Vec<_>>(),
            forwards.iter().rev().copied().collect::<Vec<_>>()
        );
        forwards
    }

    #[test]
    fn blocks_come_and_go_at_both_ends_and_in_between() {
        let (frames, list) = (frames(), Head::new());
        assert!(list.is_empty() && list.pop_front(&frames).is_none());
        for (block, end) in [(3, End::Front), (5, End::Back), (1, End::Front), (7, End::Back)] {
            list.push(&frames, FrameIndex(block), end);
        }
        assert_eq!(blocks(&list, &frames), [1, 3, 5, 7]);
        list.remove(&frames, FrameIndex(5));
        assert_eq!(blocks(&list, &frames), [1, 3, 7]);
        list.remove(&frames, FrameIndex(7));
        assert_eq!(list.pop_front(&frames), Some(FrameIndex(1)));
        assert_eq!(blocks(&list, &frames), [3]);
        list.remove(&frames, FrameIndex(3));
        assert!(list.is_empty() && list.last().is_none());
    }

    #[test]
    fn many_at_a_time_are_as_many_one_by_one() {
        let (frames, list) = (frames(), Head::new());
        assert_eq!(list.push_front_many(&frames, core::iter::empty()), 0);
        assert!(list.is_empty());
        assert_eq!(list.push_front_many(&frames, (1..=3).map(FrameIndex)), 3);
        assert_eq!(list.push_front_many(&frames, (4..=5).map(FrameIndex)), 2);
        assert_eq!(blocks(&list, &frames), [5, 4, 3, 2, 1]);
        let mut popped = Vec::new();
        assert_eq!(list.pop_front_many(&frames, 2, |block| popped.push(block.0)), 2);
        assert_eq!((popped, blocks(&list, &frames)), (vec![5, 4], vec![3, 2, 1]));
        assert_eq!(list.pop_front_many(&frames, 0, |_| panic!("none was asked for")), 0);
        assert_eq!(list.pop_front_many(&frames, 9, |_| ()), 3);
        assert!(list.is_empty() && list.last().is_none());
    }

    #[test]
    fn a_list_is_appended_to_another() {
        let (frames, list, other) = (frames(), Head::new(), Head::new());
        list.append(&frames, &other);
        assert!(list.is_empty());
        other.push_front_many(&frames, (1..=3).map(FrameIndex));
        list.append(&frames, &other);
        assert!(other.is_empty() && other.last().is_none());
        assert_eq!(blocks(&list, &frames), [3, 2, 1]);
        other.push(&frames, FrameIndex(9), End::Back);
        list.append(&frames, &other);
        assert_eq!(blocks(&list, &frames), [3, 2, 1, 9]);
    }

    #[test]
    fn chains_are_cut_off_and_spliced() {
        let (frames, list, other) = (frames(), Head::new(), Head::new());
        let links = |block| (Head::before(&frames, block), Head::behind(&frames, block));
        list.push_front_many(&frames, (1..=6).rev().map(FrameIndex));
        list.cut_front(&frames, FrameIndex(2));
        assert_eq!(blocks(&list, &frames), [3, 4, 5, 6]);
        assert_eq!(links(FrameIndex(2)), (Some(FrameIndex(1)), None));
        other.splice_front(&frames, FrameIndex(1), FrameIndex(2));
        assert_eq!(blocks(&other, &frames), [1, 2]);
        list.cut_back(&frames, FrameIndex(5));
        assert_eq!(blocks(&list, &frames), [3, 4]);
        assert_eq!(links(FrameIndex(5)), (None, Some(FrameIndex(6))));
        other.splice_front(&frames, FrameIndex(5), FrameIndex(6));
        assert_eq!(blocks(&other, &frames), [5, 6, 1, 2]);
        // The whole list, at either end.
        list.cut_front(&frames, FrameIndex(4));
        other.cut_back(&frames, FrameIndex(5));
        assert!(list.is_empty() && list.last().is_none());
        assert!(other.is_empty() && other.last().is_none());
    }
}

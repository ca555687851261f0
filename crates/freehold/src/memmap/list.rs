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

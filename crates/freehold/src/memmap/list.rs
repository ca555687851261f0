//! Doubly linked lists of blocks, linked through the records of their head frames, as in Linux:
//! unlinking a block writes to both its neighbours' records.

use crate::memmap::frame::{FrameIndex, FrameTable};
use crate::platform::{Platform, SharedCell};

/// The link that ends a list. The frame table never has that many records.
const NIL: u32 = u32::MAX;

/// The ends of a list. `C` is the platform's cell or, for the lists of one CPU, its local cell.
/// Guarded, like the links, by the lock of whoever owns the list.
pub(crate) struct ListHead<C> {
    first: C,
    last: C,
}

/// Which end of a list a block goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The end that allocations take from.
    Front,
    /// The end that drains take from, and where a block waits for a merge that is likely.
    Back,
}

fn decode(link: u32) -> Option<FrameIndex> {
    (link != NIL).then_some(FrameIndex(link))
}

impl<C: SharedCell<u32>> ListHead<C> {
    /// An empty list.
    pub(crate) fn new() -> Self {
        ListHead { first: C::new(NIL), last: C::new(NIL) }
    }

    /// The block at the front.
    #[inline]
    pub(crate) fn first(&self) -> Option<FrameIndex> {
        decode(self.first.get())
    }

    /// The block at the back.
    #[inline]
    pub(crate) fn last(&self) -> Option<FrameIndex> {
        decode(self.last.get())
    }

    /// Whether the list has no block.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get() == NIL
    }

    /// Links `block` at one end. It must be on no list.
    #[inline]
    pub(crate) fn push<P: Platform>(&self, frames: &FrameTable<P>, block: FrameIndex, end: End) {
        let record = frames.record(block);
        match end {
            End::Front => {
                let next = self.first.get();
                record.next.set(next);
                record.prev.set(NIL);
                match decode(next) {
                    Some(next) => frames.record(next).prev.set(block.0),
                    None => self.last.set(block.0),
                }
                self.first.set(block.0);
            }
            End::Back => {
                let prev = self.last.get();
                record.prev.set(prev);
                record.next.set(NIL);
                match decode(prev) {
                    Some(prev) => frames.record(prev).next.set(block.0),
                    None => self.first.set(block.0),
                }
                self.last.set(block.0);
            }
        }
    }

    /// Unlinks `block`, which must be on this list.
    #[inline]
    pub(crate) fn remove<P: Platform>(&self, frames: &FrameTable<P>, block: FrameIndex) {
        let record = frames.record(block);
        let (next, prev) = (record.next.get(), record.prev.get());
        match decode(prev) {
            Some(prev) => frames.record(prev).next.set(next),
            None => self.first.set(next),
        }
        match decode(next) {
            Some(next) => frames.record(next).prev.set(prev),
            None => self.last.set(prev),
        }
    }

    /// Unlinks the block at the front and returns it.
    #[inline]
    pub(crate) fn pop_front<P: Platform>(&self, frames: &FrameTable<P>) -> Option<FrameIndex> {
        let block = self.first()?;
        self.set_first(frames, decode(frames.record(block).next.get()));
        Some(block)
    }

    /// Unlinks up to `count` blocks at the front and calls `each` with them; returns how many there
    /// were. Cheaper than one by one: the ends are written once.
    #[inline]
    pub(crate) fn pop_front_many<P: Platform>(
        &self,
        frames: &FrameTable<P>,
        count: usize,
        mut each: impl FnMut(FrameIndex),
    ) -> usize {
        let (mut first, mut popped) = (self.first(), 0);
        while let Some(block) = first
            && popped < count
        {
            first = decode(frames.record(block).next.get());
            each(block);
            popped += 1;
        }
        if popped > 0 {
            self.set_first(frames, first);
        }
        popped
    }

    /// Links blocks at the front, the last one foremost; returns how many there were. Cheaper than
    /// one by one: the ends are written once.
    #[inline]
    pub(crate) fn push_front_many<P: Platform>(
        &self,
        frames: &FrameTable<P>,
        blocks: impl Iterator<Item = FrameIndex>,
    ) -> usize {
        let (mut first, mut pushed) = (self.first.get(), 0);
        for block in blocks {
            frames.record(block).next.set(first);
            match decode(first) {
                Some(next) => frames.record(next).prev.set(block.0),
                None => self.last.set(block.0),
            }
            first = block.0;
            pushed += 1;
        }
        if let Some(block) = decode(first)
            && pushed > 0
        {
            frames.record(block).prev.set(NIL);
            self.first.set(first);
        }
        pushed
    }

    /// Makes `first` the block at the front, cutting off those before it.
    #[inline(always)]
    fn set_first<P: Platform>(&self, frames: &FrameTable<P>, first: Option<FrameIndex>) {
        match first {
            Some(first) => {
                self.first.set(first.0);
                frames.record(first).prev.set(NIL);
            }
            None => {
                self.first.set(NIL);
                self.last.set(NIL);
            }
        }
    }

    /// The blocks from front to back.
    pub(crate) fn iter<'a, P: Platform>(
        &self,
        frames: &'a FrameTable<P>,
    ) -> impl Iterator<Item = FrameIndex> + 'a {
        core::iter::successors(self.first(), |&block| decode(frames.record(block).next.get()))
    }

    /// The block before `block` on the list that it is on.
    pub(crate) fn before<P: Platform>(
        frames: &FrameTable<P>,
        block: FrameIndex,
    ) -> Option<FrameIndex> {
        decode(frames.record(block).prev.get())
    }
}

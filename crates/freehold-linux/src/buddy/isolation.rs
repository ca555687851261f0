//! Isolating pageblocks, and taking frames wherever they lie.

use super::{Beside, Buddy};
use crate::frame::Tag;
use crate::pageblock::BlockType;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::End;
use freehold::platform::Platform;
use freehold::units::{FrameCount, Order};

impl<P: Platform, B: Beside<P>> Buddy<'_, P, B> {
    /// Isolates the free frames of a pageblock, including those freed from now on; returns how many
    /// there were. `None` if the block is isolated already.
    pub(crate) fn isolate_pageblock(&self, pageblock: FrameIndex) -> Option<FrameCount> {
        if self.tables.blocks.block_type(pageblock) == BlockType::Isolated {
            return None;
        }
        self.split_at_pageblock(pageblock);
        self.beside.retyped(&self.tables, pageblock);
        self.tables.blocks.set_isolated(pageblock, true);
        Some(self.move_free(pageblock, BlockType::Isolated, End::Front))
    }

    /// Makes the free frames of an isolated pageblock available again; returns how many.
    pub(crate) fn release_pageblock(&self, pageblock: FrameIndex) -> FrameCount {
        self.tables.blocks.set_isolated(pageblock, false);
        let of = self.tables.blocks.block_type(pageblock);
        let moved = self.move_free(pageblock, of, End::Front);
        // A pageblock that is free as a whole merges with its neighbour.
        if self.tables.frames.state(pageblock).is(Tag::Buddy, Order::PAGEBLOCK) {
            self.remove(pageblock, Order::PAGEBLOCK, of);
            self.put(pageblock, Order::PAGEBLOCK, None);
        }
        moved
    }

    /// Splits a free block that extends beyond a pageblock, so that none does. Its other parts stay
    /// as large as can be.
    fn split_at_pageblock(&self, pageblock: FrameIndex) {
        let order = Order::PAGEBLOCK;
        if let Some(of) = self.take_part(pageblock, order, order.up()) {
            self.insert(pageblock, order, of, End::Front);
        }
    }

    /// Takes a block out of the free block of at least `from` that it lies in, if there is one, and
    /// leaves the rest on the lists; returns its type. Its head is unmarked.
    fn take_part(&self, block: FrameIndex, order: Order, from: Order) -> Option<BlockType> {
        for from in from.to(Order::BUDDY_MAX) {
            let head = block.head(from);
            let state = self.tables.frames.state(head);
            if state.is(Tag::Buddy, from) {
                let of = state.block_type();
                self.remove(head, from, of);
                for half in (order.get()..from.get()).rev().map(Order::new) {
                    self.insert(block.head(half).buddy(half), half, of, End::Front);
                }
                return Some(of);
            }
        }
        None
    }

    /// Takes the frames of a block, all of which are free, from whatever lists they are on: they
    /// may be part of a larger free block, or lie in smaller ones. No head is left marked.
    pub(crate) fn take_frames(&self, block: FrameIndex, order: Order) {
        if self.take_part(block, order, order).is_some() {
            return;
        }
        let mut at = block;
        while at < block.after(order) {
            let taken = self.remove_any(at);
            at = at.after(taken.expect("the caller knows that all frames are free"));
        }
    }
}

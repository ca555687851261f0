//! How many frames callers have allocated and freed: the allocator's counters are compared with
//! this while calls are under way.

use std::cell::Cell;
use std::ops::RangeInclusive;

use freehold::{Error, Order, Pfn};

use super::ledger::Block;

/// Frames that calls have moved, and those that calls under way may have moved.
#[derive(Debug, Default)]
pub(super) struct Flow {
    allocated: Cell<u64>,
    freed: Cell<u64>,
    /// Requested by calls under way.
    allocating: Cell<u64>,
    freeing: Cell<u64>,
    /// Calls under way that may move content, which is counted as an allocation and a free.
    movers: Cell<u64>,
    /// How many such calls have begun.
    moves: Cell<u64>,
    /// Frames whose content was moved.
    moved: Cell<u64>,
}

/// The state when a probe begins.
pub(super) struct Mark {
    allocated: u64,
    freed: u64,
    moves: u64,
}

fn add(count: &Cell<u64>, change: i64) {
    count.set(count.get().checked_add_signed(change).expect("a count is never below zero"));
}

impl Flow {
    /// Makes a call that requests so many frames; `got` returns how many it received.
    pub(super) fn allocating<R>(
        &self,
        asked: u64,
        call: impl FnOnce() -> R,
        got: impl FnOnce(&R) -> u64,
    ) -> R {
        add(&self.allocating, asked as i64);
        let result = call();
        add(&self.allocating, -(asked as i64));
        add(&self.allocated, got(&result) as i64);
        result
    }

    /// Makes a call that requests a block of this order.
    pub(super) fn allocating_block(
        &self,
        order: Order,
        call: impl FnOnce() -> Result<Pfn, Error>,
    ) -> Result<Pfn, Error> {
        let frames = order.frames().get();
        self.allocating(frames, call, |result| if result.is_ok() { frames } else { 0 })
    }

    /// Makes a call that frees a block, which must succeed.
    pub(super) fn freeing_block(&self, block: Block, call: impl FnOnce() -> Result<(), Error>) {
        let freed = self.freeing(block.order.frames().get(), call);
        assert_eq!(freed, Ok(()), "freeing {block:?}");
    }

    /// Makes a call that frees so many frames.
    pub(super) fn freeing<R>(&self, frames: u64, call: impl FnOnce() -> R) -> R {
        add(&self.freeing, frames as i64);
        let result = call();
        add(&self.freeing, -(frames as i64));
        add(&self.freed, frames as i64);
        result
    }

    /// Makes a call that may move content.
    pub(super) fn moving<R>(&self, call: impl FnOnce() -> R) -> R {
        add(&self.moves, 1);
        add(&self.movers, 1);
        let result = call();
        add(&self.movers, -1);
        result
    }

    /// Notes that the content of so many frames was moved.
    pub(super) fn note_move(&self, frames: u64) {
        add(&self.moved, frames as i64);
    }

    /// How many frames counters may show as allocated since the start, if no call is under way.
    /// Targets for content that did not move in the end may or may not count.
    pub(super) fn allocated(&self) -> RangeInclusive<u64> {
        let least = self.allocated.get() + self.moved.get();
        least..=if self.moves.get() == 0 { least } else { u64::MAX }
    }

    /// Begins a probe.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            allocated: self.allocated.get(),
            freed: self.freed.get(),
            moves: self.moves.get() - self.movers.get(),
        }
    }

    /// The least and the most frames in use that counters read since `mark` may show: what calls
    /// had done before, and what they may have done by now. `None` if content was moved meanwhile.
    pub(super) fn bounds_since(&self, mark: &Mark) -> Option<(i64, i64)> {
        if self.moves.get() != mark.moves {
            return None;
        }
        let allocated_most = self.allocated.get() + self.allocating.get();
        let freed_most = self.freed.get() + self.freeing.get();
        let (least, most) = (
            mark.allocated.cast_signed() - freed_most.cast_signed(),
            allocated_most.cast_signed() - mark.freed.cast_signed(),
        );
        Some((least, most))
    }
}

//! The LRU's record of a frame, its state and the links of the list that it is on, and the table of
//! all of them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::sharding::Sharding;
use super::state::{ORDER_MAX, State};
use crate::error::LruError;
use freehold::Error;
use freehold::config::{Config, MemoryRange};
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{LinkTable, Links};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::memmap::stretches::{Stretches, StretchesTablePlan};
use freehold::memmap::zeroable::zeroable;
use freehold::platform::{Platform, SharedCell, Word};
use freehold::units::{FrameCount, Order, Pfn};

/// The record of a frame: 16 bytes.
#[repr(C, align(16))]
struct Record<P: Platform> {
    /// A [`State`].
    state: P::U64,
    /// The neighbours on the frame's list. Guarded by the lock of its lruvec.
    next: P::Cell<u32>,
    prev: P::Cell<u32>,
}

zeroable!(Record {
    state: P::U64::ZERO_BYTES,
    next: <P::Cell<u32>>::ZERO_BYTES,
    prev: <P::Cell<u32>>::ZERO_BYTES,
});

/// The records of all frames that have indexes, holes included.
pub(crate) struct FrameTable<P: Platform> {
    records: Table<Record<P>>,
    stretches: Stretches<P>,
    pub(crate) sharding: Sharding,
}

/// Where the table will lie.
pub(crate) struct FrameTablePlan<P: Platform> {
    records: TablePlan<Record<P>>,
    stretches: StretchesTablePlan<P>,
}

impl<P: Platform> FrameTablePlan<P> {
    pub(crate) fn new(config: &Config<'_>, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let stretches = Stretches::plan(config, layout)?;
        let frames = stretches.frames().get();
        let len = usize::try_from(frames).map_err(|_| Error::SpanTooLarge)?;
        let records = layout.table(SectionKind::LruFrames, len)?;
        Ok(FrameTablePlan { records, stretches })
    }
}

impl<P: Platform> FrameTable<P> {
    /// A table of holes.
    pub(crate) fn carve(
        plan: &FrameTablePlan<P>,
        config: &Config<'_>,
        sharding: Sharding,
        carver: &mut Carver,
    ) -> Self {
        let stretches = Stretches::carve(&plan.stretches, config, carver);
        let records = carver.zero_table(plan.records, |_| Record {
            state: P::U64::new(State::HOLE.0),
            next: P::Cell::new(0),
            prev: P::Cell::new(0),
        });
        FrameTable { records, stretches, sharding }
    }

    /// Turns the holes of a range into unused frames. No other call adds memory meanwhile.
    pub(crate) fn add_memory(&self, range: &MemoryRange) -> Result<(), Error> {
        range.check()?;
        let place = self.stretches.cover(range.start, range.frames).ok_or(Error::OutsideSpan)?;
        let frames = || (place.first.0..place.end.0).map(FrameIndex);
        if !frames().all(|frame| self.state(frame).is_hole()) {
            return Err(Error::RangeOverlaps);
        }
        let unused = State::unused(self.sharding.home(range.node), range.zone);
        frames().for_each(|frame| self.set(frame, unused));
        Ok(())
    }

    /// Turns unused frames into holes. No other call adds or removes memory meanwhile.
    pub(crate) fn remove_memory(&self, first: Pfn, frames: FrameCount) -> Result<(), LruError> {
        let place = self.stretches.locate(first, frames).ok_or(LruError::ForeignFrame)?;
        for frame in place.first.0..place.end.0 {
            if let Err(error) = self.change(FrameIndex(frame), State::removed) {
                for frame in place.first.0..frame {
                    self.update(FrameIndex(frame), State::restored);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The index of a frame that is memory.
    #[inline]
    pub(crate) fn index_of(&self, pfn: Pfn) -> Result<FrameIndex, LruError> {
        let frame = self.stretches.index_of(pfn).ok_or(LruError::ForeignFrame)?;
        if self.state(frame).is_hole() { Err(LruError::ForeignFrame) } else { Ok(frame) }
    }

    /// The frames of a block but the first, which is one of the table.
    fn tails(&self, head: FrameIndex, order: Order) -> impl Iterator<Item = FrameIndex> + Clone {
        let end = head.0 + (order.frames().get() as u32).min(self.records.len() as u32 - head.0);
        (head.0 + 1..end).map(FrameIndex)
    }

    /// Joins the frames of a block to its first one.
    ///
    /// # Errors
    ///
    /// [`LruError::Misaligned`], [`LruError::OrderTooLarge`], [`LruError::ForeignFrame`] or
    /// [`LruError::AlreadyAdded`].
    pub(crate) fn join_tails(&self, head: FrameIndex, order: Order) -> Result<(), LruError> {
        if order == Order::ZERO {
            return Ok(());
        }
        if order > ORDER_MAX {
            return Err(LruError::OrderTooLarge);
        }
        let frames = order.frames().get();
        if !self.pfn_of(head).get().is_multiple_of(frames) {
            return Err(LruError::Misaligned);
        }
        if u64::from(head.0) + frames > self.records.len() as u64 {
            return Err(LruError::ForeignFrame);
        }
        let tails = self.tails(head, order);
        for (joined, tail) in tails.clone().enumerate() {
            if let Err(error) = self.change(tail, State::joined) {
                tails.take(joined).for_each(|tail| self.free(tail));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Undoes [`FrameTable::join_tails`].
    pub(crate) fn free_tails(&self, head: FrameIndex, order: Order) {
        self.tails(head, order).for_each(|tail| self.free(tail));
    }

    /// Whether all frames of a block but the first are part of a block.
    pub(crate) fn has_tails(&self, head: FrameIndex, order: Order) -> bool {
        self.tails(head, order).all(|tail| self.state(tail).is_tail())
    }

    /// Makes the frames of a block unused that no other CPU may change; its first one has this
    /// state.
    pub(crate) fn free_block(&self, head: FrameIndex, state: State) {
        if state.order() > Order::ZERO {
            self.free_tails(head, state.order());
        }
        self.set(head, self.sharding.whole(state.released()));
    }

    /// Makes a frame unused that no other CPU may change.
    pub(crate) fn free(&self, frame: FrameIndex) {
        self.set(frame, self.state(frame).released());
    }

    pub(crate) fn pfn_of(&self, frame: FrameIndex) -> Pfn {
        self.stretches.pfn_of(frame)
    }

    /// All frames that are memory.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FrameIndex> + '_ {
        let all = (0..self.records.len() as u32).map(FrameIndex);
        all.filter(|&frame| !self.state(frame).is_hole())
    }

    /// The state of a frame. A caller acts on it by [`FrameTable::change`], or is the only one that
    /// may change it.
    #[inline]
    pub(crate) fn state(&self, frame: FrameIndex) -> State {
        // Acquire: what a frame's state implies about its group was written before it.
        State(self.records.get(frame.index()).state.load(Acquire))
    }

    /// Writes the state of a frame that no other CPU may change: a hole, one without references
    /// that the caller is releasing, one that it froze, or part of a block of the caller's.
    pub(crate) fn set(&self, frame: FrameIndex, state: State) {
        // Release: pairs with the acquire in `state` and `change`: a CPU that sees the frame
        // unused, or referenced again, also sees what was done with it before.
        self.records.get(frame.index()).state.store(state.0, Release);
    }

    /// Changes the state of a frame atomically; returns it before and after.
    ///
    /// # Errors
    ///
    /// Those of `change`, for the state that the frame is in. It is unchanged then.
    #[inline]
    pub(crate) fn change(
        &self,
        frame: FrameIndex,
        change: impl Fn(State) -> Result<State, LruError>,
    ) -> Result<(State, State), LruError> {
        let word = &self.records.get(frame.index()).state;
        // Relaxed: the exchange below fails if this was stale, and acquires otherwise.
        let mut before = State(word.load(Relaxed));
        loop {
            let after = change(before)?;
            if after == before {
                return Ok((before, after));
            }
            // Acquire: a CPU that drops the last reference, or clears the LRU mark, sees all that
            // former holders did to the frame. Release: a CPU that drops a reference or sets the
            // mark has finished with the frame. Relaxed on failure: the next exchange acquires.
            match word.compare_exchange(before.0, after.0, AcqRel, Relaxed) {
                Ok(_) => return Ok((before, after)),
                Err(found) => before = State(found),
            }
        }
    }

    /// As [`FrameTable::change`], for changes that cannot fail.
    #[inline]
    pub(crate) fn update(
        &self,
        frame: FrameIndex,
        change: impl Fn(State) -> State,
    ) -> (State, State) {
        match self.change(frame, |state| Ok(change(state))) {
            Ok(states) => states,
            Err(_) => unreachable!("the change cannot fail"),
        }
    }
}

impl<P: Platform> LinkTable for FrameTable<P> {
    type Cell = P::Cell<u32>;

    #[inline]
    fn links(&self, frame: FrameIndex) -> Links<'_, P::Cell<u32>> {
        let record = self.records.get(frame.index());
        Links { next: &record.next, prev: &record.prev }
    }
}

//! The LRU's record of a frame: one word with references, pins, marks, node and group, and the
//! links of the list that the frame is on.
//!
//! Linux keeps references and marks in two words, so isolating a frame takes two atomics, in an
//! order that matters: first the reference, then the mark. Here one word holds both, and each step
//! of a frame's life is one compare-exchange on it.

use super::error::LruError;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::kind::{Kind, List};
use crate::Error;
use crate::config::{Config, MemoryRange};
use crate::memmap::index::FrameIndex;
use crate::memmap::list::{End, LinkTable, Links};
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::memmap::zeroable::zeroable;
use crate::platform::{Platform, SharedCell, Word};
use crate::units::{FrameCount, NodeId, Pfn, ZoneKind};

const REFS: u64 = (1 << 20) - 1;
const PIN_SHIFT: u32 = 20;
const PINS: u64 = ((1 << 10) - 1) << PIN_SHIFT;
/// The frame is on the list that the other marks and the group name, or the put that dropped its
/// last reference is just unlinking it (Linux's `PG_lru`).
const LISTED: u64 = 1 << 30;
const ACTIVE: u64 = 1 << 31;
const FILE: u64 = 1 << 32;
const UNEVICTABLE: u64 = 1 << 33;
/// The frame was used since it last changed lists.
const REFERENCED: u64 = 1 << 34;
/// The frame was added and has not been released.
const USED: u64 = 1 << 35;
/// The frame is memory. A state of zero is a hole, for the table begins with holes.
const MEMORY: u64 = 1 << 36;
const ZONE_SHIFT: u32 = 37;
const ZONE: u64 = 7 << ZONE_SHIFT;
const NODE_SHIFT: u32 = 40;
const NODE: u64 = 0xff << NODE_SHIFT;
/// The frame's location, and that it is memory: no state change affects it.
const HOME: u64 = MEMORY | NODE | ZONE;
const SLOT_SHIFT: u32 = 48;

/// More nodes than any machine has; keeps node numbers within 8 bits.
pub(super) const NODES_MAX: usize = 256;

/// The maximum number of references to one frame.
pub(super) const REFS_MAX: u32 = REFS as u32;

/// The state of a frame.
///
/// The marks that name a list, and the group, change only while the frame is not listed. So
/// clearing `LISTED` reveals in the same step which list the frame is linked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

/// Where a frame goes when it is put on a list, and how that changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    /// To the front of the list that its marks name.
    Keep,
    /// To the front of the active list.
    Activate,
    /// To the front of the inactive list.
    Deactivate,
    /// To the back of the inactive list, to be reclaimed next.
    Rotate,
}

impl State {
    const HOLE: Self = State(0);

    /// An unused frame.
    fn unused(node: NodeId, zone: ZoneKind) -> Self {
        State(MEMORY | (node.index() as u64) << NODE_SHIFT | (zone as u64) << ZONE_SHIFT)
    }

    /// The same frame, unused.
    pub(super) fn released(self) -> Self {
        State(self.0 & HOME)
    }

    /// The same frame, added to the group in `slot` with so many references.
    pub(super) fn added(self, slot: u16, kind: Kind, refs: u32) -> Self {
        let file = if kind == Kind::File { FILE } else { 0 };
        State(self.0 & HOME | USED | file | u64::from(slot) << SLOT_SHIFT | u64::from(refs))
    }

    /// The frame `to` with all of this state except its location.
    pub(super) fn moved_to(self, to: State) -> Self {
        State(self.0 & !HOME | to.0 & HOME)
    }

    pub(super) const fn is_hole(self) -> bool {
        self.0 & MEMORY == 0
    }

    pub(super) const fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    pub(super) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    pub(super) const fn is_active(self) -> bool {
        self.0 & ACTIVE != 0
    }

    pub(super) const fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    pub(super) const fn is_unevictable(self) -> bool {
        self.0 & UNEVICTABLE != 0
    }

    pub(super) const fn refs(self) -> u32 {
        (self.0 & REFS) as u32
    }

    pub(super) const fn pins(self) -> u32 {
        ((self.0 & PINS) >> PIN_SHIFT) as u32
    }

    pub(super) const fn node(self) -> usize {
        ((self.0 & NODE) >> NODE_SHIFT) as usize
    }

    /// Whether the frame's zone is of this kind, or of a lower one.
    pub(super) const fn is_within(self, highest: ZoneKind) -> bool {
        (self.0 & ZONE) >> ZONE_SHIFT <= highest as u64
    }

    pub(super) const fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    pub(super) const fn kind(self) -> Kind {
        if self.0 & FILE != 0 { Kind::File } else { Kind::Anon }
    }

    /// The list that the marks name.
    pub(super) const fn list(self) -> List {
        if self.is_unevictable() {
            return List::Unevictable;
        }
        match (self.kind(), self.is_active()) {
            (Kind::Anon, false) => List::InactiveAnon,
            (Kind::Anon, true) => List::ActiveAnon,
            (Kind::File, false) => List::InactiveFile,
            (Kind::File, true) => List::ActiveFile,
        }
    }

    /// One more reference, unless there is none or are too many.
    pub(super) const fn get(self) -> Result<Self, LruError> {
        match self.refs() {
            0 => Err(LruError::NotAdded),
            REFS_MAX => Err(LruError::TooManyReferences),
            _ => Ok(State(self.0 + 1)),
        }
    }

    /// One reference less.
    pub(super) const fn put(self) -> Result<Self, LruError> {
        if self.refs() == 0 { Err(LruError::NotAdded) } else { Ok(State(self.0 - 1)) }
    }

    /// Isolated by a caller without a reference: it gets one in the same step.
    pub(super) const fn isolate(self) -> Result<Self, LruError> {
        match self.get() {
            Ok(State(held)) if self.is_listed() => Ok(State(held & !LISTED)),
            Ok(_) => Err(LruError::FrameBusy),
            Err(error) => Err(error),
        }
    }

    /// Isolated by a caller that holds a reference.
    pub(super) const fn isolate_held(self) -> Result<Self, LruError> {
        if self.is_listed() { Ok(State(self.0 & !LISTED)) } else { Err(LruError::FrameBusy) }
    }

    /// Put on a list, dropping the isolating caller's reference. If that was the last one, the
    /// frame goes on no list: the caller releases it.
    pub(super) const fn put_back(self, motion: Motion) -> Self {
        let state = State(self.0 - 1);
        if state.refs() == 0 {
            return state;
        }
        let state = match motion {
            Motion::Keep => state,
            Motion::Activate => State((state.0 | ACTIVE) & !REFERENCED),
            Motion::Deactivate | Motion::Rotate => State(state.0 & !(ACTIVE | REFERENCED)),
        };
        let state = match state.pins() {
            0 => State(state.0 & !UNEVICTABLE),
            _ => State((state.0 | UNEVICTABLE) & !ACTIVE),
        };
        State(state.0 | LISTED)
    }

    /// Without references, if the owner and the caller, which has it isolated, hold the only ones.
    pub(super) const fn freeze(self) -> Result<Self, LruError> {
        if self.refs() == 2 { Ok(State(self.0 & !REFS)) } else { Err(LruError::FrameBusy) }
    }

    /// The state before it was frozen.
    pub(super) const fn thaw(self) -> Self {
        State(self.0 | 2)
    }

    /// Whether the next use requests activation.
    pub(super) const fn awaits_activation(self) -> bool {
        let inactive = !self.is_active() && !self.is_unevictable();
        inactive && self.is_referenced() && self.is_listed()
    }

    /// Used once more. The second use of an inactive frame activates it if it is on no list;
    /// otherwise a batch does that.
    pub(super) const fn accessed(self) -> Self {
        if self.is_unevictable() || self.is_active() || !self.is_referenced() {
            return State(self.0 | REFERENCED);
        }
        if self.is_listed() { self } else { State((self.0 | ACTIVE) & !REFERENCED) }
    }

    /// Not used since.
    pub(super) const fn unreferenced(self) -> Self {
        State(self.0 & !REFERENCED)
    }

    /// Pinned once more.
    pub(super) const fn pin(self) -> Result<Self, LruError> {
        if self.refs() == 0 {
            return Err(LruError::NotAdded);
        }
        if self.0 & PINS == PINS {
            return Err(LruError::TooManyReferences);
        }
        Ok(State(self.0 + (1 << PIN_SHIFT)))
    }

    /// Pinned once less.
    pub(super) const fn unpin(self) -> Result<Self, LruError> {
        if self.refs() == 0 {
            return Err(LruError::NotAdded);
        }
        if self.pins() == 0 {
            Err(LruError::NotPinned)
        } else {
            Ok(State(self.0 - (1 << PIN_SHIFT)))
        }
    }

    /// In the group of another slot.
    pub(super) const fn in_slot(self, slot: u16) -> Self {
        State(self.0 & !(0xffff << SLOT_SHIFT) | (slot as u64) << SLOT_SHIFT)
    }
}

impl Motion {
    /// The end of the list that the frame goes to.
    pub(super) const fn end(self) -> End {
        if matches!(self, Motion::Rotate) { End::Back } else { End::Front }
    }
}

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

/// The records of all frames from the lowest to the highest, holes included.
pub(super) struct FrameTable<P: Platform> {
    records: Table<Record<P>>,
    first: Pfn,
}

/// Where the table will lie.
pub(super) struct FrameTablePlan<P: Platform> {
    records: TablePlan<Record<P>>,
    first: Pfn,
}

impl<P: Platform> FrameTablePlan<P> {
    pub(super) fn new(config: &Config<'_>, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let (first, frames) = config.span_of_blocks()?;
        let len = usize::try_from(frames.get()).map_err(|_| Error::SpanTooLarge)?;
        Ok(FrameTablePlan { records: layout.table(SectionKind::LruFrames, len)?, first })
    }
}

impl<P: Platform> FrameTable<P> {
    /// A table of holes.
    pub(super) fn carve(plan: &FrameTablePlan<P>, carver: &mut Carver) -> Self {
        let records = carver.zero_table(plan.records, |_| Record {
            state: P::U64::new(State::HOLE.0),
            next: P::Cell::new(0),
            prev: P::Cell::new(0),
        });
        FrameTable { records, first: plan.first }
    }

    /// Turns the holes of a range into unused frames. No other call adds memory meanwhile.
    pub(super) fn add_memory(&self, range: &MemoryRange) -> Result<(), Error> {
        range.check()?;
        let offset = |pfn: Pfn| pfn.get().checked_sub(self.first.get());
        let (Some(start), Some(end)) = (offset(range.start), offset(range.end())) else {
            return Err(Error::OutsideSpan);
        };
        if end > self.records.len() as u64 {
            return Err(Error::OutsideSpan);
        }
        let frames = || (start..end).map(|frame| FrameIndex(frame as u32));
        if !frames().all(|frame| self.state(frame).is_hole()) {
            return Err(Error::RangeOverlaps);
        }
        frames().for_each(|frame| self.set(frame, State::unused(range.node, range.zone)));
        Ok(())
    }

    /// The index of a frame that is memory.
    #[inline]
    pub(super) fn index_of(&self, pfn: Pfn) -> Result<FrameIndex, LruError> {
        let offset = pfn.get().wrapping_sub(self.first.get());
        // The table has fewer than 2^32 records, so the offset fits once it is below its length.
        if offset >= self.records.len() as u64 || self.state(FrameIndex(offset as u32)).is_hole() {
            return Err(LruError::ForeignFrame);
        }
        Ok(FrameIndex(offset as u32))
    }

    pub(super) fn pfn_of(&self, frame: FrameIndex) -> Pfn {
        self.first.offset(FrameCount::new(u64::from(frame.0)))
    }

    /// All frames that are memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = FrameIndex> + '_ {
        let all = (0..self.records.len() as u32).map(FrameIndex);
        all.filter(|&frame| !self.state(frame).is_hole())
    }

    /// The state of a frame. A caller acts on it by [`FrameTable::change`], or is the only one that
    /// may change it.
    #[inline]
    pub(super) fn state(&self, frame: FrameIndex) -> State {
        // Acquire: what a frame's state implies about its group was written before it.
        State(self.records.get(frame.index()).state.load(Acquire))
    }

    /// Writes the state of a frame that no other CPU may change: a hole, one without references
    /// that the caller is releasing, or one that it froze.
    pub(super) fn set(&self, frame: FrameIndex, state: State) {
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
    pub(super) fn change(
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
    pub(super) fn update(&self, frame: FrameIndex, change: impl Fn(State) -> State) -> State {
        match self.change(frame, |state| Ok(change(state))) {
            Ok((_, after)) => after,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn added() -> State {
        State::unused(NodeId::new(3), ZoneKind::Normal).added(513, Kind::File, 2)
    }

    #[test]
    fn a_state_keeps_what_it_is_told() {
        let state = added();
        assert_eq!((state.refs(), state.pins(), state.node(), state.slot()), (2, 0, 3, 513));
        assert_eq!((state.kind(), state.list()), (Kind::File, List::InactiveFile));
        assert!(state.is_used() && !state.is_listed() && !state.is_hole());
        assert_eq!(state.in_slot(7).slot(), 7);
        assert_eq!(state.released(), State::unused(NodeId::new(3), ZoneKind::Normal));
        let pinned = state.pin().unwrap();
        assert_eq!((pinned.pins(), pinned.refs(), pinned.slot()), (1, 2, 513));
        assert_eq!((pinned.unpin().unwrap(), state.unpin()), (state, Err(LruError::NotPinned)));
    }

    #[test]
    fn only_a_listed_frame_with_a_reference_is_isolated() {
        let state = added();
        assert_eq!(state.isolate(), Err(LruError::FrameBusy));
        let listed = state.put_back(Motion::Activate);
        assert_eq!((listed.refs(), listed.list()), (1, List::ActiveFile));
        let isolated = listed.isolate().unwrap();
        assert_eq!((isolated.refs(), isolated.is_listed()), (2, false));
        assert_eq!(isolated.freeze().unwrap().thaw(), isolated);
        assert_eq!(isolated.get().unwrap().freeze(), Err(LruError::FrameBusy));
        assert_eq!(listed.put().unwrap().isolate(), Err(LruError::NotAdded));
    }

    #[test]
    fn the_last_reference_goes_on_no_list() {
        let last = added().put().unwrap();
        let gone = last.put_back(Motion::Keep);
        assert_eq!((gone.refs(), gone.is_listed()), (0, false));
    }

    #[test]
    fn pins_decide_on_the_list_whenever_a_frame_goes_on_one() {
        let pinned = added().pin().unwrap();
        let listed = pinned.put_back(Motion::Activate);
        assert_eq!((listed.list(), listed.is_active()), (List::Unevictable, false));
        let isolated = listed.unpin().unwrap().isolate().unwrap();
        assert_eq!(isolated.put_back(Motion::Keep).list(), List::InactiveFile);
    }

    #[test]
    fn the_second_use_activates() {
        let first = added().accessed();
        assert!(first.is_referenced() && !first.is_active());
        let second = first.accessed();
        assert!(second.is_active() && !second.is_referenced());
        // A listed frame is left to the batch, which moves it.
        let listed = first.put_back(Motion::Keep);
        assert_eq!((listed.accessed(), listed.awaits_activation()), (listed, true));
    }
}

//! The record of a group: its word and its counts.

use crate::error::LruError;
use crate::id::NO_SLOT;
use freehold::platform::{Platform, SharedCell, Word};

const CHARGED: u64 = u32::MAX as u64;
pub(super) const READER: u64 = 1 << 32;
const READERS: u64 = (READERS_MAX as u64) << 32;
const READERS_MAX: u32 = u32::MAX >> 1;
const LIVE: u64 = 1 << 63;

/// The word of a slot: from the lowest bit 32 bits of frames charged, 31 of readers, and whether
/// the slot has a group that was not removed. A free slot's is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupState(pub(crate) u64);

impl GroupState {
    pub(crate) const FREE: Self = GroupState(0);
    pub(crate) const NEW: Self = GroupState(LIVE);

    pub(crate) fn is_live(self) -> bool {
        self.0 & LIVE != 0
    }

    pub(crate) fn charged(self) -> u64 {
        self.0 & CHARGED
    }

    /// The state without a group, if that has no readers.
    pub(crate) fn removed(self) -> Result<Self, LruError> {
        match (self.is_live(), self.0 & READERS) {
            (false, _) => Err(LruError::UnknownGroup),
            (true, 0) => Ok(GroupState(self.0 & !LIVE)),
            _ => Err(LruError::GroupInUse),
        }
    }

    /// The state with one more reader.
    pub(super) fn entered(self) -> Result<Self, LruError> {
        match (self.is_live(), self.0 & READERS) {
            (false, _) => Err(LruError::UnknownGroup),
            (true, READERS) => Err(LruError::TooManyReferences),
            _ => Ok(GroupState(self.0 + READER)),
        }
    }
}

/// A group: what its CPUs count together on a cache line, what they read on the next one, and what
/// reclaim knows on the last.
#[repr(C, align(64))]
pub(crate) struct Slot<P: Platform> {
    /// A [`GroupState`].
    pub(crate) state: P::U64,
    /// Pinned frames charged to this group itself. May be off by those being pinned or moved right
    /// now.
    pub(crate) pinned: P::U64,
    /// The frames found by a consistency check, and the pinned ones of them. Guarded by the lock
    /// over the tree.
    pub(crate) found: P::Cell<u64>,
    pub(crate) found_pinned: P::Cell<u64>,
    /// What the group used of its protection when that was last counted, and the sum of that over
    /// the groups below. Written under the lock over the tree.
    pub(crate) min_used: P::U64,
    pub(crate) low_used: P::U64,
    pub(crate) min_below: P::U64,
    pub(crate) low_below: P::U64,
    /// The maximum number of frames that may be charged.
    pub(crate) limit: P::U64,
    /// How much is protected from reclaim, and how much should not be exceeded.
    pub(crate) min: P::U64,
    pub(crate) low: P::U64,
    pub(crate) high: P::U64,
    /// The generation of the group, or of the last one. Constant while the slot is taken.
    pub(crate) generation: P::U64,
    /// The slot of the parent. Constant while the slot is taken.
    pub(crate) parent: P::U32,
    /// How many CPUs may have charged ahead for the group, or for one below.
    pub(crate) stocks: P::U32,
    /// The first group below, and the neighbours among those below the same parent. Written under
    /// the lock over the tree; read without it by reclaim, as hints.
    pub(crate) first_below: P::U32,
    pub(crate) next: P::U32,
    pub(crate) prev: P::U32,
    /// How many slots below are taken, also by removed groups. Guarded by the lock over the tree.
    pub(crate) taken_below: P::Cell<u32>,
    /// The next slot in the queue that this slot is in, while it has no group. Guarded by that
    /// lock, too.
    pub(crate) queued: P::Cell<u32>,
    /// What the next reclaim within the group knows from the last one: see `reclaim`.
    pub(crate) reach_of: P::U32,
    pub(crate) turn: P::U64,
    pub(crate) reach: P::U64,
    pub(crate) reach_left: P::U32,
    /// How many frames are evicted at the limit, less one, before CPUs are asked again for what
    /// they have charged ahead; zero if they were not asked yet.
    pub(super) ask_left: P::U32,
}

impl<P: Platform> Slot<P> {
    /// A slot in this state, whose group has no bounds.
    pub(super) fn new(state: GroupState) -> Self {
        let none = || P::U32::new(u32::from(NO_SLOT));
        Slot {
            state: P::U64::new(state.0),
            limit: P::U64::new(u64::MAX),
            min: P::U64::new(0),
            low: P::U64::new(0),
            high: P::U64::new(u64::MAX),
            generation: P::U64::new(0),
            pinned: P::U64::new(0),
            parent: P::U32::new(0),
            stocks: P::U32::new(0),
            first_below: none(),
            next: none(),
            prev: none(),
            taken_below: P::Cell::new(0),
            queued: P::Cell::new(u32::from(NO_SLOT)),
            turn: P::U64::new(0),
            reach: P::U64::new(0),
            reach_of: P::U32::new(0),
            reach_left: P::U32::new(0),
            ask_left: P::U32::new(0),
            min_used: P::U64::new(0),
            low_used: P::U64::new(0),
            min_below: P::U64::new(0),
            low_below: P::U64::new(0),
            found: P::Cell::new(0),
            found_pinned: P::Cell::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_have_a_bound() {
        let full = GroupState(LIVE | READERS | 5);
        assert_eq!(full.entered(), Err(LruError::TooManyReferences));
        let last = GroupState(full.0 - READER).entered();
        assert_eq!(last, Ok(full));
        assert_eq!(full.removed(), Err(LruError::GroupInUse));
        assert_eq!(GroupState(LIVE | 5).removed(), Ok(GroupState(5)));
        assert_eq!(GroupState(5).removed(), Err(LruError::UnknownGroup));
        assert_eq!(GroupState(5).entered(), Err(LruError::UnknownGroup));
    }
}

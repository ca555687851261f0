//! Memory groups: which group is charged for a frame, and how much each may have.
//!
//! Groups form a tree. A frame counts in its group and in those above, up to the root. A group
//! occupies a slot. When it is removed, its frames keep the number of the slot, which from then on
//! stands for the parent, until they are next put on a list; the slot is free again once no frame
//! has its number.

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::error::LruError;
use super::protect::Uses;
use super::tree::Tree;
use freehold::Error;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{Platform, SharedCell, Word};

/// The identifier of a group: 16 bits for its slot, and 48 for the generation, which differs from
/// group to group in a slot. So the identifier of a removed group stays invalid for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId(u64);

impl GroupId {
    /// The root of the tree. It has no limit and cannot be removed.
    pub const ROOT: Self = GroupId(0);

    pub(super) const fn new(slot: u16, generation: u64) -> Self {
        GroupId(generation << 16 | slot as u64)
    }

    pub(super) const fn slot(self) -> u16 {
        self.0 as u16
    }

    const fn generation(self) -> u64 {
        self.0 >> 16
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        GroupId(bits)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut group = f.debug_struct("GroupId");
        group.field("slot", &self.slot()).field("generation", &self.generation()).finish()
    }
}

/// The most slots: numbers below [`NO_SLOT`].
pub(super) const SLOTS_MAX: usize = NO_SLOT as usize;

/// The number of no slot.
pub(super) const NO_SLOT: u16 = u16::MAX;

const CHARGED: u64 = u32::MAX as u64;
const READER: u64 = 1 << 32;
const READERS: u64 = (READERS_MAX as u64) << 32;
const READERS_MAX: u32 = u32::MAX >> 1;
const LIVE: u64 = 1 << 63;

/// The word of a slot: from the lowest bit 32 bits of frames charged, 31 of readers, and whether
/// the slot has a group that was not removed. A free slot's is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupState(pub(super) u64);

impl GroupState {
    pub(super) const FREE: Self = GroupState(0);
    pub(super) const NEW: Self = GroupState(LIVE);

    pub(super) fn is_live(self) -> bool {
        self.0 & LIVE != 0
    }

    pub(super) fn charged(self) -> u64 {
        self.0 & CHARGED
    }

    /// The state without a group, if that has no readers.
    pub(super) fn removed(self) -> Result<Self, LruError> {
        match (self.is_live(), self.0 & READERS) {
            (false, _) => Err(LruError::UnknownGroup),
            (true, 0) => Ok(GroupState(self.0 & !LIVE)),
            _ => Err(LruError::GroupInUse),
        }
    }

    /// The state with one more reader.
    fn entered(self) -> Result<Self, LruError> {
        match (self.is_live(), self.0 & READERS) {
            (false, _) => Err(LruError::UnknownGroup),
            (true, READERS) => Err(LruError::TooManyReferences),
            _ => Ok(GroupState(self.0 + READER)),
        }
    }
}

/// A group, on cache lines of its own: all CPUs share its counters.
#[repr(C, align(64))]
pub(super) struct Slot<P: Platform> {
    /// A [`GroupState`].
    pub(super) state: P::U64,
    /// The maximum number of frames that may be charged.
    pub(super) limit: P::U64,
    /// How much is protected from reclaim, and how much should not be exceeded.
    pub(super) min: P::U64,
    pub(super) low: P::U64,
    pub(super) high: P::U64,
    /// The generation of the group, or of the last one. Constant while the slot is taken.
    pub(super) generation: P::U64,
    /// Pinned frames charged to this group itself. May be off by those being pinned or moved right
    /// now.
    pub(super) pinned: P::U64,
    /// The slot of the parent. Constant while the slot is taken.
    pub(super) parent: P::U32,
    /// How many CPUs may have charged ahead for the group, or for one below.
    pub(super) stocks: P::U32,
    /// The first group below, and the neighbours among those below the same parent. Written under
    /// the lock over the tree; read without it by reclaim, as hints.
    pub(super) first_below: P::U32,
    pub(super) next: P::U32,
    pub(super) prev: P::U32,
    /// How many slots below are taken, also by removed groups. Guarded by the lock over the tree.
    pub(super) taken_below: P::Cell<u32>,
    /// The next slot in the queue that this slot is in, while it has no group. Guarded by that
    /// lock, too.
    pub(super) queued: P::Cell<u32>,
    /// What the next reclaim within the group knows from the last one: see `turns.rs`.
    pub(super) turn: P::U64,
    pub(super) reach: P::U64,
    pub(super) reach_of: P::U32,
    pub(super) reach_left: P::U32,
    /// What the group used of its protection when that was last counted, and the sum of that over
    /// the groups below. Written under the lock over the tree.
    pub(super) min_used: P::U64,
    pub(super) low_used: P::U64,
    pub(super) min_below: P::U64,
    pub(super) low_below: P::U64,
    /// The frames found by a consistency check, and the pinned ones of them. Guarded by the lock
    /// over the tree.
    pub(super) found: P::Cell<u64>,
    pub(super) found_pinned: P::Cell<u64>,
}

/// All groups.
pub(super) struct Groups<P: Platform> {
    slots: Table<Slot<P>>,
    pub(super) tree: Table<Tree<P>>,
}

/// Where the groups will lie.
pub(super) struct GroupsPlan<P: Platform> {
    slots: TablePlan<Slot<P>>,
    tree: TablePlan<Tree<P>>,
}

impl<P: Platform> GroupsPlan<P> {
    pub(super) fn new(slots: usize, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let kind = SectionKind::LruGroups;
        Ok(GroupsPlan { slots: layout.table(kind, slots)?, tree: layout.table(kind, 1)? })
    }
}

impl<P: Platform> Groups<P> {
    /// The root group and free slots.
    pub(super) fn carve(plan: &GroupsPlan<P>, carver: &mut Carver) -> Self {
        let none = || P::U32::new(u32::from(NO_SLOT));
        let slots = carver.table(plan.slots, |slot| Slot {
            state: P::U64::new(if slot == 0 { GroupState::NEW.0 } else { GroupState::FREE.0 }),
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
            min_used: P::U64::new(0),
            low_used: P::U64::new(0),
            min_below: P::U64::new(0),
            low_below: P::U64::new(0),
            found: P::Cell::new(0),
            found_pinned: P::Cell::new(0),
        });
        let groups = Groups { slots, tree: carver.table(plan.tree, |_| Tree::new()) };
        groups.tree.get(0).fill(&groups);
        groups
    }

    pub(super) fn get(&self, slot: u16) -> &Slot<P> {
        self.slots.get(usize::from(slot))
    }

    /// How many groups use what.
    pub(super) fn uses(&self) -> &Uses<P> {
        &self.tree.get(0).uses
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<P>> {
        self.slots.iter()
    }

    pub(super) fn state(&self, slot: u16) -> GroupState {
        // Acquire: reads what was written before the group reached this state.
        GroupState(self.get(slot).state.load(Acquire))
    }

    /// Changes the word of a slot atomically.
    pub(super) fn change(
        &self,
        slot: u16,
        change: impl Fn(GroupState) -> Result<GroupState, LruError>,
    ) -> Result<(), LruError> {
        let word = &self.get(slot).state;
        // Relaxed: the exchange fails if this was stale.
        let mut before = word.load(Relaxed);
        loop {
            let after = change(GroupState(before))?;
            // Acquire: a CPU that charges a group sees its parent and its limit. Release: a CPU
            // that finds a slot without frames is ordered after the one that removed the last
            // frame.
            match word.compare_exchange(before, after.0, AcqRel, Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => before = found,
            }
        }
    }

    /// The slot of the parent of a slot that is taken: one that has frames, or a group.
    pub(super) fn parent(&self, slot: u16) -> u16 {
        // Acquire: pairs with the release when a group is created.
        self.get(slot).parent.load(Acquire) as u16
    }

    /// The slots from this one up to the root.
    pub(super) fn chain(&self, slot: u16) -> impl Iterator<Item = u16> + '_ {
        core::iter::successors(Some(slot), |&slot| (slot != 0).then(|| self.parent(slot)))
    }

    /// Whether a slot is `above`, or below it. A hint if the slot is not known to be taken.
    pub(super) fn is_below(&self, slot: u16, above: u16) -> bool {
        // No chain is longer than there are slots; one that is being changed might appear to be.
        above == 0 || self.chain(slot).take(self.len()).any(|slot| slot == above)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a group.
    pub(super) fn slot_of(&self, group: GroupId) -> Result<u16, LruError> {
        let slot = group.slot();
        let exists =
            usize::from(slot) < self.len() && self.state(slot).is_live() && self.is_of_slot(group);
        if exists { Ok(slot) } else { Err(LruError::UnknownGroup) }
    }

    /// Whether a group is the one that its slot has, or had last.
    pub(super) fn is_of_slot(&self, group: GroupId) -> bool {
        // Relaxed: written before the slot's state, which the caller has read with acquire; it
        // stays if the caller has charged or entered the slot.
        self.get(group.slot()).generation.load(Relaxed) == group.generation()
    }

    /// The lowest bits of the generation of a slot's group.
    pub(super) fn short_generation(&self, slot: u16) -> u8 {
        // Relaxed: a hint.
        self.get(slot).generation.load(Relaxed) as u8
    }

    /// Enters a group as a reader.
    pub(super) fn enter(&self, group: GroupId) -> Result<(), LruError> {
        let slot = self.slot_of(group)?;
        self.change(slot, GroupState::entered)?;
        // The slot may have got another group since the first look. Now it cannot.
        if self.is_of_slot(group) {
            return Ok(());
        }
        self.leave(group);
        Err(LruError::UnknownGroup)
    }

    /// Leaves a group that was entered.
    pub(super) fn leave(&self, group: GroupId) {
        // Release: a CPU that removes the group is ordered after what its readers did. Adding the
        // negative subtracts one reader.
        self.get(group.slot()).state.fetch_add(READER.wrapping_neg(), AcqRel);
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

    #[test]
    fn an_identifier_keeps_slot_and_generation() {
        let group = GroupId::new(65_534, (1 << 48) - 1);
        assert_eq!((group.slot(), group.generation()), (65_534, (1 << 48) - 1));
        assert_eq!(GroupId::from_bits(group.bits()), group);
        assert_eq!((GroupId::ROOT.slot(), GroupId::ROOT.generation()), (0, 0));
    }
}

//! Memory groups: which group is charged for a frame, and how much each may have.
//!
//! Groups form a tree. A frame counts in its group and in those above, up to the root. A group
//! occupies a slot. When it is removed, its frames keep the number of the slot, which from then on
//! stands for the parent; the slot is free again once no frame has its number.

use super::cpu::STOCK;
use super::error::LruError;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::Error;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::platform::{LockClass, Platform, RawLock, SharedCell, Word};
use crate::units::FrameCount;

/// The identifier of a group. Once the group is removed, it is invalid, until 65,536 further groups
/// have been created in the same slot: do not keep identifiers forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    slot: u16,
    generation: u16,
}

impl GroupId {
    /// The root of the tree. It has no limit and cannot be removed.
    pub const ROOT: Self = GroupId { slot: 0, generation: 0 };

    pub(super) const fn slot(self) -> u16 {
        self.slot
    }

    pub(super) const fn bits(self) -> u32 {
        (self.generation as u32) << 16 | self.slot as u32
    }

    pub(super) const fn from_bits(bits: u32) -> Self {
        GroupId { slot: bits as u16, generation: (bits >> 16) as u16 }
    }
}

/// The most slots: numbers below `u16::MAX`, which stands for none.
pub(super) const SLOTS_MAX: usize = u16::MAX as usize;

const CHARGED: u64 = u32::MAX as u64;
const READER: u64 = 1 << 32;
const READERS: u64 = 0x7fff * READER;
const LIVE: u64 = 1 << 47;
const GENERATION_SHIFT: u32 = 48;

/// The word of a slot: from the lowest bit 32 bits of frames charged, 15 of readers, whether the
/// slot has a group that was not removed, and a generation of 16 bits that differs from group to
/// group.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GroupState(u64);

impl GroupState {
    fn is_live(self, id: GroupId) -> bool {
        self.0 & LIVE != 0 && self.generation() == id.generation
    }

    fn generation(self) -> u16 {
        (self.0 >> GENERATION_SHIFT) as u16
    }

    fn charged(self) -> u64 {
        self.0 & CHARGED
    }

    fn check(self, id: GroupId) -> Result<Self, LruError> {
        if self.is_live(id) { Ok(self) } else { Err(LruError::UnknownGroup) }
    }
}

/// A group, on its own cache line: all CPUs share its counters.
#[repr(C, align(64))]
struct Slot<P: Platform> {
    /// A [`GroupState`].
    state: P::U64,
    /// The maximum number of frames that may be charged.
    limit: P::U64,
    /// Pinned frames charged to this group itself. May be off by those being pinned or moved right
    /// now.
    pinned: P::U64,
    /// The slot of the parent. Constant while the slot is taken.
    parent: P::U32,
    /// Where the next reclaim within the group begins: a [`Turn`].
    turn: P::U32,
    left: P::U32,
    /// How many CPUs may have charged ahead for the group, or for one below.
    stocks: P::U32,
    /// The frames found by a consistency check, and the pinned ones of them. Guarded by the lock
    /// over the tree.
    found: P::Cell<u64>,
    found_pinned: P::Cell<u64>,
}

/// The lock over the tree.
#[repr(C, align(64))]
struct Tree<P: Platform> {
    lock: P::Lock,
}

/// All groups.
pub(super) struct Groups<P: Platform> {
    slots: Table<Slot<P>>,
    tree: Table<Tree<P>>,
}

/// Where the groups will lie.
pub(super) struct GroupsPlan<P: Platform> {
    slots: TablePlan<Slot<P>>,
    tree: TablePlan<Tree<P>>,
}

/// Where a reclaim stops, and the next one within the same group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// A node times the number of slots, plus a slot.
    pub(super) at: usize,
    /// How many frames of the part that this place was to bear were not scanned.
    pub(super) left: u64,
}

/// A refused charge, and the slot whose limit was hit, if it was a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) error: LruError,
    pub(super) slot: u16,
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
        let slots = carver.table(plan.slots, |slot| Slot {
            state: P::U64::new(if slot == 0 { LIVE } else { 0 }),
            limit: P::U64::new(u64::MAX),
            pinned: P::U64::new(0),
            parent: P::U32::new(0),
            turn: P::U32::new(0),
            left: P::U32::new(0),
            stocks: P::U32::new(0),
            found: P::Cell::new(0),
            found_pinned: P::Cell::new(0),
        });
        let tree = carver.table(plan.tree, |_| Tree { lock: P::Lock::new(LockClass::LruGroups) });
        Groups { slots, tree }
    }

    fn get(&self, slot: u16) -> &Slot<P> {
        self.slots.get(usize::from(slot))
    }

    /// Where the next reclaim within a group begins.
    pub(super) fn turn(&self, slot: u16) -> Turn {
        let record = self.get(slot);
        // Relaxed: any place is correct, and so is any part.
        Turn { at: record.turn.load(Relaxed) as usize, left: record.left.load(Relaxed).into() }
    }

    /// Sets where the next reclaim within a group begins.
    pub(super) fn set_turn(&self, slot: u16, turn: Turn) {
        let record = self.get(slot);
        // Relaxed: as in `turn`. A part is at most twice the frames there are.
        record.turn.store(turn.at as u32, Relaxed);
        record.left.store(turn.left as u32, Relaxed);
    }

    fn state(&self, slot: u16) -> GroupState {
        // Acquire: reads what was written before the group reached this state.
        GroupState(self.get(slot).state.load(Acquire))
    }

    /// Changes the word of a slot atomically.
    fn change(
        &self,
        slot: u16,
        change: impl Fn(GroupState) -> Result<u64, LruError>,
    ) -> Result<(), LruError> {
        let word = &self.get(slot).state;
        // Relaxed: the exchange fails if this was stale.
        let mut before = word.load(Relaxed);
        loop {
            let after = change(GroupState(before))?;
            // Acquire: a CPU that charges a group sees its parent and its limit. Release: a CPU
            // that finds a slot without frames is ordered after the one that removed the last
            // frame.
            match word.compare_exchange(before, after, AcqRel, Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => before = found,
            }
        }
    }

    /// The slot of the parent of a slot that is taken: one that has frames, or a group.
    pub(super) fn parent(&self, slot: u16) -> u16 {
        // Acquire: pairs with the release in `create`.
        self.get(slot).parent.load(Acquire) as u16
    }

    /// The slots from this one up to the root.
    pub(super) fn chain(&self, slot: u16) -> impl Iterator<Item = u16> + '_ {
        core::iter::successors(Some(slot), |&slot| (slot != 0).then(|| self.parent(slot)))
    }

    /// Whether a slot is `above`, or below it. A hint if the slot is not known to be taken.
    pub(super) fn is_below(&self, slot: u16, above: u16) -> bool {
        // No chain is longer than there are slots; one that is being changed might appear to be.
        self.chain(slot).take(self.slots.len()).any(|slot| slot == above)
    }

    /// The slots that have a group that was not removed.
    pub(super) fn live(&self) -> impl Iterator<Item = u16> + '_ {
        let slots = 0..self.slots.len() as u16;
        slots.filter(|&slot| self.state(slot).0 & LIVE != 0)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a group.
    pub(super) fn slot_of(&self, group: GroupId) -> Result<u16, LruError> {
        if usize::from(group.slot) >= self.slots.len() {
            return Err(LruError::UnknownGroup);
        }
        self.state(group.slot).check(group).map(|_| group.slot)
    }

    /// The frames charged to a slot and below.
    pub(super) fn charged(&self, slot: u16) -> FrameCount {
        let own = self.state(slot).charged();
        if slot != 0 {
            return FrameCount::new(own);
        }
        let tops = (1..self.slots.len() as u16).filter(|&slot| self.parent(slot) == 0);
        FrameCount::new(own + tops.map(|slot| self.state(slot).charged()).sum::<u64>())
    }

    pub(super) fn limit(&self, slot: u16) -> Option<FrameCount> {
        // Relaxed: a charge compares itself with a recent level.
        let limit = self.get(slot).limit.load(Relaxed);
        (limit != u64::MAX).then(|| FrameCount::new(limit))
    }

    /// How many frames a CPU may charge ahead for a slot: less the more CPUs do, and less the
    /// closer a limit is. So what idle CPUs hold is a small part of a limit, and no CPU charges
    /// ahead for a group that is at its limit, where each would have to ask all others for theirs.
    pub(super) fn stock_max(&self, slot: u16) -> u32 {
        let most = self.chain(slot).take(self.slots.len()).map(|at| {
            let record = self.get(at);
            // Relaxed: recent values will do.
            let (limit, stocks) = (record.limit.load(Relaxed), record.stocks.load(Relaxed));
            let room = limit.saturating_sub(self.state(at).charged());
            (limit / 32 / (u64::from(stocks) + 1)).min(room / 64)
        });
        most.min().unwrap_or(0).min(u64::from(STOCK)) as u32
    }

    /// Counts a CPU that charges ahead for a slot, there and above.
    pub(super) fn add_stock(&self, slot: u16) {
        self.note_stock(slot, 1);
    }

    /// Counts a CPU that no longer does.
    pub(super) fn remove_stock(&self, slot: u16) {
        self.note_stock(slot, 1u32.wrapping_neg());
    }

    fn note_stock(&self, slot: u16, step: u32) {
        for at in core::iter::once(slot).chain(self.above(slot)) {
            // Relaxed: a hint. A group that is removed has no stocks, so each step up the chain
            // finds the same slots as the step down.
            self.get(at).stocks.fetch_add(step, Relaxed);
        }
    }

    /// Whether a CPU may have charged ahead for a slot, or for one below.
    pub(super) fn has_stocks(&self, slot: u16) -> bool {
        // Relaxed: as above.
        self.get(slot).stocks.load(Relaxed) != 0
    }

    /// Charges frames to a group and to those above it, except the root: that has no limit, and
    /// would be a counter that all CPUs share.
    pub(super) fn charge(&self, group: GroupId, frames: u32) -> Result<(), Refused> {
        let slot = group.slot;
        if usize::from(slot) >= self.slots.len() {
            return Err(Refused { error: LruError::UnknownGroup, slot });
        }
        self.charge_one(slot, frames, |state| state.is_live(group))?;
        // From here on the slot has frames, so neither it nor those above can be freed.
        for above in self.above(slot) {
            if let Err(refused) = self.charge_one(above, frames, |_| true) {
                self.uncharge_below(slot, frames, above);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Adds first and checks then, as Linux's page counters do: a compare-exchange would be retried
    /// over and over if many CPUs share the counter. A concurrent charge may see frames that are
    /// about to be subtracted again, and be refused because of them.
    fn charge_one(
        &self,
        slot: u16,
        frames: u32,
        is_right: impl Fn(GroupState) -> bool,
    ) -> Result<(), Refused> {
        let record = self.get(slot);
        // Acquire: a CPU that charges a group sees its parent and limit. Release: as in
        // `uncharge_one`.
        let before = GroupState(record.state.fetch_add(u64::from(frames), AcqRel));
        let charged = before.charged() + u64::from(frames);
        let error = if !is_right(before) {
            LruError::UnknownGroup
        // Relaxed: as in `limit`.
        } else if charged > record.limit.load(Relaxed) {
            LruError::GroupLimit
        } else {
            return Ok(());
        };
        self.uncharge_one(slot, frames);
        Err(Refused { error, slot })
    }

    /// The slots above one, except the root, which is not charged for what is below it.
    fn above(&self, slot: u16) -> impl Iterator<Item = u16> + '_ {
        self.chain(slot).skip(1).take_while(|&above| above != 0)
    }

    /// Uncharges frames from a slot and from all above.
    pub(super) fn uncharge(&self, slot: u16, frames: u32) {
        self.uncharge_below(slot, frames, 0);
    }

    /// Uncharges frames from a slot and from those between it and `above`.
    fn uncharge_below(&self, slot: u16, frames: u32, above: u16) {
        for between in self.above(slot).take_while(|&slot| slot != above) {
            self.uncharge_one(between, frames);
        }
        // Last, since until then the slot has frames, and its chain does not change.
        self.uncharge_one(slot, frames);
    }

    fn uncharge_one(&self, slot: u16, frames: u32) {
        // Release: a CPU that finds a slot without frames is ordered after the one that removed the
        // last frame. Adding the negative subtracts from the lowest bits.
        let negative = u64::from(frames).wrapping_neg();
        let before = GroupState(self.get(slot).state.fetch_add(negative, AcqRel));
        debug_assert!(before.charged() >= u64::from(frames), "frames were charged");
    }

    /// Counts a frame of this slot as pinned.
    pub(super) fn pin(&self, slot: u16) {
        // Relaxed: a count.
        self.get(slot).pinned.fetch_add(1, Relaxed);
    }

    /// Counts a frame of this slot as no longer pinned.
    pub(super) fn unpin(&self, slot: u16) {
        // Relaxed: a count. Adding the negative subtracts one.
        self.get(slot).pinned.fetch_add(1u64.wrapping_neg(), Relaxed);
    }

    /// Pinned frames of a slot and those below.
    pub(super) fn pinned(&self, slot: u16) -> FrameCount {
        let below = (0..self.slots.len() as u16).filter(|&other| {
            // Relaxed: as above. Most slots have none, and their chain need not be followed.
            self.get(other).pinned.load(Relaxed) != 0 && self.is_below(other, slot)
        });
        let sum =
            below.fold(0u64, |sum, below| sum.wrapping_add(self.get(below).pinned.load(Relaxed)));
        // Briefly negative if one CPU has just moved a frame that another is pinning.
        FrameCount::new(if sum > u64::MAX / 2 { 0 } else { sum })
    }

    /// Enters a group as a reader.
    pub(super) fn enter(&self, group: GroupId) -> Result<(), LruError> {
        self.slot_of(group)?;
        self.change(group.slot, |state| match state.check(group)?.0 & READERS {
            READERS => Err(LruError::TooManyReferences),
            _ => Ok(state.0 + READER),
        })
    }

    /// Leaves a group that was entered.
    pub(super) fn leave(&self, group: GroupId) {
        // Release: a CPU that removes the group is ordered after what its readers did. Adding the
        // negative subtracts one reader.
        self.get(group.slot).state.fetch_add(READER.wrapping_neg(), AcqRel);
    }

    /// Takes the lock over the tree.
    pub(super) fn tree<'a>(&'a self, platform: &'a P) -> TreeGuard<'a, P> {
        platform.pin();
        self.tree.get(0).lock.lock();
        TreeGuard { groups: self, platform }
    }
}

/// The lock over the tree of groups, held.
pub(super) struct TreeGuard<'a, P: Platform> {
    groups: &'a Groups<P>,
    platform: &'a P,
}

impl<P: Platform> TreeGuard<'_, P> {
    /// Creates a group in a free slot. `ready` is called with the slot before it becomes visible.
    pub(super) fn create(
        &self,
        parent: GroupId,
        limit: Option<FrameCount>,
        ready: impl Fn(u16),
    ) -> Result<GroupId, LruError> {
        let groups = self.groups;
        groups.slot_of(parent)?;
        loop {
            let slot = self.free_slot().ok_or(LruError::TooManyGroups)?;
            let record = groups.get(slot);
            // Without frames: a concurrent charge to a removed group may count some, and will
            // subtract them again. Then the exchange below fails.
            let before = GroupState(groups.state(slot).0 & !CHARGED);
            // A generation unlike that in identifiers of the slot's last group.
            let generation = before.generation().wrapping_add(1);
            // Release: pairs with the acquire in `Groups::parent`. The slot has neither group nor
            // frames, so no CPU depends on it.
            record.parent.store(u32::from(parent.slot), Release);
            // Relaxed: published by the word below.
            record.limit.store(limit.map_or(u64::MAX, FrameCount::get), Relaxed);
            ready(slot);
            let after = LIVE | u64::from(generation) << GENERATION_SHIFT;
            // Release: publishes all of the above to any CPU that learns the group's identifier.
            // Acquire: the slot is reused after all operations on its last group.
            if record.state.compare_exchange(before.0, after, AcqRel, Relaxed).is_ok() {
                return Ok(GroupId { slot, generation });
            }
        }
    }

    /// A slot that is not taken, and that is on no chain of a slot that is taken.
    ///
    /// A slot above one that has frames may briefly have none, since a charge reaches the slots
    /// above later and leaves them earlier. Its parent must not change then either.
    fn free_slot(&self) -> Option<u16> {
        let groups = self.groups;
        let slots = 0..groups.slots.len() as u16;
        let is_taken = |slot| {
            let state = groups.state(slot);
            state.0 & LIVE != 0 || state.charged() != 0
        };
        let is_above = |slot| {
            let mut others = slots.clone().filter(|&other| is_taken(other));
            others.any(|other| groups.is_below(other, slot))
        };
        slots.clone().find(|&slot| !is_taken(slot) && !is_above(slot))
    }

    /// Ends a group that has no readers and no groups below; returns its parent's slot.
    pub(super) fn end(&self, group: GroupId) -> Result<u16, LruError> {
        let groups = self.groups;
        groups.slot_of(group)?;
        let has_child = |slot| slot != group.slot && groups.parent(slot) == group.slot;
        if group == GroupId::ROOT || groups.live().any(has_child) {
            return Err(LruError::GroupInUse);
        }
        groups.change(group.slot, |state| match state.check(group)?.0 & READERS {
            0 => Ok(state.0 & !LIVE),
            _ => Err(LruError::GroupInUse),
        })?;
        Ok(groups.parent(group.slot))
    }

    /// Sets the maximum number of frames of a group.
    pub(super) fn set_limit(
        &self,
        group: GroupId,
        limit: Option<FrameCount>,
    ) -> Result<(), LruError> {
        let groups = self.groups;
        groups.slot_of(group)?;
        if group == GroupId::ROOT {
            return Err(LruError::GroupInUse);
        }
        if limit.is_some_and(|limit| limit < groups.pinned(group.slot)) {
            return Err(LruError::LimitBelowPinned);
        }
        // Relaxed: as in `Groups::limit`.
        groups.get(group.slot).limit.store(limit.map_or(u64::MAX, FrameCount::get), Relaxed);
        Ok(())
    }
}

/// For consistency checks, while no other call is under way.
impl<P: Platform> TreeGuard<'_, P> {
    /// Starts a count of frames.
    pub(super) fn clear_counts(&self) {
        for slot in self.groups.slots.iter() {
            slot.found.set(0);
            slot.found_pinned.set(0);
        }
    }

    /// Counts frames of a slot, there and in those above.
    pub(super) fn count(&self, slot: u16, frames: u32, pinned: bool) {
        for above in core::iter::once(slot).chain(self.groups.above(slot)) {
            let found = &self.groups.get(above).found;
            found.set(found.get() + u64::from(frames));
        }
        let found = &self.groups.get(slot).found_pinned;
        found.set(found.get() + u64::from(pinned));
    }

    /// Whether the counts of a slot's frames, and of its pinned ones, match.
    pub(super) fn counts_agree(&self, slot: u16) -> (bool, bool) {
        let record = self.groups.get(slot);
        let charged = self.groups.state(slot).charged() == record.found.get();
        (charged, record.pinned.load(Relaxed) == record.found_pinned.get())
    }
}

impl<P: Platform> Drop for TreeGuard<'_, P> {
    fn drop(&mut self) {
        self.groups.tree.get(0).lock.unlock();
        self.platform.unpin();
    }
}

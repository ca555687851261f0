//! All groups: the table of their slots, and what is read of one without a lock.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::queue::Queue;
use super::slot::{GroupState, READER, Slot};
use crate::error::LruError;
use crate::id::GroupId;
use freehold::Error;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{LockClass, Platform, RawLock, Word};

/// The lock over the tree, and what it guards beside the links in the slots.
#[repr(C, align(64))]
pub(super) struct Tree<P: Platform> {
    pub(super) lock: P::Lock,
    /// Slots that have neither a group nor frames.
    pub(super) free: Queue<P>,
    /// Slots of removed groups. They may have frames, and are above no group, but perhaps above
    /// others of removed groups, which stand behind them in the queue no longer than until the
    /// next `reap`.
    pub(super) removed: Queue<P>,
    /// On a cache line of its own, since all read it.
    pub(super) uses: Uses<P>,
}

/// How many groups use what, so that the others need not look.
#[repr(C, align(64))]
pub(super) struct Uses<P: Platform> {
    /// Groups with a `min` or `low`.
    pub(super) protected: P::U32,
    /// Groups with a `high`.
    pub(super) high: P::U32,
}

impl<P: Platform> Tree<P> {
    fn new() -> Self {
        let uses = Uses { protected: P::U32::new(0), high: P::U32::new(0) };
        let (free, removed) = (Queue::new(), Queue::new());
        Tree { lock: P::Lock::new(LockClass::LruGroups), free, removed, uses }
    }
}

/// All groups.
pub(crate) struct Groups<P: Platform> {
    pub(super) slots: Table<Slot<P>>,
    pub(super) tree: Table<Tree<P>>,
}

/// Where the groups will lie.
pub(crate) struct GroupsPlan<P: Platform> {
    slots: TablePlan<Slot<P>>,
    tree: TablePlan<Tree<P>>,
}

impl<P: Platform> GroupsPlan<P> {
    pub(crate) fn new(slots: usize, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let kind = SectionKind::LruGroups;
        Ok(GroupsPlan { slots: layout.table(kind, slots)?, tree: layout.table(kind, 1)? })
    }
}

impl<P: Platform> Groups<P> {
    /// The root group and free slots.
    pub(crate) fn carve(plan: &GroupsPlan<P>, carver: &mut Carver) -> Self {
        let slots = carver.table(plan.slots, |slot| {
            Slot::new(if slot == 0 { GroupState::NEW } else { GroupState::FREE })
        });
        let tree = carver.table(plan.tree, |_| Tree::new());
        // No other CPU has the tree yet.
        (1..slots.len() as u16).for_each(|slot| tree.get(0).free.push(&slots, slot));
        Groups { slots, tree }
    }

    pub(crate) fn get(&self, slot: u16) -> &Slot<P> {
        self.slots.get(usize::from(slot))
    }

    /// How many groups use what.
    pub(super) fn uses(&self) -> &Uses<P> {
        &self.tree.get(0).uses
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<P>> {
        self.slots.iter()
    }

    pub(crate) fn state(&self, slot: u16) -> GroupState {
        // Acquire: reads what was written before the group reached this state.
        GroupState(self.get(slot).state.load(Acquire))
    }

    /// Changes the word of a slot atomically.
    pub(crate) fn change(
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
    pub(crate) fn parent(&self, slot: u16) -> u16 {
        // Acquire: pairs with the release when a group is created.
        self.get(slot).parent.load(Acquire) as u16
    }

    /// The slots from this one up to the root.
    pub(crate) fn chain(&self, slot: u16) -> impl Iterator<Item = u16> + '_ {
        core::iter::successors(Some(slot), |&slot| (slot != 0).then(|| self.parent(slot)))
    }

    /// Whether a slot is `above`, or below it. A hint if the slot is not known to be taken.
    pub(crate) fn is_below(&self, slot: u16, above: u16) -> bool {
        // No chain is longer than there are slots; one that is being changed might appear to be.
        above == 0 || self.chain(slot).take(self.len()).any(|slot| slot == above)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a group.
    pub(crate) fn slot_of(&self, group: GroupId) -> Result<u16, LruError> {
        let slot = group.slot();
        let exists =
            usize::from(slot) < self.len() && self.state(slot).is_live() && self.is_of_slot(group);
        if exists { Ok(slot) } else { Err(LruError::UnknownGroup) }
    }

    /// Whether a group is the one that its slot has, or had last.
    pub(crate) fn is_of_slot(&self, group: GroupId) -> bool {
        // Relaxed: written before the slot's state, which the caller has read with acquire; it
        // stays if the caller has charged or entered the slot.
        self.get(group.slot()).generation.load(Relaxed) == group.generation()
    }

    /// The lowest bits of the generation of a slot's group.
    pub(crate) fn short_generation(&self, slot: u16) -> u8 {
        // Relaxed: a hint.
        self.get(slot).generation.load(Relaxed) as u8
    }

    /// Enters a group as a reader.
    pub(crate) fn enter(&self, group: GroupId) -> Result<(), LruError> {
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
    pub(crate) fn leave(&self, group: GroupId) {
        // Release: a CPU that removes the group is ordered after what its readers did. Adding the
        // negative subtracts one reader.
        self.get(group.slot()).state.fetch_add(READER.wrapping_neg(), AcqRel);
    }
}

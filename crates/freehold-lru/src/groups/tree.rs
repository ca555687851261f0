//! The tree of groups: creation and removal under one lock, and walks without it.
//!
//! Free slots wait in a queue, and so do those of removed groups that still have frames. So a group
//! is created in constant time, and slots are reused as late as can be.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::slot::GroupState;
use super::table::{Groups, Tree};
use crate::error::LruError;
use crate::id::{GroupId, NO_SLOT};
use freehold::platform::{Pin, Platform, RawLock, SharedCell, Word};
use freehold::units::FrameCount;

impl<P: Platform> Groups<P> {
    /// The group after this one in a walk of those below `above`, each before those below it; none
    /// after the last. Groups may come and go meanwhile: then the walk may miss some, or leave the
    /// tree below `above`.
    pub(crate) fn after(&self, slot: u16, above: u16) -> Option<u16> {
        // Acquire: pairs with the release that links a group, which is ready then.
        match self.get(slot).first_below.load(Acquire) as u16 {
            NO_SLOT => {}
            below => return Some(below),
        }
        let up = self.chain(slot).take(self.len()).take_while(|&at| at != above && at != 0);
        let mut next = up.map(|at| self.get(at).next.load(Acquire) as u16);
        next.find(|&next| next != NO_SLOT)
    }

    /// A group and those below it.
    pub(crate) fn walk(&self, above: u16) -> impl Iterator<Item = u16> + '_ {
        let all = core::iter::successors(Some(above), move |&slot| self.after(slot, above));
        all.take(self.len())
    }

    /// Takes the lock over the tree.
    pub(crate) fn tree<'a>(&'a self, platform: &'a P) -> TreeGuard<'a, P> {
        let (_, pin) = Pin::new(platform);
        let tree = self.tree.get(0);
        tree.lock.lock();
        TreeGuard { groups: self, tree, _pin: pin }
    }

    /// Takes the lock over the tree, unless it is held.
    pub(crate) fn try_tree<'a>(&'a self, platform: &'a P) -> Option<TreeGuard<'a, P>> {
        let (_, pin) = Pin::new(platform);
        let tree = self.tree.get(0);
        tree.lock.try_lock().then(|| TreeGuard { groups: self, tree, _pin: pin })
    }
}

/// The lock over the tree of groups, held.
pub(crate) struct TreeGuard<'a, P: Platform> {
    groups: &'a Groups<P>,
    tree: &'a Tree<P>,
    _pin: Pin<'a, P>,
}

impl<'a, P: Platform> TreeGuard<'a, P> {
    pub(crate) fn groups(&self) -> &'a Groups<P> {
        self.groups
    }

    /// Creates a group in a free slot. `ready` is called with the slot before it becomes visible.
    pub(crate) fn create(
        &self,
        parent: GroupId,
        limit: Option<FrameCount>,
        ready: impl Fn(u16),
    ) -> Result<GroupId, LruError> {
        let groups = self.groups;
        let above = groups.slot_of(parent)?;
        if self.tree.free.len() == 0 {
            self.reap();
        }
        for _ in 0..self.tree.free.len() {
            let Some(slot) = self.tree.free.pop(&groups.slots) else { break };
            let record = groups.get(slot);
            // Relaxed: only this lock's holders write it.
            let generation = record.generation.load(Relaxed) + 1;
            // Release: pairs with the acquire in `Groups::parent`. The slot has neither group nor
            // frames, so no CPU depends on it.
            record.parent.store(u32::from(above), Release);
            // Relaxed: published by the word below.
            record.generation.store(generation, Relaxed);
            record.limit.store(limit.map_or(u64::MAX, FrameCount::get), Relaxed);
            record.turn.store(0, Relaxed);
            record.reach_left.store(0, Relaxed);
            record.ask_left.store(0, Relaxed);
            ready(slot);
            let (free, new) = (GroupState::FREE.0, GroupState::NEW.0);
            // Release: publishes all of the above to any CPU that learns the group's identifier.
            // Acquire: the slot is reused after all operations on its last group.
            if record.state.compare_exchange(free, new, AcqRel, Relaxed).is_ok() {
                self.link(slot, above);
                return Ok(GroupId::new(slot, generation));
            }
            // A late charge to the slot's last group counts for a moment.
            self.tree.free.push(&groups.slots, slot);
        }
        Err(LruError::TooManyGroups)
    }

    /// Links a group as the first one below its parent.
    fn link(&self, slot: u16, above: u16) {
        let (groups, none) = (self.groups, u32::from(NO_SLOT));
        let (record, parent) = (groups.get(slot), groups.get(above));
        // Relaxed: only this lock's holders write links.
        let next = parent.first_below.load(Relaxed);
        record.first_below.store(none, Relaxed);
        record.prev.store(none, Relaxed);
        record.next.store(next, Relaxed);
        if next != none {
            groups.get(next as u16).prev.store(slot.into(), Relaxed);
        }
        // Release: a walk that comes to the group finds its links, and its lists ready.
        parent.first_below.store(slot.into(), Release);
        parent.taken_below.set(parent.taken_below.get() + 1);
    }

    /// Ends a group that has no readers and no groups below; returns its parent's slot. `ended` is
    /// called with the slot once the group cannot be entered or charged any more.
    pub(crate) fn end(&self, group: GroupId, ended: impl Fn(u16)) -> Result<u16, LruError> {
        let groups = self.groups;
        let slot = groups.slot_of(group)?;
        let record = groups.get(slot);
        // Relaxed: only this lock's holders write links.
        if slot == 0 || record.first_below.load(Relaxed) as u16 != NO_SLOT {
            return Err(LruError::GroupInUse);
        }
        groups.change(slot, GroupState::removed)?;
        ended(slot);
        let above = groups.parent(slot);
        let (next, prev) = (record.next.load(Relaxed), record.prev.load(Relaxed));
        // Its own links stay: a walk that is at this group goes on from there. Release: as in
        // `link`, for the group that comes next.
        match prev as u16 {
            NO_SLOT => groups.get(above).first_below.store(next, Release),
            prev => groups.get(prev).next.store(next, Release),
        }
        if next as u16 != NO_SLOT {
            groups.get(next as u16).prev.store(prev, Relaxed);
        }
        self.tree.removed.push(&groups.slots, slot);
        Ok(above)
    }

    /// Frees the slots of removed groups that have no frames any more.
    ///
    /// A slot above one that has frames may briefly have none, since a charge reaches the slots
    /// above later and leaves them earlier. Its parent must not change then either.
    pub(crate) fn reap(&self) {
        let (groups, removed) = (self.groups, &self.tree.removed);
        // Those below others were removed before them, and so come first.
        for _ in 0..removed.len() {
            let Some(slot) = removed.pop(&groups.slots) else { break };
            let record = groups.get(slot);
            if groups.state(slot) == GroupState::FREE && record.taken_below.get() == 0 {
                let taken = &groups.get(groups.parent(slot)).taken_below;
                taken.set(taken.get() - 1);
                self.tree.free.push(&groups.slots, slot);
            } else {
                removed.push(&groups.slots, slot);
            }
        }
    }

    /// Slots of removed groups that have frames, or had some not long ago.
    pub(crate) fn removed(&self) -> impl Iterator<Item = u16> + '_ {
        self.tree.removed.iter(&self.groups.slots)
    }

    /// The frames charged to a slot and below.
    pub(crate) fn charged(&self, slot: u16) -> FrameCount {
        let groups = self.groups;
        let own = groups.charged(slot);
        if slot != 0 {
            return FrameCount::new(own);
        }
        let is_top = |slot: &u16| *slot != 0 && groups.parent(*slot) == 0;
        let tops = groups.walk(0).chain(self.removed()).filter(is_top);
        FrameCount::new(own + tops.map(|slot| groups.charged(slot)).sum::<u64>())
    }

    /// Pinned frames of a slot and those below.
    pub(crate) fn pinned(&self, slot: u16) -> FrameCount {
        let groups = self.groups;
        let removed = self.removed().filter(|&other| groups.is_below(other, slot));
        // Relaxed: a count.
        let pinned = |slot| groups.get(slot).pinned.load(Relaxed);
        let sum = groups.walk(slot).chain(removed).map(pinned).fold(0, u64::wrapping_add);
        // Briefly negative if one CPU has just moved a frame that another is pinning.
        FrameCount::new(if sum > u64::MAX / 2 { 0 } else { sum })
    }

    /// Sets the maximum number of frames of a group.
    pub(crate) fn set_max(
        &self,
        group: GroupId,
        limit: Option<FrameCount>,
    ) -> Result<(), LruError> {
        let slot = self.groups.slot_of(group)?;
        if slot == 0 {
            return Err(LruError::GroupInUse);
        }
        if limit.is_some_and(|limit| limit < self.pinned(slot)) {
            return Err(LruError::LimitBelowPinned);
        }
        // Relaxed: as in `Groups::limit`.
        self.groups.get(slot).limit.store(limit.map_or(u64::MAX, FrameCount::get), Relaxed);
        Ok(())
    }
}

/// For consistency checks, while no other call is under way.
impl<P: Platform> TreeGuard<'_, P> {
    /// Starts a count of frames.
    pub(crate) fn clear_counts(&self) {
        for slot in self.groups.iter() {
            slot.found.set(0);
            slot.found_pinned.set(0);
        }
    }

    /// Counts frames of a slot, there and in those above.
    pub(crate) fn count(&self, slot: u16, frames: u32, pinned: bool) {
        for above in core::iter::once(slot).chain(self.groups.above(slot)) {
            let found = &self.groups.get(above).found;
            found.set(found.get() + u64::from(frames));
        }
        let found = &self.groups.get(slot).found_pinned;
        found.set(found.get() + if pinned { u64::from(frames) } else { 0 });
    }

    /// Whether the counts of a slot's frames, and of its pinned ones, match.
    pub(crate) fn counts_agree(&self, slot: u16) -> (bool, bool) {
        let record = self.groups.get(slot);
        // Relaxed: no other call is under way.
        let pinned = record.pinned.load(Relaxed) == record.found_pinned.get();
        (self.groups.charged(slot) == record.found.get(), pinned)
    }

    /// Whether the links of the tree agree with its groups: as many are linked as there are, each
    /// below its parent.
    pub(crate) fn links_agree(&self) -> bool {
        let groups = self.groups;
        let all = 0..groups.len() as u16;
        let live = all.filter(|&slot| groups.state(slot).is_live()).count();
        let is_linked = |slot: u16| groups.state(slot).is_live();
        groups.walk(0).all(is_linked) && groups.walk(0).count() == live
    }
}

impl<P: Platform> Drop for TreeGuard<'_, P> {
    fn drop(&mut self) {
        self.tree.lock.unlock();
    }
}

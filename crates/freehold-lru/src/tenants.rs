//! The API of groups: create and remove, limit, enter, statistics.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::LruError;
use crate::groups::slot::Slot;
use crate::groups::table::Groups;
use crate::groups::tree::TreeGuard;
use crate::id::{GroupId, Place};
use crate::kind::List;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::{Platform, Word};
use freehold::units::{FrameCount, ZoneKind};

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Frames charged to the group and to those below, including what CPUs have charged ahead.
    pub charged: FrameCount,
    /// The [maximum](Lru::set_max) number of frames that may be charged.
    pub max: Option<FrameCount>,
    /// How many of them are [protected](Lru::set_min) from reclaim for the sake of others.
    pub min: FrameCount,
    /// How many are [protected](Lru::set_low) unless nothing else can be reclaimed.
    pub low: FrameCount,
    /// Beyond how many [reclaim](Lru::set_high) begins.
    pub high: Option<FrameCount>,
    /// Of the frames charged, those that are pinned.
    pub pinned: FrameCount,
    /// How much evicted content of the group itself came [back](Lru::refault).
    pub refaulted: u64,
    /// Of this, content that came back so soon that it should have stayed.
    pub restored: u64,
    /// How many shards the lists of the group itself are in, over all nodes: one a node, unless
    /// many CPUs [want its lock](crate::LruLock::Shards).
    pub shards: usize,
    /// Frames on each list of the group itself, over all nodes, by [`List`].
    pub listed: [FrameCount; List::COUNT],
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Creates a group below `parent` with a limit for itself and the groups below it.
    ///
    /// Cost: constant, however many groups there are. Once every slot has had a group, it may visit
    /// all slots of removed groups, and once every slot has frames, those frames.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`] for the parent, or [`LruError::TooManyGroups`], also if other
    /// CPUs are just charging or uncharging the only free slot.
    pub fn create_group(
        &self,
        parent: GroupId,
        limit: Option<FrameCount>,
    ) -> Result<GroupId, LruError> {
        let create = || {
            self.groups.tree(&self.platform).create(parent, limit, |slot| {
                (0..self.vecs.nodes()).for_each(|node| self.vecs.open(Place { slot, node }));
            })
        };
        match create() {
            Err(LruError::TooManyGroups) => {
                // All that is left of a removed group may be what CPUs have charged ahead, or
                // frames that wait in a batch, or that were not moved since.
                self.drain_all();
                self.settle_removed();
                create()
            }
            done => done,
        }
    }

    /// Removes a group. Its frames go to its parent: in constant time, since each gets the parent's
    /// number only when it is next put on a list.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`], or [`LruError::GroupInUse`] if the group has
    /// [readers](Lru::enter), has groups below, or is the root.
    pub fn remove_group(&self, group: GroupId) -> Result<(), LruError> {
        let tree = self.groups.tree(&self.platform);
        let parent = tree.end(group, |slot| tree.clear_bounds(slot))?;
        self.drain_stocks(group.slot());
        for node in 0..self.vecs.nodes() {
            let place = |slot| Place { slot, node };
            self.vecs.join(&self.platform, &self.frames, place(group.slot()), place(parent));
        }
        Ok(())
    }

    /// Sets the limit of a group and those below it (Linux's `memory.max`). If the group currently
    /// has more, it is charged nothing until enough has been [reclaimed](Lru::reclaim).
    ///
    /// Cost: takes the lock of every CPU's batches.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`], [`LruError::LimitBelowPinned`] if more than that are pinned, or
    /// [`LruError::GroupInUse`] for the root, which has no limit.
    pub fn set_max(&self, group: GroupId, limit: Option<FrameCount>) -> Result<(), LruError> {
        self.groups.tree(&self.platform).set_max(group, limit)?;
        // What was charged ahead under the old limit, to the group or below it, would be handed out
        // whatever the new one is. A CPU charges ahead under its lock, which each drain takes: if
        // it does so before, it is drained; if after, it sees the new limit.
        self.drain_stocks(group.slot());
        Ok(())
    }

    /// Sets how many frames of a group, and of those below, are never reclaimed for the sake of
    /// others (Linux's `memory.min`). It holds within what the groups above have: a group without
    /// protection shares none with those below. By default none. Reclaim within the group itself
    /// does not heed it.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`], or [`LruError::GroupInUse`] for the root.
    pub fn set_min(&self, group: GroupId, frames: FrameCount) -> Result<(), LruError> {
        let tree = self.groups.tree(&self.platform);
        // Relaxed: recent values will do, here and below.
        self.set_bounds(&tree, group, |record| record.min.store(frames.get(), Relaxed))
    }

    /// As [`Lru::set_min`], but the frames are reclaimed if nothing else can be (Linux's
    /// `memory.low`).
    ///
    /// # Errors
    ///
    /// As [`Lru::set_min`].
    pub fn set_low(&self, group: GroupId, frames: FrameCount) -> Result<(), LruError> {
        let tree = self.groups.tree(&self.platform);
        self.set_bounds(&tree, group, |record| record.low.store(frames.get(), Relaxed))
    }

    /// Sets how many frames a group and those below should not exceed (Linux's `memory.high`).
    /// Nothing is refused beyond it: [`Lru::add_reclaiming`] reclaims a batch from the group before
    /// it returns, and [`Lru::balance_groups`] the rest.
    ///
    /// # Errors
    ///
    /// As [`Lru::set_min`].
    pub fn set_high(&self, group: GroupId, frames: Option<FrameCount>) -> Result<(), LruError> {
        let high = frames.map_or(u64::MAX, FrameCount::get);
        let tree = self.groups.tree(&self.platform);
        self.set_bounds(&tree, group, |record| record.high.store(high, Relaxed))?;
        // As for `set_max`.
        self.drain_stocks(group.slot());
        Ok(())
    }

    fn set_bounds(
        &self,
        tree: &TreeGuard<'_, P>,
        group: GroupId,
        set: impl FnOnce(&Slot<P>),
    ) -> Result<(), LruError> {
        let slot = tree.set_bounds(group, set)?;
        // Reclaim counts anew what is protected.
        self.groups.chain(slot).for_each(|at| self.groups.spend_reach(at, u64::MAX));
        Ok(())
    }

    /// Enters a group as a reader: it cannot be removed until the guard is dropped.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`], or [`LruError::TooManyReferences`] with 2^31 - 1 readers.
    pub fn enter(&self, group: GroupId) -> Result<GroupRef<'_, P>, LruError> {
        self.groups.enter(group)?;
        Ok(GroupRef { groups: &self.groups, group })
    }

    /// The state of a group. Exact whenever no call is under way.
    ///
    /// Cost: visits the groups below, and those that were removed but still have frames.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`].
    pub fn group_stats(&self, group: GroupId) -> Result<GroupStats, LruError> {
        let slot = self.groups.slot_of(group)?;
        let size = |list| {
            let nodes = 0..self.vecs.nodes();
            let places = nodes.map(|node| Place { slot, node });
            let sizes =
                places.map(|at| self.vecs.exact_sizes(at, ZoneKind::Movable)[list as usize]);
            FrameCount::new(sizes.map(u64::from).sum())
        };
        let (mut refaulted, mut restored, mut shards) = (0, 0, 0);
        for node in 0..self.vecs.nodes() {
            let [all, of_it] = self.vecs.refaults(Place { slot, node });
            refaulted += all;
            restored += of_it;
            shards += self.vecs.shards(Place { slot, node }).count();
        }
        let tree = self.groups.tree(&self.platform);
        let (min, low, high) = self.groups.bounds(slot);
        Ok(GroupStats {
            refaulted,
            restored,
            shards,
            min,
            low,
            high,
            charged: tree.charged(slot),
            max: self.groups.limit(slot),
            pinned: tree.pinned(slot),
            listed: List::ALL.map(size),
        })
    }
}

/// A reader's hold on a group, which prevents its removal. Created by [`Lru::enter`].
pub struct GroupRef<'a, P: Platform> {
    groups: &'a Groups<P>,
    group: GroupId,
}

impl<P: Platform> GroupRef<'_, P> {
    /// The group.
    pub fn group(&self) -> GroupId {
        self.group
    }
}

impl<P: Platform> Drop for GroupRef<'_, P> {
    fn drop(&mut self) {
        self.groups.leave(self.group);
    }
}

impl<P: Platform> fmt::Debug for GroupRef<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupRef").field("group", &self.group).finish_non_exhaustive()
    }
}

//! The locks over shards, and what is done under them: frames come to lists and leave them.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::divide::Renames;
use super::extent::Extent;
use super::lruvec::Lruvecs;
use super::shard::Shard;
use crate::frames::state::{Motion, State};
use crate::frames::table::FrameTable;
use crate::groups::table::Groups;
use crate::id::{Place, ShardId};
use crate::kind::{Kind, List};
use crate::settings::LruLock;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::End;
use freehold::platform::{IrqsOff, Platform, RawLock, Word};

impl<P: Platform> Lruvecs<P> {
    /// The lock over a shard: its own, or that of the root group on its node.
    #[inline]
    fn lock_of<'a>(&'a self, place: Place, shard: &'a Shard<P>) -> &'a P::Lock {
        match self.lock {
            LruLock::Node => &self.get(Place { slot: 0, ..place }).shard.lock,
            LruLock::Group | LruLock::Shards => &shard.lock,
        }
    }

    /// The shard that has the frames that name this one: itself; shard 0 unless the lruvec is
    /// divided; or that of the nearest group above that was not removed. A hint until its lock is
    /// held.
    #[inline]
    fn seek(&self, id: ShardId, groups: &Groups<P>) -> (ShardId, &Shard<P>) {
        let (found, shard) = self.find(id);
        match found.shard > 0 || shard.is_open_for(found.place) {
            true => (found, shard),
            false => self.seek_above(found.place, groups),
        }
    }

    /// Shard 0 of the nearest group above a removed one that was not removed.
    #[cold]
    #[inline(never)]
    fn seek_above(&self, mut place: Place, groups: &Groups<P>) -> (ShardId, &Shard<P>) {
        loop {
            // The parent was written before the lists were joined.
            place.slot = groups.parent(place.slot);
            let first = &self.get(place).shard;
            if first.is_open_for(place) {
                return (place.shard(0), first);
            }
        }
    }

    /// As `seek`, its name.
    pub(crate) fn resolve(&self, id: ShardId, groups: &Groups<P>) -> ShardId {
        self.seek(id, groups).0
    }

    /// Locks the shard that has the frames that name this one.
    pub(crate) fn lock<'a>(
        &'a self,
        platform: &'a P,
        groups: &Groups<P>,
        id: ShardId,
    ) -> ShardGuard<'a, P> {
        let (irqs, (found, shard)) = (IrqsOff::new(platform), self.seek(id, groups));
        let counts = self.acquire(found, shard);
        // It may have been closed before the lock was taken. While that is held it cannot be.
        if !shard.is_open_for(found.place) {
            drop(ShardGuard::new(self, found, shard, irqs));
            return self.lock_joined(platform, groups, id.place);
        }
        if counts {
            self.note_wait(found.place, groups);
        }
        ShardGuard::new(self, found, shard, irqs)
    }

    /// As `lock`, for frames of a shard that was closed: they are in shard 0, or further on from
    /// there.
    #[cold]
    #[inline(never)]
    fn lock_joined<'a>(
        &'a self,
        platform: &'a P,
        groups: &Groups<P>,
        place: Place,
    ) -> ShardGuard<'a, P> {
        self.lock(platform, groups, place.shard(0))
    }

    /// Locks just this shard, or shard 0 if the lruvec is not divided.
    pub(crate) fn lock_at<'a>(&'a self, platform: &'a P, id: ShardId) -> ShardGuard<'a, P> {
        let (irqs, (id, shard)) = (IrqsOff::new(platform), self.find(id));
        self.acquire(id, shard);
        ShardGuard::new(self, id, shard, irqs)
    }

    /// As `lock_at`, unless the lock is held.
    pub(crate) fn try_lock_at<'a>(
        &'a self,
        platform: &'a P,
        id: ShardId,
    ) -> Option<ShardGuard<'a, P>> {
        let (irqs, (id, shard)) = (IrqsOff::new(platform), self.find(id));
        let is_locked = self.lock_of(id.place, shard).try_lock();
        is_locked.then(|| ShardGuard::new(self, id, shard, irqs))
    }

    /// Takes the lock over a shard. Returns whether that counts as a wait for one that may have to
    /// be divided.
    #[inline]
    fn acquire(&self, id: ShardId, shard: &Shard<P>) -> bool {
        let lock = self.lock_of(id.place, shard);
        let counts = self.counts_waits && id.shard == 0;
        if counts && self.shard_waits > 0 && lock.try_lock() {
            return false;
        }
        lock.lock();
        counts
    }

    /// The relock helper: keeps a lock that covers this shard, or exchanges it for one that does.
    #[inline]
    pub(crate) fn relock<'a, 'h>(
        &'a self,
        platform: &'a P,
        groups: &Groups<P>,
        held: &'h mut Option<ShardGuard<'a, P>>,
        id: ShardId,
    ) -> &'h ShardGuard<'a, P> {
        match held {
            // While it is locked it is not closed, nor has it been since it was found.
            Some(guard) if guard.id == id => {}
            _ => self.exchange(platform, groups, held, id),
        }
        held.as_ref().unwrap_or_else(|| unreachable!("there is one now"))
    }

    fn exchange<'a>(
        &'a self,
        platform: &'a P,
        groups: &Groups<P>,
        held: &mut Option<ShardGuard<'a, P>>,
        id: ShardId,
    ) {
        if let Some(guard) = held {
            let id = self.resolve(id, groups);
            if id == guard.id {
                return;
            }
            if self.lock == LruLock::Node && id.place.node == guard.id.place.node {
                guard.settle();
                (guard.id, guard.shard) = (id, self.shard(id));
                return;
            }
        }
        *held = None;
        *held = Some(self.lock(platform, groups, id));
    }

    /// Joins the lists of a group that is being removed to its parent's, under both locks.
    pub(crate) fn join(&self, platform: &P, frames: &FrameTable<P>, from: Place, to: Place) {
        // Frames that come from batches meanwhile are not to divide it again.
        self.extents.set_closing(self.index(from), true);
        self.join_shards(platform, frames, from, Renames::None);
        // Locks are taken from a group to those above it; no other call holds two of them.
        let guard = self.lock_at(platform, from.shard(0));
        let above = (self.lock != LruLock::Node).then(|| self.lock_at(platform, to.shard(0)));
        let (child, parent) = (self.get(from), self.get(to));
        if let Some(extent) = self.extents.of(self.index(to)) {
            // What the parent's shards have in all.
            extent.add_sizes(&child.shard);
        }
        parent.shard.take_over(frames, &child.shard);
        for (cost, more) in parent.costs.iter().zip(&child.costs) {
            // Relaxed: as in `note_cost`.
            cost.fetch_add(more.swap(0, Relaxed), Relaxed);
        }
        child.shard.close();
        drop(above);
        drop(guard);
        self.extents.set_closing(self.index(from), false);
    }

    /// Notes that the owner gave frames of these lists: it may give others that it refused before.
    pub(crate) fn forget_refused(&self, platform: &P, place: Place, kind: Kind) {
        let lists = [List::of(kind, false), List::of(kind, true)];
        let shards = self.refusing(place);
        self.extents.forget_refusals(self.index(place));
        for id in shards {
            // Most often there is nothing to forget.
            if lists.into_iter().any(|list| self.shard(id).refused(list) > 0) {
                let guard = self.lock_at(platform, id);
                lists.into_iter().for_each(|list| guard.set_refused(list as usize, |_| 0));
            }
        }
    }
}

/// A lock over shards, held, and the shard for which it was taken. Unlocks when dropped.
pub(crate) struct ShardGuard<'a, P: Platform> {
    vecs: &'a Lruvecs<P>,
    id: ShardId,
    shard: &'a Shard<P>,
    /// What is told at the end, once for all frames.
    resized: Cell<Resized>,
    activated: [Cell<u32>; Kind::COUNT],
    _irqs: IrqsOff<'a, P>,
}

/// By how much a list has changed its size, of frames of one zone.
#[derive(Clone, Copy, Default)]
struct Resized {
    list: u8,
    zone: u8,
    by: u32,
}

impl<'a, P: Platform> ShardGuard<'a, P> {
    #[inline]
    fn new(vecs: &'a Lruvecs<P>, id: ShardId, shard: &'a Shard<P>, irqs: IrqsOff<'a, P>) -> Self {
        let resized = Cell::new(Resized::default());
        let activated = [const { Cell::new(0) }; Kind::COUNT];
        ShardGuard { vecs, id, shard, resized, activated, _irqs: irqs }
    }
}

impl<P: Platform> ShardGuard<'_, P> {
    /// Links a frame by the marks that it has now.
    pub(crate) fn link(
        &self,
        frames: &FrameTable<P>,
        frame: FrameIndex,
        state: State,
        motion: Motion,
    ) {
        let list = state.list() as usize;
        if self.shard.lists[list].is_empty() {
            self.vecs.begin_turns(self.id, list);
        }
        self.shard.lists[list].push(frames, frame, motion.end());
        self.resize(list, state, state.frames());
        self.set_refused(list, |refused| match motion {
            Motion::Refuse => refused.saturating_add(state.frames()),
            // At the back, the next to be taken.
            Motion::Rotate => refused,
            Motion::Keep | Motion::Activate | Motion::Deactivate => 0,
        });
        if let (Motion::Refuse, Some(extent)) = (motion, self.extent()) {
            extent.note_refusal();
        }
    }

    /// Unlinks a frame from the list that its marks named when its LRU mark was cleared.
    pub(crate) fn unlink(&self, frames: &FrameTable<P>, frame: FrameIndex, state: State) {
        let list = state.list() as usize;
        self.shard.lists[list].remove(frames, frame);
        self.resize(list, state, state.frames().wrapping_neg());
        self.set_refused(list, |refused| refused.saturating_sub(state.frames()));
    }

    /// As `unlink`, for the frame that has been on its list longest.
    pub(crate) fn unlink_oldest(&self, frames: &FrameTable<P>, frame: FrameIndex, state: State) {
        let list = state.list();
        self.shard.lists[list as usize].remove(frames, frame);
        self.resize(list as usize, state, state.frames().wrapping_neg());
        if self.shard.refused(list) > 0 {
            self.note_resized();
            self.set_refused(list as usize, |refused| refused.min(self.shard.size(list)));
        }
    }

    #[inline]
    fn set_refused(&self, list: usize, refused: impl Fn(u32) -> u32) {
        let word = &self.shard.refused[list];
        // Relaxed: only holders of the lock write, and for others it is a hint.
        let before = word.load(Relaxed);
        if before != refused(before) {
            word.store(refused(before), Relaxed);
        }
    }

    /// What holds for all shards, if the lruvec is divided.
    #[inline]
    fn extent(&self) -> Option<&Extent<P>> {
        self.vecs.extents.of(self.vecs.index(self.id.place))
    }

    #[inline]
    fn resize(&self, list: usize, state: State, by: u32) {
        let (list, zone, last) = (list as u8, state.zone() as u8, self.resized.get());
        let is_same = (last.list, last.zone) == (list, zone);
        if !is_same {
            self.note_resized();
        }
        let before = if is_same { last.by } else { 0 };
        self.resized.set(Resized { list, zone, by: before.wrapping_add(by) });
        if !self.vecs.lock.is_brief() {
            self.note_resized();
        }
    }

    /// Tells the size of the list that has changed it.
    #[inline]
    fn note_resized(&self) {
        let Resized { list, zone, by } = self.resized.take();
        let (list, zone) = (usize::from(list), usize::from(zone));
        if by == 0 {
            return;
        }
        let size = &self.shard.sizes[list][zone];
        // Relaxed: only holders of the lock write.
        let before = size.load(Relaxed);
        let after = before.wrapping_add(by);
        // Release: pairs with the acquire in `sum_within`.
        size.store(after, Release);
        if let Some(extent) = self.extent() {
            extent.note_size(self.shard, list, zone, (before, after));
        }
    }

    /// Tells all that has changed.
    #[inline]
    fn settle(&self) {
        self.note_resized();
        self.note_activations();
    }

    /// The frame that has been on a list longest.
    pub(crate) fn oldest(&self, list: List) -> Option<FrameIndex> {
        self.shard.lists[list as usize].last()
    }

    /// Moves a frame that another call is isolating or releasing out of the way.
    pub(crate) fn rotate(&self, frames: &FrameTable<P>, frame: FrameIndex, list: List) {
        self.set_refused(list as usize, |_| 0);
        let list = &self.shard.lists[list as usize];
        list.remove(frames, frame);
        list.push(frames, frame, End::Front);
    }

    /// Whether it has frames of this lruvec.
    pub(crate) fn is_of(&self, place: Place) -> bool {
        self.id.place == place && self.shard.is_open_for(place)
    }

    /// The shard.
    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    /// Counts a frame or block that became active.
    pub(crate) fn note_activation(&self, kind: Kind, frames: u32) {
        let count = &self.activated[kind as usize];
        count.set(count.get() + frames);
    }

    /// Tells the history, which all CPUs of the group share, once for all.
    #[inline]
    fn note_activations(&self) {
        for kind in Kind::ALL {
            match self.activated[kind as usize].take() {
                0 => {}
                frames => self.vecs.history(self.id.place, kind).note_activation(frames),
            }
        }
    }

    /// How many frames are on a list.
    pub(crate) fn size(&self, list: List) -> u32 {
        self.note_resized();
        self.shard.size(list)
    }

    /// The frames of a list, first to last.
    pub(crate) fn frames<'f>(
        &self,
        frames: &'f FrameTable<P>,
        list: List,
    ) -> impl Iterator<Item = FrameIndex> + 'f {
        self.shard.lists[list as usize].iter(frames)
    }
}

impl<P: Platform> Drop for ShardGuard<'_, P> {
    fn drop(&mut self) {
        self.settle();
        self.vecs.lock_of(self.id.place, self.shard).unlock();
    }
}

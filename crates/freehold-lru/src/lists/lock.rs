//! The lock over lruvecs, and what is done under it: frames come to lists and leave them.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::history::History;
use super::lruvec::{Lruvec, Lruvecs};
use crate::frames::state::{Motion, State};
use crate::frames::table::FrameTable;
use crate::id::Place;
use crate::kind::{Kind, List};
use crate::settings::LruLock;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::End;
use freehold::platform::{IrqsOff, Platform, RawLock, Word};

impl<P: Platform> Lruvecs<P> {
    /// The lock over an lruvec: its own, or that of the root group on its node.
    fn lock_of(&self, place: Place) -> &P::Lock {
        let slot = if self.lock == LruLock::Node { 0 } else { place.slot };
        &self.get(Place { slot, ..place }).lock
    }

    /// Locks the lruvec that holds the frames of `place`.
    pub(crate) fn lock<'a>(
        &'a self,
        platform: &'a P,
        place: Place,
        parent: impl Fn(u16) -> u16,
    ) -> VecGuard<'a, P> {
        loop {
            let at = self.resolve(place, &parent);
            let guard = self.lock_at(platform, at);
            // The lists may have been joined to the parent's before the lock was taken. While it is
            // held they cannot be.
            if self.get(at).forwarded.load(Acquire) == 0 {
                return guard;
            }
        }
    }

    /// Locks just this lruvec.
    pub(crate) fn lock_at<'a>(&'a self, platform: &'a P, at: Place) -> VecGuard<'a, P> {
        let irqs = IrqsOff::new(platform);
        self.lock_of(at).lock();
        VecGuard { vecs: self, at, _irqs: irqs }
    }

    /// The relock helper: keeps a lock that covers the lruvec of `place`, or exchanges it for one
    /// that does.
    pub(crate) fn relock<'a>(
        &'a self,
        platform: &'a P,
        held: Option<VecGuard<'a, P>>,
        place: Place,
        parent: impl Fn(u16) -> u16,
    ) -> VecGuard<'a, P> {
        if let Some(mut guard) = held {
            // If the lock that is held covers `at`, `at` cannot have been joined to its parent
            // since it was resolved.
            let at = self.resolve(place, &parent);
            if core::ptr::eq(self.lock_of(at), self.lock_of(guard.at)) {
                guard.at = at;
                return guard;
            }
        }
        self.lock(platform, place, parent)
    }

    /// Joins the lists of a group that is being removed to its parent's, under both locks.
    pub(crate) fn join(&self, platform: &P, frames: &FrameTable<P>, from: Place, to: Place) {
        // Locks are taken from a group to those above it; no other call holds two.
        let guard = self.lock_at(platform, from);
        let above = (self.lock == LruLock::Group).then(|| self.lock_at(platform, to));
        let (child, parent) = (self.get(from), self.get(to));
        for list in List::ALL.map(|list| list as usize) {
            // The last users of these frames are gone: they go behind the others.
            parent.lists[list].append(frames, &child.lists[list]);
            for (from, to) in child.sizes[list].iter().zip(&parent.sizes[list]) {
                // Relaxed: hints, as ever.
                to.fetch_add(from.swap(0, Relaxed), Relaxed);
            }
            child.refused[list].store(0, Relaxed);
        }
        for (cost, more) in parent.costs.iter().zip(&child.costs) {
            // Relaxed: as in `note_cost`.
            cost.fetch_add(more.swap(0, Relaxed), Relaxed);
        }
        // Release: a CPU that sees the mark without the lock finds the parent that was written
        // before.
        child.forwarded.store(1, Release);
        drop(above);
        drop(guard);
    }

    /// Notes that the owner gave frames of these lists: it may give others that it refused before.
    pub(crate) fn forget_refused(&self, platform: &P, place: Place, kind: Kind) {
        let lists = [List::of(kind, false), List::of(kind, true)];
        // Relaxed: as in `size`. Most often there is nothing to forget.
        let is_refused = |list: List| self.get(place).refused[list as usize].load(Relaxed) > 0;
        if lists.into_iter().any(is_refused) {
            let guard = self.lock_at(platform, place);
            lists.into_iter().for_each(|list| guard.set_refused(list as usize, |_| 0));
        }
    }
}

/// A lock over lruvecs, held, and the lruvec for which it was taken. Unlocks when dropped.
pub(crate) struct VecGuard<'a, P: Platform> {
    vecs: &'a Lruvecs<P>,
    at: Place,
    _irqs: IrqsOff<'a, P>,
}

impl<P: Platform> VecGuard<'_, P> {
    fn vec(&self) -> &Lruvec<P> {
        self.vecs.get(self.at)
    }

    /// Links a frame by the marks that it has now.
    pub(crate) fn link(
        &self,
        frames: &FrameTable<P>,
        frame: FrameIndex,
        state: State,
        motion: Motion,
    ) {
        let list = state.list() as usize;
        self.vec().lists[list].push(frames, frame, motion.end());
        self.resize(list, state, state.frames());
        self.set_refused(list, |refused| match motion {
            Motion::Refuse => refused.saturating_add(state.frames()),
            // At the back, the next to be taken.
            Motion::Rotate => refused,
            Motion::Keep | Motion::Activate | Motion::Deactivate => 0,
        });
    }

    /// Unlinks a frame from the list that its marks named when its LRU mark was cleared.
    pub(crate) fn unlink(&self, frames: &FrameTable<P>, frame: FrameIndex, state: State) {
        let list = state.list() as usize;
        self.vec().lists[list].remove(frames, frame);
        self.resize(list, state, state.frames().wrapping_neg());
        self.set_refused(list, |refused| refused.saturating_sub(state.frames()));
    }

    /// As `unlink`, for the frame that has been on its list longest.
    pub(crate) fn unlink_oldest(&self, frames: &FrameTable<P>, frame: FrameIndex, state: State) {
        let list = state.list();
        self.vec().lists[list as usize].remove(frames, frame);
        self.resize(list as usize, state, state.frames().wrapping_neg());
        self.set_refused(list as usize, |refused| refused.min(self.size(list)));
    }

    fn set_refused(&self, list: usize, refused: impl Fn(u32) -> u32) {
        let word = &self.vec().refused[list];
        // Relaxed: only holders of the lock write, and for others it is a hint.
        let before = word.load(Relaxed);
        if before != refused(before) {
            word.store(refused(before), Relaxed);
        }
    }

    fn resize(&self, list: usize, state: State, by: u32) {
        let size = &self.vec().sizes[list][state.zone()];
        // Relaxed: only holders of the lock write. Release: pairs with `sizes`.
        size.store(size.load(Relaxed).wrapping_add(by), Release);
    }

    /// The frame that has been on a list longest.
    pub(crate) fn oldest(&self, list: List) -> Option<FrameIndex> {
        self.vec().lists[list as usize].last()
    }

    /// Moves a frame that another call is isolating or releasing out of the way.
    pub(crate) fn rotate(&self, frames: &FrameTable<P>, frame: FrameIndex, list: List) {
        self.set_refused(list as usize, |_| 0);
        let list = &self.vec().lists[list as usize];
        list.remove(frames, frame);
        list.push(frames, frame, End::Front);
    }

    /// The slot of the group whose lruvec it is.
    pub(crate) fn slot(&self) -> u16 {
        self.at.slot
    }

    /// What became of evicted frames of a kind.
    pub(crate) fn history(&self, kind: Kind) -> &History<P> {
        &self.vec().history[kind as usize]
    }

    /// How many frames are on a list.
    pub(crate) fn size(&self, list: List) -> u32 {
        self.vecs.size(self.at, list)
    }

    /// The frames of a list, first to last.
    pub(crate) fn frames<'f>(
        &self,
        frames: &'f FrameTable<P>,
        list: List,
    ) -> impl Iterator<Item = FrameIndex> + 'f {
        self.vec().lists[list as usize].iter(frames)
    }
}

impl<P: Platform> Drop for VecGuard<'_, P> {
    fn drop(&mut self) {
        self.vecs.lock_of(self.at).unlock();
    }
}

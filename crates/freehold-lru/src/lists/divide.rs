//! Division: an lruvec whose lock is contended, and that has frames enough, gets more shards, and
//! gives them back when it is small.
//!
//! A frame names its shard only while it is listed there, and between the step that clears its LRU
//! mark and the end of the lock hold that unlinks it. So when shards are joined to shard 0, the
//! frames that name them are those that are linked. They get another name then, so that the lruvec
//! can be divided again; but not if its group is being removed, since then it is not, until none of
//! them is left. For other groups, a frame that was renamed meanwhile is looked for once more.

use core::sync::atomic::Ordering::Relaxed;

use super::lruvec::Lruvecs;
use super::shard::Shard;
use crate::frames::table::FrameTable;
use crate::groups::slot::GroupState;
use crate::groups::table::Groups;
use crate::id::Place;
use crate::kind::List;
use freehold::platform::{IrqsOff, Platform, RawLock, Word};

/// Whether frames that were in joined shards are to name shard 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renames {
    All,
    /// The group is being removed.
    None,
}

impl<P: Platform> Lruvecs<P> {
    fn frames_of(&self, place: Place) -> u64 {
        List::ALL.iter().map(|&list| u64::from(self.size(place, list))).sum()
    }

    /// Notes that a call had to wait for the lock of shard 0 of an lruvec, which it has now: after
    /// some waits, divides the lruvec, if it is large enough, and is not divided.
    #[cold]
    #[inline(never)]
    pub(super) fn note_wait(&self, place: Place, groups: &Groups<P>) {
        let shards = self.extents.sharding.shards();
        let (lruvec, index) = (self.get(place), self.index(place));
        if self.extents.is_divided(index) {
            return;
        }
        // Relaxed: only holders of this lock write it.
        let waits = lruvec.waits.load(Relaxed) + 1;
        let is_due = waits >= self.shard_waits;
        lruvec.waits.store(if is_due { 0 } else { waits }, Relaxed);
        if !is_due || self.frames_of(place) < u64::from(self.shard_frames) * shards as u64 {
            return;
        }
        let is_free = |slot| groups.state(slot) == GroupState::FREE;
        self.extents.divide(index, &lruvec.shard, is_free, |part| {
            // Held at most by a call that looks for frames that were here: it waits for no other.
            part.lock.lock();
            part.forget();
            part.begin_as(&lruvec.shard);
            part.open(place);
            part.lock.unlock();
        });
    }

    /// Joins the shards of an lruvec that has become small.
    pub(crate) fn join_small(&self, platform: &P, frames: &FrameTable<P>, place: Place) {
        let least = u64::from(self.shard_frames / 4) * self.extents.sharding.shards() as u64;
        if self.extents.is_divided(self.index(place)) && self.frames_of(place) < least {
            self.join_shards(platform, frames, place, Renames::All);
        }
    }

    /// Joins the shards of an lruvec, if it is divided, to shard 0.
    pub(super) fn join_shards(
        &self,
        platform: &P,
        frames: &FrameTable<P>,
        place: Place,
        renames: Renames,
    ) {
        let index = self.index(place);
        if !self.extents.begin_join(index) {
            // Another call may be about to end it.
            while self.extents.is_joining(index) {
                platform.relax();
            }
            return;
        }
        let first = &self.get(place).shard;
        for part in self.extents.parts(index) {
            let _irqs = IrqsOff::new(platform);
            // Shard 0 comes last.
            part.lock.lock();
            first.lock.lock();
            if renames == Renames::All {
                part.rename(frames);
            }
            first.take_over(frames, part);
            first.take_refaults(part);
            part.close();
            first.lock.unlock();
            part.lock.unlock();
        }
        self.extents.end_join(index);
    }
}

impl<P: Platform> Shard<P> {
    /// Lets all frames name shard 0. The caller holds the lock.
    fn rename(&self, frames: &FrameTable<P>) {
        let whole = |state| frames.sharding.whole(state);
        for frame in self.lists.iter().flat_map(|list| list.iter(frames)) {
            // A call that is just releasing or isolating it looks again once it has the lock.
            frames.update(frame, whole);
        }
    }
}

//! Isolation: a frame off its list, held exclusively by one caller.

use core::fmt;

use crate::error::LruError;
use crate::frames::few::Few;
use crate::frames::state::{Motion, State};
use crate::id::GroupId;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::{Order, Pfn};

/// A frame that the holder has taken off its list, with a reference of its own. No other call takes
/// it off a list or moves it to another group meanwhile. When dropped, it goes back on a list.
pub struct Isolated<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    frame: FrameIndex,
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Takes a frame off its list.
    ///
    /// The protocol has two steps. First, one compare-exchange takes a reference, unless there is
    /// none, and clears the LRU mark, unless it is clear. The caller that succeeds owns the
    /// isolation: the frame's group and the list that it is linked to do not change any more, and
    /// no put by another caller can drop the last reference. Second, it takes the lock of the
    /// shard and unlinks the frame.
    ///
    /// # Errors
    ///
    /// [`LruError::FrameBusy`] if another caller has isolated the frame, or if it waits in a batch
    /// to be listed. [`LruError::NotAdded`] if it has no references. [`LruError::ForeignFrame`] or
    /// [`LruError::TooManyReferences`].
    pub fn isolate(&self, pfn: Pfn) -> Result<Isolated<'_, P, O>, LruError> {
        let frame = self.frames.index_of(pfn)?;
        let (before, _) = self.frames.change(frame, State::isolate)?;
        let mut lock = None;
        self.lock_listed(&mut lock, frame, before).unlink(&self.frames, frame, before);
        // It is linked to no shard, and so it names none.
        self.frames.update(frame, |state| self.frames.sharding.whole(state));
        drop(lock);
        Ok(Isolated { lru: self, frame })
    }
}

impl<P: Platform, O: Owner> Isolated<'_, P, O> {
    /// The frame.
    pub fn pfn(&self) -> Pfn {
        self.lru.frames.pfn_of(self.frame)
    }

    /// The order of the block that the frame is the first one of: 0 for a single frame.
    pub fn order(&self) -> Order {
        self.lru.frames.state(self.frame).order()
    }

    /// Moves the frame to another group, which is then charged for it.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`], or [`LruError::GroupLimit`] if that group or one above it is at
    /// its limit. The frame is charged there before it is uncharged from its old group, so it may
    /// itself cause this, and [as with `add`](Lru::add) charges of other CPUs may. The frame stays
    /// where it is.
    pub fn move_to(&mut self, group: GroupId) -> Result<(), LruError> {
        let lru = self.lru;
        let frames = lru.frames.state(self.frame).frames();
        let charged = match lru.charge(group, frames) {
            Err(LruError::GroupLimit(full)) => {
                // What other CPUs have charged ahead is not used yet.
                lru.drain_stocks(full.slot());
                lru.charge(group, frames)
            }
            charged => charged,
        };
        drop(charged?);
        // The mark is clear and this caller holds a reference, so no other call relies on the
        // group.
        let (before, after) = lru.frames.update(self.frame, |state| state.in_slot(group.slot()));
        if after.pins() > 0 {
            // A pin or unpin of the frame is counted in the group found at that time.
            lru.groups.unpin(before.slot(), frames);
            lru.groups.pin(group.slot(), frames);
        }
        lru.uncharge(before.slot(), frames);
        Ok(())
    }
}

impl<'a, P: Platform, O: Owner> Isolated<'a, P, O> {
    /// A frame that the caller has isolated, with a reference.
    pub(crate) fn adopt(lru: &'a Lru<P, O>, frame: FrameIndex) -> Self {
        Isolated { lru, frame }
    }

    /// The frame, still isolated by the caller, with a reference.
    pub(crate) fn into_frame(self) -> FrameIndex {
        let frame = self.frame;
        core::mem::forget(self);
        frame
    }
}

impl<P: Platform, O: Owner> fmt::Debug for Isolated<'_, P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Isolated").field(&self.pfn()).finish()
    }
}

impl<P: Platform, O: Owner> Drop for Isolated<'_, P, O> {
    fn drop(&mut self) {
        let (lru, mut gone) = (self.lru, Few::new());
        lru.put_back_all(core::iter::once((self.frame, Motion::Keep)), &mut gone);
        lru.release_few(&gone);
    }
}

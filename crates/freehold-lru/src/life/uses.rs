//! Uses and pins of frames, which move them to other lists by batch.

use crate::cpu::Batch;
use crate::error::LruError;
use crate::frames::state::State;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::LruPolicy;
use freehold::platform::Platform;
use freehold::units::Pfn;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Notes that a frame was used. The second use moves it to the active list, so that content
    /// used once does not evict content used again and again: at once, or with
    /// [`LruPolicy::ScanResistant`] when reclaim comes to it.
    ///
    /// # Errors
    ///
    /// [`LruError::NotAdded`] if the frame has no references; the caller should hold one.
    /// [`LruError::ForeignFrame`], or [`LruError::TooManyReferences`] if none is left for the
    /// batch.
    pub fn mark_accessed(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        let policy = self.policy;
        let used = |state: State| match (state.refs(), policy) {
            (0, _) => Err(LruError::NotAdded),
            (_, LruPolicy::TwoLists) => Ok(state.accessed()),
            (_, LruPolicy::ScanResistant) => Ok(state.more_marked()),
        };
        let (before, _) = self.frames.change(frame, used)?;
        match policy == LruPolicy::TwoLists && before.awaits_activation() {
            true => self.activate(pfn),
            false => Ok(()),
        }
    }

    /// Moves a frame to the front of the active list later, by batch. A frame that is on no list
    /// when its batch is processed, since it is isolated or still waits to be added, stays as it
    /// is; the same holds for [`Lru::deactivate`] and [`Lru::rotate`].
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn activate(&self, pfn: Pfn) -> Result<(), LruError> {
        self.push_held(Batch::Activate, pfn)
    }

    /// Moves a frame to the front of the inactive list later, by batch.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn deactivate(&self, pfn: Pfn) -> Result<(), LruError> {
        self.push_held(Batch::Deactivate, pfn)
    }

    /// Moves a frame to the back of the inactive list later, by batch, to be reclaimed next: its
    /// content has just been written back, for example.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn rotate(&self, pfn: Pfn) -> Result<(), LruError> {
        self.push_held(Batch::Rotate, pfn)
    }

    /// Pins a frame in memory: it moves to the unevictable list later, by batch, and from now on no
    /// reclaim takes it. A frame may be pinned several times.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`], or [`LruError::TooManyReferences`] if it was done too often.
    pub fn pin(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        // The first pin needs a reference for the batch; without one it fails.
        let pin = |state: State| match state.pin()? {
            pinned if pinned.pins() == 1 => pinned.get(),
            pinned => Ok(pinned),
        };
        let (_, after) = self.frames.change(frame, pin)?;
        if after.pins() == 1 {
            self.groups.pin(after.slot(), after.frames());
            self.push(Batch::Pin, frame);
        }
        Ok(())
    }

    /// Undoes one [`Lru::pin`]. After the last one the frame can be reclaimed again.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`], or [`LruError::NotPinned`].
    pub fn unpin(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        // The last unpin needs a reference for the batch; without one it fails.
        let unpin = |state: State| match state.unpin()? {
            unpinned if unpinned.pins() == 0 => unpinned.get(),
            unpinned => Ok(unpinned),
        };
        let (_, after) = self.frames.change(frame, unpin)?;
        if after.pins() == 0 {
            self.groups.unpin(after.slot(), after.frames());
            self.push(Batch::Pin, frame);
        }
        Ok(())
    }

    /// Puts a frame that has a reference into a batch, with a reference of its own.
    fn push_held(&self, batch: Batch, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        self.frames.change(frame, State::get)?;
        self.push(batch, frame);
        Ok(())
    }
}

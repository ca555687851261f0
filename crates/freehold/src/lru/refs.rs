//! References to frames, and what happens to those that nobody refers to any more.

use super::cpu::{BATCH_MAX, Few};
use super::frame::State;
use super::vec::{Place, VecGuard};
use super::{Lru, Owner};
use crate::Error;
use crate::error::BulkFreeError;
use crate::memmap::index::FrameIndex;
use crate::platform::Platform;
use crate::units::Pfn;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Takes a reference to a frame that somebody has one to already. Whoever found the frame in an
    /// index has to check that it is still there, as its content may have changed in between.
    ///
    /// # Errors
    ///
    /// [`Error::NotAdded`] if nobody has: the frame is being reclaimed or moved, or has been
    /// released. [`Error::ForeignFrame`] or [`Error::TooManyReferences`].
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Result<(), Error> {
        let frame = self.frames.index_of(pfn)?;
        self.frames.change(frame, State::get).map(|_| ())
    }

    /// Gives a reference up. With the last one the frame leaves its list and its group, and the
    /// owner is handed it back by [`Owner::release`].
    ///
    /// # Errors
    ///
    /// [`Error::NotAdded`] or [`Error::ForeignFrame`].
    #[inline]
    pub fn put(&self, pfn: Pfn) -> Result<(), Error> {
        let frame = self.frames.index_of(pfn)?;
        let (_, after) = self.frames.change(frame, State::put)?;
        if after.refs() == 0 {
            let mut last = Last::new(self);
            last.push(frame, after);
        }
        Ok(())
    }

    /// Gives a reference to each of many frames up, taking each lock once for frames that follow
    /// each other and lie under it.
    ///
    /// # Errors
    ///
    /// As [`Lru::put`], for the first frame at fault. Those before it were put, it and those behind
    /// were not.
    pub fn put_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        let mut last = Last::new(self);
        for (freed, &pfn) in frames.iter().enumerate() {
            let put = || {
                let frame = self.frames.index_of(pfn)?;
                Ok((frame, self.frames.change(frame, State::put)?.1))
            };
            match put() {
                Ok((frame, after)) if after.refs() == 0 => last.push(frame, after),
                Ok(_) => {}
                Err(error) => return Err(BulkFreeError { freed, error }),
            }
        }
        Ok(())
    }

    /// Hands back frames that are on no list and have no references, and gives up references that
    /// batches held; no more than a batch in all. No lock is held.
    ///
    /// Both in one go: the owner, who is told last, may panic, and nothing may be left undone then.
    pub(super) fn finish_few(&self, gone: &Few, held: &Few) {
        let mut last = Last::new(self);
        gone.iter().for_each(|frame| last.push(frame, self.frames.state(frame)));
        for frame in held.iter() {
            let after = self.frames.change(frame, State::put).map(|(_, after)| after);
            if let Ok(after) = after
                && after.refs() == 0
            {
                last.push(frame, after);
            }
        }
    }

    /// Hands back frames that are on no list and have no references. No lock is held.
    pub(super) fn release_few(&self, few: &Few) {
        self.finish_few(few, &Few::new());
    }

    /// The lock over the lruvec of a frame whose group cannot change: the caller has cleared its
    /// LRU mark, or taken its last reference.
    pub(super) fn relock<'a>(
        &'a self,
        held: Option<VecGuard<'a, P>>,
        state: State,
    ) -> VecGuard<'a, P> {
        let place = Place { slot: state.slot(), node: state.node() };
        self.vecs.relock(&self.platform, held, place, |slot| self.groups.parent(slot))
    }
}

/// Frames that have no references left, on their way to their owner.
///
/// This is the release path that pairs with isolation. Whoever takes the last reference sees in the
/// same step whether the frame is listed. If it is, nobody else can clear the mark any more, since
/// that takes a reference: so the releaser may unlink the frame. If it is not, nobody else has it
/// off its list, since they would hold a reference.
struct Last<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    lock: Option<VecGuard<'a, P>>,
    pfns: [Pfn; BATCH_MAX],
    /// The slots that they are yet to be uncharged from.
    slots: [u16; BATCH_MAX],
    len: usize,
}

impl<'a, P: Platform, O: Owner> Last<'a, P, O> {
    fn new(lru: &'a Lru<P, O>) -> Self {
        let pfns = [Pfn::new(0); BATCH_MAX];
        Last { lru, lock: None, pfns, slots: [0; BATCH_MAX], len: 0 }
    }

    /// Takes in a frame whose last reference left it in `state`.
    fn push(&mut self, frame: FrameIndex, state: State) {
        let lru = self.lru;
        if state.is_listed() {
            let lock = lru.relock(self.lock.take(), state);
            lock.unlink(&lru.frames, frame, state);
            self.lock = Some(lock);
        }
        if state.pins() > 0 {
            lru.groups.unpin(state.slot());
        }
        self.slots[self.len] = state.slot();
        self.pfns[self.len] = lru.frames.pfn_of(frame);
        self.len += 1;
        lru.frames.set(frame, state.released());
        // At once, not before the next one: the owner may panic, and that one would be lost.
        if self.len == BATCH_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.lock = None;
        let len = core::mem::take(&mut self.len);
        for same in self.slots[..len].chunk_by(|slot, next| slot == next) {
            self.lru.uncharge(same[0], same.len() as u32);
        }
        if len > 0 {
            self.lru.owner.release(&self.pfns[..len]);
        }
    }
}

impl<P: Platform, O: Owner> Drop for Last<'_, P, O> {
    fn drop(&mut self) {
        self.flush();
    }
}

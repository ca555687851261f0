//! References to frames, and the release of frames whose last reference is gone.

use crate::error::{LruError, PutBulkError};
use crate::frames::few::Few;
use crate::frames::state::State;
use crate::id::Place;
use crate::lists::lock::VecGuard;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::BATCH_MAX;
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::{Order, Pfn};

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Takes a reference to a frame that has one already. A caller that found the frame in an index
    /// must re-check the entry, since the content may have changed in between.
    ///
    /// # Errors
    ///
    /// [`LruError::NotAdded`] if there is no reference: the frame is being reclaimed or moved, or
    /// has been released. [`LruError::ForeignFrame`] or [`LruError::TooManyReferences`].
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        self.frames.change(frame, State::get).map(|_| ())
    }

    /// Drops a reference. With the last one the frame leaves its list and its group, and returns to
    /// the owner by [`Owner::release`].
    ///
    /// # Errors
    ///
    /// [`LruError::NotAdded`] or [`LruError::ForeignFrame`].
    #[inline]
    pub fn put(&self, pfn: Pfn) -> Result<(), LruError> {
        let frame = self.frames.index_of(pfn)?;
        let (_, after) = self.frames.change(frame, State::put)?;
        if after.refs() == 0 {
            self.release(frame, after);
        }
        Ok(())
    }

    /// Releases a frame whose last reference left it in `state`: as [`Last`], for one.
    fn release(&self, frame: FrameIndex, state: State) {
        if state.is_listed() {
            self.relock(None, state).unlink(&self.frames, frame, state);
        }
        let pfn = self.leave(frame, state);
        self.uncharge(state.slot(), state.frames());
        self.owner.release(&[pfn], state.order());
    }

    /// Makes a frame unused that is on no list and has no references, except for its charge.
    fn leave(&self, frame: FrameIndex, state: State) -> Pfn {
        if state.pins() > 0 {
            self.groups.unpin(state.slot(), state.frames());
        }
        self.frames.free_block(frame, state);
        self.frames.pfn_of(frame)
    }

    /// Drops a reference to each of many frames. Takes each lock once for consecutive frames under
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Lru::put`], for the first frame at fault. The references to the frames before it were
    /// dropped, those to it and to later ones were not.
    pub fn put_bulk(&self, frames: &[Pfn]) -> Result<(), PutBulkError> {
        let mut last = Last::new(self);
        for (put, &pfn) in frames.iter().enumerate() {
            let drop_one = || {
                let frame = self.frames.index_of(pfn)?;
                Ok((frame, self.frames.change(frame, State::put)?.1))
            };
            match drop_one() {
                Ok((frame, after)) if after.refs() == 0 => last.push(frame, after),
                Ok(_) => {}
                Err(error) => return Err(PutBulkError { put, error }),
            }
        }
        Ok(())
    }

    /// Releases frames that are on no list and have no references, and drops references that
    /// batches held; no more than a batch in all. No lock is held.
    ///
    /// Both in one pass: the owner, which is called last, may panic, and nothing may be left undone
    /// then.
    pub(crate) fn finish_few(&self, gone: &Few, held: &Few) {
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

    /// Releases frames that are on no list and have no references. No lock is held.
    pub(crate) fn release_few(&self, few: &Few) {
        self.finish_few(few, &Few::new());
    }

    /// The lock over the lruvec of a frame whose group cannot change: the caller has cleared its
    /// LRU mark, or taken its last reference.
    pub(crate) fn relock<'a>(
        &'a self,
        held: Option<VecGuard<'a, P>>,
        state: State,
    ) -> VecGuard<'a, P> {
        let place = Place { slot: state.slot(), node: state.node() };
        self.vecs.relock(&self.platform, held, place, |slot| self.groups.parent(slot))
    }
}

/// Frames without references, on their way to their owner.
///
/// This is the release path that pairs with isolation. The put that drops the last reference reads
/// in the same step whether the frame is listed. If it is, no other call can clear the mark any
/// more, since that takes a reference: so the releaser may unlink the frame. If it is not, no other
/// call has it isolated, since that call would hold a reference.
struct Last<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    lock: Option<VecGuard<'a, P>>,
    pfns: [Pfn; BATCH_MAX],
    orders: [Order; BATCH_MAX],
    /// The slots still to be uncharged.
    slots: [u16; BATCH_MAX],
    len: usize,
}

impl<'a, P: Platform, O: Owner> Last<'a, P, O> {
    fn new(lru: &'a Lru<P, O>) -> Self {
        let (pfns, orders) = ([Pfn::new(0); BATCH_MAX], [Order::ZERO; BATCH_MAX]);
        Last { lru, lock: None, pfns, orders, slots: [0; BATCH_MAX], len: 0 }
    }

    /// Adds a frame or block whose last reference left it in `state`.
    fn push(&mut self, frame: FrameIndex, state: State) {
        let lru = self.lru;
        if state.is_listed() {
            let lock = lru.relock(self.lock.take(), state);
            lock.unlink(&lru.frames, frame, state);
            self.lock = Some(lock);
        }
        (self.slots[self.len], self.orders[self.len]) = (state.slot(), state.order());
        self.pfns[self.len] = lru.leave(frame, state);
        self.len += 1;
        // At once, not before the next one: the owner may panic, and that frame would be lost.
        if self.len == BATCH_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.lock = None;
        let len = core::mem::take(&mut self.len);
        let mut next = 0;
        for same in self.slots[..len].chunk_by(|slot, next| slot == next) {
            let orders = &self.orders[next..next + same.len()];
            let frames = orders.iter().map(|order| order.frames().get() as u32).sum();
            self.lru.uncharge(same[0], frames);
            next += same.len();
        }
        let (pfns, orders) = (&self.pfns[..len], &self.orders[..len]);
        Releases { owner: &self.lru.owner, pfns, orders }.run();
    }
}

/// Blocks to be handed to their owner, in one call for consecutive ones of one order.
struct Releases<'a, O: Owner> {
    owner: &'a O,
    pfns: &'a [Pfn],
    orders: &'a [Order],
}

impl<O: Owner> Releases<'_, O> {
    fn run(&mut self) {
        while let Some(&order) = self.orders.first() {
            let len = self.orders.iter().take_while(|&&next| next == order).count();
            let (now, later) = self.pfns.split_at(len);
            (self.pfns, self.orders) = (later, &self.orders[len..]);
            self.owner.release(now, order);
        }
    }
}

impl<O: Owner> Drop for Releases<'_, O> {
    fn drop(&mut self) {
        // After a panic of the owner, those of other orders are left.
        self.run();
    }
}

impl<P: Platform, O: Owner> Drop for Last<'_, P, O> {
    fn drop(&mut self) {
        self.flush();
    }
}

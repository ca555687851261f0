//! References to frames, and the release of frames whose last reference is gone.

use crate::error::{LruError, PutBulkError};
use crate::frames::few::Few;
use crate::frames::state::State;
use crate::lists::lock::ShardGuard;
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
            self.lock_one(frame, state).unlink(&self.frames, frame, state);
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
    /// it, up to 31 at a time.
    ///
    /// # Errors
    ///
    /// As [`Lru::put`], for the first frame at fault. The references to the frames before it were
    /// dropped, those to it and to later ones were not.
    pub fn put_bulk(&self, frames: &[Pfn]) -> Result<(), PutBulkError> {
        let (mut last, mut found) = (Last::new(self), [FrameIndex(0); BATCH_MAX]);
        let mut put = 0;
        for batch in frames.chunks(BATCH_MAX) {
            // `index_of` reads each record: those that are in no cache come now, at the same time,
            // and not one after the other while the lock for the first of them is held.
            let mut len = 0;
            let all = batch.iter().zip(&mut found).try_for_each(|(&pfn, found)| {
                *found = self.frames.index_of(pfn)?;
                len += 1;
                Ok(())
            });
            for &frame in &found[..len] {
                match self.frames.change(frame, State::put) {
                    Ok((_, after)) if after.refs() == 0 => last.push(frame, after),
                    Ok(_) => {}
                    Err(error) => return Err(PutBulkError { put, error }),
                }
                put += 1;
            }
            all.map_err(|error| PutBulkError { put, error })?;
            if last.len > 0 {
                last.flush();
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
        if gone.is_empty() && held.is_empty() {
            return;
        }
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

    /// The lock over the shard that a frame is linked to. The caller has cleared its LRU mark, or
    /// taken its last reference, in this state.
    #[inline]
    pub(crate) fn lock_listed<'a, 'h>(
        &'a self,
        held: &'h mut Option<ShardGuard<'a, P>>,
        frame: FrameIndex,
        state: State,
    ) -> &'h ShardGuard<'a, P> {
        let sharding = self.frames.sharding;
        let mut id = sharding.shard(state);
        // Until its shard was locked, that may have been joined to shard 0.
        while id.shard > 0 {
            self.vecs.relock(&self.platform, &self.groups, held, id);
            let now = sharding.shard(self.frames.state(frame));
            if now.shard == id.shard {
                break;
            }
            id = now;
        }
        self.vecs.relock(&self.platform, &self.groups, held, id)
    }

    /// As [`Lru::lock_listed`], for one frame.
    #[inline]
    fn lock_one(&self, frame: FrameIndex, state: State) -> ShardGuard<'_, P> {
        let sharding = self.frames.sharding;
        let mut id = sharding.shard(state);
        while id.shard > 0 {
            let guard = self.vecs.lock(&self.platform, &self.groups, id);
            let now = sharding.shard(self.frames.state(frame));
            if now.shard == id.shard {
                return guard;
            }
            id = now;
        }
        self.vecs.lock(&self.platform, &self.groups, id)
    }

    /// The lock over the shard that a frame is to be put on, which the caller has isolated, or
    /// which is new: the running CPU's, `near`.
    #[inline]
    pub(crate) fn lock_near<'a, 'h>(
        &'a self,
        held: &'h mut Option<ShardGuard<'a, P>>,
        frame: FrameIndex,
        near: usize,
    ) -> &'h ShardGuard<'a, P> {
        let place = self.frames.sharding.place(self.frames.state(frame));
        self.vecs.relock(&self.platform, &self.groups, held, place.shard(near))
    }

    /// The shard that the running CPU adds to, and reclaims from first.
    pub(crate) fn near(&self) -> usize {
        match self.frames.sharding.shards() {
            1 => 0,
            _ => self.cpus.near(&self.platform),
        }
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
    lock: Option<ShardGuard<'a, P>>,
    /// Frames, and the states in which their last references left them.
    frames: [(FrameIndex, State); BATCH_MAX],
    len: usize,
}

impl<'a, P: Platform, O: Owner> Last<'a, P, O> {
    fn new(lru: &'a Lru<P, O>) -> Self {
        Last { lru, lock: None, frames: [(FrameIndex(0), State::HOLE); BATCH_MAX], len: 0 }
    }

    /// Adds a frame or block whose last reference left it in `state`.
    fn push(&mut self, frame: FrameIndex, state: State) {
        if !self.lru.vecs.lock.is_brief() {
            self.unlink(frame, state);
        }
        self.frames[self.len] = (frame, state);
        self.len += 1;
        // At once, not before the next one: the owner may panic, and that frame would be lost.
        if self.len == BATCH_MAX {
            self.flush();
        }
    }

    /// Takes a frame off its list, if it is on one; keeps the lock for the next.
    fn unlink(&mut self, frame: FrameIndex, state: State) {
        if state.is_listed() {
            let lock = self.lru.lock_listed(&mut self.lock, frame, state);
            lock.unlink(&self.lru.frames, frame, state);
        }
    }

    fn flush(&mut self) {
        let (lru, len) = (self.lru, core::mem::take(&mut self.len));
        if lru.vecs.lock.is_brief() {
            for at in 0..len {
                let (frame, state) = self.frames[at];
                self.unlink(frame, state);
            }
        }
        self.lock = None;
        let frames = &self.frames[..len];
        let (mut pfns, mut orders) = ([Pfn::new(0); BATCH_MAX], [Order::ZERO; BATCH_MAX]);
        for (at, &(frame, state)) in frames.iter().enumerate() {
            (pfns[at], orders[at]) = (lru.leave(frame, state), state.order());
        }
        for same in frames.chunk_by(|(_, one), (_, next)| one.slot() == next.slot()) {
            lru.uncharge(same[0].1.slot(), same.iter().map(|(_, state)| state.frames()).sum());
        }
        let (pfns, orders) = (&pfns[..frames.len()], &orders[..frames.len()]);
        Releases { owner: &lru.owner, pfns, orders }.run();
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

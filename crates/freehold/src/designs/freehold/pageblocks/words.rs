//! The words of a pageblock, and the ordering of each access to them that more than one place
//! makes.
//!
//! [`Pageblocks`](super::Pageblocks) finds the words by number each time,
//! [`FrameRef`](super::FrameRef) has looked them up once. Steps of one protocol alone are where it
//! is: remote frees in [`remote`](super::remote), tail bits in [`tails`](super::tails) and
//! [`extent`](super::extent), holes in [`bitmaps`](super::bitmaps).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::state::State;
use super::{FREE, Maps, REMOTE, Record, TAILS};
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};

impl<P: Platform> Record<P> {
    /// The zone of a pageblock that has memory.
    #[inline(always)]
    pub(super) fn zone(&self) -> ZoneIndex {
        // Relaxed: written before the pageblock's frames became available. It stays as it is while
        // a frame of it is in use, and while the pageblock has a holder or is queued.
        ZoneIndex((self.zone.load(Relaxed) as u16).wrapping_sub(1))
    }

    /// The state. Of what the holder decides, it is a hint to every other CPU.
    #[inline(always)]
    pub(super) fn state(&self) -> State {
        // Acquire: a CPU that sees a state sees what its writer did to the pageblock before.
        State(self.state.load(Acquire))
    }

    /// The state, for the look that follows a step on the remote bitmap.
    #[inline(always)]
    pub(super) fn state_after_step(&self) -> State {
        // SeqCst: see `remote`.
        State(self.state.load(SeqCst))
    }

    /// Changes the state, if `change` wants to; returns the state before, or what stood in the way.
    #[inline(always)]
    pub(super) fn try_update(
        &self,
        change: impl Fn(State) -> Option<State>,
    ) -> Result<State, State> {
        let mut before = self.state();
        loop {
            let Some(after) = change(before) else { return Err(before) };
            // Acquire: from the last holder. Release: for CPUs that see the new state. SeqCst: the
            // change may say that the pageblock is no longer watched, and a failure may be the
            // look that follows a remote free; see `remote`.
            match self.state.compare_exchange(before.0, after.0, SeqCst, SeqCst) {
                Ok(_) => return Ok(before),
                Err(now) => before = State(now),
            }
        }
    }

    /// Writes the state of a pageblock that the caller alone can reach, and that is not queued.
    #[inline(always)]
    pub(super) fn set_state(&self, state: State) {
        // Release: as in `try_update`. No other CPU changes the state: only split pageblocks of a
        // cache are queued by others.
        self.state.store(state.0, Release);
    }
}

impl<P: Platform> Maps<P> {
    /// The free frames of a word, as its holder left them.
    #[inline(always)]
    pub(super) fn free(&self, word: usize) -> u64 {
        // Relaxed: exact for the holder; for other CPUs a hint, by which they detect mistakes.
        self.word::<FREE>(word).load(Relaxed)
    }

    /// Writes the free frames of a word. The caller holds the pageblock.
    #[inline(always)]
    pub(super) fn set_free(&self, word: usize, free: u64) {
        // Relaxed: the lock or the state orders it before what the next holder does.
        self.word::<FREE>(word).store(free, Relaxed);
    }

    /// Frames of a word that were freed remotely, and holes: frames that are no memory.
    #[inline(always)]
    pub(super) fn remote(&self, word: usize) -> u64 {
        // Acquire: orders what the CPU that freed a frame did with it before what its next user
        // does.
        self.word::<REMOTE>(word).load(Acquire)
    }

    /// The free frames of a word, in either bitmap.
    #[inline(always)]
    pub(super) fn free_or_remote(&self, word: usize) -> u64 {
        // In this order: a collection adds frames to the free ones before it removes them from the
        // remote ones. So a frame that is free all the time is found.
        let remote = self.remote(word);
        self.free(word) | remote
    }

    /// The tail bits of a word: frames that belong to the same allocation as the frame before, and
    /// holes.
    #[inline(always)]
    pub(super) fn tails(&self, word: usize) -> u64 {
        // Acquire: of a frame that has become a hole, a look at the remote bitmap that follows
        // finds the bit as well.
        self.word::<TAILS>(word).load(Acquire)
    }

    /// The same for the user of a frame in the word, who does not look for holes.
    #[inline(always)]
    pub(super) fn tails_of_user(&self, word: usize) -> u64 {
        // Relaxed: a user got the frame from the CPU that allocated it, so it sees the bits of its
        // allocation as they are. Of the frame behind, a bit that is a hole's, or was, says that
        // more must be looked at: then the caller goes by `tails`.
        self.word::<TAILS>(word).load(Relaxed)
    }

    /// Marks two frames or more of a word, none of which is free, as one allocation.
    #[inline(always)]
    pub(super) fn join(&self, word: usize, mask: u64) {
        let (tails, inner) = (self.word::<TAILS>(word), mask & (mask << 1));
        // Relaxed: a CPU that frees the run got it from the CPU that allocated it.
        match mask {
            // The block is all of the word: no other tail bits in it can change meanwhile.
            u64::MAX => tails.store(inner, Relaxed),
            // An RMW, since other CPUs may change tail bits of other frames.
            _ => {
                tails.fetch_or(inner, Relaxed);
            }
        }
    }
}

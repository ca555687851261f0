//! The bitmaps of free frames and of remote frees: read, counted and searched.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use super::run::{Run, WORD_FRAMES, WORD_ORDER, starts};
use super::{FREE, PageblockIndex, Pageblocks, REMOTE, TAILS};
use crate::platform::{Platform, Word};
use crate::units::Order;

impl<P: Platform> Pageblocks<P> {
    /// The free frames of a word, as its holder left them.
    #[inline(always)]
    pub(crate) fn free(&self, word: usize) -> u64 {
        // Relaxed: exact for the holder; for others a hint that finds mistakes.
        self.map::<FREE>(word).load(Relaxed)
    }

    /// Writes the free frames of a word. The caller holds the pageblock.
    #[inline(always)]
    pub(crate) fn set_free(&self, word: usize, free: u64) {
        // Relaxed: the next holder is ordered behind by the lock or the state.
        self.map::<FREE>(word).store(free, Relaxed);
    }

    /// Frames of a word that were freed remotely, and those that are no memory.
    #[inline(always)]
    pub(crate) fn remote(&self, word: usize) -> u64 {
        // Acquire: the next user of a frame is ordered behind the one that freed it.
        self.map::<REMOTE>(word).load(Acquire)
    }

    /// The free frames of a word, in either bitmap.
    #[inline(always)]
    pub(crate) fn free_or_remote(&self, word: usize) -> u64 {
        // In this order: a collection adds frames to the free ones before it takes them from the
        // others, so that a frame which is free all the time is found.
        let remote = self.remote(word);
        self.free(word) | remote
    }

    /// Frames of a word that users hold. A frame that is free all the while is not among them, even
    /// if it is collected meanwhile.
    pub(crate) fn used(&self, word: usize) -> u64 {
        !self.free_or_remote(word)
    }

    /// The frames of a word that belong to the same allocation as those before them, and those that
    /// are no memory.
    #[inline(always)]
    pub(crate) fn tails(&self, word: usize) -> u64 {
        // Relaxed: exact for the user of the allocation.
        self.map::<TAILS>(word).load(Relaxed)
    }

    /// Whether frames of a word are allocations of their own, none part of a larger one. The word
    /// behind need not be looked at: see [`tails`](super::tails).
    #[inline(always)]
    pub(crate) fn are_single(&self, word: usize, mask: u64) -> bool {
        self.tails(word) & (mask | mask << 1) == 0
    }

    /// Frames of a word that are no memory.
    #[inline]
    pub(crate) fn holes(&self, word: usize) -> u64 {
        self.remote(word) & self.tails(word)
    }

    /// Frames of a word that are no memory, for a look at frames of others. One that was freed
    /// remotely and handed out again as part of a larger block between the two loads looks like a
    /// hole, so an apparent hole is read several times: it would have to come and go just as often.
    pub(crate) fn holes_of_others(&self, word: usize) -> u64 {
        const LOOKS: usize = 4;
        (0..LOOKS).fold(!0, |holes, _| if holes == 0 { 0 } else { holes & self.holes(word) })
    }

    /// How many frames of a pageblock are free, without those that were freed remotely.
    pub(crate) fn count_free(&self, pageblock: PageblockIndex) -> u32 {
        pageblock.words().map(|word| self.free(word).count_ones()).sum()
    }

    /// How many frames of a pageblock were freed remotely.
    pub(crate) fn count_remote(&self, pageblock: PageblockIndex) -> u32 {
        pageblock.words().map(|word| (self.remote(word) & !self.tails(word)).count_ones()).sum()
    }

    /// How many frames of a pageblock are memory.
    pub(crate) fn count_present(&self, pageblock: PageblockIndex) -> u32 {
        pageblock.words().map(|word| (!self.holes(word)).count_ones()).sum()
    }

    /// Whether all frames of a pageblock are free.
    pub(crate) fn is_whole(&self, pageblock: PageblockIndex) -> bool {
        pageblock.words().all(|word| self.free(word) == !0)
    }

    /// Makes frames of a word memory, which are free then. The caller holds the pageblock.
    pub(crate) fn add_free(&self, word: usize, mask: u64) {
        // No frame looks as if it were in use meanwhile: as freed remotely at first, then as both.
        self.map::<TAILS>(word).fetch_and(!mask, AcqRel);
        self.set_free(word, self.free(word) | mask);
        self.map::<REMOTE>(word).fetch_and(!mask, AcqRel);
    }

    /// Makes frames of a word memory, as if they had been freed remotely.
    pub(crate) fn add_freed(&self, word: usize, mask: u64) {
        // The bits of the remote bitmap are set already. The second step changes nothing, but is
        // ordered against the last look of the holder as that of a remote free is.
        self.map::<TAILS>(word).fetch_and(!mask, AcqRel);
        self.map::<REMOTE>(word).fetch_or(0, SeqCst);
    }

    /// The lowest free run of `order` in a pageblock that the caller holds.
    pub(crate) fn find_run(&self, pageblock: PageblockIndex, order: Order) -> Option<Run> {
        self.run_among(pageblock, order, |word| self.free(word))
    }

    /// Whether a pageblock that others may hold has a free run of `order`.
    pub(crate) fn has_run(&self, pageblock: PageblockIndex, order: Order) -> bool {
        // Acquire: the look that follows comes after this one; see `sections`.
        let free = |word| self.map::<FREE>(word).load(Acquire);
        self.run_among(pageblock, order, free).is_some()
    }

    /// The lowest free run of `order` in a pageblock, of which these frames are free.
    fn run_among(
        &self,
        pageblock: PageblockIndex,
        order: Order,
        free: impl Fn(usize) -> u64,
    ) -> Option<Run> {
        let (in_word, step) = match order.get().checked_sub(WORD_ORDER) {
            None => (order.get(), 1),
            Some(up) => (WORD_ORDER, 1 << up),
        };
        pageblock.words().step_by(step).find_map(|word| {
            let starts = starts(free(word), in_word);
            let rest = (word + 1..word + step).all(|word| free(word) == !0);
            let frame = word as u32 * WORD_FRAMES + starts.trailing_zeros();
            (starts != 0 && rest).then_some(Run::at(frame, order))
        })
    }

    /// Takes a free run. The caller holds the pageblock.
    pub(crate) fn take_run(&self, run: Run) {
        let mask = run.mask();
        for word in run.words() {
            self.set_free(word, self.free(word) & !mask);
        }
        self.join(run);
        run.words().for_each(|word| self.begin_use(word, mask));
    }
}

//! The bitmaps of free frames and of remote frees: read, counted and searched.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::run::{Run, WORD_FRAMES, WORD_ORDER, longer, starts};
use super::{FREE, PageblockIndex, Pageblocks, REMOTE, TAILS, WORDS};
use crate::platform::{Platform, Word};
use crate::units::Order;

/// Which frames of a pageblock are free, without those that were freed remotely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fullness {
    /// None.
    Full,
    /// Some.
    Partial,
    /// All.
    Whole,
}

impl<P: Platform> Pageblocks<P> {
    /// The free frames of a word, as its holder left them.
    #[inline(always)]
    pub(crate) fn free(&self, word: usize) -> u64 {
        self.maps_of(word).free(word)
    }

    /// Writes the free frames of a word. The caller holds the pageblock.
    #[inline(always)]
    pub(crate) fn set_free(&self, word: usize, free: u64) {
        self.maps_of(word).set_free(word, free);
    }

    /// Frames of a word that were freed remotely, and holes: frames that are no memory.
    #[inline(always)]
    pub(crate) fn remote(&self, word: usize) -> u64 {
        self.maps_of(word).remote(word)
    }

    /// The free frames of a word, in either bitmap.
    #[inline(always)]
    pub(crate) fn free_or_remote(&self, word: usize) -> u64 {
        self.maps_of(word).free_or_remote(word)
    }

    /// Frames of a word that users hold. A frame that is free all the time is not among them, even
    /// if it is collected meanwhile, nor one that is removed.
    pub(crate) fn used(&self, word: usize) -> u64 {
        // A collection moves frames from the remote to the free ones, a removal the other way: so
        // the free ones are read between two looks at the remote ones. Acquire: orders the last.
        let remote = self.remote(word);
        let free = self.map::<FREE>(word).load(Acquire);
        !(remote | free | self.remote(word))
    }

    /// The tail bits of a word: frames that belong to the same allocation as the frame before, and
    /// holes.
    #[inline(always)]
    pub(crate) fn tails(&self, word: usize) -> u64 {
        self.maps_of(word).tails(word)
    }

    /// Whether frames of a word are allocations of their own, and none is part of a larger one. The
    /// next word need not be read: see [`tails`](super::tails).
    #[inline(always)]
    pub(crate) fn are_single(&self, word: usize, mask: u64) -> bool {
        self.tails(word) & (mask | mask << 1) == 0
    }

    /// The holes of a word: frames that are no memory.
    #[inline]
    pub(crate) fn holes(&self, word: usize) -> u64 {
        self.remote(word) & self.tails(word)
    }

    /// The holes of a word, for a caller that does not hold the pageblock, which has memory or had
    /// some. A frame that is freed
    /// remotely and allocated again as part of a larger block between the two loads looks like a
    /// hole. So an apparent hole is read several times: the frame would have to come and go just as
    /// often.
    pub(crate) fn holes_of_others(&self, word: usize) -> u64 {
        const LOOKS: usize = 4;
        (0..LOOKS).fold(!0, |holes, _| if holes == 0 { 0 } else { holes & self.holes(word) })
    }

    /// How many frames of a pageblock are free, without those that were freed remotely.
    #[inline(never)]
    pub(crate) fn count_free(&self, pageblock: PageblockIndex) -> u32 {
        self.words_of(pageblock).map(u64::count_ones).sum()
    }

    /// The free frames of each word of a pageblock, as its holder left them.
    #[inline(always)]
    fn words_of(&self, pageblock: PageblockIndex) -> impl Iterator<Item = u64> {
        // Relaxed: as in `Maps::free`.
        self.maps(pageblock).words::<FREE>().map(|word| word.load(Relaxed))
    }

    /// How full a pageblock is, as its holder left it.
    pub(crate) fn fullness(&self, pageblock: PageblockIndex) -> Fullness {
        let of_words = self.words_of(pageblock);
        match of_words.fold((0, !0), |(any, all), free| (any | free, all & free)) {
            (0, _) => Fullness::Full,
            (_, u64::MAX) => Fullness::Whole,
            _ => Fullness::Partial,
        }
    }

    /// How many frames of a pageblock were freed remotely and have not been collected.
    pub(crate) fn count_remote(&self, pageblock: PageblockIndex) -> u32 {
        pageblock.words().map(|word| (self.remote(word) & !self.tails(word)).count_ones()).sum()
    }

    /// How many frames of a pageblock are memory.
    pub(crate) fn count_present(&self, pageblock: PageblockIndex) -> u32 {
        pageblock.words().map(|word| (!self.holes(word)).count_ones()).sum()
    }

    /// Whether all frames of a pageblock are free.
    #[inline(never)]
    pub(crate) fn is_whole(&self, pageblock: PageblockIndex) -> bool {
        self.words_of(pageblock).all(|free| free == !0)
    }

    /// The same, in either bitmap.
    pub(crate) fn is_free(&self, pageblock: PageblockIndex) -> bool {
        pageblock.words().all(|word| self.free_or_remote(word) == !0)
    }

    /// Makes holes of a word free memory. The caller holds the pageblock.
    pub(crate) fn add_free(&self, word: usize, mask: u64) {
        // In this order, no frame looks allocated meanwhile: at first it looks freed remotely, then
        // free in both bitmaps.
        self.map::<TAILS>(word).fetch_and(!mask, AcqRel);
        self.set_free(word, self.free(word) | mask);
        self.map::<REMOTE>(word).fetch_and(!mask, AcqRel);
    }

    /// Makes free frames of a word holes. The caller holds the pageblock, which is isolated.
    pub(crate) fn remove_free(&self, word: usize, mask: u64) {
        // In this order, no frame looks allocated meanwhile: at first it is free in both bitmaps,
        // then it looks freed remotely. And a CPU that sees the tail bit of a hole can tell by the
        // remote bit that it is one.
        self.map::<REMOTE>(word).fetch_or(mask, AcqRel);
        // Release: see `used`.
        self.map::<FREE>(word).store(self.free(word) & !mask, Release);
        self.map::<TAILS>(word).fetch_or(mask, AcqRel);
    }

    /// Makes holes of a word memory, as if they had been freed remotely.
    pub(crate) fn add_freed(&self, word: usize, mask: u64) {
        // The bits of the remote bitmap are set already. The second step changes nothing, but it is
        // ordered against the last look of the holder as a remote free is.
        self.map::<TAILS>(word).fetch_and(!mask, AcqRel);
        self.map::<REMOTE>(word).fetch_or(0, SeqCst);
    }

    /// The lowest free run of `order` in a pageblock that the caller holds.
    #[inline(never)]
    pub(crate) fn find_run(&self, pageblock: PageblockIndex, order: Order) -> Option<Run> {
        // Relaxed: as in `Maps::free`.
        self.run_among(pageblock, order, |word| word.load(Relaxed))
    }

    /// Whether a pageblock that another CPU may hold has a free run of `order`.
    #[inline(never)]
    pub(crate) fn has_run(&self, pageblock: PageblockIndex, order: Order) -> bool {
        // Acquire: orders this read before the read of section counts that follows; see `sections`.
        self.run_among(pageblock, order, |word| word.load(Acquire)).is_some()
    }

    /// The order of the largest free run of a pageblock, up to half of it; 0 also if no frame is
    /// free.
    #[inline(never)]
    pub(crate) fn largest_run(&self, pageblock: PageblockIndex) -> Order {
        let mut runs = [0; WORDS];
        runs.iter_mut().zip(self.words_of(pageblock)).for_each(|(run, free)| *run = free);
        for order in 0..WORD_ORDER {
            let mut any = 0;
            for run in &mut runs {
                *run = longer(*run, order);
                any |= *run;
            }
            if any == 0 {
                return Order::new(order);
            }
        }
        // A word is 1 now if all of it is free.
        let (mut order, mut words) = (WORD_ORDER, WORDS);
        while order + 1 < Order::PAGEBLOCK.get() {
            words /= 2;
            let mut any = 0;
            for nth in 0..words {
                runs[nth] = runs[2 * nth] & runs[2 * nth + 1];
                any |= runs[nth];
            }
            if any == 0 {
                break;
            }
            order += 1;
        }
        Order::new(order)
    }

    /// The lowest free run of `order` in a pageblock, the words of whose free frames `free` reads.
    #[inline(always)]
    fn run_among(
        &self,
        pageblock: PageblockIndex,
        order: Order,
        free: impl Fn(&P::U64) -> u64,
    ) -> Option<Run> {
        let maps = self.maps(pageblock);
        let free = |word: usize| free(maps.word::<FREE>(word));
        let (word, bit) = match order.get().checked_sub(WORD_ORDER) {
            None => (0..WORDS).find_map(|word| {
                let starts = starts(free(word), order.get());
                (starts != 0).then(|| (word, starts.trailing_zeros()))
            }),
            Some(up) => {
                let mut runs = (0..WORDS).step_by(1 << up);
                let first = runs.find(|&run| (run..run + (1 << up)).all(|word| free(word) == !0));
                first.map(|word| (word, 0))
            }
        }?;
        Some(Run::at(pageblock.frame() + word as u32 * WORD_FRAMES + bit, order))
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

//! The bitmap of frames in use, for `double_free=exact`: one word that decides whether a frame may
//! be freed.
//!
//! Two bitmaps tell whether a frame is free, and two CPUs may write them at the same time, so two
//! frees of one frame can each miss the other. With this third bitmap, a free first clears the bit
//! of the frame, by compare-exchange, and only the free that finds the bit set goes on. The bit is
//! set again when the frame has left the free ones, before its next user knows of it. So a second
//! free finds the bit of its own allocation, no bit, or the bit of a later allocation, which it may
//! well mean.
//!
//! A free and the allocation that follows it are ordered by the bitmaps of free frames, and so are
//! the two changes of the bit. An allocation and the second free that finds its bit are ordered by
//! the bit alone. That free knows nothing of the allocation. So, once it has the bit, it re-checks
//! whether the frame is one that it may free.
//!
//! Only split pageblocks have such bits. Of blocks of whole pageblocks the state decides.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::run::WORD_FRAMES;
use super::{PageblockIndex, Pageblocks, WORDS};
use crate::memmap::zeroable::zeroable;
use crate::platform::{Platform, Word, ZeroBytes};

/// The bitmap of a pageblock.
#[repr(C, align(64))]
pub(super) struct InUse<P: Platform>([P::U64; WORDS]);

zeroable!(InUse { 0: ZeroBytes::array(P::U64::ZERO_BYTES) });

impl<P: Platform> InUse<P> {
    /// With no frame in use.
    pub(super) fn new() -> Self {
        InUse(core::array::from_fn(|_| P::U64::new(0)))
    }
}

impl<P: Platform> Pageblocks<P> {
    /// Whether the bitmap exists.
    #[inline(always)]
    pub(super) fn has_uses(&self) -> bool {
        self.in_use.len() > 0
    }

    fn in_use(&self, word: usize) -> &P::U64 {
        &self.in_use.get(word / WORDS).0[word % WORDS]
    }

    /// Marks frames of a word as in use: they are not free any more, and no user knows of them yet.
    #[inline(always)]
    pub(crate) fn begin_use(&self, word: usize, mask: u64) {
        if self.has_uses() {
            self.set_in_use(word, mask);
        }
    }

    #[cold]
    #[inline(never)]
    fn set_in_use(&self, word: usize, mask: u64) {
        // Release: a free that ends this use sees what was done to the frames before.
        self.in_use(word).fetch_or(mask, Release);
    }

    /// The same for one frame.
    #[inline(always)]
    pub(crate) fn begin_use_of(&self, frame: u32) {
        self.begin_use((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
    }

    /// The same for all frames of a pageblock.
    pub(crate) fn begin_use_of_all(&self, pageblock: PageblockIndex) {
        pageblock.words().for_each(|word| self.begin_use(word, !0));
    }

    /// Ends the use of frames of a word, each an allocation of its own, if all of them are in use;
    /// returns whether they were. If not, nothing has changed. Without the bitmap, always succeeds.
    #[inline(always)]
    pub(crate) fn try_end_use(&self, word: usize, mask: u64) -> bool {
        !self.has_uses() || self.try_clear_in_use(word, mask, mask | mask << 1, 0)
    }

    /// The same for frames that are part of one allocation at least: those of `needed` belong to
    /// that of the frame before.
    #[inline(always)]
    pub(super) fn try_end_use_of(&self, word: usize, mask: u64, needed: u64) -> bool {
        // The first frame of a word has a tail bit only if the word has an extent.
        !self.has_uses() || self.try_clear_in_use(word, mask, needed | 1, needed)
    }

    /// Ends the use of frames of a word, if of the tail bits in `of` those in `wanted` are set.
    #[cold]
    #[inline(never)]
    fn try_clear_in_use(&self, word: usize, mask: u64, of: u64, wanted: u64) -> bool {
        let in_use = self.in_use(word);
        // Relaxed: the compare-exchange below checks it.
        let mut before = in_use.load(Relaxed);
        while before & mask == mask {
            // Acquire: from the allocation, of which the caller may know nothing.
            match in_use.compare_exchange(before, before & !mask, Acquire, Relaxed) {
                Ok(_) => {
                    let is_split = self.state(PageblockIndex::of_word(word)).is_split();
                    let is_ours = is_split && self.joined(word).1 & of == wanted;
                    if !is_ours {
                        self.set_in_use(word, mask);
                    }
                    return is_ours;
                }
                Err(now) => before = now,
            }
        }
        false
    }

    /// Ends the use of all frames of words, of a block that other calls see is being freed: of all
    /// of them, or of none.
    pub(super) fn try_end_uses(&self, words: Range<usize>) -> bool {
        if self.has_uses() {
            for word in words.clone() {
                // Acquire: as above. It fails if a late free of a single frame has a bit for a
                // moment, until it sees that the frame is no longer one.
                if self.in_use(word).compare_exchange(!0, 0, Acquire, Relaxed).is_err() {
                    (words.start..word).for_each(|word| self.set_in_use(word, !0));
                    return false;
                }
            }
        }
        true
    }

    /// Whether the bitmap agrees with the others: in a split pageblock, exactly the frames that are
    /// not free are in use; in any other, none. True without the bitmap.
    pub(crate) fn uses_agree(&self, pageblock: PageblockIndex) -> bool {
        // Relaxed: of frees and allocations at the same time, nothing is certain.
        let agrees = |word| self.in_use(word).load(Relaxed) == self.used_in_split(word);
        !self.has_uses() || pageblock.words().all(agrees)
    }

    /// Makes the bitmap agree, in a copy of the tables where no other thread runs.
    pub(crate) fn repair_uses(&self, pageblock: PageblockIndex) {
        if !self.has_uses() {
            return;
        }
        for word in pageblock.words() {
            let (in_use, used) = (self.in_use(word), self.used_in_split(word));
            // Relaxed: there is no other thread. What does not change is not written: see
            // `repair_state`.
            if in_use.load(Relaxed) != used {
                in_use.store(used, Relaxed);
            }
        }
    }

    /// The frames of a word that users hold, if its pageblock is split.
    fn used_in_split(&self, word: usize) -> u64 {
        let is_split = self.state(PageblockIndex::of_word(word)).is_split();
        if is_split { self.used(word) } else { 0 }
    }
}

//! Which frames are in use, in one word that decides: for `double_free=exact`.
//!
//! Whether a frame is free is told by two bitmaps, which two CPUs may write at the same time: two
//! frees of one frame can each miss the other. With this third one, a free first takes the bit of
//! the frame away, by a compare-exchange, and only the one that finds it goes on. The bit is set
//! again when the frame has left the free ones, before its next user knows of it: so a second free
//! finds the bit of its own allocation, or none, or the bit of an allocation that it may well mean.
//!
//! A free and the allocation that follows it are ordered by the bitmaps of free frames, and so are
//! the two changes of the bit. An allocation and the second free that finds its bit are ordered by
//! the bit alone. That free knows nothing of the allocation, and so, once it has the bit, it looks
//! again whether the frame is one that it may free.
//!
//! Only pageblocks in use frame by frame have such bits. Of blocks of whole pageblocks the state
//! decides.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::run::WORD_FRAMES;
use super::{PageblockIndex, Pageblocks, WORDS};
use crate::platform::{Platform, Word};

/// The bitmap of a pageblock.
#[repr(C, align(64))]
pub(super) struct InUse<P: Platform>([P::U64; WORDS]);

impl<P: Platform> InUse<P> {
    /// No frame is in use.
    pub(super) fn new() -> Self {
        InUse(core::array::from_fn(|_| P::U64::new(0)))
    }
}

impl<P: Platform> Pageblocks<P> {
    /// Whether it is noted which frames are in use.
    #[inline(always)]
    fn notes_uses(&self) -> bool {
        self.in_use.len() > 0
    }

    fn in_use(&self, word: usize) -> &P::U64 {
        &self.in_use.get(word / WORDS).0[word % WORDS]
    }

    /// Says that frames of a word are in use: they are not free any more, and no user knows of them
    /// yet.
    #[inline(always)]
    pub(crate) fn begin_use(&self, word: usize, mask: u64) {
        if self.notes_uses() {
            self.note_use(word, mask);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_use(&self, word: usize, mask: u64) {
        // Release: a free that ends this use sees all that was done to the frames before.
        self.in_use(word).fetch_or(mask, Release);
    }

    /// The same of one frame.
    #[inline(always)]
    pub(crate) fn begin_use_of(&self, frame: u32) {
        self.begin_use((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
    }

    /// The same of all frames of a pageblock.
    pub(crate) fn begin_use_of_all(&self, pageblock: PageblockIndex) {
        pageblock.words().for_each(|word| self.begin_use(word, !0));
    }

    /// Ends the use of frames of a word, each an allocation of its own or claimed, if all of them
    /// are in use, or if that is not noted at all; says whether. Otherwise nothing has changed.
    #[inline(always)]
    pub(crate) fn try_end_use(&self, word: usize, mask: u64) -> bool {
        !self.notes_uses() || self.try_note_end(word, mask)
    }

    #[cold]
    #[inline(never)]
    fn try_note_end(&self, word: usize, mask: u64) -> bool {
        let in_use = self.in_use(word);
        // Relaxed: the step below finds out.
        let mut before = in_use.load(Relaxed);
        while before & mask == mask {
            // Acquire: from the allocation, which may be one that the caller knows nothing of.
            match in_use.compare_exchange(before, before & !mask, Acquire, Relaxed) {
                Ok(_) => {
                    let is_split = self.state(PageblockIndex::of_word(word)).is_split();
                    let tails = self.tails(word) & (mask | mask << 1);
                    // Behind the frames there may be no memory, which has such a mark.
                    let is_alone = tails == 0 || tails & (mask | !self.holes(word)) == 0;
                    let is_ours = is_split && is_alone;
                    if !is_ours {
                        self.note_use(word, mask);
                    }
                    return is_ours;
                }
                Err(now) => before = now,
            }
        }
        false
    }

    /// The same for several words: of all of them, or of none. Those that free some of the same
    /// frames at the same time may all be refused.
    #[inline(always)]
    pub(crate) fn try_end_use_in(&self, words: Range<usize>, mask: u64) -> bool {
        !self.notes_uses() || self.try_note_ends(words, mask)
    }

    #[cold]
    #[inline(never)]
    fn try_note_ends(&self, words: Range<usize>, mask: u64) -> bool {
        for word in words.clone() {
            if !self.try_note_end(word, mask) {
                (words.start..word).for_each(|word| self.note_use(word, mask));
                return false;
            }
        }
        true
    }

    /// Whether just those frames of a pageblock are noted as in use that are not free, if it is in
    /// use frame by frame, and none otherwise. True if that is not noted at all.
    pub(crate) fn uses_agree(&self, pageblock: PageblockIndex) -> bool {
        // Relaxed: of what goes on at the same time, nothing is certain.
        let agrees = |word| self.in_use(word).load(Relaxed) == self.used_in_split(word);
        !self.notes_uses() || pageblock.words().all(agrees)
    }

    /// Has them agree, in a copy of the tables where no other thread runs.
    pub(crate) fn repair_uses(&self, pageblock: PageblockIndex) {
        if !self.notes_uses() {
            return;
        }
        for word in pageblock.words() {
            let (in_use, used) = (self.in_use(word), self.used_in_split(word));
            // Relaxed: there is no other thread. What does not change is not written: see
            // `set_state`.
            if in_use.load(Relaxed) != used {
                in_use.store(used, Relaxed);
            }
        }
    }

    /// The frames of a word that users hold, if its pageblock is in use frame by frame.
    fn used_in_split(&self, word: usize) -> u64 {
        let is_split = self.state(PageblockIndex::of_word(word)).is_split();
        if is_split { self.used(word) } else { 0 }
    }
}

//! Which frames belong to the same allocation: how tail bits are set, cleared and read.
//!
//! An allocation that continues from one word into the next has all of the first word. For blocks
//! of more than a word begin at a word, and when a part of a word is freed, an allocation of its
//! own begins in the next. That tears no block that can still be freed as one: such a block would
//! have all of the word.
//!
//! Users hold aligned blocks of powers of two. A block of which parts were freed counts as the
//! largest such blocks that fit in what is left. So the tail bits are enough: they tell where an
//! allocation begins, and how many of its frames are left in a row.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::run::{Run, Span, WORD_FRAMES};
use super::{FRAMES, PageblockIndex, Pageblocks, TAILS, WORDS};
use crate::Error;
use crate::platform::{Platform, Word};
use crate::units::Order;

/// The order of the largest block that is less than a pageblock.
const PART_MAX: u8 = Order::PAGEBLOCK.get() - 1;

impl<P: Platform> Pageblocks<P> {
    /// Sets the tail bits of all frames of a run but the first. No frame of it is free.
    pub(crate) fn join(&self, run: Run) {
        let mut inner = run.mask() & !(1 << run.bit);
        for word in run.words() {
            let tails = self.map::<TAILS>(word);
            // Relaxed: a CPU that frees the run got it from the CPU that allocated it.
            if run.mask() == !0 {
                // The block is all of the word: no other tail bits in it can change meanwhile.
                tails.store(inner, Relaxed);
            } else if inner != 0 {
                // An RMW, since other CPUs may change tail bits of other frames.
                tails.fetch_or(inner, Relaxed);
            }
            inner = run.mask();
        }
    }

    /// Marks all frames of a pageblock, none of which is free, as one allocation.
    pub(crate) fn join_all(&self, pageblock: PageblockIndex) {
        for (nth, word) in pageblock.words().enumerate() {
            // Relaxed: as in `join`.
            self.map::<TAILS>(word).fetch_or(if nth == 0 { !1 } else { !0 }, Relaxed);
        }
    }

    /// Claims a run that is an allocation or part of one: clears its tail bits and that of the
    /// frame after it, where what is left begins. Of two calls that claim the same frames at the
    /// same time, at most one succeeds. A single frame without tail bits is an exception: there is
    /// nothing to claim, and the step that sets its free bit decides.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOrder`] if the frames belong to more than one allocation; nothing has changed.
    pub(crate) fn begin_free(&self, run: Run) -> Result<(), Error> {
        let first = run.word as usize;
        for word in run.words() {
            let needed = if word == first { run.mask() & !(1 << run.bit) } else { !0 };
            if !self.unjoin(word, needed, run.mask() | run.mask() << 1) {
                // Rare: of two calls that race, the one that has claimed the first word goes on.
                for word in first..word {
                    let cleared = if word == first { !(1 << run.bit) } else { !0 };
                    self.map::<TAILS>(word).fetch_or(cleared, Relaxed);
                }
                return Err(Error::WrongOrder);
            }
        }
        self.begin_behind(run.word as usize + run.words().count() - 1);
        Ok(())
    }

    /// Whether an allocation that continues into the next word has all of this one, as it must.
    pub(crate) fn ends_or_fills(&self, word: usize) -> bool {
        let behind = word + 1;
        let goes_on =
            !behind.is_multiple_of(WORDS) && self.tails(behind) & !self.holes(behind) & 1 == 1;
        !goes_on || self.tails(word) & !self.holes(word) | 1 == !0
    }

    /// Makes an allocation begin in the next word, if one continues into it. Some frames of this
    /// word have just been claimed.
    pub(crate) fn begin_behind(&self, word: usize) {
        let behind = word + 1;
        if !behind.is_multiple_of(WORDS) && self.tails(behind) & 1 == 1 {
            self.unjoin(behind, 0, 1);
        }
    }

    /// Clears tail bits of a word if all of `needed` are set; returns whether they were. Those of
    /// holes do not count.
    pub(crate) fn unjoin(&self, word: usize, needed: u64, clear: u64) -> bool {
        let mut before = self.tails(word);
        loop {
            // In this order: frames beside those of the caller may become holes at any time.
            let joined = before & !self.remote(word);
            if joined & needed != needed {
                return false;
            }
            if joined & clear == 0 {
                return true;
            }
            // Relaxed: a CPU that frees frames got them from the CPU that allocated them, and the
            // free bit that is set next orders how they are passed on. Acquire: as in `tails`.
            let after = before & !(joined & clear);
            match self.map::<TAILS>(word).compare_exchange(before, after, Relaxed, Acquire) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
    }

    /// The first frame of a span that a user holds.
    pub(crate) fn next_used(&self, span: Span) -> Option<u32> {
        span.words().find_map(|(word, mask)| {
            let used = self.used(word) & mask;
            (used != 0).then(|| word as u32 * WORD_FRAMES + used.trailing_zeros())
        })
    }

    /// Whether a frame belongs to the same allocation as the one before.
    fn is_joined(&self, frame: u32) -> bool {
        let (word, bit) = ((frame / WORD_FRAMES) as usize, frame % WORD_FRAMES);
        // In this order: the frame may become a hole meanwhile.
        let joined = || self.tails(word) & !self.remote(word);
        !frame.is_multiple_of(FRAMES) && joined() >> bit & 1 == 1
    }

    /// The block that a user holds in which a frame lies. A block that is being freed may look like
    /// several; its user knows nothing of those.
    pub(crate) fn part_of(&self, frame: u32) -> Run {
        let (mut at, mut end) = (frame, frame + 1);
        while self.is_joined(at) {
            at -= 1;
        }
        while self.is_joined(end) {
            end += 1;
        }
        loop {
            let order = at.trailing_zeros().min((end - at).ilog2()).min(u32::from(PART_MAX));
            let part = Run::at(at, Order::new(order as u8));
            if frame < part.end() {
                return part;
            }
            at = part.end();
        }
    }

    /// The first block at or after `from` in a pageblock that a user holds and whose content is not
    /// known to be unmovable, if it has less than order `below`.
    pub(crate) fn next_movable(
        &self,
        pageblock: PageblockIndex,
        from: u32,
        below: Order,
    ) -> Option<Run> {
        let mut at = Span { first: from, ..Span::of(pageblock, 1) };
        while let Some(frame) = self.next_used(at) {
            let part = self.part_of(frame);
            if part.order < below && !self.may_be_unmovable(part) {
                return Some(part);
            }
            at.first = part.end();
        }
        None
    }

    /// Separates adjacent frames of a word, which their user frees, from those before and after
    /// them.
    pub(crate) fn cut(&self, word: usize, mask: u64) {
        self.unjoin(word, 0, mask | mask << 1);
        self.begin_behind(word);
    }
}

//! Which frames belong to the same allocation: how tail bits are set, cleared and read.
//!
//! An allocation that goes on behind a word has all of that word: blocks of more than a word begin
//! with one, and when a part of a word is freed, what was behind the word begins an allocation of
//! its own. No block that can still be freed as one is torn by that: it would have all of the word.
//!
//! Users hold aligned blocks of powers of two. Those that they free parts of fall into the largest
//! such blocks that fit in what is left, so the bits say all: where an allocation begins, and how
//! many frames of it are left in a row.

use core::sync::atomic::Ordering::Relaxed;

use super::run::{Run, Span, WORD_FRAMES};
use super::{FRAMES, PageblockIndex, Pageblocks, TAILS, WORDS};
use crate::Error;
use crate::platform::{Platform, Word};
use crate::units::Order;

/// The largest block that is less than a pageblock.
const PART_MAX: u8 = Order::PAGEBLOCK.get() - 1;

impl<P: Platform> Pageblocks<P> {
    /// Marks all frames of a run but the first as belonging to the one before. No frame of it is
    /// free.
    pub(crate) fn join(&self, run: Run) {
        let mut inner = run.mask() & !(1 << run.bit);
        for word in run.words() {
            let tails = self.map::<TAILS>(word);
            // Relaxed: whoever frees it got it from whoever allocated it.
            if run.mask() == !0 {
                // All of the word is one block: no other marks in it can change meanwhile.
                tails.store(inner, Relaxed);
            } else if inner != 0 {
                // An atomic step, since others may change marks of other frames.
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

    /// Claims a run that is an allocation or part of one, by clearing its marks and that of the
    /// frame behind it, which thereby begins what is left. Of two that claim the same frames at the
    /// same time at most one succeeds, unless it is a single frame without marks: there is nothing
    /// to claim then, and setting its bit decides.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOrder`] if the frames belong to more than one allocation; nothing has changed.
    pub(crate) fn begin_free(&self, run: Run) -> Result<(), Error> {
        let first = run.word as usize;
        for word in run.words() {
            let needed = if word == first { run.mask() & !(1 << run.bit) } else { !0 };
            if !self.unjoin(word, needed, run.mask() | run.mask() << 1) {
                // Of two that race, whoever has the first word goes on, so this is rare.
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

    /// Whether what goes on behind a word has all of it, as it must.
    pub(crate) fn ends_or_fills(&self, word: usize) -> bool {
        let behind = word + 1;
        let goes_on =
            !behind.is_multiple_of(WORDS) && self.tails(behind) & !self.holes(behind) & 1 == 1;
        !goes_on || self.tails(word) & !self.holes(word) | 1 == !0
    }

    /// Has an allocation begin behind a word, if none does there. Some frames of the word have just
    /// been claimed.
    pub(crate) fn begin_behind(&self, word: usize) {
        let behind = word + 1;
        if !behind.is_multiple_of(WORDS) && self.tails(behind) & 1 == 1 {
            self.unjoin(behind, 0, 1);
        }
    }

    /// Clears marks of a word if all of `needed` are set; says whether they were. Marks of frames
    /// that are no memory do not count.
    pub(crate) fn unjoin(&self, word: usize, needed: u64, clear: u64) -> bool {
        let (tails, holes) = (self.map::<TAILS>(word), self.holes(word));
        let clear = clear & !holes;
        let mut before = self.tails(word);
        while before & !holes & needed == needed {
            if before & clear == 0 {
                return true;
            }
            // Relaxed: whoever frees frames got them from whoever allocated them, and how they are
            // handed on is ordered by the bit that is set next.
            match tails.compare_exchange(before, before & !clear, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
        false
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
        !frame.is_multiple_of(FRAMES) && (self.tails(word) & !self.remote(word)) >> bit & 1 == 1
    }

    /// The block that a user holds in which a frame lies. A block that is just being freed may look
    /// like several; its owner knows nothing of them.
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

    /// The first block at or behind a frame of a pageblock that a user holds and whose content can
    /// move, as far as is known.
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

    /// Separates frames of a word, which lie in a row and which their user frees, from those before
    /// and behind them.
    pub(crate) fn cut(&self, word: usize, mask: u64) {
        self.unjoin(word, 0, mask | mask << 1);
        self.begin_behind(word);
    }
}

//! Which frames belong to the same allocation: how blocks are joined, and claimed by those who free
//! them or parts of them.
//!
//! An allocation that goes on behind a word has all of that word: blocks of more than a word begin
//! with one, and when a part of a word is claimed, what was behind the word begins an allocation of
//! its own. No block that can still be freed as one is torn by that: it would have all of the word.

use core::sync::atomic::Ordering::Relaxed;

use super::{BlockIndex, Blocks, TAILS, WORDS};
use crate::Error;
use crate::designs::freehold::runs::Run;
use crate::platform::{Platform, Word};

impl<P: Platform> Blocks<P> {
    /// Marks all frames of a run but the first as belonging to the one before. No frame of it is
    /// free.
    pub(in super::super) fn join(&self, run: Run) {
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
    pub(in super::super) fn join_all(&self, block: BlockIndex) {
        for (nth, word) in block.words().enumerate() {
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
    pub(in super::super) fn claim(&self, run: Run) -> Result<(), Error> {
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

    /// Frames of a word that are no memory, for a look at frames of others. One that was freed from
    /// elsewhere and handed out again as part of a larger block between the two loads looks like a
    /// hole, so what seems to be one is looked at several times: it would have to come and go just
    /// as often.
    pub(in super::super) fn holes_of_others(&self, word: usize) -> u64 {
        const LOOKS: usize = 4;
        (0..LOOKS).fold(!0, |holes, _| if holes == 0 { 0 } else { holes & self.holes(word) })
    }

    /// Whether what goes on behind a word has all of it, as it must.
    pub(in super::super) fn ends_or_fills(&self, word: usize) -> bool {
        let behind = word + 1;
        let goes_on =
            !behind.is_multiple_of(WORDS) && self.tails(behind) & !self.holes(behind) & 1 == 1;
        !goes_on || self.tails(word) & !self.holes(word) | 1 == !0
    }

    /// Has an allocation begin behind a word, if none does there. Some frames of the word have just
    /// been claimed.
    pub(in super::super) fn begin_behind(&self, word: usize) {
        let behind = word + 1;
        if !behind.is_multiple_of(WORDS) && self.tails(behind) & 1 == 1 {
            self.unjoin(behind, 0, 1);
        }
    }

    /// Clears marks of a word if all of `needed` are set; says whether they were. Marks of frames
    /// that are no memory do not count.
    pub(in super::super) fn unjoin(&self, word: usize, needed: u64, clear: u64) -> bool {
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
}

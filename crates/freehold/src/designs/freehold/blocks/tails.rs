//! Which frames belong to the same allocation: how blocks are joined, and claimed by whoever frees
//! them or parts of them.

use core::sync::atomic::Ordering::Relaxed;

use super::{BlockIndex, Blocks, FRAMES, TAILS};
use crate::Error;
use crate::designs::freehold::runs::{Run, WORD_FRAMES};
use crate::platform::{Platform, Word};

impl<P: Platform> Blocks<P> {
    /// Marks all frames of a run but the first as belonging to the one before. No frame of it is
    /// free.
    pub(in super::super) fn join(&self, run: Run) {
        let mut inner = run.mask() & !(1 << run.bit);
        for word in run.words() {
            if inner != 0 {
                // Relaxed: whoever frees it got it from whoever allocated it. An atomic step,
                // since others may change marks of other frames.
                self.maps.get::<TAILS>(word).fetch_or(inner, Relaxed);
            }
            inner = run.mask();
        }
    }

    /// Marks all frames of a pageblock, none of which is free, as one allocation.
    pub(in super::super) fn join_all(&self, block: BlockIndex) {
        for (nth, word) in block.words().enumerate() {
            // Relaxed: as in `join`.
            self.maps.get::<TAILS>(word).fetch_or(if nth == 0 { !1 } else { !0 }, Relaxed);
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
                    self.maps.get::<TAILS>(word).fetch_or(cleared, Relaxed);
                }
                return Err(Error::WrongOrder);
            }
        }
        let behind = run.frame() + run.order.frames().get() as u32;
        if !behind.is_multiple_of(FRAMES) && behind.is_multiple_of(WORD_FRAMES) {
            self.unjoin(behind as usize / WORD_FRAMES as usize, 0, 1);
        }
        Ok(())
    }

    /// Clears marks of a word if all of `needed` are set; says whether they were. Marks of frames
    /// that are no memory do not count.
    pub(in super::super) fn unjoin(&self, word: usize, needed: u64, clear: u64) -> bool {
        let (tails, holes) = (self.maps.get::<TAILS>(word), self.holes(word));
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

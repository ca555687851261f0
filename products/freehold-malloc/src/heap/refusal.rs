//! Searches that have just failed, so that they are not made again at once.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use freehold::FrameCount;
use freehold::platform::Word;

use super::now_ms;

/// What was last searched for and not found. Where threads meet here, a refusal lasts until its
/// time is over. `tests/models` runs it under loom.
#[derive(Debug)]
pub(super) struct Refusal<W> {
    lasts_ms: u64,
    /// There were not as many free frames in a row.
    frames: W,
    /// Until when that is taken to be so; 0 if it is not.
    until_ms: W,
}

impl<W: Word<u64>> Refusal<W> {
    pub(super) fn new(lasts: Duration) -> Self {
        Refusal {
            lasts_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX / 2),
            frames: W::new(0),
            until_ms: W::new(0),
        }
    }

    /// Whether a span is refused without a search.
    pub(super) fn holds_for(&self, frames: FrameCount) -> bool {
        // Most heaps are not full, and look at no clock. Acquire: the number of frames is that of
        // this search, or of one that failed since.
        let until = self.until_ms.load(Acquire);
        until > 0 && frames.get() >= self.frames.load(Relaxed) && now_ms() < until
    }

    /// Notes a search that has failed.
    pub(super) fn note(&self, frames: FrameCount, align: FrameCount) {
        // So many in a row have an aligned place for the span somewhere.
        let in_a_row = frames.get().saturating_add(align.get() - 1);
        let now = now_ms();
        if now >= self.until_ms.load(Relaxed) || in_a_row < self.frames.load(Relaxed) {
            self.frames.store(in_a_row, Relaxed);
            // Release: with the number of frames.
            self.until_ms.store(now.saturating_add(self.lasts_ms), Release);
        }
    }

    /// Notes frames that have come free.
    pub(super) fn note_free(&self, frames: FrameCount) {
        if self.until_ms.load(Relaxed) > 0 && frames.get() >= self.frames.load(Relaxed) {
            self.until_ms.store(0, Relaxed);
        }
    }
}

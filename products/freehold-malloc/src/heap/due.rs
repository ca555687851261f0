//! Purges that calls of the heap make, at intervals.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use freehold::platform::Word;
use freehold::{Design, FrameCount};

use super::{Host, PageHeap, PurgeAges, Purged, now_ms};

/// When the next purge is due, and what purges have done. All relaxed: nothing depends on them.
#[derive(Debug)]
pub(super) struct Purging<W> {
    interval_ms: u64,
    ages: PurgeAges,
    due_ms: W,
    frames: W,
    whole: W,
    stretches: W,
    calls: W,
}

impl<W: Word<u64>> Purging<W> {
    pub(super) fn new(interval: Duration, ages: PurgeAges) -> Self {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 2);
        Purging {
            interval_ms,
            ages,
            due_ms: W::new(now_ms() + interval_ms),
            frames: W::new(0),
            whole: W::new(0),
            stretches: W::new(0),
            calls: W::new(0),
        }
    }

    /// Purges a heap if it is time to, on one of the threads that notice it.
    pub(super) fn purge_if_due<D: Design<Host>>(&self, heap: &PageHeap<D>) {
        let (now, due) = (now_ms(), self.due_ms.load(Relaxed));
        let next = now + self.interval_ms;
        if now < due || self.due_ms.compare_exchange(due, next, Relaxed, Relaxed).is_err() {
            return;
        }
        // Memory gets older while no call comes, too.
        let intervals = 1 + (now - due) / self.interval_ms.max(1);
        let intervals = u8::try_from(intervals).unwrap_or(u8::MAX);
        // Refused by the kernel, the memory stays with the process: no caller could do better.
        let done = heap.purge_after(intervals, self.ages).unwrap_or_default();
        self.frames.fetch_add(done.frames.get(), Relaxed);
        self.whole.fetch_add(done.whole.get(), Relaxed);
        self.stretches.fetch_add(done.stretches, Relaxed);
        self.calls.fetch_add(done.calls, Relaxed);
    }

    pub(super) fn done(&self) -> Purged {
        Purged {
            frames: FrameCount::new(self.frames.load(Relaxed)),
            whole: FrameCount::new(self.whole.load(Relaxed)),
            stretches: self.stretches.load(Relaxed),
            calls: self.calls.load(Relaxed),
        }
    }
}

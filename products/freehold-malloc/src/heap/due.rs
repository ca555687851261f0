//! Purges that calls of the heap make: at intervals, and when use has fallen by much.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use freehold::platform::{Platform as _, Word};
use freehold::{Design, FrameCount};

use super::falls::Falls;
use super::{Host, PageHeap, PurgeAges, Purged, now_ms};

/// When the next purge is due, and what purges have done. All relaxed: nothing depends on them.
#[derive(Debug)]
pub(super) struct Purging<W> {
    interval_ms: u64,
    ages: PurgeAges,
    due_ms: W,
    /// What is allocated.
    used: Falls<W>,
    /// What the program has in blocks of its own, as far as it is known.
    blocks_used: Falls<W>,
    at_falls: PurgeAges,
    frames: W,
    whole: W,
    stretches: W,
    calls: W,
}

impl<W: Word<u64>> Purging<W> {
    /// For a heap on so many CPUs.
    pub(super) fn new(
        (interval, ages): (Duration, PurgeAges),
        has_parts_at_falls: bool,
        cpus: usize,
    ) -> Self {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 2);
        Purging {
            interval_ms,
            ages,
            due_ms: W::new(now_ms() + interval_ms),
            used: Falls::new(cpus, interval_ms),
            blocks_used: Falls::new(cpus, interval_ms),
            at_falls: PurgeAges { whole: 0, part: has_parts_at_falls.then_some(0) },
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
        self.purge(heap, intervals, self.ages);
    }

    /// Notes frames that were allocated, or freed if negative. If use has fallen by much, purges
    /// what is free: the program may be done, and no call come any more.
    pub(super) fn note_use<D: Design<Host>>(&self, heap: &PageHeap<D>, frames: i64) {
        let bytes = heap.arena.frame_size().bytes() as i64 * frames;
        if self.used.note(heap.arena.allocator().platform().cpu(), bytes) {
            self.purge(heap, 0, self.at_falls);
        }
    }

    /// Notes bytes in blocks of the program's. Returns whether they have fallen by much.
    pub(super) fn note_blocks<D: Design<Host>>(&self, heap: &PageHeap<D>, bytes: i64) -> bool {
        self.blocks_used.note(heap.arena.allocator().platform().cpu(), bytes)
    }

    fn purge<D: Design<Host>>(&self, heap: &PageHeap<D>, purges: u8, ages: PurgeAges) {
        // Refused by the kernel, the memory stays with the process: no caller could do better.
        let done = heap.purge_after(purges, ages).unwrap_or_default();
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

//! Purges that calls of the heap make: at intervals, and when use has fallen by much.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use freehold::platform::{Platform as _, Word};
use freehold::{Design, FrameCount};

use super::used::Used;
use super::{Host, PageHeap, PurgeAges, Purged, now_ms};

/// The bytes by which use falls before a purge comes out of turn: few enough to stay with an idle
/// program, and enough to be worth the calls.
const FALL_BYTES_MIN: usize = 32 << 20;

/// The same as a share of what was in use, for large heaps.
const FALL_SHARE: u64 = 16;

/// When the next purge is due, and what purges have done. All relaxed: nothing depends on them.
#[derive(Debug)]
pub(super) struct Purging<W> {
    interval_ms: u64,
    ages: PurgeAges,
    due_ms: W,
    used: Used<W>,
    /// The most frames in use, from which a fall counts.
    peak: W,
    /// Until when that does not rise after a fall: what comes and goes is purged once an interval.
    fallen_until_ms: W,
    frames: W,
    whole: W,
    stretches: W,
    calls: W,
}

impl<W: Word<u64>> Purging<W> {
    pub(super) fn new(interval: Duration, ages: PurgeAges, cpus: usize) -> Self {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 2);
        Purging {
            interval_ms,
            ages,
            due_ms: W::new(now_ms() + interval_ms),
            used: Used::new(cpus),
            peak: W::new(0),
            fallen_until_ms: W::new(0),
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
    /// the pageblocks that are free as a whole: the program may be done, and no call come any more.
    pub(super) fn note_use<D: Design<Host>>(&self, heap: &PageHeap<D>, frames: i64) {
        let cpu = heap.arena.allocator().platform().cpu();
        let Some(used) = self.used.add(cpu, frames) else { return };
        let peak = self.peak.load(Relaxed);
        if used > peak {
            if now_ms() >= self.fallen_until_ms.load(Relaxed) {
                self.peak.store(used, Relaxed);
            }
            return;
        }
        let least = FrameCount::from_bytes(FALL_BYTES_MIN, heap.arena.frame_size()).get();
        // Of several threads, one purges.
        if peak - used >= least.max(peak / FALL_SHARE)
            && self.peak.compare_exchange(peak, used, Relaxed, Relaxed).is_ok()
        {
            self.fallen_until_ms.store(now_ms() + self.interval_ms, Relaxed);
            self.purge(heap, 0, PurgeAges { whole: 0, part: None });
        }
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

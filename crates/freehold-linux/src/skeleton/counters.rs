//! What each CPU counts of each zone: what its lists move, and, on a line that no fast path writes,
//! NUMA events.

use core::sync::atomic::Ordering::Relaxed;

use freehold::platform::{Platform, SharedCell, Word};
use freehold::stat::{Events, NumaExceptions};
use freehold::units::FrameCount;

/// The counters of one CPU for one zone, on their own cache lines. The lock of that CPU's pages
/// guards the cells. What bypasses those pages is counted in words, since nothing guards them:
/// another thread may believe that it runs on this CPU.
#[repr(C, align(64))]
pub(crate) struct CpuEvents<P: Platform> {
    freed: P::LocalCell<u64>,
    refills: P::LocalCell<u64>,
    refilled: P::LocalCell<u64>,
    drains: P::LocalCell<u64>,
    drained: P::LocalCell<u64>,
    allocated_directly: P::U64,
    freed_directly: P::U64,
}

impl<P: Platform> CpuEvents<P> {
    pub(crate) fn new() -> Self {
        let zero = || P::LocalCell::new(0);
        CpuEvents {
            freed: zero(),
            refills: zero(),
            refilled: zero(),
            drains: zero(),
            drained: zero(),
            allocated_directly: P::U64::new(0),
            freed_directly: P::U64::new(0),
        }
    }

    #[inline]
    pub(crate) fn note_free(&self, frames: FrameCount) {
        self.freed.set(self.freed.get() + frames.get());
    }

    pub(crate) fn note_refill(&self, frames: FrameCount) {
        self.refills.set(self.refills.get() + 1);
        self.refilled.set(self.refilled.get() + frames.get());
    }

    #[inline]
    pub(crate) fn note_drain(&self, frames: FrameCount) {
        self.drains.set(self.drains.get() + 1);
        self.drained.set(self.drained.get() + frames.get());
    }

    // Relaxed below: counters that order nothing.

    /// Counts frames that were allocated bypassing the CPU's lists.
    pub(crate) fn note_direct_alloc(&self, frames: FrameCount) {
        self.allocated_directly.fetch_add(frames.get(), Relaxed);
    }

    /// Counts frames that were freed bypassing the CPU's lists.
    pub(crate) fn note_direct_free(&self, frames: FrameCount) {
        self.freed_directly.fetch_add(frames.get(), Relaxed);
    }

    /// The events, for a CPU that has `listed` frames on its lists. Allocations need no counter on
    /// the fast path: they are what came onto the lists less what left them otherwise.
    pub(crate) fn get(&self, listed: u32) -> Events {
        let frames = |cell: &P::LocalCell<u64>| FrameCount::new(cell.get());
        let directly = |word: &P::U64| FrameCount::new(word.load(Relaxed));
        let (allocated_directly, freed_directly) =
            (directly(&self.allocated_directly), directly(&self.freed_directly));
        let came = self.refilled.get() + self.freed.get();
        let from_lists = FrameCount::new(came - self.drained.get() - u64::from(listed));
        Events {
            allocated: from_lists + allocated_directly,
            freed: frames(&self.freed) + freed_directly,
            allocated_directly,
            freed_directly,
            refills: self.refills.get(),
            refilled: frames(&self.refilled),
            drains: self.drains.get(),
            drained: frames(&self.drained),
            ..Events::default()
        }
    }
}

/// The statistics of one CPU for one zone, on their own cache line.
#[repr(C, align(64))]
pub(super) struct CpuStat<P: Platform> {
    pub(super) numa: NumaExceptions<P>,
}

impl<P: Platform> CpuStat<P> {
    pub(super) fn new() -> Self {
        CpuStat { numa: NumaExceptions::new() }
    }
}

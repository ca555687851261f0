//! What each CPU counts of each zone past its own cache.
//!
//! The fast path writes one counter, and only where frames are taken: what a CPU took out of its
//! own cache, in a cell of the cache, under the lock that it has anyway. A free counts nothing.
//! What is in use is read off the bitmaps on demand, and what was handed out and is not in use has
//! been freed; see `inspect`.
//!
//! Of where frames were wanted, only the exceptions are counted: what was taken and not missed was
//! hit, and the CPU that took it tells whether it was near.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Zones;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::request::Request;
use crate::stat::{Events, NumaEvents, NumaExceptions};
use crate::units::FrameCount;

/// What one CPU did in one zone past its own cache, on a cache line of its own. Atomic words, since
/// no lock guards them: another thread may take itself to be on this CPU.
#[repr(C, align(64))]
pub(crate) struct CpuCounters<P: Platform> {
    numa: NumaExceptions<P>,
    /// Frames that it took out of other CPUs' caches.
    borrowed: P::U64,
    /// Frames that it took and freed past all caches.
    allocated_directly: P::U64,
    freed_directly: P::U64,
    /// How many of its calls are in a section, how many sections have ended, and whether its cache
    /// may hold free frames: see `sections`.
    sections: P::U64,
}

impl<P: Platform> CpuCounters<P> {
    pub(crate) fn new() -> Self {
        let zero = || P::U64::new(0);
        CpuCounters {
            numa: NumaExceptions::new(),
            borrowed: zero(),
            allocated_directly: zero(),
            freed_directly: zero(),
            sections: zero(),
        }
    }

    /// Counts frames that the CPU took out of another one's cache.
    pub(crate) fn note_borrowed(&self, frames: u64) {
        // Release: as in `note_direct_alloc`.
        self.borrowed.fetch_add(frames, Release);
    }

    /// Counts frames that were freed past all caches.
    pub(super) fn note_freed(&self, frames: FrameCount) {
        if frames > FrameCount::ZERO {
            // Relaxed: a count that orders nothing.
            self.freed_directly.fetch_add(frames.get(), Relaxed);
        }
    }

    /// Adds the exceptions to the NUMA events of a zone, of which the CPU took so many frames.
    pub(crate) fn add_numa_to(&self, events: &mut NumaEvents, taken: FrameCount, is_near: bool) {
        self.numa.add_to(events, taken, is_near);
    }

    pub(crate) fn sections(&self) -> &P::U64 {
        &self.sections
    }

    /// Adds what was counted here to the events of a cache.
    pub(crate) fn add_to(&self, events: &mut Events) {
        // Acquire: pairs with the release of the CPU that counted the frames. So a look at the
        // bitmaps that follows sees that they are in use, or have been.
        let frames = |word: &P::U64| FrameCount::new(word.load(Acquire));
        let directly = frames(&self.allocated_directly);
        events.allocated += frames(&self.borrowed) + directly;
        events.allocated_directly += directly;
        events.freed_directly += frames(&self.freed_directly);
    }
}

impl<P: Platform> Zones<P> {
    /// Counts frames that were taken past all caches.
    pub(crate) fn note_direct_alloc(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        frames: FrameCount,
    ) {
        let stat = &self.cpu_zone(context.cpu_here(), zone).counters;
        // Release: a CPU that sees the count sees that the frames are in use; see
        // `CpuCounters::add_to`.
        stat.allocated_directly.fetch_add(frames.get(), Release);
    }

    /// Counts frames that were freed past all caches.
    pub(crate) fn note_direct_free(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        frames: FrameCount,
    ) {
        self.cpu_zone(context.cpu_here(), zone).counters.note_freed(frames);
    }

    /// Counts for a CPU where frames came from, if that was not the best zone for the request,
    /// whose node is filled in.
    #[inline]
    pub(crate) fn note_numa(
        &self,
        cpu: usize,
        zones: &[u16],
        request: &Request,
        from: ZoneIndex,
        frames: FrameCount,
    ) {
        if let Some(&preferred) = zones.first()
            && (preferred != from.0 || request.is_interleaved())
        {
            self.note_exception(cpu, ZoneIndex(preferred), request, from, frames);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_exception(
        &self,
        cpu: usize,
        preferred: ZoneIndex,
        request: &Request,
        from: ZoneIndex,
        frames: FrameCount,
    ) {
        let place = |zone| (self.zone(zone).node(), &self.cpu_zone(cpu, zone).counters.numa);
        NumaExceptions::note(request, place(preferred), place(from), frames);
    }
}

//! What is counted: frames that were handed out, by who took them and where they were wanted.
//!
//! One count is written on the fast path, and only where frames are taken: what a CPU took out of
//! its own slot, in a cell of the slot, under the lock that it has anyway. A free counts nothing.
//! What is in use is read off the bitmaps when somebody asks, and what was handed out and is not in
//! use has been freed; see `report`.
//!
//! Of where frames were wanted, only the exceptions are counted: what was taken and not missed was
//! hit, and who took it tells whether it was near.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Freehold;
use super::guard::SlotGuard;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::request::Request;
use crate::stat::{Events, NumaEvents, NumaExceptions};
use crate::units::{CpuId, FrameCount, Order};

/// What one CPU did in one zone past its own slot, on a cache line of its own. Words, for nothing
/// guards them: another thread may take itself to be on this CPU.
#[repr(C, align(64))]
pub(super) struct CpuStat<P: Platform> {
    numa: NumaExceptions<P>,
    /// Frames that it took out of other CPUs' slots.
    borrowed: P::U64,
    /// Frames that it took and gave back past all slots.
    allocated_directly: P::U64,
    freed_directly: P::U64,
    /// How many of its calls are in a section, and how many such have ended: see `sections`.
    sections: P::U64,
}

impl<P: Platform> CpuStat<P> {
    pub(super) fn new() -> Self {
        let zero = || P::U64::new(0);
        CpuStat {
            numa: NumaExceptions::new(),
            borrowed: zero(),
            allocated_directly: zero(),
            freed_directly: zero(),
            sections: zero(),
        }
    }

    pub(super) fn sections(&self) -> &P::U64 {
        &self.sections
    }

    /// Adds what was counted here to the events of a slot.
    pub(super) fn add_to(&self, events: &mut Events) {
        // Acquire: pairs with the release of who counted the frames, so that a look at the bitmaps
        // that follows sees that they are in use, or have been.
        let frames = |word: &P::U64| FrameCount::new(word.load(Acquire));
        let directly = frames(&self.allocated_directly);
        events.allocated += frames(&self.borrowed) + directly;
        events.allocated_directly += directly;
        events.freed_directly += frames(&self.freed_directly);
    }
}

impl<P: Platform> Freehold<P> {
    /// The CPU that the caller takes itself to run on.
    pub(super) fn cpu_here(&self, context: Context<'_, P>) -> usize {
        context.topology.fold(context.platform.cpu())
    }

    /// Counts a block that the running CPU has taken out of a slot, of its own or of another CPU.
    pub(super) fn note_taken(
        &self,
        context: Context<'_, P>,
        guard: &SlotGuard<'_, P>,
        order: Order,
    ) {
        let (here, frames) = (self.cpu_here(context), order.frames().get());
        if guard.cpu == here {
            guard.slot.note_alloc(frames);
        } else {
            // Release: as in `note_direct_alloc`.
            self.slot(here, guard.zone).stat().borrowed.fetch_add(frames, Release);
        }
    }

    /// Counts frames that have been taken past all slots.
    pub(super) fn note_direct_alloc(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        frames: FrameCount,
    ) {
        let stat = self.slot(self.cpu_here(context), zone).stat();
        // Release: whoever sees the count sees that the frames are in use; see `CpuStat::add_to`.
        stat.allocated_directly.fetch_add(frames.get(), Release);
    }

    /// Counts frames that were given back past all slots.
    pub(super) fn note_direct_free(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        frames: FrameCount,
    ) {
        let stat = self.slot(self.cpu_here(context), zone).stat();
        // Relaxed: a count that orders nothing.
        stat.freed_directly.fetch_add(frames.get(), Relaxed);
    }

    /// Counts for a CPU where frames came from, if it was not the best zone for the request, whose
    /// node is filled in.
    #[inline]
    pub(super) fn note_numa(
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
        let place = |zone| (self.zone(zone).node(), &self.slot(cpu, zone).stat().numa);
        NumaExceptions::note(request, place(preferred), place(from), frames);
    }

    /// The NUMA events of the zone at `index`.
    pub(super) fn numa_of(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents> {
        let node = self.zones.try_get(index)?.node();
        let zone = ZoneIndex(index as u16);
        let mut events = NumaEvents::default();
        for cpu in 0..self.cpus() {
            let slot = self.slot(cpu, zone);
            let taken = self.while_steady(context, cpu, || slot.events().allocated);
            let is_near = context.topology.node_of(CpuId::new(cpu as u32)) == node;
            slot.stat().numa.add_to(&mut events, taken, is_near);
        }
        events.count_hits();
        Some(events)
    }

    /// Looks at what a CPU's slots have counted while nobody changes it. Who holds them for long
    /// goes on counting meanwhile.
    pub(super) fn while_steady<R>(
        &self,
        context: Context<'_, P>,
        cpu: usize,
        look: impl FnOnce() -> R,
    ) -> R {
        // One lock for the slots of all zones.
        let _guard = self.lock_if_vacant(context, cpu, ZoneIndex(0));
        look()
    }
}

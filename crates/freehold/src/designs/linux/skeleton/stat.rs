//! Statistics that no fast path writes: NUMA events.

use super::{Policy, Skeleton};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::stat::NumaExceptions;
use crate::units::FrameCount;

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

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    pub(super) fn stat_of(&self, cpu: usize, zone: ZoneIndex) -> &CpuStat<P> {
        self.stats.get(cpu * self.zones.len() + zone.index())
    }

    /// Counts where frames came from, if it was not the best zone for the request, whose node is
    /// filled in.
    #[inline]
    pub(super) fn note_numa(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        from: ZoneIndex,
        frames: FrameCount,
    ) {
        let Some(preferred) = zones.first().map(|&zone| ZoneIndex(zone)) else { return };
        if self.zone(from).node() == self.zone(preferred).node() && !request.is_interleaved() {
            return;
        }
        let cpu = context.topology.fold(context.platform.cpu());
        let place = |zone| (self.zone(zone).node(), &self.stat_of(cpu, zone).numa);
        NumaExceptions::note(request, place(preferred), place(from), frames);
    }
}

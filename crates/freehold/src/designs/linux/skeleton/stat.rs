//! Statistics that no fast path writes: where frames were wanted, and what each CPU has not yet
//! told of the levels of the zones.

use super::{Policy, Skeleton};
use crate::designs::Context;
use crate::designs::linux::folded::{self, Difference, LevelOfCpu};
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, SharedCell};
use crate::request::Request;
use crate::stat::{NumaEvents, NumaExceptions};
use crate::units::{CpuId, FrameCount, Order, ZoneKind};
use crate::zone::watermark::Watermark;

/// How the level of free frames of a zone is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In one word, exactly.
    Exact,
    /// In one word and a small difference for each CPU, as in Linux.
    Folded,
}

/// The statistics of one CPU for one zone, on a cache line of its own.
#[repr(C, align(64))]
pub(super) struct CpuStat<P: Platform> {
    numa: NumaExceptions<P>,
    /// What this CPU has not yet told of changes of the level. Written under the zone lock.
    level: Difference<P>,
}

impl<P: Platform> CpuStat<P> {
    pub(super) fn new() -> Self {
        CpuStat { numa: NumaExceptions::new(), level: Difference::new() }
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    fn cpus_of_tables(&self) -> usize {
        self.stats.len() / self.zones.len()
    }

    fn stat_of(&self, cpu: usize, zone: ZoneIndex) -> &CpuStat<P> {
        self.stats.get(cpu * self.zones.len() + zone.index())
    }

    /// Through whom changes of the level go on the running CPU, if levels are folded.
    pub(super) fn level_here(&self, platform: &P, zone: ZoneIndex) -> Option<LevelOfCpu<'_, P>> {
        if self.level == Level::Exact {
            return None;
        }
        let cpu = platform.cpu().index() % self.cpus_of_tables();
        let difference = &self.stat_of(cpu, zone).level;
        Some(LevelOfCpu { difference, threshold: self.threshold(zone) })
    }

    /// How far each CPU may be behind for a zone.
    fn threshold(&self, zone: ZoneIndex) -> u64 {
        let (zone, cpus) = (self.zone(zone), self.cpus_of_tables());
        if zone.is_below_high() {
            folded::pressure_threshold(&zone.watermarks().get(), cpus)
        } else {
            folded::normal_threshold(zone.managed(), cpus)
        }
    }

    /// Has all CPUs tell what they kept to themselves, since the marks have changed, and with them
    /// how much that may be.
    pub(super) fn tell_levels(&self, platform: &P) {
        if self.level == Level::Exact {
            return;
        }
        for zone in self.zone_indexes() {
            let guard = self.lock_zone(platform, zone);
            let changes =
                (0..self.cpus_of_tables()).map(|cpu| self.stat_of(cpu, zone).level.take());
            guard.tell(changes.sum());
        }
    }

    /// The level of a zone, exactly. Exact whenever no call is under way, and if the caller holds
    /// the zone lock.
    pub(super) fn exact_level(&self, zone: ZoneIndex) -> FrameCount {
        if self.level == Level::Exact {
            return self.zone(zone).free();
        }
        let differences = (0..self.cpus_of_tables()).map(|cpu| self.stat_of(cpu, zone).level.get());
        let level = self.zone(zone).level_word().cast_signed() + differences.sum::<i64>();
        FrameCount::new(level.max(0).cast_unsigned())
    }

    /// The level of a zone for a comparison that more than `enough` frames pass: what all read,
    /// unless the differences of all CPUs together could change the outcome.
    #[inline(always)]
    pub(super) fn level_against(&self, zone: ZoneIndex, enough: u64) -> FrameCount {
        let level = self.zone(zone).free();
        if self.level == Level::Folded { self.safe_level(zone, level, enough) } else { level }
    }

    #[inline(never)]
    fn safe_level(&self, zone: ZoneIndex, level: FrameCount, enough: u64) -> FrameCount {
        let (of, cpus) = (self.zone(zone), self.cpus_of_tables());
        let drift = folded::drift_max(of.managed(), &of.watermarks().get(), cpus);
        if level.get() <= enough.saturating_add(drift) { self.exact_level(zone) } else { level }
    }

    /// Whether a block of `order` can be taken without going below the mark of `class`.
    #[inline(always)]
    pub(super) fn watermark_ok(
        &self,
        zone: ZoneIndex,
        order: Order,
        class: Watermark,
        limit: ZoneKind,
    ) -> bool {
        self.zone(zone).watermark_ok(order, class, limit, |enough| self.level_against(zone, enough))
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

    /// The NUMA events of the zone at `index`.
    pub(super) fn numa_of(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents> {
        if index >= self.zones.len() {
            return None;
        }
        let zone = ZoneIndex(index as u16);
        let mut events = NumaEvents::default();
        for cpu in 0..context.topology.cpus() {
            let pages = self.lock_pcp(context.platform, cpu, zone);
            let taken = pages.events.get(pages.pcp.count.get()).allocated;
            let is_near =
                context.topology.node_of(CpuId::new(cpu as u32)) == self.zone(zone).node();
            self.stat_of(cpu, zone).numa.add_to(&mut events, taken, is_near);
        }
        events.count_hits();
        Some(events)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::designs::linux::skeleton::{NoneOfItsOwn, ZonedSettings};
    use crate::designs::linux::tests::{Workbench, ZONE, fixed};
    use crate::designs::linux::zone_lock::Baseline;

    #[test]
    fn a_folded_level_stays_within_its_bound_and_adds_up() {
        let settings = ZonedSettings { level: Level::Folded, ..fixed(NoneOfItsOwn, 3, 6) };
        let bench: Workbench<Baseline> = Workbench::new(4096, &settings);
        let zone = bench.design.zone(ZONE);
        let drift = folded::drift_max(zone.managed(), &zone.watermarks().get(), 2) as i64;
        let (mut held, mut behind_max) = (std::vec::Vec::new(), 0);
        for step in 0..3000_u32 {
            // More allocations than frees at first, then the other way round.
            if (step % 3 == 0) == (step < 1500) && !held.is_empty() {
                let frame: crate::Pfn = held.swap_remove(step as usize % held.len());
                bench.free(step % 2, frame.get());
            } else if step < 1500 {
                held.push(bench.alloc(step % 2, 0));
            }
            let exact = bench.design.exact_level(ZONE).get() as i64;
            let behind = (zone.level_word().cast_signed() - exact).abs();
            assert!(behind <= drift, "{behind} frames behind");
            behind_max = behind_max.max(behind);
        }
        assert!(behind_max > 0, "the word is not written at each change");
        bench.check();
    }
}

//! Statistics of the design, and a check of its accounting. All of it visits every pageblock.
//!
//! Nothing can stop all CPUs. What does not agree at first may be under way, and is re-checked:
//! only what stays wrong is a violation.

use super::Freehold;
use super::caches::cache::{Active, Fill, list_of};
use super::caches::lock::IfLeased;
use super::pageblocks::PageblockIndex;
use super::pageblocks::run::Run;
use super::pageblocks::state::{Holder, Use};
use crate::designs::Context;
use crate::designs::traits::Inspect;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::stat::{
    Census, Events, FrameStatus, FreeByType, NumaEvents, Rule, Violation, ZoneLevel, ZoneStats,
};
use crate::units::{CpuId, FrameCount, MigrateType, Order, Pfn};

/// How often something that does not agree is re-checked: long enough for a thread that was
/// preempted in the middle of a step to run again.
const LOOKS: usize = 100_000;

impl<P: Platform> Inspect<P> for Freehold<P> {
    fn status(&self, context: Context<'_, P>, pfn: Pfn) -> FrameStatus {
        let pageblocks = self.pageblocks();
        let Some(frame) = pageblocks.index_of(pfn) else { return FrameStatus::Foreign };
        let (pageblock, single) = (PageblockIndex::of_frame(frame), Run::at(frame, Order::ZERO));
        let allocated =
            |first, order| FrameStatus::Allocated { first: pageblocks.pfn_of(first), order };
        loop {
            match pageblocks.state(pageblock).used_for() {
                Use::Absent => return FrameStatus::Foreign,
                Use::Whole => return FrameStatus::Free,
                Use::Huge | Use::HugeTail => {
                    if let Some((head, of)) = pageblocks.head_of(pageblock) {
                        return allocated(head.frame(), of.order());
                    }
                }
                Use::Split => {
                    let word = single.word as usize;
                    if pageblocks.holes_of_others(word) & single.mask() != 0 {
                        return FrameStatus::Foreign;
                    }
                    if pageblocks.used(word) & single.mask() == 0 {
                        return FrameStatus::Free;
                    }
                    let block = pageblocks.part_of(frame);
                    return allocated(block.frame(), block.order);
                }
            }
            // A call is breaking the block up.
            context.platform.relax();
        }
    }

    fn zone_level(&self, index: usize) -> Option<ZoneLevel> {
        let zone = self.zones.try_zone(ZoneIndex(index as u16))?;
        Some(ZoneLevel {
            node: zone.node(),
            kind: zone.kind(),
            managed: FrameCount::new(zone.managed()),
            free: FrameCount::new(zone.level()),
            marks: zone.watermarks().get(),
        })
    }

    fn zone_stats(&self, _context: Context<'_, P>, index: usize) -> Option<ZoneStats> {
        (index < self.zones.len()).then(|| self.zones.stats_of(ZoneIndex(index as u16)))
    }

    /// By the states of pageblocks: what lies in the pool is whole, and so are spares.
    fn free_and_whole(&self, _context: Context<'_, P>, zone: ZoneIndex) -> Option<[u64; 2]> {
        self.zones.try_zone(zone).map(|_| self.zones.free_and_whole(zone))
    }

    /// The NUMA events of the zone at `index`.
    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents> {
        let node = self.zones.try_zone(ZoneIndex(index as u16))?.node();
        let zone = ZoneIndex(index as u16);
        let mut events = NumaEvents::default();
        for cpu in 0..self.zones.cpu_count() {
            let taken = self.while_steady(context, cpu, || self.events_of(cpu, zone).allocated);
            let is_near = context.topology.node_of(CpuId::new(cpu as u32)) == node;
            let counters = &self.zones.cpu_zone(cpu, zone).counters;
            counters.add_numa_to(&mut events, taken, is_near);
        }
        events.count_hits();
        Some(events)
    }

    fn free_by_type(&self, _context: Context<'_, P>, index: usize) -> Option<FreeByType> {
        (index < self.zones.len()).then(|| self.zones.count_by_type(ZoneIndex(index as u16)))
    }

    fn has_block(&self, _context: Context<'_, P>, order: Order) -> bool {
        let pageblocks = self.pageblocks();
        let is_cached = |pageblock| {
            let state = pageblocks.state(pageblock);
            match (state.used_for(), state.holder()) {
                (Use::Whole, Holder::Cpu(_)) => order <= Order::PAGEBLOCK,
                (Use::Split, Holder::Cpu(_)) if order < Order::PAGEBLOCK => {
                    pageblocks.has_run(pageblock, order)
                }
                (Use::Split, Holder::Cpu(_)) => {
                    order == Order::PAGEBLOCK && pageblocks.is_whole(pageblock)
                }
                _ => false,
            }
        };
        self.zones.indexes().any(|zone| self.zones.has_run(zone, order))
            || self.zones.indexes().any(|zone| self.zones.pageblocks_of(zone).any(is_cached))
    }

    /// The events of all CPUs and zones.
    ///
    /// Frees are not counted. What is in use is read off the bitmaps, each frame at some moment of
    /// the look; that pageblocks change hands meanwhile makes no difference to it. So what was
    /// allocated less what was freed lacks at most what calls under way do, and so does each of the
    /// two; neither is ever ahead of the truth.
    fn events(&self, context: Context<'_, P>) -> Events {
        let mut events = Events::default();
        for zone in self.zones.indexes() {
            events.add(&self.zones.zone(zone).events(context.platform));
        }
        for cpu in 0..self.zones.cpu_count() {
            self.while_steady(context, cpu, || {
                self.zones.indexes().for_each(|zone| events.add(&self.events_of(cpu, zone)));
            });
        }
        // After the counts of allocated frames: of those, only what is not in use any more has been
        // freed.
        let (mut used, mut doubles) = (0, 0);
        let all = self.zones.indexes().flat_map(|zone| self.zones.pageblocks_of(zone));
        for pageblock in all {
            let (of_pageblock, twice) = self.zones.count_used(pageblock);
            used += u64::from(of_pageblock);
            doubles += u64::from(twice);
        }
        // More may have been allocated since.
        events.freed = FrameCount::new(events.allocated.get().saturating_sub(used));
        events.double_frees_late += FrameCount::new(doubles);
        events
    }

    /// Checks every invariant of the accounting, and counts where the frames are.
    fn validate(&self, context: Context<'_, P>) -> Result<Census, Violation> {
        let mut census = Census::default();
        for zone in self.zones.indexes() {
            for cpu in 0..self.zones.cpu_count() {
                self.check_cache(context, cpu, zone)?;
            }
            for pageblock in self.zones.pageblocks_of(zone) {
                self.persists(context, pageblock, || self.zones.check_pageblock(zone, pageblock))?;
            }
            let first = self.zones.pageblocks_of(zone).next().unwrap_or(PageblockIndex(0));
            self.persists(context, first, || self.zones.check_level(zone))?;
            self.zones.count(zone, &mut census);
        }
        Ok(census)
    }
}

impl<P: Platform> Freehold<P> {
    /// What was counted in the cache of a CPU, and past it.
    fn events_of(&self, cpu: usize, zone: ZoneIndex) -> Events {
        let mut events = self.cache(cpu, zone).events();
        self.zones.cpu_zone(cpu, zone).counters.add_to(&mut events);
        events
    }

    /// Reports a violation if a rule is broken again and again.
    fn persists(
        &self,
        context: Context<'_, P>,
        at: PageblockIndex,
        broken: impl Fn() -> Option<Rule>,
    ) -> Result<(), Violation> {
        let mut rule = None;
        for _ in 0..LOOKS {
            rule = broken();
            if rule.is_none() {
                return Ok(());
            }
            context.platform.relax();
        }
        rule.map_or(Ok(()), |rule| {
            Err(Violation { rule, at: self.pageblocks().pfn_of(at.frame()) })
        })
    }

    /// Checks the places of a cache, under its lock. Passes over a cache that a lease has.
    fn check_cache(
        &self,
        context: Context<'_, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Result<(), Violation> {
        let Some(guard) = self.lock(context, cpu, zone, IfLeased::Leave) else { return Ok(()) };
        let broken = |rule, pageblock: PageblockIndex| {
            Err(Violation { rule, at: self.pageblocks().pfn_of(pageblock.frame()) })
        };
        let is_ours = |pageblock| {
            let state = self.pageblocks().state(pageblock);
            state.is_split_of(cpu) && state.is_listed() && self.pageblocks().zone(pageblock) == zone
        };
        for migratetype in MigrateType::ALL {
            for what in Active::ALL {
                if let Some(pageblock) = guard.cache.active_pageblock(what, migratetype)
                    && !(is_ours(pageblock)
                        && self.pageblocks().state(pageblock).is_active()
                        && self.pageblocks().state(pageblock).migratetype() == migratetype)
                {
                    return broken(Rule::ListMatchesMark, pageblock);
                }
            }
            for fill in [Fill::NearlyFull, Fill::Worthwhile] {
                let mut before = None;
                let list = guard.cache.partial_list(self.pageblocks(), migratetype, fill);
                for (nth, pageblock) in list.enumerate() {
                    let (prev, _, index) = self.pageblocks().links(pageblock);
                    let links =
                        before.map_or(super::pageblocks::NIL, |before: PageblockIndex| before.0);
                    if prev != links || nth > self.pageblocks().len() {
                        return broken(Rule::LinksAgree, pageblock);
                    }
                    let state = self.pageblocks().state(pageblock);
                    let of = state.migratetype();
                    let here = index == list_of(migratetype, fill) && of == migratetype;
                    if !here || !is_ours(pageblock) || state.is_active() {
                        return broken(Rule::ListMatchesMark, pageblock);
                    }
                    before = Some(pageblock);
                }
            }
        }
        for pageblock in guard.cache.spares() {
            let state = self.pageblocks().state(pageblock);
            let is_spare = state.used_for() == Use::Whole && state.holder() == Holder::Cpu(cpu);
            if !is_spare || !self.pageblocks().is_whole(pageblock) {
                return broken(Rule::ListMatchesMark, pageblock);
            }
        }
        Ok(())
    }

    /// Reads what the caches of a CPU have counted, under their lock. If a lease has them, its
    /// owner goes on counting meanwhile.
    pub(crate) fn while_steady<R>(
        &self,
        context: Context<'_, P>,
        cpu: usize,
        look: impl FnOnce() -> R,
    ) -> R {
        // One lock for the caches in all zones.
        let _guard = self.lock(context, cpu, ZoneIndex(0), IfLeased::Leave);
        look()
    }
}

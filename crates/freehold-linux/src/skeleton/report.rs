//! What the design says of itself.

use super::walk::Walk;
use super::{Policy, Skeleton};
use crate::frame::{FrameState, Tag};
use freehold::Error;
use freehold::designs::Context;
use freehold::designs::traits::Inspect;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::{Platform, SharedCell};
use freehold::stat::{
    Census, Events, FrameStatus, FreeByType, NumaEvents, Violation, ZoneLevel, ZoneStats,
};
use freehold::units::{CpuId, FrameCount, Order, Pfn};

impl<P: Platform, Y: Policy<P>> Inspect<P> for Skeleton<P, Y> {
    /// What a frame is. The head of an allocation says so itself; all else is looked up under the
    /// zone lock.
    fn status(&self, context: Context<'_, P>, pfn: Pfn) -> FrameStatus {
        let Some(frame) = self.frames.index_of(pfn) else { return FrameStatus::Foreign };
        let allocated = |head, state: FrameState| match (state.tag(), state.order()) {
            (Tag::Allocated, Some(order)) => {
                Some(FrameStatus::Allocated { first: self.frames.pfn_of(head), order })
            }
            _ => None,
        };
        if let Some(status) = allocated(frame, self.frames.state(frame)) {
            return status;
        }
        let Some(zone) = self.blocks.zone(frame) else { return FrameStatus::Foreign };
        let _guard = self.lock_zone(context.platform, zone);
        match self.head_of(frame) {
            Ok((head, state)) => allocated(head, state).unwrap_or(FrameStatus::Free),
            Err(Error::ForeignFrame) => FrameStatus::Foreign,
            Err(_) => FrameStatus::Free,
        }
    }

    fn zone_level(&self, index: usize) -> Option<ZoneLevel> {
        let zone = self.zone(self.zone_index(index)?);
        Some(ZoneLevel {
            node: zone.node(),
            kind: zone.kind(),
            managed: zone.managed(),
            free: zone.free(),
            marks: zone.watermarks().get(),
        })
    }

    /// The state of the zone at `index`.
    fn zone_stats(&self, context: Context<'_, P>, index: usize) -> Option<ZoneStats> {
        let index = self.zone_index(index)?;
        let per_cpu = (0..context.topology.cpus())
            .map(|cpu| self.lock_pcp(context.platform, cpu, index))
            .map(|pages| FrameCount::new(u64::from(pages.pcp.count.get())))
            .sum();
        let guard = self.lock_zone(context.platform, index);
        let zone = self.zone(index);
        let fallbacks = guard.fallbacks();
        Some(ZoneStats {
            node: zone.node(),
            kind: zone.kind(),
            managed: zone.managed(),
            free: zone.free(),
            per_cpu,
            isolated: guard.isolated(),
            free_blocks: zone.free_blocks(),
            marks: zone.watermarks().get(),
            claims: fallbacks.claims,
            steals: fallbacks.steals,
        })
    }

    /// The NUMA events of the zone at `index`.
    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents> {
        let zone = self.zone_index(index)?;
        let mut events = NumaEvents::default();
        for cpu in 0..context.topology.cpus() {
            let pages = self.lock_pcp(context.platform, cpu, zone);
            let taken = pages.per_cpu.events.get(pages.pcp.count.get()).allocated;
            let is_near =
                context.topology.node_of(CpuId::new(cpu as u32)) == self.zone(zone).node();
            self.stat_of(cpu, zone).numa.add_to(&mut events, taken, is_near);
        }
        events.count_hits();
        Some(events)
    }

    /// The free blocks of the zone at `index` by migratetype, according to their current marks.
    fn free_by_type(&self, _context: Context<'_, P>, index: usize) -> Option<FreeByType> {
        let zone = self.zone_index(index)?;
        let mut counts = FreeByType::default();
        let mut next = FrameIndex(0);
        for pageblock in self.pageblocks_of(zone) {
            if let Some(migratetype) = self.blocks.block_type(pageblock).migratetype() {
                counts.pageblocks[migratetype.index()] += 1;
            }
            // The previous block may extend into this pageblock.
            next = next.max(pageblock);
            while next < pageblock.after(Order::PAGEBLOCK) {
                let state = self.frames.state(next);
                let order = state.order().unwrap_or(Order::ZERO);
                if state.tag() == Tag::Buddy
                    && let Some(migratetype) = state.block_type().migratetype()
                {
                    counts.blocks[migratetype.index()][order.index()] += 1;
                }
                next = next.after(order);
            }
        }
        Some(counts)
    }

    /// The events of all CPUs and zones.
    fn events(&self, context: Context<'_, P>) -> Events {
        let mut events = Events::default();
        for zone in self.zone_indexes() {
            for cpu in 0..context.topology.cpus() {
                let pages = self.lock_pcp(context.platform, cpu, zone);
                events.add(&pages.per_cpu.events.get(pages.pcp.count.get()));
                Y::add_events(&pages, &mut events);
            }
            events.add(&self.lock_zone(context.platform, zone).compaction().events());
        }
        events
    }

    /// Checks all zones, one after the other, and adds up where the frames are.
    fn validate(&self, context: Context<'_, P>) -> Result<Census, Violation> {
        let mut total = Census::default();
        for zone in self.zone_indexes() {
            let _walk = Walk::new(self, context.platform, zone);
            total += self.check_zone(context, zone)?;
        }
        Ok(total)
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    fn zone_index(&self, index: usize) -> Option<ZoneIndex> {
        (index < self.zones.len()).then_some(ZoneIndex(index as u16))
    }
}

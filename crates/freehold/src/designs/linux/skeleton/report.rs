//! Statistics of the design.

use super::{Policy, Skeleton};
use crate::designs::Context;
use crate::designs::linux::frame::Tag;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::platform::{Platform, SharedCell};
use crate::stat::{Events, FreeByType, ZoneStats};
use crate::units::{FrameCount, Order};

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// The state of the zone at `index`.
    pub(super) fn stats_of(&self, context: Context<'_, P>, index: usize) -> Option<ZoneStats> {
        if index >= self.zones.len() {
            return None;
        }
        let index = ZoneIndex(index as u16);
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
            free: self.zone(index).free(),
            per_cpu,
            isolated: guard.isolated(),
            free_blocks: zone.free_blocks(),
            marks: zone.watermarks().get(),
            claims: fallbacks.claims,
            steals: fallbacks.steals,
        })
    }

    /// The free blocks of the zone at `index` by migratetype, according to their current marks.
    pub(super) fn count_by_type(&self, index: usize) -> Option<FreeByType> {
        if index >= self.zones.len() {
            return None;
        }
        let mut counts = FreeByType::default();
        let mut next = FrameIndex(0);
        for pageblock in self.pageblocks_of(ZoneIndex(index as u16)) {
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
    pub(super) fn sum_events(&self, context: Context<'_, P>) -> Events {
        let mut events = Events::default();
        for zone in self.zone_indexes() {
            for cpu in 0..context.topology.cpus() {
                let pages = self.lock_pcp(context.platform, cpu, zone);
                events.add(&pages.events.get(pages.pcp.count.get()));
                Y::add_events(&pages, &mut events);
            }
            events.add(&self.lock_zone(context.platform, zone).compaction().events());
        }
        events
    }
}

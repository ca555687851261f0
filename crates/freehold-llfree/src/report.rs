//! What the design says of itself, and a check of its accounting.

use crate::Llfree;
use crate::block::{Block, child_of, words_of};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::isolate::Met;
use freehold::compact::state::CompactionState;
use freehold::designs::Context;
use freehold::designs::traits::Inspect;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;
use freehold::stat::{
    Census, Events, FrameStatus, FreeByType, NumaEvents, Rule, Violation, ZoneLevel, ZoneStats,
};
use freehold::units::FrameCount;
use freehold::{CpuId, Immovable, MigrateType, Pfn};

/// How often what does not agree is looked at again: calls may be under way.
const LOOKS: usize = 100_000;

impl<P: Platform> Inspect<P> for Llfree<P> {
    fn status(&self, context: Context<'_, P>, pfn: Pfn) -> FrameStatus {
        let lower = &self.lower;
        let has_zone = |at: &FrameIndex| lower.zone_of(child_of(at.0)).is_some();
        let found = lower.stretches.index_of(pfn).filter(has_zone);
        let Some(FrameIndex(frame)) = found else { return FrameStatus::Foreign };
        loop {
            match self.look(frame, frame + 1, &Immovable) {
                Met::Free(_) => return FrameStatus::Free,
                Met::Hole(_) => return FrameStatus::Foreign,
                Met::Used(Block { first, order }, _) => {
                    return FrameStatus::Allocated { first: lower.pfn_of(first), order };
                }
                Met::Elsewhere => context.platform.relax(),
            }
        }
    }

    fn zone_level(&self, index: usize) -> Option<ZoneLevel> {
        let of = self.zones.try_get(index)?;
        Some(ZoneLevel {
            node: of.node,
            kind: of.kind,
            managed: FrameCount::new(of.managed()),
            free: FrameCount::new(self.level_up_to(ZoneIndex(index as u16), u64::MAX)),
            marks: of.watermarks.get(),
        })
    }

    fn zone_stats(&self, _context: Context<'_, P>, index: usize) -> Option<ZoneStats> {
        let ZoneLevel { node, kind, managed, marks, .. } = self.zone_level(index)?;
        let zone = ZoneIndex(index as u16);
        let [free, per_cpu, isolated] = self.free_of(zone).map(FrameCount::new);
        let free_blocks = self.free_blocks(zone);
        Some(ZoneStats {
            node,
            kind,
            managed,
            free,
            per_cpu,
            isolated,
            free_blocks,
            marks,
            ..ZoneStats::default()
        })
    }

    /// By the entries of children, since what CPUs have reserved may be whole as well.
    fn free_and_whole(&self, _context: Context<'_, P>, zone: ZoneIndex) -> Option<[u64; 2]> {
        self.zones.try_get(zone.index())?;
        let [free, per_cpu, _] = self.free_of(zone);
        let is_whole = |child: &u32| self.lower.entries.get(*child) == Entry::WHOLE;
        let whole = self.children_of(zone).filter(is_whole).count() as u64;
        Some([free + per_cpu, whole * u64::from(CHILD_FRAMES)])
    }

    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents> {
        let of = self.zones.try_get(index)?;
        let mut events = NumaEvents::default();
        for (cpu, local) in self.locals_of(ZoneIndex(index as u16)).enumerate() {
            let is_near = context.topology.node_of(CpuId::new(cpu as u32)) == of.node;
            local.numa.add_to(&mut events, local.events().allocated, is_near);
        }
        events.count_hits();
        Some(events)
    }

    /// All of it counts as for movable content: types make no difference.
    fn free_by_type(&self, _context: Context<'_, P>, index: usize) -> Option<FreeByType> {
        self.zones.try_get(index)?;
        let (zone, movable) = (ZoneIndex(index as u16), MigrateType::Movable.index());
        let mut counts = FreeByType::default();
        counts.blocks[movable] = self.free_blocks(zone);
        let entries = self.children_of(zone).map(|child| self.lower.entries.get(child));
        counts.pageblocks[movable] = entries.filter(|entry| !entry.is_isolated()).count() as u64;
        Some(counts)
    }

    fn events(&self, context: Context<'_, P>) -> Events {
        let (mut events, mut reserved) = (Events::default(), FrameCount::ZERO);
        for zone in self.zone_indexes() {
            for local in self.locals_of(zone) {
                events.add(&local.events());
                let count = local.reserved().map_or(0, |of| of.count);
                reserved += FrameCount::new(u64::from(count));
            }
            let state = CompactionState::events;
            events.add(&self.zone(zone).with_compaction(context.platform, state));
        }
        // What came to reservations has left them again, or is still there.
        let came = events.refilled + events.freed + events.allocated_directly;
        let left = events.drained + events.allocated + reserved;
        events.freed_directly = came.saturating_sub(left);
        events
    }

    fn validate(&self, _context: Context<'_, P>) -> Result<Census, Violation> {
        let mut total = Census::default();
        for zone in self.zone_indexes() {
            let mut looks = (1..LOOKS).map(|_| self.check_zone(zone));
            total += looks.find(Result::is_ok).unwrap_or_else(|| self.check_zone(zone))?;
        }
        Ok(total)
    }
}

impl<P: Platform> Llfree<P> {
    /// Checks a zone: each count is at most what is below it, and what is no memory is in no count.
    fn check_zone(&self, zone: ZoneIndex) -> Result<Census, Violation> {
        let lower = &self.lower;
        let rule = |rule, frame: u32| Violation { rule, at: lower.pfn_of(frame) };
        let places = self.free_of(zone);
        let (mut counted, mut memory, mut at) = (0, 0, 0);
        for child in self.children_of(zone) {
            let entry = lower.entries.get(child);
            at = child * CHILD_FRAMES;
            let holes = words_of(child).map(|word| lower.holes(word));
            memory += holes.map(|holes| u64::from(holes.count_zeros())).sum::<u64>();
            counted += u64::from(entry.count());
            if !entry.is_huge() && entry.count() > lower.count_bits(child) {
                return Err(rule(Rule::BlocksCounted, at));
            }
            let is_marked = |word| lower.free_marks(word) != 0;
            if !entry.is_splitting() && words_of(child).any(is_marked) {
                return Err(rule(Rule::TailsUnmarked, at));
            }
        }
        let free = places.iter().sum::<u64>();
        if free > counted {
            return Err(rule(Rule::FreeCounted, at));
        }
        let holders = |tree| {
            let reserved = self.locals_of(zone).filter_map(|local| local.reserved());
            reserved.filter(|of| of.tree == tree).count()
        };
        let is_right = |tree| holders(tree) == usize::from(self.trees.is_reserved(tree));
        if !self.trees_of(zone).all(is_right) && self.is_quiet() {
            return Err(rule(Rule::KeptBeside, at));
        }
        let managed = self.zone(zone).managed();
        if memory != managed {
            return Err(rule(Rule::ManagedCounted, at));
        }
        let [managed, allocated] = [managed, managed - free].map(FrameCount::new);
        let [free, per_cpu, isolated] = places.map(FrameCount::new);
        Ok(Census { managed, free, per_cpu, isolated, allocated })
    }
}

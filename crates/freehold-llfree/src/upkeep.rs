//! Memory that comes into use, CPUs that go, and periodic work, of which there is none.

use crate::Llfree;
use crate::block::{Block, words_of};
use crate::lower::TREE_CHILDREN;
use crate::zone::Zone;
use freehold::config::MemoryRange;
use freehold::designs::Context;
use freehold::designs::hotplug::{HotplugGuard, place_of, update_watermarks};
use freehold::designs::places::Places;
use freehold::designs::traits::Upkeep;
use freehold::memmap::bits::Span;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::{CpuId, Error};

impl<P: Platform> Upkeep<P> for Llfree<P> {
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error> {
        let hotplug = self.hotplug.get(0).begin(context.platform);
        for &range in ranges {
            let (place, zone) = place_of(range, context.topology, &self.lower.stretches, &hotplug)?;
            let parts = || Span::of_range(place).by_pageblock();
            parts().try_for_each(|(child, part)| self.check_unused(child, part, zone))?;
            parts().for_each(|(child, part)| self.add_part(child, part, zone));
        }
        self.resize(context, &hotplug);
        Ok(())
    }

    fn drain(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        self.zone_indexes().for_each(|zone| _ = self.drain_local(self.local(cpu, zone)));
    }

    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId) {
        self.drain(context, cpu);
    }

    fn tick(&self, _context: Context<'_, P>, _cpu: CpuId) {}
}

impl<P: Platform> Llfree<P> {
    fn check_unused(&self, child: u32, part: Span, zone: ZoneIndex) -> Result<(), Error> {
        let Some(of) = self.lower.zone_of(child) else { return Ok(()) };
        let is_memory = |(word, mask): (usize, u64)| !self.lower.holes(word) & mask != 0;
        match part.words().any(is_memory) {
            true if of == zone || !self.lower.is_hole(Block::frame(part.first)) => {
                Err(Error::RangeOverlaps)
            }
            _ if of != zone => Err(Error::SharedPageblock),
            _ => Ok(()),
        }
    }

    fn add_part(&self, child: u32, part: Span, zone: ZoneIndex) {
        let (lower, frames) = (&self.lower, part.end - part.first);
        if lower.zone_of(child).is_none() {
            words_of(child).for_each(|word| lower.make_holes(word, u64::MAX));
            lower.set_zone(child, Some(zone));
            self.zone(zone).extend(child / TREE_CHILDREN);
        }
        self.zone(zone).add_managed(i64::from(frames));
        part.words().for_each(|(word, mask)| lower.fill_holes(word, mask));
        if !lower.entries.add(child, frames).is_isolated() {
            self.trees.give(self.trees.of(zone, child), frames);
        }
    }

    /// Recomputes what depends on how much memory there is. Reservations end, since the watermarks
    /// may have risen.
    pub(crate) fn resize(&self, context: Context<'_, P>, hotplug: &HotplugGuard<'_, P>) {
        update_watermarks(&self.zones, Zone::marked, context.topology, hotplug);
        self.drain_all(context);
    }
}

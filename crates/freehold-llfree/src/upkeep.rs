//! Memory that comes into use, CPUs that go, and periodic work, of which there is none.

use crate::Llfree;
use crate::block::child_of;
use crate::entry::CHILD_FRAMES;
use crate::lower::{Lower, TREE_CHILDREN};
use crate::zone::Zone;
use freehold::config::MemoryRange;
use freehold::designs::Context;
use freehold::designs::hotplug::{HotplugGuard, place_of, update_watermarks};
use freehold::designs::traits::Upkeep;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;
use freehold::{CpuId, Error};

impl<P: Platform> Upkeep<P> for Llfree<P> {
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error> {
        let hotplug = self.hotplug.get(0).begin(context.platform);
        for &range in ranges {
            let (place, zone) = place_of(range, context.topology, &self.lower.stretches, &hotplug)?;
            let parts = || parts(place.first.0, place.end.0);
            parts().try_for_each(|part| self.check_unused(part, zone))?;
            parts().for_each(|part| self.add_part(part, zone));
        }
        self.resize(context, &hotplug);
        Ok(())
    }

    fn drain(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        for zone in self.zone_indexes() {
            self.drain_local(self.local(cpu, zone));
        }
    }

    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId) {
        self.drain(context, cpu);
    }

    fn tick(&self, _context: Context<'_, P>, _cpu: CpuId) {}
}

/// The frames of one child from one to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

/// The frames from one to another, by child.
pub(crate) fn parts(first: u32, end: u32) -> impl Iterator<Item = Part> {
    let children = child_of(first)..end.div_ceil(CHILD_FRAMES);
    children.map(move |child| Part {
        first: first.max(child * CHILD_FRAMES),
        end: end.min((child + 1) * CHILD_FRAMES),
    })
}

impl Part {
    pub(crate) fn child(self) -> u32 {
        child_of(self.first)
    }

    pub(crate) fn frames(self) -> u32 {
        self.end - self.first
    }

    /// Its words, and its frames in each.
    pub(crate) fn words(self) -> impl Iterator<Item = (usize, u64)> {
        let words = self.first / 64..self.end.div_ceil(64);
        words.map(move |word| {
            let (first, end) = (self.first.max(word * 64), self.end.min((word + 1) * 64));
            (word as usize, (u64::MAX >> (64 - (end - first))) << (first % 64))
        })
    }
}

impl<P: Platform> Llfree<P> {
    fn check_unused(&self, part: Part, zone: ZoneIndex) -> Result<(), Error> {
        let Some(of) = self.lower.zone_of(part.child()) else { return Ok(()) };
        let is_memory = |(word, mask): (usize, u64)| !self.lower.holes(word) & mask != 0;
        if (Part { end: part.first + 1, ..part }).words().any(is_memory) {
            return Err(Error::RangeOverlaps);
        }
        if of != zone {
            return Err(Error::SharedPageblock);
        }
        if part.words().any(is_memory) { Err(Error::RangeOverlaps) } else { Ok(()) }
    }

    fn add_part(&self, part: Part, zone: ZoneIndex) {
        let (lower, child, of) = (&self.lower, part.child(), self.zone(zone));
        if lower.zone_of(child).is_none() {
            for word in Lower::<P>::words_of(child) {
                lower.make_holes(word, u64::MAX);
            }
            lower.set_zone(child, Some(zone));
            of.extend(child / TREE_CHILDREN);
        }
        of.add_managed(i64::from(part.frames()));
        part.words().for_each(|(word, mask)| lower.fill_holes(word, mask));
        if !lower.entries.add(child, part.frames()).is_isolated() {
            self.trees.give(self.trees.of(zone, child), part.frames());
        }
    }

    /// Recomputes what depends on how much memory there is. Reservations end, since the watermarks
    /// may have risen.
    pub(crate) fn resize(&self, context: Context<'_, P>, hotplug: &HotplugGuard<'_, P>) {
        update_watermarks(&self.zones, Zone::marked, context.topology, hotplug);
        for zone in self.zone_indexes() {
            self.drain_zone(zone);
        }
    }
}

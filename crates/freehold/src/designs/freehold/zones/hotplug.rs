//! Hotplug: memory comes into use, at the start and later.

use super::Zones;
use super::zone::Zone;
use crate::Error;
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::Span;
use crate::designs::freehold::pageblocks::state::{State, Use};
use crate::designs::hotplug::{Hotplug, HotplugGuard, place_of, update_watermarks};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;

impl<P: Platform> Zones<P> {
    pub(crate) fn hotplug(&self) -> &Hotplug<P> {
        self.hotplug.get(0)
    }

    /// Brings a range into use, or refuses it and changes nothing.
    pub(crate) fn add_range(
        &self,
        context: Context<'_, P>,
        range: MemoryRange,
    ) -> Result<(), Error> {
        let hotplug = self.hotplug().begin(context.platform);
        let (place, zone) =
            place_of(range, context.topology, self.pageblocks.stretches(), &hotplug)?;
        let span = Span::of_range(place);
        let trees = self.zone(zone);
        if span.pageblocks().any(|(pageblock, _)| trees.bit(pageblock) >= trees.pool().bits()) {
            return Err(Error::OutsideSpan);
        }
        self.check_unused(span, zone)?;
        for (pageblock, part) in span.pageblocks() {
            trees.extend(pageblock.0..pageblock.0 + 1);
            self.add_part(context.cpu_here(), zone, pageblock, part);
        }
        self.resize(context, &hotplug);
        Ok(())
    }

    /// Recomputes what depends on how much memory there is.
    pub(crate) fn resize(&self, context: Context<'_, P>, hotplug: &HotplugGuard<'_, P>) {
        update_watermarks(&self.zones, Zone::marked, context.topology, hotplug);
        self.zones.iter().for_each(|zone| zone.set_spares_max(self.cpus));
    }

    fn check_unused(&self, span: Span, zone: ZoneIndex) -> Result<(), Error> {
        for (pageblock, part) in span.pageblocks() {
            // A pageblock whose memory was removed may go to another zone, and the bitmaps of one
            // that never had any mean nothing.
            if self.pageblocks.state(pageblock).used_for() == Use::Absent {
                continue;
            }
            let present = |(word, mask)| !self.pageblocks.holes_of_others(word) & mask != 0;
            let first = Span { end: part.first + 1, ..part };
            if first.words().any(present) {
                return Err(Error::RangeOverlaps);
            }
            if self.pageblocks.zone(pageblock) != zone {
                return Err(Error::SharedPageblock);
            }
            if part.words().any(present) {
                return Err(Error::RangeOverlaps);
            }
        }
        Ok(())
    }

    /// Adds frames of one pageblock.
    fn add_part(&self, cpu: usize, index: ZoneIndex, pageblock: PageblockIndex, part: Span) {
        let section = self.section(cpu, index);
        let (zone, frames) = (self.zone(index), part.end - part.first);
        if self.pageblocks.state(pageblock).used_for() == Use::Absent {
            self.pageblocks.set_zone(pageblock, index);
            self.pageblocks.update(pageblock, State::add);
        } else if !self.pageblocks.acquire(pageblock) {
            // Its holder will find them, as if they had been freed remotely.
            zone.note_added(frames);
            zone.add_managed(u64::from(frames));
            part.words().for_each(|(word, mask)| self.pageblocks.add_freed(word, mask));
            self.ensure_collected(cpu, pageblock);
            return;
        }
        part.words().for_each(|(word, mask)| self.pageblocks.add_free(word, mask));
        zone.add_managed(u64::from(frames));
        zone.add_free(frames);
        self.release(pageblock, &section);
    }
}

//! Hotplug: memory comes into use, at the start and later.

use super::Zones;
use super::zone::Zone;
use crate::Error;
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::Span;
use crate::designs::freehold::pageblocks::state::{Holder, Use};
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, RawLock};
use crate::topology::Topology;
use crate::units::{FrameCount, FrameSize, Order, ZoneKind};
use crate::zone::watermark::{self, ZoneSize};

/// The data under which memory is added: one addition at a time.
pub(crate) struct Hotplug<P: Platform> {
    pub(crate) lock: P::Lock,
    /// The configured `min_free`.
    pub(crate) min_free: Option<FrameCount>,
    pub(crate) frame_size: FrameSize,
}

/// The lock under which memory is added, held. Unlocks when dropped.
struct HotplugGuard<'a, P: Platform>(&'a Hotplug<P>);

impl<'a, P: Platform> HotplugGuard<'a, P> {
    fn new(hotplug: &'a Hotplug<P>) -> Self {
        hotplug.lock.lock();
        HotplugGuard(hotplug)
    }
}

impl<P: Platform> Drop for HotplugGuard<'_, P> {
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

impl<P: Platform> Zones<P> {
    /// The lock under which memory is added.
    pub(crate) fn hotplug_lock(&self) -> &P::Lock {
        &self.hotplug.get(0).lock
    }

    /// Brings a range into use, or refuses it and changes nothing.
    pub(crate) fn add_range(
        &self,
        context: Context<'_, P>,
        range: MemoryRange,
    ) -> Result<(), Error> {
        range.check()?;
        let first = self.pageblocks.index_of(range.start).ok_or(Error::OutsideSpan)?;
        if u64::from(first) + range.frames.get() > self.pageblocks.frames() {
            return Err(Error::OutsideSpan);
        }
        let span = Span { first, end: first + range.frames.get() as u32 };
        context.topology.zonelist(range.node, ZoneKind::Movable)?;
        let zone = context.topology.zone(range.node, range.zone).ok_or(Error::UnknownZone)?;

        let hotplug = HotplugGuard::new(self.hotplug.get(0));
        self.check_unused(span, zone)?;
        for (pageblock, part) in span.pageblocks() {
            self.add_part(self.cpu_here(context), zone, pageblock, part);
        }
        self.update_marks(context.topology, hotplug.0);
        Ok(())
    }

    fn check_unused(&self, span: Span, zone: ZoneIndex) -> Result<(), Error> {
        for (pageblock, part) in span.pageblocks() {
            let present = |(word, mask)| !self.pageblocks.holes_of_others(word) & mask != 0;
            let first = Span { end: part.first + 1, ..part };
            if first.words().any(present) {
                return Err(Error::RangeOverlaps);
            }
            if self.pageblocks.zone_if_any(pageblock).is_some_and(|of| of != zone) {
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
        let _section = self.section(cpu, index);
        let (zone, frames) = (self.zone(index), part.end - part.first);
        if self.pageblocks.state(pageblock).used_for() == Use::Absent {
            self.pageblocks.set_zone(pageblock, index);
            self.pageblocks.update(pageblock, |state| {
                state.used(Use::Split, Order::ZERO).held_by(Holder::Walker)
            });
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
        self.release(pageblock);
    }

    /// Recomputes all watermarks and reserves.
    fn update_marks(&self, topology: &Topology, hotplug: &Hotplug<P>) {
        let managed = |zone: &Zone<P>| FrameCount::new(zone.managed());
        let lowmem = self.zones.iter().filter(|zone| zone.kind() != ZoneKind::Movable);
        let lowmem: FrameCount = lowmem.map(managed).sum();
        let computed = || watermark::min_free(lowmem, hotplug.frame_size);
        let min_free = hotplug.min_free.unwrap_or_else(computed);
        for zone in self.zones.iter() {
            let of_node = ZoneKind::ALL.map(|kind| match topology.zone(zone.node(), kind) {
                Some(index) => managed(self.zone(index)),
                None => FrameCount::ZERO,
            });
            let size = ZoneSize { kind: zone.kind(), managed: managed(zone) };
            zone.set_spares_max(self.cpus);
            zone.watermarks().set(&watermark::marks(size, min_free, lowmem, of_node));
        }
    }
}

//! Adding memory: at the start, and later.

use super::blocks::BlockIndex;
use super::span::Span;
use super::state::{Holder, Use};
use super::{Freehold, Hotplug};
use crate::Error;
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, RawLock};
use crate::topology::Topology;
use crate::units::{FrameCount, Order, ZoneKind};
use crate::zone::watermark::{self, ZoneSize};

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

impl<P: Platform> Freehold<P> {
    /// Brings a range into use, or refuses it and changes nothing.
    pub(super) fn add_range(
        &self,
        context: Context<'_, P>,
        range: MemoryRange,
    ) -> Result<(), Error> {
        range.check()?;
        let first = self.blocks.index_of(range.start).ok_or(Error::OutsideSpan)?;
        if u64::from(first) + range.frames.get() > self.blocks.frames() {
            return Err(Error::OutsideSpan);
        }
        let span = Span { first, end: first + range.frames.get() as u32 };
        context.topology.zonelist(range.node, ZoneKind::Movable)?;
        let zone = context.topology.zone(range.node, range.zone).ok_or(Error::UnknownZone)?;

        let hotplug = HotplugGuard::new(self.hotplug.get(0));
        self.check_unused(span, zone)?;
        for (block, part) in span.blocks() {
            self.add_part(self.cpu_here(context), zone, block, part);
        }
        self.update_marks(context.topology, hotplug.0);
        Ok(())
    }

    fn check_unused(&self, span: Span, zone: ZoneIndex) -> Result<(), Error> {
        for (block, part) in span.blocks() {
            let present = |(word, mask)| !self.blocks.holes_of_others(word) & mask != 0;
            let first = Span { end: part.first + 1, ..part };
            if first.words().any(present) {
                return Err(Error::RangeOverlaps);
            }
            if self.blocks.zone_if_any(block).is_some_and(|of| of != zone) {
                return Err(Error::SharedPageblock);
            }
            if part.words().any(present) {
                return Err(Error::RangeOverlaps);
            }
        }
        Ok(())
    }

    /// Adds frames of one pageblock.
    fn add_part(&self, cpu: usize, index: ZoneIndex, block: BlockIndex, part: Span) {
        let _section = self.section(cpu, index);
        let (zone, frames) = (self.zone(index), part.end - part.first);
        if self.blocks.state(block).used_for() == Use::Absent {
            self.blocks.set_zone(block, index);
            self.blocks
                .update(block, |state| state.used(Use::Split, Order::ZERO).held_by(Holder::Walker));
        } else if !self.hold(block) {
            // Its holder will find them, as if somebody had freed them.
            zone.note_added(frames);
            zone.add_managed(u64::from(frames));
            part.words().for_each(|(word, mask)| self.blocks.add_freed(word, mask));
            self.notify(cpu, block);
            return;
        }
        part.words().for_each(|(word, mask)| self.blocks.add_free(word, mask));
        zone.add_managed(u64::from(frames));
        zone.add_free(frames);
        self.release(block);
    }

    /// Computes all watermarks and reserves anew.
    fn update_marks(&self, topology: &Topology, hotplug: &Hotplug<P>) {
        let managed = |zone: &super::Zone<P>| FrameCount::new(zone.managed());
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
            zone.set_spares_max(self.cpus());
            zone.watermarks().set(&watermark::marks(size, min_free, lowmem, of_node));
        }
    }
}

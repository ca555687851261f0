//! Adding memory: initially, and later.

use super::{Hotplug, Policy, Skeleton};
use crate::Error;
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::designs::linux::frame::FrameState;
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::memmap::list::End;
use crate::platform::{Platform, RawLock, SharedCell};
use crate::topology::Topology;
use crate::units::{FrameCount, FrameSize, ZoneKind};
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

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Adds ranges, up to the first that is refused, which changes nothing. Watermarks and limits
    /// are computed once for all of them, since that visits every CPU.
    pub(super) fn add_ranges(
        &self,
        context: Context<'_, P>,
        ranges: &[MemoryRange],
    ) -> Result<(), Error> {
        let hotplug = HotplugGuard::new(self.hotplug.get(0));
        ranges.iter().try_for_each(|&range| self.add_range(context, range))?;
        self.update_marks(context.topology, hotplug.0);
        self.update_limits(context, hotplug.0.frame_size);
        Ok(())
    }

    /// Adds a range, or refuses it. The caller holds the hotplug lock.
    fn add_range(&self, context: Context<'_, P>, range: MemoryRange) -> Result<(), Error> {
        range.check()?;
        let first = self.frames.index_of(range.start).ok_or(Error::OutsideSpan)?;
        if u64::from(first.0) + range.frames.get() > self.frames.len().get() {
            return Err(Error::OutsideSpan);
        }
        let end = FrameIndex(first.0 + range.frames.get() as u32);
        context.topology.zonelist(range.node, ZoneKind::Movable)?;
        let zone = context.topology.zone(range.node, range.zone).ok_or(Error::UnknownZone)?;
        self.check_unused(first, end, zone)?;
        self.free_new(context.platform, zone, first, end);
        Ok(())
    }

    fn check_unused(
        &self,
        first: FrameIndex,
        end: FrameIndex,
        zone: ZoneIndex,
    ) -> Result<(), Error> {
        for frame in (first.0..end.0).map(FrameIndex) {
            if self.frames.state(frame) != FrameState::HOLE {
                return Err(Error::RangeOverlaps);
            }
            if self.blocks.zone(frame).is_some_and(|of| of != zone) {
                return Err(Error::SharedPageblock);
            }
        }
        Ok(())
    }

    /// Frees new memory in the largest blocks that fit, lowest first and to the back of the lists,
    /// so that low frames are allocated first. All invariants hold in between.
    fn free_new(&self, platform: &P, zone: ZoneIndex, first: FrameIndex, end: FrameIndex) {
        let mut at = first;
        while at < end {
            let order = at.largest_before(end);
            let next = at.after(order);
            let guard = self.lock_zone(platform, zone);
            for frame in (at.0..next.0).map(FrameIndex) {
                self.blocks.set_zone(frame, zone);
                self.frames.set_state(frame, FrameState::TAIL);
            }
            let available = guard.give(at, order, Some(End::Back));
            guard.add_memory(order.frames(), available);
            drop(guard);
            at = next;
        }
    }

    /// Recomputes all watermarks and reserves.
    fn update_marks(&self, topology: &Topology, hotplug: &Hotplug<P>) {
        let zones = || self.zones.iter();
        let lowmem = zones().filter(|zone| zone.kind() != ZoneKind::Movable);
        let lowmem: FrameCount = lowmem.map(|zone| zone.managed()).sum();
        let computed = || watermark::min_free(lowmem, hotplug.frame_size);
        let min_free = hotplug.min_free.unwrap_or_else(computed);
        for zone in zones() {
            let of_node = ZoneKind::ALL.map(|kind| match topology.zone(zone.node(), kind) {
                Some(index) => self.zone(index).managed(),
                None => FrameCount::ZERO,
            });
            let size = ZoneSize { kind: zone.kind(), managed: zone.managed() };
            zone.watermarks().set(&watermark::marks(size, min_free, lowmem, of_node));
        }
    }

    /// Recomputes the bounds of all per-CPU lists.
    fn update_limits(&self, context: Context<'_, P>, frame_size: FrameSize) {
        for index in self.zone_indexes() {
            let zone = self.zone(index);
            let low = zone.watermarks().get().low;
            let cpus = context.topology.cpus_of(zone.node());
            let limits = self.mode.limits(zone.managed(), low, cpus, frame_size);
            for cpu in 0..context.topology.cpus() {
                let pages = self.lock_pcp(context.platform, cpu, index);
                pages.pcp.batch.set(limits.batch);
                pages.pcp.high_min.set(limits.high_min);
                pages.pcp.high_max.set(limits.high_max);
                let high = pages.pcp.high.get().clamp(limits.high_min, limits.high_max);
                pages.pcp.high.set(high);
            }
        }
    }
}

//! Adding memory: initially, and later.

use super::{Policy, Skeleton};
use crate::frame::FrameState;
use crate::zone::Zone;
use freehold::Error;
use freehold::config::MemoryRange;
use freehold::designs::Context;
use freehold::designs::hotplug::{HotplugGuard, place_of, update_watermarks};
use freehold::memmap::index::{FrameIndex, FrameRange, ZoneIndex};
use freehold::memmap::list::End;
use freehold::platform::{Platform, SharedCell};
use freehold::units::FrameSize;

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Adds a range, or refuses it.
    pub(super) fn add_range(
        &self,
        context: Context<'_, P>,
        range: MemoryRange,
        hotplug: &HotplugGuard<'_, P>,
    ) -> Result<(), Error> {
        let (place, zone) = place_of(range, context.topology, self.frames.stretches(), hotplug)?;
        let FrameRange { first, end } = place;
        self.check_unused(first, end, zone)?;
        self.put_new(context.platform, zone, first, end);
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

    /// Puts new memory in the largest blocks that fit, lowest first and at the back of the lists,
    /// so that low frames are allocated first. All invariants hold in between.
    fn put_new(&self, platform: &P, zone: ZoneIndex, first: FrameIndex, end: FrameIndex) {
        let mut at = first;
        while at < end {
            let order = at.largest_before(end);
            let next = at.after(order);
            let guard = self.lock_zone(platform, zone);
            for frame in (at.0..next.0).map(FrameIndex) {
                self.blocks.set_zone(frame, zone);
                self.frames.set_state(frame, FrameState::TAIL);
            }
            let available = guard.put(at, order, Some(End::Back));
            guard.add_memory(order.frames(), available);
            drop(guard);
            at = next;
        }
    }

    /// Recomputes what depends on how much memory there is.
    pub(super) fn resize(&self, context: Context<'_, P>, hotplug: &HotplugGuard<'_, P>) {
        update_watermarks(&self.zones, Zone::marked, context.topology, hotplug);
        self.update_limits(context, context.topology.frame_size);
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

//! Draining: caches release what they hold, for other CPUs, for large blocks, and when a CPU goes
//! offline.

use super::lock::IfLeased;
use crate::Error;
use crate::config::MemoryRange;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::traits::Upkeep;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::units::CpuId;

impl<P: Platform> Upkeep<P> for Freehold<P> {
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error> {
        ranges.iter().try_for_each(|&range| self.zones.add_range(context, range))
    }

    fn drain(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        self.zones.indexes().for_each(|zone| self.drain_cache(context, cpu, zone));
    }

    /// Releases the full pageblocks of the CPU's caches as well.
    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        for zone in self.zones.indexes() {
            let Some(guard) = self.lock(context, cpu, zone, IfLeased::Revoke) else { continue };
            guard.drain();
            for pageblock in self.zones.pageblocks.all() {
                let state = self.zones.pageblocks.state(pageblock);
                if state.is_split_of(cpu) && self.zones.pageblocks.zone(pageblock) == zone {
                    debug_assert!(!state.is_listed(), "all that were listed are gone");
                    guard.release(pageblock);
                }
            }
        }
    }

    /// Collects remote frees, and releases the spare pageblocks.
    fn tick(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        for zone in self.zones.indexes() {
            let Some(guard) = self.try_lock(context.pin().1, cpu, zone) else { continue };
            guard.collect_queued();
            guard.release_spares(usize::MAX);
        }
    }
}

impl<P: Platform> Freehold<P> {
    /// Releases all pageblocks with free frames of a CPU cache. Revokes a lease; what one that
    /// cannot be revoked holds does not count as cached until it ends.
    pub(crate) fn drain_cache(&self, context: Context<'_, P>, cpu: usize, zone: ZoneIndex) {
        if let Some(guard) = self.lock(context, cpu, zone, IfLeased::Revoke) {
            guard.drain();
        }
    }

    /// Drains those caches of a zone that no call or lease has at the moment, if any cache may hold
    /// frames. That says nothing of the other caches.
    pub(crate) fn drain_unused(&self, context: Context<'_, P>, zone: ZoneIndex) {
        if self.zones.zone(zone).may_be_cached() {
            for cpu in 0..self.zones.cpu_count() {
                if let Some(guard) = self.try_lock(context.pin().1, cpu, zone) {
                    guard.drain();
                }
            }
        }
    }

    /// Drains the caches of a zone, if they may hold frames and no other drain is under way.
    /// `may_wait` is as in `drain_begun`.
    pub(crate) fn drain_if_cached(&self, context: Context<'_, P>, zone: ZoneIndex, may_wait: bool) {
        if self.zones.zone(zone).try_begin_drain() {
            self.drain_begun(context, zone, may_wait);
        }
    }

    /// Drains the caches of a zone in any case. Returns how often the zone had been marked as
    /// cached before.
    pub(crate) fn drain_anew(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        may_wait: bool,
    ) -> u64 {
        let notes = self.zones.zone(zone).begin_drain();
        self.drain_begun(context, zone, may_wait);
        notes
    }

    /// Drains the caches of a zone. With `may_wait`, revokes leases and waits for calls that use a
    /// cache: if drains passed over such caches instead, drains of several zones would pass over
    /// each other's for ever. Without it, passes over those caches, and marks the zone as cached
    /// again.
    fn drain_begun(&self, context: Context<'_, P>, zone: ZoneIndex, may_wait: bool) {
        let mut is_passed_over = false;
        for cpu in 0..self.zones.cpu_count() {
            let guard = match may_wait {
                true => self.lock(context, cpu, zone, IfLeased::Revoke),
                false => self.try_lock(context.pin().1, cpu, zone),
            };
            match guard {
                Some(guard) => guard.drain(),
                // A lease that cannot be revoked marks the zone when it ends.
                None => is_passed_over |= !may_wait,
            }
        }
        if is_passed_over {
            self.zones.zone(zone).mark_cached();
        }
        self.zones.zone(zone).end_drain();
    }
}

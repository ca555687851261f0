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
            for pageblock in self.zones.pageblocks_of(zone) {
                let state = self.pageblocks().state(pageblock);
                if state.is_split_of(cpu) {
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
    /// Releases all pageblocks with free frames of a CPU cache. Revokes a lease; one that cannot be
    /// revoked keeps what it holds.
    pub(crate) fn drain_cache(&self, context: Context<'_, P>, cpu: usize, zone: ZoneIndex) {
        if let Some(guard) = self.lock(context, cpu, zone, IfLeased::Revoke) {
            guard.drain();
        }
    }

    /// Drains all caches of a zone.
    pub(crate) fn drain_zone(&self, context: Context<'_, P>, zone: ZoneIndex) {
        (0..self.zones.cpu_count()).for_each(|cpu| self.drain_cache(context, cpu, zone));
    }

    /// Drains the caches of a zone that may hold free frames; takes no lock of the others. With
    /// `may_wait`, revokes leases and waits for calls that use a cache: if drains passed over such
    /// caches instead, those of several zones would pass over each other's for ever. Returns
    /// whether a lease has kept its caches.
    pub(crate) fn drain_cached(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        may_wait: bool,
    ) -> bool {
        let mut is_kept = false;
        for cpu in self.zones.cached_on(zone) {
            let guard = match may_wait {
                true => self.lock(context, cpu, zone, IfLeased::Revoke),
                false => self.try_lock(context.pin().1, cpu, zone),
            };
            match guard {
                Some(guard) => guard.drain(),
                None => is_kept |= may_wait,
            }
        }
        is_kept
    }
}

//! Freeze: stops all calls while the metadata is copied, for `fork`. In the copy, `repair` follows.
//!
//! A freeze takes the locks of all caches, so what caches hold is consistent in the copy, and the
//! copy has one thread. The rest changes without locks, step by step.

use super::Freehold;
use super::caches::lock::{CacheGuard, IfLeased};
use crate::designs::Context;
use crate::designs::traits::Freeze;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, RawLock};

mod repair;

#[cfg(test)]
mod tests;

/// The zone whose cache records that a freeze has the lock over all caches of a CPU.
const ANY_ZONE: ZoneIndex = ZoneIndex(0);

impl<P: Platform> Freeze<P> for Freehold<P> {
    /// Takes all locks but those of leases that cannot be revoked. No call waits for one of them
    /// while it holds another, except for the hotplug lock.
    fn freeze(&self, context: Context<'_, P>) {
        self.zones.hotplug().lock().lock();
        self.zones.iter().for_each(|zone| zone.lock_compaction());
        for cpu in 0..self.zones.cpu_count() {
            let guard = self.lock(context, cpu, ANY_ZONE, IfLeased::Revoke);
            let held = guard.map(CacheGuard::leave_locked).is_some();
            self.cache(cpu, ANY_ZONE).set_frozen(held);
        }
    }

    fn thaw(&self, _context: Context<'_, P>) {
        for cpu in 0..self.zones.cpu_count() {
            let cache = self.cache(cpu, ANY_ZONE);
            if cache.is_frozen() {
                cache.set_frozen(false);
                self.per_cpu(cpu).unlock();
            }
        }
        self.zones.iter().for_each(|zone| zone.unlock_compaction());
        self.zones.hotplug().lock().unlock();
    }

    fn thaw_copy(&self, context: Context<'_, P>) {
        self.repair();
        self.thaw(context);
    }
}

//! The lock over the caches of a CPU.
//!
//! Fast paths try-lock. On failure they use another cache or bypass all, so a preempted lock holder
//! stalls no other call. A lease has the lock for many operations of its owner: see `lease`.

use core::ops::Deref;

use super::cache::{CpuCache, Hot};
use super::lease::{LeaseState, NotRevoked};
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::Pageblocks;
use crate::designs::freehold::zones::Zones;
use crate::designs::freehold::zones::zone::Zone;
use crate::memmap::index::ZoneIndex;
use crate::platform::{LockClass, Pin, Platform, RawLock};
use crate::request::Request;
use crate::units::ZoneKind;

/// What a CPU needs for every call: the lock over all its caches, the best zones, and the hot part
/// of its cache in the best zone.
///
/// One lock for the caches in all zones: its address is known from the CPU alone, so that a free
/// takes it before it knows the zone of the frame. A CPU rarely uses its caches in other zones, so
/// one lock is enough.
#[repr(C, align(64))]
pub(crate) struct PerCpu<P: Platform> {
    lock: P::Lock,
    /// Whether frames are picked at random. Never changes.
    pub(crate) picks_at_random: bool,
    /// The zone of `hot`: the best one for movable content. Never changes.
    zone: ZoneIndex,
    /// The best zone by zone limit, or [`NO_ZONE`]. Never changes.
    best: [u16; ZoneKind::COUNT],
    /// Whether a lease has the lock.
    pub(crate) lease: LeaseState<P>,
    hot: Hot<P>,
}

/// The number that no zone has.
const NO_ZONE: u16 = u16::MAX;

impl<P: Platform> PerCpu<P> {
    /// A CPU with these best zones, by zone limit.
    pub(crate) fn new(best: [Option<ZoneIndex>; ZoneKind::COUNT], picks_at_random: bool) -> Self {
        PerCpu {
            lock: P::Lock::new(LockClass::CpuCache),
            zone: best[ZoneKind::Movable.index()].unwrap_or(ZoneIndex(0)),
            best: best.map(|zone| zone.map_or(NO_ZONE, |zone| zone.0)),
            picks_at_random,
            lease: LeaseState::vacant(),
            hot: Hot::new(),
        }
    }

    /// The zone that a request is served from first, or [`NO_ZONE`].
    #[inline(always)]
    pub(crate) fn best(&self, request: &Request) -> ZoneIndex {
        ZoneIndex(self.best[request.limit_index()])
    }

    /// The hot part of the CPU's cache in a zone, if it lies here.
    #[inline(always)]
    pub(crate) fn hot_of(&self, zone: ZoneIndex) -> Option<&Hot<P>> {
        if zone == self.zone { Some(&self.hot) } else { None }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    #[inline(always)]
    pub(crate) fn unlock(&self) {
        self.lock.unlock();
    }
}

/// The cache of a CPU in a zone, whose lock a call or a lease has.
pub(crate) struct LockedCache<'a, P: Platform> {
    pub(crate) design: &'a Freehold<P>,
    pub(crate) per_cpu: &'a PerCpu<P>,
    pub(crate) cache: CpuCache<'a, P>,
    pub(crate) cpu: usize,
    pub(crate) zone_index: ZoneIndex,
    pub(crate) platform: &'a P,
}

impl<'a, P: Platform> LockedCache<'a, P> {
    #[inline(always)]
    pub(crate) fn zones(&self) -> &'a Zones<P> {
        &self.design.zones
    }

    #[inline(always)]
    pub(crate) fn pageblocks(&self) -> &'a Pageblocks<P> {
        self.design.pageblocks()
    }

    /// The zone of the cache.
    #[inline(always)]
    pub(crate) fn zone(&self) -> &'a Zone<P> {
        self.zones().zone(self.zone_index)
    }

    /// Marks the cache, unless it is: it is about to acquire free frames. Comes before the step by
    /// which it does; see `zones/sections.rs`.
    pub(crate) fn mark_cached(&self) {
        self.zones().mark_cached(self.cpu, self.zone_index);
    }
}

/// A cache that a call has locked. Unlocks, and then unpins, when dropped.
pub(crate) struct CacheGuard<'a, P: Platform> {
    cache: LockedCache<'a, P>,
    // Dropped in this order.
    held: Held<'a, P>,
    _pin: Pin<'a, P>,
}

impl<P: Platform> CacheGuard<'_, P> {
    /// Ends the pin and leaves the lock taken, for a freeze.
    pub(crate) fn leave_locked(self) {
        core::mem::forget(self.held);
    }
}

impl<'a, P: Platform> Deref for CacheGuard<'a, P> {
    type Target = LockedCache<'a, P>;

    #[inline(always)]
    fn deref(&self) -> &LockedCache<'a, P> {
        &self.cache
    }
}

/// The lock over the caches of a CPU, held.
struct Held<'a, P: Platform>(&'a PerCpu<P>);

impl<P: Platform> Drop for Held<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// What a call that waits for the lock does if a lease has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfLeased {
    /// It takes the lock from the lease.
    Revoke,
    /// It does without: a look.
    Leave,
}

impl<P: Platform> Freehold<P> {
    /// The cache of a CPU in a zone, whose lock the caller has.
    #[inline(always)]
    pub(crate) fn locked_cache<'a>(
        &'a self,
        platform: &'a P,
        per_cpu: &'a PerCpu<P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> LockedCache<'a, P> {
        LockedCache {
            design: self,
            per_cpu,
            cache: self.cache_of(per_cpu, cpu, zone),
            cpu,
            zone_index: zone,
            platform,
        }
    }

    /// A guard for a lock that the caller has taken, pinned to the CPU. The fast paths lock and
    /// unlock by hand, so that the guard need not be written to memory.
    #[inline(always)]
    pub(crate) fn guard_of<'a>(
        &'a self,
        pin: Pin<'a, P>,
        per_cpu: &'a PerCpu<P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> CacheGuard<'a, P> {
        let cache = self.locked_cache(pin.platform(), per_cpu, cpu, zone);
        CacheGuard { cache, held: Held(per_cpu), _pin: pin }
    }

    /// Takes the lock of a CPU's caches if it is free.
    #[inline(always)]
    pub(crate) fn try_lock<'a>(
        &'a self,
        pin: Pin<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        let per_cpu = self.per_cpu(cpu);
        per_cpu.try_lock().then(|| self.guard_of(pin, per_cpu, cpu, zone))
    }

    /// Takes the lock of the running CPU's caches, or else of the next CPU whose lock is free.
    pub(crate) fn lock_any<'a>(
        &'a self,
        context: Context<'a, P>,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        let (here, cpus) = (context.cpu_here(), self.zones.cpu_count());
        (here..here + cpus).find_map(|cpu| self.try_lock(context.pin().1, cpu % cpus, zone))
    }

    /// Waits for the lock of a CPU's caches. `None` if a lease keeps it: it is to be left alone, or
    /// cannot be revoked.
    pub(crate) fn lock<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
        if_leased: IfLeased,
    ) -> Option<CacheGuard<'a, P>> {
        loop {
            let guard = self.try_lock(context.pin().1, cpu, zone);
            if guard.is_some() {
                return guard;
            }
            if !self.per_cpu(cpu).lease.has_lock() {
                context.platform.relax();
                continue;
            }
            if if_leased == IfLeased::Leave {
                return None;
            }
            match self.revoke(context, cpu, zone) {
                Ok(guard) => return Some(guard),
                Err(NotRevoked::Kept) => return None,
                Err(NotRevoked::Changed) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;

    #[test]
    fn all_that_an_allocation_needs_of_a_cpu_is_on_one_cache_line() {
        assert_eq!(size_of::<PerCpu<TestPlatform>>(), 64);
    }
}

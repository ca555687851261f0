//! The lock over the caches of a CPU, and leases of it.
//!
//! Fast paths try-lock. On failure they use another cache or bypass all, so a preempted lock holder
//! stalls no other call.

use core::ops::Deref;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::cache::{CpuCache, Hot};
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::Pageblocks;
use crate::designs::freehold::pageblocks::remote::RemoteQueue;
use crate::designs::freehold::zones::Zones;
use crate::designs::freehold::zones::zone::Zone;
use crate::memmap::index::ZoneIndex;
use crate::platform::{LockClass, Pin, Platform, RawLock, Word};
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
    /// Whether a lease has the lock, and whether frames are wanted back from it: one of the values
    /// below.
    pub(crate) lease: P::U32,
    /// The best zone by zone limit, or [`NO_ZONE`]. Never changes.
    best: [u16; ZoneKind::COUNT],
    /// Whether the owner of a revocable lease uses the caches at the moment. The owner alone writes
    /// it.
    pub(crate) busy: P::U32,
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
            lease: P::U32::new(VACANT),
            best: best.map(|zone| zone.map_or(NO_ZONE, |zone| zone.0)),
            picks_at_random,
            busy: P::U32::new(0),
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
        &self.design.zones.pageblocks
    }

    /// The zone of the cache.
    #[inline(always)]
    pub(crate) fn zone(&self) -> &'a Zone<P> {
        self.zones().zone(self.zone_index)
    }

    /// Marks the cache, unless it is: it is about to acquire free frames. Comes before the step by
    /// which it does; see [`sections`](crate::designs::freehold::zones::sections).
    pub(crate) fn note_cached(&self) {
        self.zones().note_cached(self.cpu, self.zone_index);
    }

    /// The remote queue of the cache.
    pub(crate) fn queue(&self) -> &'a RemoteQueue<P> {
        &self.zones().cpu_zone(self.cpu, self.zone_index).queue
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

/// What uses a cache whose lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockedBy {
    /// A call under way.
    Call,
    /// The holder of a lease, which has been asked to release what it does not need.
    Lease,
}

/// Why the lock was not taken from a revocable lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRevoked {
    /// There is none, or another call has revoked it.
    Changed,
    /// The machine refused the heavy barrier, so the lease has the lock as before.
    NoBarrier,
}

/// There is no lease.
pub(crate) const VACANT: u32 = 0;
/// A lease has the lock. It cannot be revoked.
pub(crate) const HELD: u32 = 1;
/// The same, and its holder has been asked to release what it does not need.
pub(crate) const ASKED: u32 = 2;
/// A revocable lease has the lock: see `revocable`.
pub(crate) const REVOCABLE: u32 = 3;
/// The lease has lost the lock. Its owner has yet to end it or to take the lock again.
pub(crate) const REVOKED: u32 = 4;

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

    /// Takes the lock of a CPU's caches if it is free, for a caller that is pinned.
    #[inline(always)]
    pub(crate) fn try_lock_pinned<'a>(
        &'a self,
        pin: Pin<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        let per_cpu = self.per_cpu(cpu);
        per_cpu.try_lock().then(|| self.guard_of(pin, per_cpu, cpu, zone))
    }

    /// Takes the lock of a CPU's caches if it is free.
    pub(crate) fn try_lock<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        self.try_lock_pinned(context.pin().1, cpu, zone)
    }

    /// Takes the lock of the running CPU's caches, or else of the next CPU whose lock is free.
    pub(crate) fn lock_some<'a>(
        &'a self,
        context: Context<'a, P>,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        let (here, cpus) = (context.cpu_here(), self.zones.cpu_count());
        (here..here + cpus).find_map(|cpu| self.try_lock(context, cpu % cpus, zone))
    }

    /// Waits for the lock of a CPU's caches, unless a lease has it.
    pub(crate) fn lock_if_vacant<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        loop {
            let guard = self.try_lock(context, cpu, zone);
            // Relaxed: a hint that does not go away while it matters.
            let lease = || self.per_cpu(cpu).lease.load(Relaxed);
            if guard.is_some() || matches!(lease(), HELD | ASKED | REVOCABLE) {
                return guard;
            }
            context.platform.relax();
        }
    }

    /// Waits for the lock of a CPU's caches. Takes it from a revocable lease. If a lease that
    /// cannot be revoked has it, asks the holder for what it does not need, and returns `None`. So
    /// it does if the machine refuses the barrier for a revocable one, whose holder is not asked.
    pub(crate) fn lock<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<CacheGuard<'a, P>> {
        loop {
            let guard = self.lock_if_vacant(context, cpu, zone);
            if guard.is_some() {
                return guard;
            }
            match self.revoke(context, cpu, zone) {
                Ok(guard) => return Some(guard),
                Err(NotRevoked::NoBarrier) => return None,
                Err(NotRevoked::Changed) => {}
            }
            if self.ask(cpu) {
                return None;
            }
        }
    }

    /// As `lock`, but waits for no call that has the lock, and revokes no lease.
    pub(crate) fn lock_unless_used<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Result<CacheGuard<'a, P>, LockedBy> {
        let guard = self.try_lock(context, cpu, zone);
        guard.ok_or_else(|| if self.ask(cpu) { LockedBy::Lease } else { LockedBy::Call })
    }

    /// Asks the holder of a lease that cannot be revoked for what it does not need; returns whether
    /// there is such a lease.
    fn ask(&self, cpu: usize) -> bool {
        // Relaxed: a request, which nothing depends on.
        let asked = self.per_cpu(cpu).lease.compare_exchange(HELD, ASKED, Relaxed, Relaxed);
        matches!(asked, Ok(_) | Err(ASKED))
    }

    /// Takes the lock of a CPU's caches from a revocable lease, if one has it. Waits for an
    /// operation of its owner that is under way.
    #[cold]
    pub(crate) fn revoke<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Result<CacheGuard<'a, P>, NotRevoked> {
        let (per_cpu, platform) = (self.per_cpu(cpu), context.platform);
        let (_, pin) = context.pin();
        // Acquire: if the owner has published nothing else, it has not used the caches yet. Of
        // several calls that revoke, one succeeds, and the others wait for the lock.
        let revoked = per_cpu.lease.compare_exchange(REVOCABLE, REVOKED, Acquire, Relaxed);
        if revoked.is_err() {
            return Err(NotRevoked::Changed);
        }
        if !platform.heavy_barrier() {
            // Given back. Acquire: an owner that has ended the lease meanwhile has left the lock to
            // this call, and is not busy.
            if per_cpu.lease.compare_exchange(REVOKED, REVOCABLE, Relaxed, Acquire).is_ok() {
                return Err(NotRevoked::NoBarrier);
            }
            return Ok(self.guard_of(pin, per_cpu, cpu, zone));
        }
        // The owner sets `busy`, and then reads the lease: at least one of the two sees the other.
        // Acquire: pairs with the release at the end of its last operation.
        while per_cpu.busy.load(Acquire) != 0 {
            platform.relax();
        }
        Ok(self.guard_of(pin, per_cpu, cpu, zone))
    }

    /// Takes the lock of a CPU's caches for a lease, and changes the lease word from `before` to
    /// `after`. Waits for a call under way on these caches; returns whether there was no other
    /// lease.
    pub(crate) fn begin_lease(
        &self,
        context: Context<'_, P>,
        per_cpu: &PerCpu<P>,
        (before, after): (u32, u32),
    ) -> bool {
        // Relaxed: re-checked once the lock is taken.
        while per_cpu.lease.load(Relaxed) == before {
            // Calls wait for the lock as long as the word does not say that a lease has it.
            let (_, _pin) = context.pin();
            if per_cpu.try_lock() {
                // Acquire: the last write of the owner of the previous lease, by which it is not
                // busy, comes before what this owner writes. Release: see `revoke`.
                let begun = per_cpu.lease.compare_exchange(before, after, AcqRel, Relaxed).is_ok();
                if !begun {
                    per_cpu.unlock();
                }
                return begun;
            }
            context.platform.relax();
        }
        false
    }

    /// Ends a lease that has the lock. Its word says so already, and the caller has been pinned
    /// since: calls wait for the lock now.
    pub(crate) fn end_lease(&self, per_cpu: &PerCpu<P>) {
        per_cpu.unlock();
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

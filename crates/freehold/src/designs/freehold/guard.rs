//! Having the lock of a slot.

use core::sync::atomic::Ordering::Relaxed;

use super::Freehold;
use super::slot::{Hot, Slot};
use crate::designs::Context;
use crate::memmap::block::ZoneIndex;
use crate::platform::{LockClass, Platform, RawLock, Word};
use crate::request::Request;
use crate::units::ZoneKind;

/// What a CPU needs for every call: the lock over all its slots, and which slot to take from.
///
/// One lock for all zones: its address is known from the CPU alone, so that a free need not wait
/// until it knows the zone of the frame. And what a CPU holds of other zones is rarely touched.
/// With it lies what every allocation touches of the slot in the zone that is best for the CPU.
#[repr(C, align(64))]
pub(super) struct Home<P: Platform> {
    lock: P::Lock,
    /// The zone whose slot has its hot part here: the best one for movable content. Never changes.
    zone: ZoneIndex,
    /// Whether somebody has the lock for long, and whether others want frames back: see `lease`.
    pub(super) lease: P::U32,
    /// By zone limit, the zone that is best, or [`NO_ZONE`]. Never changes.
    best: [u16; ZoneKind::COUNT],
    hot: Hot<P>,
}

/// The number that no zone has.
const NO_ZONE: u16 = u16::MAX;

impl<P: Platform> Home<P> {
    /// A CPU for which these zones are best, by zone limit.
    pub(super) fn new(best: [Option<ZoneIndex>; ZoneKind::COUNT], picks_at_random: bool) -> Self {
        Home {
            lock: P::Lock::new(LockClass::Slot),
            zone: best[ZoneKind::Movable.index()].unwrap_or(ZoneIndex(0)),
            lease: P::U32::new(VACANT),
            best: best.map(|zone| zone.map_or(NO_ZONE, |zone| zone.0)),
            hot: Hot::new(picks_at_random),
        }
    }

    /// The zone that a request is served from first: a number that no zone has, if there is none.
    #[inline(always)]
    pub(super) fn best(&self, request: &Request) -> ZoneIndex {
        ZoneIndex(self.best[request.limit_index()])
    }

    /// The hot part of the CPU's slot in a zone, if it lies here.
    #[inline(always)]
    pub(super) fn hot_of(&self, zone: ZoneIndex) -> Option<&Hot<P>> {
        if zone == self.zone { Some(&self.hot) } else { None }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(super) fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    #[inline(always)]
    pub(super) fn unlock(&self) {
        self.lock.unlock();
    }
}

/// The slot of a CPU in a zone, locked. Unlocks and unpins when dropped.
pub(super) struct SlotGuard<'a, P: Platform> {
    pub(super) home: &'a Home<P>,
    pub(super) slot: Slot<'a, P>,
    pub(super) cpu: usize,
    pub(super) zone: ZoneIndex,
    pub(super) platform: &'a P,
}

impl<P: Platform> Drop for SlotGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.home.unlock();
        self.platform.unpin();
    }
}

/// Nobody holds the lock for long.
pub(super) const VACANT: u32 = 0;
/// Somebody does.
pub(super) const HELD: u32 = 1;
/// Somebody does, and has been asked to give back what it does not need.
pub(super) const ASKED: u32 = 2;

impl<P: Platform> Freehold<P> {
    /// A guard for a lock that the caller took, having pinned itself. The fast paths lock and
    /// unlock by hand, so that the guard need not be written to memory.
    pub(super) fn guard<'a>(
        &'a self,
        platform: &'a P,
        cpu: usize,
        zone: ZoneIndex,
    ) -> SlotGuard<'a, P> {
        self.guard_of(platform, self.home(cpu), cpu, zone)
    }

    /// The same, where the CPU's home is known already.
    #[inline(always)]
    pub(super) fn guard_of<'a>(
        &'a self,
        platform: &'a P,
        home: &'a Home<P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> SlotGuard<'a, P> {
        SlotGuard { home, slot: self.slot_of(home, cpu, zone), cpu, zone, platform }
    }

    /// Takes the lock of a CPU's slot if it is free. The caller has pinned itself; the guard
    /// unpins, and so does a failure.
    #[inline(always)]
    pub(super) fn try_lock_pinned<'a>(
        &'a self,
        platform: &'a P,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<SlotGuard<'a, P>> {
        let home = self.home(cpu);
        if home.try_lock() {
            return Some(self.guard_of(platform, home, cpu, zone));
        }
        platform.unpin();
        None
    }

    /// Takes the lock of any CPU's slot if it is free.
    pub(super) fn try_lock<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<SlotGuard<'a, P>> {
        context.platform.pin();
        self.try_lock_pinned(context.platform, cpu, zone)
    }

    /// Takes the lock of the running CPU's slot, or else of the next one that is free.
    pub(super) fn lock_some<'a>(
        &'a self,
        context: Context<'a, P>,
        zone: ZoneIndex,
    ) -> Option<SlotGuard<'a, P>> {
        let (here, cpus) = (context.topology.fold(context.platform.cpu()), self.cpus());
        (here..here + cpus).find_map(|cpu| self.try_lock(context, cpu % cpus, zone))
    }

    /// Waits for the lock of a CPU's slot, unless somebody holds it for long.
    pub(super) fn lock_if_vacant<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<SlotGuard<'a, P>> {
        loop {
            let guard = self.try_lock(context, cpu, zone);
            // Relaxed: a hint that does not go away while it matters.
            if guard.is_some() || self.home(cpu).lease.load(Relaxed) != VACANT {
                return guard;
            }
            context.platform.relax();
        }
    }

    /// Waits for the lock of a CPU's slot. If somebody holds it for long, asks for what it does not
    /// need, and gives up.
    pub(super) fn lock<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<SlotGuard<'a, P>> {
        let guard = self.lock_if_vacant(context, cpu, zone);
        if guard.is_none() {
            // Relaxed: a request, which nothing depends on. It fails if the lease has ended, or
            // the holder has been asked already.
            let lease = &self.home(cpu).lease;
            let _asked = lease.compare_exchange(HELD, ASKED, Relaxed, Relaxed);
        }
        guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;

    #[test]
    fn all_that_an_allocation_needs_of_a_cpu_is_on_one_cache_line() {
        assert_eq!(size_of::<Home<TestPlatform>>(), 64);
    }
}

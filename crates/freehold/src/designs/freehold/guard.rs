//! Having the lock of a slot.

use core::sync::atomic::Ordering::Relaxed;

use super::Freehold;
use super::slot::Slot;
use crate::designs::Context;
use crate::memmap::block::ZoneIndex;
use crate::platform::{LockClass, Platform, RawLock, Word};
use crate::units::ZoneKind;

/// What a CPU needs for every call: the lock over all its slots, and which slot to take from.
///
/// One lock for all zones: its address is known from the CPU alone, so that a free need not wait
/// until it knows the zone of the frame. And what a CPU holds of other zones is rarely touched.
#[repr(C, align(64))]
pub(super) struct Home<P: Platform> {
    lock: P::Lock,
    /// Whether somebody has the lock for long, and whether others want frames back: see `lease`.
    pub(super) lease: P::U32,
    /// By zone limit, the place of the slot in the zone that is best; or none. Never changes.
    best: [u32; ZoneKind::COUNT],
}

impl<P: Platform> Home<P> {
    /// A CPU whose best slots are at these places.
    pub(super) fn new(best: [u32; ZoneKind::COUNT]) -> Self {
        Home { lock: P::Lock::new(LockClass::Slot), lease: P::U32::new(VACANT), best }
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

    /// The place of the slot that requests with this limit are served from.
    #[inline(always)]
    pub(super) fn best(&self, limit: ZoneKind) -> usize {
        self.best[limit.index()] as usize
    }
}

/// The slot of a CPU in a zone, locked. Unlocks and unpins when dropped.
pub(super) struct SlotGuard<'a, P: Platform> {
    pub(super) home: &'a Home<P>,
    pub(super) slot: &'a Slot<P>,
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
        SlotGuard { home: self.homes.get(cpu), slot: self.slot(cpu, zone), cpu, zone, platform }
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
        if self.homes.get(cpu).try_lock() {
            return Some(self.guard(platform, cpu, zone));
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
            if guard.is_some() || self.homes.get(cpu).lease.load(Relaxed) != VACANT {
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
            let lease = &self.homes.get(cpu).lease;
            let _asked = lease.compare_exchange(HELD, ASKED, Relaxed, Relaxed);
        }
        guard
    }
}

//! Per-CPU pages: the blocks that one CPU caches from one zone, so that most allocations and frees
//! take no contended lock.
//!
//! After Linux 6.12 (`struct per_cpu_pages`): a lock that the fast paths try and never wait for,
//! and lists by order and migratetype.

use super::bookkeeping::Bookkeeping;
use freehold::memmap::list::ListHead;
use freehold::platform::{LockClass, Pin, Platform, RawLock, SharedCell};
use freehold::units::{MigrateType, Order};

/// How many lists there are: one for each migratetype and order up to a pageblock's.
pub(crate) const LISTS: usize = (Order::PAGEBLOCK.index() + 1) * MigrateType::COUNT;

/// The list for blocks of this order, at most a pageblock's, and type.
#[inline(always)]
pub(crate) const fn list_index(order: Order, migratetype: MigrateType) -> usize {
    order.index() * MigrateType::COUNT + migratetype.index()
}

/// The order of the blocks on a list.
#[inline]
pub(crate) const fn list_order(index: usize) -> Order {
    Order::new((index / MigrateType::COUNT) as u8)
}

/// What one CPU caches of one zone. Everything is guarded by `lock`.
#[repr(C, align(64))]
pub(crate) struct PerCpuPages<P: Platform> {
    lock: P::Lock,
    /// Frames on all lists.
    pub(crate) count: P::LocalCell<u32>,
    /// Number of frames beyond which blocks are returned to the zone.
    pub(crate) high: P::LocalCell<u32>,
    /// The minimum that `high` is tuned to.
    pub(crate) high_min: P::LocalCell<u32>,
    /// The maximum that `high` is tuned to. If equal to the minimum, there is no tuning.
    pub(crate) high_max: P::LocalCell<u32>,
    /// Frames that move to or from the zone at a time.
    pub(crate) batch: P::LocalCell<u32>,
    /// How many powers of two the next refill is larger than a batch.
    pub(crate) alloc_factor: P::LocalCell<u32>,
    /// Frames freed recently without allocations in between.
    pub(crate) free_count: P::LocalCell<u32>,
    /// Whether the last free was of more than one frame.
    pub(crate) freed_high_order: P::LocalCell<u32>,
    /// Ticks until the pages of another node's zone are returned to it.
    pub(crate) expire: P::LocalCell<u32>,
    pub(crate) lists: [ListHead<P::LocalCell<u32>>; LISTS],
}

impl<P: Platform> PerCpuPages<P> {
    pub(crate) fn new() -> Self {
        let zero = || P::LocalCell::new(0);
        PerCpuPages {
            lock: P::Lock::new(LockClass::Pcp),
            count: zero(),
            high: zero(),
            high_min: zero(),
            high_max: zero(),
            batch: zero(),
            alloc_factor: zero(),
            free_count: zero(),
            freed_high_order: zero(),
            expire: zero(),
            lists: core::array::from_fn(|_| ListHead::new()),
        }
    }

    /// The list for blocks of this order, at most a pageblock's, and type.
    #[inline(always)]
    pub(crate) fn list(&self, order: Order, of: MigrateType) -> &ListHead<P::LocalCell<u32>> {
        &self.lists[list_index(order, of)]
    }

    /// Waits for the lock: for drains and reports, from any CPU. Interrupts stay on while waiting.
    pub(crate) fn lock<'a>(&'a self, platform: &'a P, books: Bookkeeping) -> PcpGuard<'a, P> {
        let (_, pin) = Pin::new(platform);
        self.lock.lock();
        PcpGuard { pcp: self, irq: books.enter_lists(platform), pin }
    }

    /// Takes the lock if it is free, for a caller that is pinned.
    #[inline]
    pub(crate) fn try_lock_pinned<'a>(
        &'a self,
        pin: Pin<'a, P>,
        books: Bookkeeping,
    ) -> Option<PcpGuard<'a, P>> {
        let irq = books.enter_lists(pin.platform());
        if self.lock.try_lock() {
            return Some(PcpGuard { pcp: self, irq, pin });
        }
        if let Some(irq) = irq {
            pin.platform().irq_restore(irq);
        }
        None
    }
}

// For checks and freezes, which hold all locks at once: the caller is pinned.
impl<P: Platform> PerCpuPages<P> {
    /// Waits for the lock and leaves interrupts as they are.
    pub(crate) fn hold(&self) {
        self.lock.lock();
    }

    /// Ends what [`PerCpuPages::hold`] began.
    pub(crate) fn let_go(&self) {
        self.lock.unlock();
    }
}

/// The lock of one CPU's pages, held. Unlocks and unpins when dropped.
pub(crate) struct PcpGuard<'a, P: Platform> {
    pcp: &'a PerCpuPages<P>,
    /// The interrupt state to restore, if interrupts were disabled together with the lock.
    irq: Option<P::IrqState>,
    /// Ends last.
    pin: Pin<'a, P>,
}

impl<'a, P: Platform> PcpGuard<'a, P> {
    #[inline(always)]
    pub(crate) fn platform(&self) -> &'a P {
        self.pin.platform()
    }

    /// Enables interrupts again, if they were disabled together with the lock, which stays held. An
    /// interrupt handler that needs these lists meanwhile finds them locked and bypasses them.
    #[inline]
    pub(crate) fn irqs_on(&mut self) {
        if let Some(irq) = self.irq.take() {
            self.platform().irq_restore(irq);
        }
    }

    /// Ends what [`PcpGuard::irqs_on`] began, if it did anything.
    pub(crate) fn irqs_as_before(&mut self, books: Bookkeeping) {
        if self.irq.is_none() {
            self.irq = books.enter_lists(self.platform());
        }
    }

    /// Lets pending interrupts in, if interrupts are off together with the lock.
    pub(crate) fn let_irqs_in(&self) {
        if let Some(irq) = self.irq {
            self.platform().irq_restore(irq);
            // The same state again: interrupts may now be as they were, whatever that was.
            let _ = self.platform().irq_save();
        }
    }
}

impl<P: Platform> core::ops::Deref for PcpGuard<'_, P> {
    type Target = PerCpuPages<P>;
    #[inline]
    fn deref(&self) -> &PerCpuPages<P> {
        self.pcp
    }
}

impl<P: Platform> Drop for PcpGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.pcp.lock.unlock();
        if let Some(irq) = self.irq {
            self.platform().irq_restore(irq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_on_the_line_of_what_it_guards_first() {
        use crate::testing::TestPlatform;
        use core::mem::offset_of;

        type Of = PerCpuPages<TestPlatform>;
        assert!(offset_of!(Of, lock) < 64 && offset_of!(Of, count) < 64);
        assert_eq!(align_of::<Of>(), 64);
    }

    #[test]
    fn every_list_has_one_order() {
        for order in Order::ZERO.to(Order::PAGEBLOCK) {
            for migratetype in MigrateType::ALL {
                assert_eq!(list_order(list_index(order, migratetype)), order);
            }
        }
        assert_eq!(LISTS, 30);
    }
}

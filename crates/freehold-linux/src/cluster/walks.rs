//! Why nobody takes a frame for free that a refill has cut off.
//!
//! A refill cuts clusters off a list under the zone lock, and marks their frames as a CPU's once it
//! has dropped that lock. In between it is *in progress*: its frames still look free. So whoever
//! relies on the marks of single frames waits for refills in progress:
//!
//! 1. A merge, and whatever else holds the zone lock meanwhile, just waits: a refill needs no lock
//!    to end, and none begins without the lock.
//! 2. A *walk* drops the lock between its steps. It begins under the lock and waits then: while a
//!    walk is under way, no refill cuts anything off.
//!
//! Example: a refill cuts off frames 4 and 6, so one is in progress, and drops the lock. A walk
//! takes it, begins, drops it, and waits. The refill marks 4 and 6, and ends. None is in progress:
//! the walk sees both marks. The next refill finds a walk under way, and takes frames one by one.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use freehold::platform::{Platform, SharedCell, Word};

/// The walks and the refills of one zone.
pub(super) struct Walks<P: Platform> {
    /// How many walks are under way. Guarded by the zone lock.
    under_way: P::Cell<u32>,
    /// How many refills are in progress.
    refills: P::U32,
}

impl<P: Platform> Walks<P> {
    pub(super) fn new() -> Self {
        Walks { under_way: P::Cell::new(0), refills: P::U32::new(0) }
    }

    /// Whether none is under way. Requires the zone lock, as do the next three.
    pub(super) fn is_none(&self) -> bool {
        self.under_way.get() == 0
    }

    /// Begins a walk, which has to wait for refills then.
    pub(super) fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// Ends a walk.
    pub(super) fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    /// Ends all walks, which do not exist in this copy.
    pub(super) fn end_all(&self) {
        self.under_way.set(0);
    }

    /// A refill is about to drop the zone lock.
    pub(super) fn begin_refill(&self) {
        self.change_refills(1);
    }

    /// A refill has marked its frames. Requires no lock.
    pub(super) fn end_refill(&self) {
        self.change_refills(-1);
    }

    fn change_refills(&self, change: i32) {
        let mut count = self.refills.load(Relaxed);
        // Release: a CPU that sees the count without this refill sees the marks that it wrote.
        // Acquire keeps the other refills' marks visible through this one's count. Relaxed on
        // failure: only the count is used then.
        while let Err(now) =
            self.refills.compare_exchange(count, count.wrapping_add_signed(change), AcqRel, Relaxed)
        {
            count = now;
        }
    }

    /// Waits until no refill is in progress. Requires the zone lock, or a walk that has begun.
    pub(super) fn wait_for_refills(&self, platform: &P) {
        // Acquire: pairs with the release of a refill's end; the marks are read after it.
        while self.refills.load(Acquire) != 0 {
            platform.relax();
        }
    }
}

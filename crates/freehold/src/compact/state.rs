//! A zone's compaction state: how far the scanners got, and how often compaction failed.
//!
//! After Linux 6.12 (`compaction_deferred`, `defer_compaction`, `compaction_defer_reset`).

use crate::compact::COSTLY_ORDER;
use crate::fragmentation::is_to_blame;
use crate::memmap::index::FrameIndex;
use crate::platform::{Platform, SharedCell};
use crate::request::Request;
use crate::stat::Events;
use crate::units::{FrameCount, ORDERS, Order};
use crate::zone::watermark::{Watermark, Watermarks};

/// The most attempts deferred for one that is made, as a power of two (Linux's
/// `COMPACT_MAX_DEFER_SHIFT`).
const DEFER_SHIFT_MAX: u32 = 6;

/// Where the free scanner starts: past all memory.
const END: u32 = u32::MAX;

/// All cells are guarded by the zone lock, and rarely needed, so they have their own cache line.
#[repr(C, align(64))]
pub struct CompactionState<P: Platform> {
    /// Attempts deferred since the last failure.
    considered: P::Cell<u32>,
    /// How many attempts are deferred for one that is made, as a power of two.
    defer_shift: P::Cell<u32>,
    /// The smallest order for which compaction failed.
    order_failed: P::Cell<u32>,
    migrate_from: P::Cell<u32>,
    free_before: P::Cell<u32>,
    compactions: P::Cell<u64>,
    migrated: P::Cell<u64>,
    ranges: P::Cell<u64>,
}

/// Where the two scanners stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanners {
    /// The next pageblock of the migrate scanner, going up.
    pub migrate: FrameIndex,
    /// The lowest pageblock that the free scanner has visited, going down.
    pub free: FrameIndex,
}

impl Scanners {
    /// At the two ends of memory.
    pub const APART: Self = Scanners { migrate: FrameIndex(0), free: FrameIndex(END) };
}

impl<P: Platform> CompactionState<P> {
    pub fn new() -> Self {
        CompactionState {
            considered: P::Cell::new(0),
            defer_shift: P::Cell::new(0),
            order_failed: P::Cell::new(0),
            migrate_from: P::Cell::new(Scanners::APART.migrate.0),
            free_before: P::Cell::new(Scanners::APART.free.0),
            compactions: P::Cell::new(0),
            migrated: P::Cell::new(0),
            ranges: P::Cell::new(0),
        }
    }

    /// Attempts deferred since the last failure.
    pub fn considered(&self) -> u32 {
        self.considered.get()
    }

    /// Whether to defer this attempt, because earlier ones failed. As in Linux, an attempt counts
    /// even if it is the first one.
    pub fn is_deferred(&self, order: Order) -> bool {
        if u32::from(order.get()) < self.order_failed.get() {
            return false;
        }
        let limit = 1 << self.defer_shift.get();
        let considered = (self.considered.get() + 1).min(limit);
        self.considered.set(considered);
        considered < limit
    }

    /// Notes a failed attempt: doubles how many are deferred from now on.
    pub fn note_failure(&self, order: Order) {
        self.considered.set(0);
        self.defer_shift.set((self.defer_shift.get() + 1).min(DEFER_SHIFT_MAX));
        self.order_failed.set(self.order_failed.get().min(u32::from(order.get())));
    }

    /// Notes an attempt that made a block of this order.
    pub fn note_success(&self, order: Order) {
        self.order_failed.set(self.order_failed.get().max(u32::from(order.get()) + 1));
    }

    /// Notes that an allocation got its block.
    #[inline]
    pub fn note_allocation(&self, order: Order) {
        self.considered.set(0);
        self.defer_shift.set(0);
        self.note_success(order);
    }

    /// Where the scanners stopped last, or the ends of memory if they met.
    pub fn scanners(&self) -> Scanners {
        Scanners {
            migrate: FrameIndex(self.migrate_from.get()),
            free: FrameIndex(self.free_before.get()),
        }
    }

    /// Keeps where the scanners stopped.
    pub fn set_scanners(&self, at: Scanners) {
        self.migrate_from.set(at.migrate.0);
        self.free_before.set(at.free.0);
    }

    /// Counts a run over the zone, or a part of it.
    pub fn note_compaction(&self) {
        self.compactions.set(self.compactions.get() + 1);
    }

    /// Counts frames whose content was moved.
    pub fn note_migrated(&self, frames: FrameCount) {
        self.migrated.set(self.migrated.get() + frames.get());
    }

    /// Counts a range that was handed out.
    pub fn note_range(&self) {
        self.ranges.set(self.ranges.get() + 1);
    }

    /// What has happened so far.
    pub fn events(&self) -> Events {
        Events {
            compactions: self.compactions.get(),
            migrated: FrameCount::new(self.migrated.get()),
            ranges: self.ranges.get(),
            ..Events::default()
        }
    }
}

/// Whether compaction can help a request in a zone with so many free frames: there is memory to
/// work with, and fragmentation is to blame.
pub fn is_suitable<P: Platform>(
    request: &Request,
    watermarks: &Watermarks<P>,
    free: u64,
    free_blocks: impl FnOnce() -> [u64; ORDERS],
) -> bool {
    let order = request.order();
    let is_costly = order > COSTLY_ORDER;
    let class = if is_costly { Watermark::Low } else { Watermark::Min };
    let floor = watermarks.floor(class, request.effective_limit()).unwrap_or(0);
    free > floor + 2 * order.frames().get() && (!is_costly || is_to_blame(&free_blocks(), order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;

    #[test]
    fn failures_put_off_twice_as_many_attempts_up_to_a_limit() {
        let state = CompactionState::<TestPlatform>::new();
        let order = Order::new(5);
        let attempts_until_made = || (1..).find(|_| !state.is_deferred(order));
        for expected in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert_eq!(attempts_until_made(), Some(expected));
            state.note_failure(order);
            assert_eq!(state.considered(), 0, "a failure begins the count anew");
        }
        assert!(state.is_deferred(order) && state.considered() == 1);
        state.note_allocation(order);
        assert!(!state.is_deferred(order), "a success ends it");
    }

    #[test]
    fn smaller_orders_than_the_one_that_failed_are_not_put_off() {
        let state = CompactionState::<TestPlatform>::new();
        state.note_success(Order::new(8));
        state.note_failure(Order::new(9));
        assert!(state.is_deferred(Order::new(9)));
        assert!(!state.is_deferred(Order::new(8)), "it has succeeded");
        state.note_failure(Order::new(4));
        assert!(state.is_deferred(Order::new(4)) && !state.is_deferred(Order::new(3)));
    }
}

//! Forks of a process with an arena.
#![expect(unsafe_code, reason = "has a second way to the allocator")]

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::Arc;

use freehold::{Design, Frozen, PageAllocator};

use super::memory::Extent;
use crate::fork::{ForkGuard, ForkMutex, Forks};
use crate::leases::{Homes, with_leases};
use crate::{FrameArena, Host};

/// What handlers of forks have of an arena: nothing of it that moves, since arenas do. It is in one
/// place, since a fork copies each page that it writes to, in parent and child.
pub(super) struct AtFork<D: Design<Host>> {
    allocator: ManuallyDrop<PageAllocator<Host, D>>,
    extent: Extent,
    homes: Option<Homes>,
    /// Whether a copy is repaired at its first call, and not by the handler.
    is_late: bool,
    /// Held over a fork, and while a copy is repaired: what follows belongs to its holder.
    gate: ForkMutex<()>,
    frozen: Cell<Option<Frozen<Host>>>,
    /// Whether this is a copy that nothing has repaired: all of it is frozen.
    is_copy: AtomicBool,
}

// SAFETY: The designs of the core, which are all that there are (`Design` has private traits), are
// tables of the host's atomics and cells, which are atomics too, and plain values. Any thread may
// use them. `Frozen` holds what the host's interrupts were, which is nothing. Extent and homes are
// `Send` without this.
unsafe impl<D: Design<Host>> Send for AtFork<D> {}
// SAFETY: As above. The cell is for the holder of the gate alone.
unsafe impl<D: Design<Host>> Sync for AtFork<D> {}

/// Why there is something to thaw.
const FROZEN: &str = "handlers freeze before the fork";

impl<D: Design<Host>> AtFork<D> {
    /// For an allocator that is used as long as its metadata is there, and so is this.
    pub(super) fn new(
        allocator: &PageAllocator<Host, D>,
        extent: Extent,
        homes: Option<Homes>,
        is_late: bool,
    ) -> Self {
        AtFork {
            // SAFETY: The core says that a bitwise copy that is never dropped may be used like the
            // original: neither ever changes itself. `Host` is `Copy`.
            allocator: ManuallyDrop::new(unsafe { core::ptr::read(allocator) }),
            extent,
            homes,
            is_late,
            gate: ForkMutex::new(()),
            frozen: Cell::new(None),
            is_copy: AtomicBool::new(false),
        }
    }

    /// Makes a copy usable. The caller has the gate.
    fn repair(&self) {
        let frozen = self.frozen.take().expect(FROZEN);
        self.allocator.thaw_copy(frozen);
        if let (Some(homes), Some(allocator)) = (&self.homes, with_leases(&self.allocator)) {
            homes.release();
            homes.inherit(allocator);
        }
        self.extent.release();
        // Release: a call that finds it repaired comes after.
        self.is_copy.store(false, Release);
    }

    #[cold]
    fn repair_now(&self) {
        let _alone = self.gate.lock();
        // Relaxed: it changes under the gate.
        if self.is_copy.load(Relaxed) {
            self.repair();
        }
    }
}

impl<D: Design<Host>> Forks for Arc<AtFork<D>> {
    fn freeze(&self) {
        self.gate.hold();
        // Relaxed, here and below: it changes under the gate.
        if !self.is_copy.load(Relaxed) {
            self.extent.hold();
            self.homes.iter().for_each(Homes::hold);
            self.frozen.set(Some(self.allocator.freeze()));
        }
    }

    fn thaw(&self) {
        if !self.is_copy.load(Relaxed) {
            let frozen = self.frozen.take().expect(FROZEN);
            self.allocator.thaw(frozen);
            self.homes.iter().for_each(Homes::release);
            self.extent.release();
        }
        self.gate.release();
    }

    fn thaw_copy(&self) {
        // No other thread is there to see it.
        self.is_copy.store(true, Relaxed);
        if !self.is_late {
            self.repair();
        }
        self.gate.release();
    }
}

impl<D: Design<Host>> FrameArena<D> {
    pub(super) fn extent(&self) -> &Extent {
        &self.at_fork.extent
    }

    /// Has forks, and others that call this, wait until the guard is dropped: for frames that are
    /// on their way, which a child would miss.
    #[doc(hidden)]
    pub fn forks_wait(&self) -> ForkGuard<'_, ()> {
        self.at_fork.gate.lock()
    }

    /// Has a child of a fork repair its copy, unless it has: to be called before all other calls
    /// on an arena that was built with [`ArenaBuilder::late_repair`](crate::ArenaBuilder).
    #[doc(hidden)]
    #[inline]
    pub fn ensure_repaired(&self) {
        // Acquire: pairs with the release after the repair.
        if self.at_fork.is_copy.load(Acquire) {
            self.at_fork.repair_now();
        }
    }
}

//! All memory, at a fixed distance from its physical addresses.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::Pfn;
use freehold_conformance::Stamps;

use crate::boot::SIZE;

/// Where physical address 0 is mapped. The boot tables map 4 GiB there, the kernel's own all
/// memory. There are no processes, so the lower half of the address space is as good as the other.
pub(crate) const BASE: u64 = 128 << 39;

/// The address at which the kernel sees a physical one.
pub(crate) fn at<T>(physical: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut((BASE + physical) as usize)
}

/// The address at which the kernel sees a frame.
pub(crate) fn of_frame<T>(frame: Pfn) -> *mut T {
    at(frame.address(SIZE).expect("a frame of memory"))
}

/// The first words of frames, for the checks.
pub(crate) struct FirstWords;

impl FirstWords {
    fn of(&self, frame: Pfn) -> &AtomicU64 {
        // SAFETY: the direct map has all frames of the allocator, and the caller has this one: its
        // words are used in no other way.
        unsafe { &*of_frame::<AtomicU64>(frame) }
    }
}

impl Stamps for FirstWords {
    fn read(&self, frame: Pfn) -> u64 {
        // Relaxed: whatever hands over a frame orders the accesses of its owners.
        self.of(frame).load(Relaxed)
    }

    fn write(&self, frame: Pfn, stamp: u64) {
        // Relaxed: as in `read`.
        self.of(frame).store(stamp, Relaxed);
    }
}

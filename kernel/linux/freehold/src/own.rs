//! What Linux calls of the project's own design only: to have it stand in front of Linux's lists,
//! in place of per-CPU lists; and for free page reporting.

use core::ffi::c_void;
use core::ptr::NonNull;

use freehold::{FrameCount, Pfn};

use crate::calls::status;
use crate::vmlinux::Allocator;

unsafe extern "C" {
    /// `vmlinux/mm/front.h`: takes a block that is allocated from now on.
    fn freehold_take_back(pfn: u64, order: u32, zone: *mut c_void);
    /// `vmlinux/mm/reporting.c`: reports pageblocks; whether it could. It may sleep.
    fn freehold_report(pfns: NonNull<u64>, many: usize, control: *mut c_void) -> bool;
}

/// Frees frames that lie in any blocks.
#[unsafe(no_mangle)]
extern "C" fn freehold_free_range(allocator: &Allocator, first: u64, frames: u64) -> i64 {
    status(allocator.free_range(Pfn::new(first), FrameCount::new(frames)))
}

/// Has all CPUs give up what they cache. It may wait.
#[unsafe(no_mangle)]
extern "C" fn freehold_drain_all(allocator: &Allocator) {
    allocator.drain_all();
}

/// Allocates what no CPU caches, until at most `keep` frames of that are left, and passes each
/// block to the C side.
#[unsafe(no_mangle)]
extern "C" fn freehold_take_surplus(allocator: &Allocator, keep: u64, zone: *mut c_void) {
    allocator.take_surplus(FrameCount::new(keep), |first, order| {
        // SAFETY: the pointer that the C side gave for this call.
        unsafe { freehold_take_back(first.get(), u32::from(order.get()), zone) }
    });
}

/// Has whole pageblocks reported that have not been since they were used, as many as go at once;
/// returns how many.
#[unsafe(no_mangle)]
extern "C" fn freehold_report_free(allocator: &Allocator, control: *mut c_void) -> usize {
    allocator.report_free(|pageblocks| {
        // SAFETY: `calls` says why a `Pfn` is as a number; the pointer is the C side's.
        unsafe { freehold_report(NonNull::from(pageblocks).cast(), pageblocks.len(), control) }
    })
}

//! The torture test and the suite of `freehold-conformance`, on frames of the direct map.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::platform::Platform;
use freehold::{Design, FrameCount, PageAllocator, Pfn};
use freehold_conformance::{Failure, Stamps, Tally, Torture, Worker, suite};

use crate::report::Sink;

unsafe extern "C" {
    /// `module/memory.c`: where the kernel maps a frame.
    fn fh_address(pfn: u64) -> *mut u64;
}

/// The kernel's mapping of all memory.
pub(crate) struct DirectMap;

impl DirectMap {
    fn word(frame: Pfn) -> &'static AtomicU64 {
        // SAFETY: the frame is one that the module gave to the allocator, so the kernel maps it.
        let address = unsafe { fh_address(frame.get()) };
        // SAFETY: it begins with an aligned word, which the checks access as an atomic only.
        unsafe { AtomicU64::from_ptr(address) }
    }
}

impl Stamps for DirectMap {
    fn read(&self, frame: Pfn) -> u64 {
        // Relaxed, and in `write` too: handing a frame over orders what is in it.
        DirectMap::word(frame).load(Relaxed)
    }

    fn write(&self, frame: Pfn, stamp: u64) {
        DirectMap::word(frame).store(stamp, Relaxed);
    }
}

/// `struct fh_tally` of `module/allocator.h`.
#[repr(C)]
pub(crate) struct CTally {
    allocated: u64,
    freed: u64,
    out_of_memory: u64,
    below_watermark: u64,
    would_wait: u64,
    errors: u64,
}

impl From<Tally> for CTally {
    fn from(tally: Tally) -> Self {
        CTally {
            allocated: tally.allocated,
            freed: tally.freed,
            out_of_memory: tally.out_of_memory,
            below_watermark: tally.below_watermark,
            would_wait: tally.would_wait,
            errors: tally.errors(),
        }
    }
}

/// Stamps all free frames; returns how many there are.
pub(crate) fn prepare<P: Platform, D: Design<P>>(
    allocator: &PageAllocator<P, D>,
    sink: &Sink,
) -> Option<u64> {
    let prepared = Torture::new(allocator, &DirectMap, &[]).prepare();
    prepared.map_err(|failure| say(&failure, sink)).ok().map(FrameCount::get)
}

/// Frees what slots and workers hold and checks everything; returns what they have done.
pub(crate) fn finish<P: Platform, D: Design<P>>(
    allocator: &PageAllocator<P, D>,
    slots: &[AtomicU64],
    workers: &mut [Worker],
    free: u64,
    sink: &Sink,
) -> Option<CTally> {
    let torture = Torture::new(allocator, &DirectMap, slots);
    let finished = torture.finish(workers, FrameCount::new(free));
    finished.map_err(|failure| say(&failure, sink)).ok().map(|(tally, _)| tally.into())
}

/// Makes every kind of call on an allocator that is idle.
pub(crate) fn conforms<P: Platform, D: Design<P>>(
    allocator: &PageAllocator<P, D>,
    room: &mut [Pfn],
    sink: &Sink,
) -> bool {
    suite::run(allocator, &DirectMap, room).map_err(|failure| say(&failure, sink)).is_ok()
}

fn say(failure: &Failure, sink: &Sink) {
    sink.say(format_args!("{failure}"));
}

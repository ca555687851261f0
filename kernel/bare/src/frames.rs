//! The allocator: its metadata is carved out of the memory that it manages.

use core::ptr::NonNull;

use freehold::designs::Design;
use freehold::platform::Native;
use freehold::{
    Config, Error, FrameCount, MemoryRange, Metadata, NodeId, Order, PageAllocator, Request,
};

use crate::boot::{BootInfo, CPUS_MAX, SIZE};
use crate::console::say;
use crate::direct_map;
use crate::platform::{Kernel, Platform};

/// Builds the allocator of the machine, and writes its ranges of memory. Nothing has been allocated
/// before.
pub(crate) fn build<'a, D: Design<Platform>>(
    boot: &BootInfo,
    ranges: &'a mut [MemoryRange],
) -> Result<(PageAllocator<Platform, D>, &'a [MemoryRange]), Error> {
    let nodes = [NodeId::new(0); CPUS_MAX];
    let config = Config::new(&[], &nodes[..boot.cpus.len()]).frame_size(SIZE);
    let settings = D::Settings::default();
    let at = |place: MemoryRange| {
        let start = NonNull::new(direct_map::of_frame(place.start));
        let start = start.expect("the direct map does not begin at 0");
        // SAFETY: these frames are memory that the boot tables map, and nothing lies in them or is
        // allocated there.
        unsafe { Metadata::from_raw_parts(start, SIZE.bytes_of(place.frames)) }
    };
    let (frames, report) =
        PageAllocator::boot(Native(Kernel), &config, &settings, &boot.map(), ranges, at)?;
    say!("memory: {report}");
    Ok((frames, &ranges[..report.ranges]))
}

/// Takes frames until a few MiB are left, as a kernel has them that is short of memory.
pub(crate) fn leave_little<D: Design<Platform>>(frames: &PageAllocator<Platform, D>) {
    const LEFT: FrameCount = FrameCount::new(8 << 8);
    let chunk = Order::new(8);
    let free = || frames.zones().map(|zone| zone.free + zone.per_cpu).sum::<FrameCount>();
    while free() > LEFT + chunk.frames() && frames.alloc(Request::new(chunk)).is_ok() {}
    say!("memory is short: {} are left", free());
}

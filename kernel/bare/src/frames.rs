//! The allocator: its metadata is carved out of the memory that it manages.

use core::ptr::NonNull;

use freehold::designs::Design;
use freehold::platform::Native;
use freehold::{
    Config, Error, FrameCount, MemoryRange, Metadata, NodeId, Order, PageAllocator, Pfn, Request,
    ZoneKind,
};

use crate::boot::{BootInfo, CPUS_MAX, SIZE};
use crate::console::say;
use crate::direct_map;
use crate::list::List;
use crate::platform::{Kernel, Platform};

/// Builds the allocator of the machine. Nothing has been allocated before.
pub(crate) fn build<D: Design<Platform>>(
    boot: &BootInfo,
) -> Result<PageAllocator<Platform, D>, Error> {
    let nodes = [NodeId::new(0); CPUS_MAX];
    let config = Config::new(&boot.memory, &nodes[..boot.cpus.len()]).frame_size(SIZE);
    let settings = D::Settings::default();
    let layout = PageAllocator::<Platform, D>::layout(&config, &settings)?;
    // The boot tables map low memory only.
    let mut mapped = List::<_, 32>::new(boot.memory[0]);
    for range in boot.memory.iter().filter(|range| range.zone == ZoneKind::Dma32) {
        assert!(mapped.push(*range), "as many as there are");
    }
    let place = layout.place_in(&mapped, &boot.reserved, SIZE)?;
    let kib = layout.size() >> 10;
    say!("metadata: {kib} KiB in {}, from frame {:#x} on", place.frames, place.start);
    let start = NonNull::new(direct_map::of_frame(place.start));
    let start = start.expect("the direct map does not begin at 0");
    // SAFETY: these frames are memory, nothing lies in them, and they are reserved below.
    let metadata = unsafe { Metadata::from_raw_parts(start, SIZE.bytes_of(place.frames)) };
    let frames = PageAllocator::new(Native(Kernel), &config, &settings, metadata)?;
    frames.reserve(place.start, place.frames)?;
    for &reserved in boot.reserved.iter() {
        reserve(&frames, &boot.memory, reserved)?;
    }
    Ok(frames)
}

/// Reserves those frames that are memory and not reserved yet: two things may share a frame.
fn reserve<D: Design<Platform>>(
    frames: &PageAllocator<Platform, D>,
    memory: &[MemoryRange],
    (first, count): (Pfn, FrameCount),
) -> Result<(), Error> {
    let one = FrameCount::new(1);
    let is_memory = |frame: Pfn| {
        memory.iter().any(|range| range.start <= frame && frame < range.start + range.frames)
    };
    let all = (first.get()..(first + count).get()).map(Pfn::new);
    let mut free = all.filter(|&frame| is_memory(frame) && frames.is_free(frame));
    free.try_for_each(|frame| frames.reserve(frame, one))
}

/// Takes frames until a few MiB are left, as a kernel has them that is short of memory.
pub(crate) fn leave_little<D: Design<Platform>>(frames: &PageAllocator<Platform, D>) {
    const LEFT: FrameCount = FrameCount::new(8 << 8);
    let chunk = Order::new(8);
    let free = || frames.zones().map(|zone| zone.free + zone.per_cpu).sum::<FrameCount>();
    while free() > LEFT + chunk.frames() && frames.alloc(Request::new(chunk)).is_ok() {}
    say!("memory is short: {} are left", free());
}

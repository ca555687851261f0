//! What Linux calls where Freehold is its page allocator: `vmlinux/mm/designs.h` declares these
//! functions, in the same order. The build renames them after the design.
//!
//! Linux chooses a zone, and applies that zone's watermarks, before it asks for a block. So each
//! zone of Linux has an allocator of its own, a machine with one zone and no watermarks; a second
//! zone has the memory of CMA areas, where only content comes that can move.

use core::ffi::c_void;
use core::ptr::NonNull;

use freehold::{CpuId, MemoryRange, MigrateType, Order, PageAllocator, Pfn, Request, ZoneKind};

use crate::calls::{self, Shape, status};
use crate::design::Design;
use crate::platform::{KERNEL, Kernel};
use crate::report::{self, Sink};

pub(crate) type Allocator = PageAllocator<Kernel, Design<Kernel>>;

/// By the flags of a call: two bits of a migratetype of Linux, `FREEHOLD_NOWAIT`, and
/// `FREEHOLD_AT_HAND`.
static REQUESTS: [Request; 16] = {
    const fn of(content: MigrateType) -> Request {
        Request::new(Order::ZERO).migratetype(content)
    }
    let [fixed, movable, reclaimable] = MigrateType::ALL;
    // The fourth is what Linux keeps for atomic requests of high orders, which cannot move.
    let of_type = [of(fixed), of(movable), of(reclaimable), of(fixed)];
    let (mut requests, mut flags) = ([of_type[0]; 16], 0);
    while flags < requests.len() {
        let request = of_type[flags & 3];
        let request = if flags & 4 == 0 { request } else { request.nowait() };
        requests[flags] = if flags & 8 == 0 { request } else { request.at_hand() };
        flags += 1;
    }
    requests
};

#[inline(always)]
pub(crate) fn request(order: u32, flags: u32) -> Request {
    REQUESTS[(flags & 15) as usize].with_order(calls::order(order))
}

const fn shape(first: u64, frames: u64, cpus: u32, cma: bool) -> Shape {
    Shape { first, frames, cpus, min_free: Some(0), cma }
}

/// How many bytes an allocator takes for a span of frames and a number of CPUs, and whether there
/// are CMA areas.
#[unsafe(no_mangle)]
extern "C" fn freehold_bytes(first: u64, frames: u64, cpus: u32, cma: bool) -> i64 {
    shape(first, frames, cpus, cma).bytes::<Kernel, Design<Kernel>>()
}

/// Makes an allocator without memory in a buffer, and says where it is.
///
/// # Safety
///
/// The buffer has the bytes that the function above returned for the same arguments, all zero,
/// begins at a page, and is this allocator's from now on.
#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_create(
    buffer: NonNull<u8>,
    bytes: usize,
    first: u64,
    frames: u64,
    cpus: u32,
    cma: bool,
    state: &mut Option<&'static Allocator>,
) -> i64 {
    // SAFETY: as the caller promises.
    let made = unsafe { shape(first, frames, cpus, cma).create(buffer, bytes, KERNEL) };
    status(made.map(|made| *state = Some(made)))
}

/// Memory for content that can move only, if `cma`.
fn range_of(first: u64, frames: u64, cma: bool) -> MemoryRange {
    let zone = if cma { ZoneKind::Movable } else { ZoneKind::Normal };
    MemoryRange { zone, ..calls::range(first, frames) }
}

/// Adds memory within the span, all of it in use: Linux frees what it does not use.
#[unsafe(no_mangle)]
extern "C" fn freehold_add_memory(
    allocator: &Allocator,
    first: u64,
    frames: u64,
    cma: bool,
) -> i64 {
    let range = range_of(first, frames, cma);
    let added = allocator.add_memory(range);
    status(added.and_then(|()| allocator.reserve(range.start, range.frames)))
}

/// Adds memory within the span, all of it free.
#[unsafe(no_mangle)]
extern "C" fn freehold_add_free(allocator: &Allocator, first: u64, frames: u64, cma: bool) -> i64 {
    status(allocator.add_memory(range_of(first, frames, cma)))
}

/// Whether a frame is free.
#[unsafe(no_mangle)]
extern "C" fn freehold_is_free(allocator: &Allocator, pfn: u64) -> bool {
    allocator.is_free(Pfn::new(pfn))
}

/// Allocates a block and returns its first frame.
#[unsafe(no_mangle)]
extern "C" fn freehold_alloc_block(allocator: &Allocator, order: u32, flags: u32) -> i64 {
    calls::frame(allocator.alloc(request(order, flags)))
}

/// As the function above, for order 0, most calls by far: it has nothing to check.
#[unsafe(no_mangle)]
extern "C" fn freehold_alloc_frame(allocator: &Allocator, flags: u32) -> i64 {
    calls::frame(allocator.alloc(request(0, flags)))
}

/// Frees a block, or an aligned part of one.
#[unsafe(no_mangle)]
extern "C" fn freehold_free_block(allocator: &Allocator, pfn: u64, order: u32) -> i64 {
    status(allocator.free(Pfn::new(pfn), calls::order(order)))
}

/// Allocates single frames and returns how many.
///
/// # Safety
///
/// There is room for as many frame numbers, initialised to anything.
#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_alloc_frames(
    allocator: &Allocator,
    pfns: NonNull<u64>,
    many: usize,
    flags: u32,
) -> i64 {
    // SAFETY: as the caller promises.
    let pfns = unsafe { calls::pfns_mut(pfns, many) };
    calls::number(allocator.alloc_bulk(request(0, flags), pfns))
}

/// Frees single frames and returns how many. If these are not all, the next one was refused, and
/// `error` says why; those after it are not freed.
///
/// # Safety
///
/// There are as many frame numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_free_frames(
    allocator: &Allocator,
    pfns: NonNull<u64>,
    many: usize,
    error: &mut i64,
) -> usize {
    // SAFETY: as the caller promises.
    let pfns = unsafe { calls::pfns(pfns, many) };
    match allocator.free_bulk(pfns, Order::ZERO) {
        Ok(()) => many,
        Err(refused) => {
            *error = calls::errno(refused.error);
            refused.freed
        }
    }
}

/// A CPU has gone offline: returns to the zone all that it holds.
#[unsafe(no_mangle)]
extern "C" fn freehold_offline_cpu(allocator: &Allocator, cpu: u32) -> i64 {
    status(allocator.offline_cpu(CpuId::new(cpu)))
}

/// Periodic upkeep of a CPU.
#[unsafe(no_mangle)]
extern "C" fn freehold_tick_cpu(allocator: &Allocator, cpu: u32) -> i64 {
    status(allocator.tick(CpuId::new(cpu)))
}

/// Free blocks by order, where those larger than the largest order count as several of that one;
/// returns how many frames CPUs cache, which are in no block.
#[unsafe(no_mangle)]
extern "C" fn freehold_count_blocks(allocator: &Allocator, blocks: &mut [u64; 11]) -> u64 {
    let mut cached = 0;
    for zone in allocator.zones() {
        cached += zone.per_cpu.get();
        add_blocks(blocks, &zone.free_blocks);
    }
    cached
}

/// Linux's number for what is in a CMA area.
const CMA: usize = 4;

/// As the function above, by migratetype, and pageblocks by migratetype, those of CPUs included.
#[unsafe(no_mangle)]
extern "C" fn freehold_count_types(
    allocator: &Allocator,
    blocks: &mut [[u64; 11]; CMA + 1],
    pageblocks: &mut [u64; CMA + 1],
) {
    for (index, zone) in allocator.zones().enumerate() {
        let Some(free) = allocator.free_by_type(index) else { continue };
        for content in 0..MigrateType::COUNT {
            let row = if zone.kind == ZoneKind::Movable { CMA } else { content };
            add_blocks(&mut blocks[row], &free.blocks[content]);
            pageblocks[row] += free.pageblocks[content];
        }
    }
}

fn add_blocks(sum: &mut [u64; 11], blocks: &[u64]) {
    let last = sum.len() - 1;
    for (order, many) in blocks.iter().enumerate() {
        sum[order.min(last)] += many << order.saturating_sub(last);
    }
}

/// Whether there is a free block of an order or a larger one.
#[unsafe(no_mangle)]
extern "C" fn freehold_has_block(allocator: &Allocator, order: u32) -> bool {
    allocator.has_block(calls::order(order))
}

/// Statistics, one `fh_emit` a figure.
#[unsafe(no_mangle)]
extern "C" fn freehold_stat(allocator: &Allocator, sink: *mut c_void) {
    report::stat(allocator, &Sink(sink));
}

/// Checks every invariant and says what was found; returns whether all hold.
#[unsafe(no_mangle)]
extern "C" fn freehold_validate(allocator: &Allocator, sink: *mut c_void) -> bool {
    report::validate(allocator, &Sink(sink))
}

/// How often the locks of all allocators of the design were taken, where that is counted.
#[unsafe(no_mangle)]
extern "C" fn freehold_locks(sink: *mut c_void) {
    #[cfg(feature = "lock-stats")]
    crate::locks::report(&Sink(sink));
    #[cfg(not(feature = "lock-stats"))]
    let _ = sink;
}

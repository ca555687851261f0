//! The functions that the C side calls: `module/allocator.h` declares them, in the same order.
//!
//! Each design has its own set, under its own prefix, so that C calls them directly: a call through
//! a pointer would need an `endbr64` at its target, where the kernel has indirect branch tracking.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::AtomicU64;

use freehold::designs::Freehold;
use freehold::{CpuId, Order, PageAllocator, Pfn, Request};
use freehold_conformance::{Torture, Worker};
use freehold_linux::ZoneLock;

use crate::calls::{self, Shape, status};
use crate::platform::{KERNEL, Kernel};
use crate::report::{self, Sink};
use crate::torture::{self, CTally, DirectMap};

/// `FH_NOWAIT` of `module/allocator.h`: [`Request::nowait`].
const NOWAIT: u32 = 1;

const EIO: i64 = -5;

#[inline(always)]
fn request(order: u32, flags: u32) -> Request {
    let request = Request::new(calls::order(order));
    if flags & NOWAIT == 0 { request } else { request.nowait() }
}

/// `struct fh_slots` of `module/allocator.h`: where workers hand blocks to each other.
#[repr(C)]
struct Slots {
    slots: NonNull<AtomicU64>,
    many: usize,
}

impl Slots {
    fn get(&self) -> &[AtomicU64] {
        // SAFETY: the C side made as many words, and accesses none of them itself.
        unsafe { slice::from_raw_parts(self.slots.as_ptr(), self.many) }
    }
}

/// How many bytes a worker of the torture test takes.
#[unsafe(no_mangle)]
extern "C" fn fh_worker_bytes() -> usize {
    size_of::<Worker>()
}

/// Makes a worker whose choices depend on the seed.
///
/// # Safety
///
/// There are as many bytes, aligned to 8, that nothing else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn fh_worker_init(worker: NonNull<Worker>, seed: u64) {
    // SAFETY: as the caller promises.
    unsafe { worker.write(Worker::new(seed)) };
}

/// The functions of one design.
macro_rules! exports {
    ($module:ident, $prefix:literal, $design:ty) => {
        mod $module {
            use super::*;

            type Allocator = PageAllocator<Kernel, $design>;

            /// How many bytes an allocator takes for a span of frames and a number of CPUs.
            #[unsafe(export_name = concat!($prefix, "_bytes"))]
            extern "C" fn bytes(first: u64, frames: u64, cpus: u32) -> i64 {
                Shape { first, frames, cpus, min_free: None, cma: false }.bytes::<Kernel, $design>()
            }

            /// Makes an allocator without memory in a buffer, and says where it is.
            ///
            /// # Safety
            ///
            /// The buffer has the bytes that the function above returned for the same arguments,
            /// all zero, begins at a page, and is this allocator's until it is no longer used.
            #[unsafe(export_name = concat!($prefix, "_create"))]
            unsafe extern "C" fn create(
                buffer: NonNull<u8>,
                bytes: usize,
                first: u64,
                frames: u64,
                cpus: u32,
                state: &mut Option<&'static Allocator>,
            ) -> i64 {
                let shape = Shape { first, frames, cpus, min_free: None, cma: false };
                // SAFETY: as the caller promises.
                let made = unsafe { shape.create(buffer, bytes, KERNEL) };
                status(made.map(|made| *state = Some(made)))
            }

            /// Adds memory within the span.
            #[unsafe(export_name = concat!($prefix, "_add"))]
            extern "C" fn add(allocator: &Allocator, first: u64, frames: u64) -> i64 {
                status(allocator.add_memory(calls::range(first, frames)))
            }

            /// Allocates a block and returns its first frame.
            #[unsafe(export_name = concat!($prefix, "_alloc"))]
            extern "C" fn alloc(allocator: &Allocator, order: u32, flags: u32) -> i64 {
                calls::frame(allocator.alloc(request(order, flags)))
            }

            /// Frees a block.
            #[unsafe(export_name = concat!($prefix, "_free"))]
            extern "C" fn free(allocator: &Allocator, pfn: u64, order: u32) -> i64 {
                status(allocator.free(Pfn::new(pfn), calls::order(order)))
            }

            /// Allocates single frames and returns how many.
            ///
            /// # Safety
            ///
            /// There is room for as many frame numbers, which hold anything but are initialised.
            #[unsafe(export_name = concat!($prefix, "_alloc_bulk"))]
            unsafe extern "C" fn alloc_bulk(
                allocator: &Allocator,
                pfns: NonNull<u64>,
                many: usize,
                flags: u32,
            ) -> i64 {
                // SAFETY: as the caller promises.
                let pfns = unsafe { calls::pfns_mut(pfns, many) };
                calls::number(allocator.alloc_bulk(request(0, flags), pfns))
            }

            /// Frees single frames.
            ///
            /// # Safety
            ///
            /// There are as many frame numbers.
            #[unsafe(export_name = concat!($prefix, "_free_bulk"))]
            unsafe extern "C" fn free_bulk(
                allocator: &Allocator,
                pfns: NonNull<u64>,
                many: usize,
            ) -> i64 {
                // SAFETY: as the caller promises.
                let pfns = unsafe { calls::pfns(pfns, many) };
                status(allocator.free_bulk(pfns, Order::ZERO).map_err(|failure| failure.error))
            }

            /// Returns to the zone what all CPUs cache.
            #[unsafe(export_name = concat!($prefix, "_drain"))]
            extern "C" fn drain(allocator: &Allocator) {
                allocator.drain_all();
            }

            /// Periodic upkeep of a CPU.
            #[unsafe(export_name = concat!($prefix, "_tick"))]
            extern "C" fn tick(allocator: &Allocator, cpu: u32) -> i64 {
                status(allocator.tick(CpuId::new(cpu)))
            }

            /// A CPU has gone offline: returns to the zone what it caches.
            #[unsafe(export_name = concat!($prefix, "_offline"))]
            extern "C" fn offline(allocator: &Allocator, cpu: u32) -> i64 {
                status(allocator.offline_cpu(CpuId::new(cpu)))
            }

            /// Makes every kind of call, with room for some frame numbers; says what failed.
            ///
            /// # Safety
            ///
            /// There is room for as many frame numbers. Nothing else uses the allocator.
            #[unsafe(export_name = concat!($prefix, "_conforms"))]
            unsafe extern "C" fn conforms(
                allocator: &Allocator,
                pfns: NonNull<u64>,
                many: usize,
                sink: *mut c_void,
            ) -> bool {
                // SAFETY: as the caller promises.
                let room = unsafe { calls::pfns_mut(pfns, many) };
                torture::conforms(allocator, room, &Sink(sink))
            }

            /// Begins a torture test: stamps all free frames. Returns how many there are.
            #[unsafe(export_name = concat!($prefix, "_torture_prepare"))]
            extern "C" fn torture_prepare(allocator: &Allocator, sink: *mut c_void) -> i64 {
                torture::prepare(allocator, &Sink(sink)).map_or(EIO, |free| free as i64)
            }

            /// One step of a thread's worker.
            #[unsafe(export_name = concat!($prefix, "_torture_step"))]
            extern "C" fn torture_step(allocator: &Allocator, slots: &Slots, worker: &mut Worker) {
                Torture::new(allocator, &DirectMap, slots.get()).step(worker);
            }

            /// One step of a handler's worker.
            #[unsafe(export_name = concat!($prefix, "_torture_interrupt"))]
            extern "C" fn torture_interrupt(
                allocator: &Allocator,
                slots: &Slots,
                worker: &mut Worker,
            ) {
                Torture::new(allocator, &DirectMap, slots.get()).interrupt(worker);
            }

            /// Ends a torture test: frees what is held, and checks everything. Says what is wrong.
            ///
            /// # Safety
            ///
            /// There are as many workers, and nothing else uses them any more.
            #[unsafe(export_name = concat!($prefix, "_torture_finish"))]
            unsafe extern "C" fn torture_finish(
                allocator: &Allocator,
                slots: &Slots,
                workers: NonNull<Worker>,
                many: usize,
                free: u64,
                tally: &mut CTally,
                sink: *mut c_void,
            ) -> i64 {
                // SAFETY: as the caller promises.
                let workers = unsafe { slice::from_raw_parts_mut(workers.as_ptr(), many) };
                match torture::finish(allocator, slots.get(), workers, free, &Sink(sink)) {
                    Some(found) => {
                        *tally = found;
                        0
                    }
                    None => EIO,
                }
            }

            /// Statistics, one `fh_emit` a figure.
            #[unsafe(export_name = concat!($prefix, "_stat"))]
            extern "C" fn stat(allocator: &Allocator, sink: *mut c_void) {
                report::stat(allocator, &Sink(sink));
            }

            /// Checks every invariant and says what was found; returns whether all hold.
            #[unsafe(export_name = concat!($prefix, "_validate"))]
            extern "C" fn validate(allocator: &Allocator, sink: *mut c_void) -> bool {
                report::validate(allocator, &Sink(sink))
            }
        }
    };
}

exports!(of_freehold, "freehold", Freehold<Kernel>);
exports!(of_zone_lock, "zone_lock", ZoneLock<Kernel>);

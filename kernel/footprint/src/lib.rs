//! The calls of two designs, each by a function of its own, as a kernel links them.
//!
//! The machine is one whose pins disable interrupts, so that their states are on the stack. Nothing
//! here is ever run: `tools/footprint` reads what the compiler has made of it.

#![no_std]

use core::panic::PanicInfo;

use freehold::designs;
use freehold::platform::{Machine, Native, Pinned};
use freehold::{
    BulkFreeError, Census, Compaction, Config, CpuId, Error, Events, FrameCount, MemoryRange,
    Metadata, MetadataLayout, Migrate, Order, PageAllocator, Pfn, RangeRequest, Request, Violation,
};

/// A machine whose functions are not linked.
pub struct Kernel;

unsafe extern "C" {
    safe fn machine_cpu() -> u32;
    safe fn machine_irq_save() -> usize;
    safe fn machine_irq_restore(state: usize);
    safe fn machine_stop() -> !;
}

impl Machine for Kernel {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId::new(machine_cpu())
    }

    #[inline(always)]
    fn pin(&self) -> Pinned<usize> {
        Pinned::new(self.cpu(), machine_irq_save())
    }

    #[inline(always)]
    fn unpin(&self, state: usize) {
        machine_irq_restore(state);
    }
}

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    machine_stop()
}

/// One function for each call, of the names given in this order.
macro_rules! calls {
    ($module:ident, $design:ty, [
        $new_in:ident, $layout:ident, $new:ident, $alloc:ident, $alloc_nowait:ident,
        $alloc_bulk:ident, $free:ident, $free_bulk:ident, $alloc_compacting:ident,
        $compact:ident, $alloc_range:ident, $free_range:ident, $add_memory:ident,
        $remove_memory:ident, $reserve:ident, $drain_all:ident, $tick:ident, $offline_cpu:ident,
        $events:ident, $validate:ident
    ]) => {
        mod $module {
            use super::*;

            type Frames = PageAllocator<Native<Kernel>, $design>;

            #[unsafe(no_mangle)]
            fn $new_in(
                place: &mut Option<Frames>,
                config: &Config<'_>,
                metadata: Metadata,
            ) -> Result<(), Error> {
                let settings = Default::default();
                Frames::new_in(place, Native(Kernel), config, &settings, metadata).map(drop)
            }

            #[unsafe(no_mangle)]
            fn $layout(config: &Config<'_>) -> Result<MetadataLayout, Error> {
                Frames::layout(config, &Default::default())
            }

            #[unsafe(no_mangle)]
            fn $new(config: &Config<'_>, metadata: Metadata) -> Result<Frames, Error> {
                Frames::new(Native(Kernel), config, &Default::default(), metadata)
            }

            #[unsafe(no_mangle)]
            fn $alloc(frames: &Frames, request: Request) -> Result<Pfn, Error> {
                frames.alloc(request)
            }

            #[unsafe(no_mangle)]
            fn $alloc_nowait(frames: &Frames, request: Request) -> Result<Pfn, Error> {
                frames.alloc(request.nowait())
            }

            #[unsafe(no_mangle)]
            fn $alloc_bulk(
                frames: &Frames,
                request: Request,
                out: &mut [Pfn],
            ) -> Result<usize, Error> {
                frames.alloc_bulk(request, out)
            }

            #[unsafe(no_mangle)]
            fn $free(frames: &Frames, pfn: Pfn, order: Order) -> Result<(), Error> {
                frames.free(pfn, order)
            }

            #[unsafe(no_mangle)]
            fn $free_bulk(
                frames: &Frames,
                blocks: &[Pfn],
                order: Order,
            ) -> Result<(), BulkFreeError> {
                frames.free_bulk(blocks, order)
            }

            #[unsafe(no_mangle)]
            fn $alloc_compacting(
                frames: &Frames,
                request: Request,
                owner: &dyn Migrate,
            ) -> Result<Pfn, Error> {
                frames.alloc_compacting(request, owner)
            }

            #[unsafe(no_mangle)]
            fn $compact(frames: &Frames, owner: &dyn Migrate) -> Compaction {
                frames.compact(owner)
            }

            #[unsafe(no_mangle)]
            fn $alloc_range(
                frames: &Frames,
                request: RangeRequest,
                owner: &dyn Migrate,
            ) -> Result<Pfn, Error> {
                frames.alloc_range(request, owner)
            }

            #[unsafe(no_mangle)]
            fn $free_range(frames: &Frames, first: Pfn, count: FrameCount) -> Result<(), Error> {
                frames.free_range(first, count)
            }

            #[unsafe(no_mangle)]
            fn $add_memory(frames: &Frames, range: MemoryRange) -> Result<(), Error> {
                frames.add_memory(range)
            }

            #[unsafe(no_mangle)]
            fn $remove_memory(
                frames: &Frames,
                first: Pfn,
                count: FrameCount,
                owner: &dyn Migrate,
            ) -> Result<(), Error> {
                frames.remove_memory(first, count, owner)
            }

            #[unsafe(no_mangle)]
            fn $reserve(frames: &Frames, first: Pfn, count: FrameCount) -> Result<(), Error> {
                frames.reserve(first, count)
            }

            #[unsafe(no_mangle)]
            fn $drain_all(frames: &Frames) {
                frames.drain_all()
            }

            #[unsafe(no_mangle)]
            fn $tick(frames: &Frames, cpu: CpuId) -> Result<(), Error> {
                frames.tick(cpu)
            }

            #[unsafe(no_mangle)]
            fn $offline_cpu(frames: &Frames, cpu: CpuId) -> Result<(), Error> {
                frames.offline_cpu(cpu)
            }

            #[unsafe(no_mangle)]
            fn $events(frames: &Frames) -> Events {
                frames.events()
            }

            #[unsafe(no_mangle)]
            fn $validate(frames: &Frames) -> Result<Census, Violation> {
                frames.validate()
            }
        }
    };
}

calls!(
    of_freehold,
    designs::Freehold<Native<Kernel>>,
    [
        freehold_new_in,
        freehold_layout,
        freehold_new,
        freehold_alloc,
        freehold_alloc_nowait,
        freehold_alloc_bulk,
        freehold_free,
        freehold_free_bulk,
        freehold_alloc_compacting,
        freehold_compact,
        freehold_alloc_range,
        freehold_free_range,
        freehold_add_memory,
        freehold_remove_memory,
        freehold_reserve,
        freehold_drain_all,
        freehold_tick,
        freehold_offline_cpu,
        freehold_events,
        freehold_validate
    ]
);
calls!(
    of_zone_lock,
    freehold_linux::ZoneLock<Native<Kernel>>,
    [
        zone_lock_new_in,
        zone_lock_layout,
        zone_lock_new,
        zone_lock_alloc,
        zone_lock_alloc_nowait,
        zone_lock_alloc_bulk,
        zone_lock_free,
        zone_lock_free_bulk,
        zone_lock_alloc_compacting,
        zone_lock_compact,
        zone_lock_alloc_range,
        zone_lock_free_range,
        zone_lock_add_memory,
        zone_lock_remove_memory,
        zone_lock_reserve,
        zone_lock_drain_all,
        zone_lock_tick,
        zone_lock_offline_cpu,
        zone_lock_events,
        zone_lock_validate
    ]
);

//! Plain memory, and threads as CPUs.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::designs::Design;
use freehold::platform::{Machine, Native};
use freehold::{
    Config, CpuId, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator, Pfn, ZoneKind,
};
use freehold_conformance::Stamps;

std::thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Makes this thread run on `cpu` from now on.
pub(crate) fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// A machine whose threads say which CPU they are.
pub(crate) struct Threads;

impl Machine for Threads {
    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    fn relax(&self) {
        // There are more threads than CPUs.
        std::thread::yield_now();
    }
}

pub(crate) type Platform = Native<Threads>;

/// The first words of all frames, which hold something at first.
pub(crate) struct Memory(Vec<AtomicU64>);

impl Stamps for Memory {
    fn read(&self, frame: Pfn) -> u64 {
        self.0[frame.get() as usize].load(Relaxed)
    }

    fn write(&self, frame: Pfn, stamp: u64) {
        self.0[frame.get() as usize].store(stamp, Relaxed);
    }
}

/// An allocator with this many CPUs for memory of two zones, and the memory.
pub(crate) fn machine<D: Design<Platform>>(
    cpus: usize,
    frames: u64,
) -> (PageAllocator<Platform, D>, Memory) {
    let low = 1024;
    let ranges = [
        MemoryRange::new(Pfn::new(0), FrameCount::new(low)).in_zone(ZoneKind::Dma32),
        MemoryRange::new(Pfn::new(low), FrameCount::new(frames - low)),
    ];
    let nodes = vec![NodeId::new(0); cpus];
    let (config, settings) = (Config::new(&ranges, &nodes), D::Settings::default());
    let layout = PageAllocator::<Platform, D>::layout(&config, &settings).expect("a valid config");
    let metadata = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
    let metadata = Metadata::from_static(metadata);
    let allocator = PageAllocator::new(Native(Threads), &config, &settings, metadata);
    let memory = (0..frames).map(|frame| AtomicU64::new(frame ^ 0x5555)).collect();
    (allocator.expect("a valid config"), Memory(memory))
}

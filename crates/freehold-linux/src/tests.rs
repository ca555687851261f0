//! A single design on one zone, for the unit tests of its parts.

extern crate std;

use core::mem::MaybeUninit;
use std::vec;
use std::vec::Vec;

use super::skeleton::{Guard, LocalPages, Policy, Skeleton, ZonedSettings};
use crate::Pcp;
use crate::pageblock::BlockType;
use crate::testing::{TestPlatform, run_on};
use freehold::PageAllocator;
use freehold::config::{Config, MemoryRange};
use freehold::designs::traits::{Alloc, Free, Inspect, Upkeep};
use freehold::designs::{Context, Design};
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::region::{Carver, LayoutBuilder, Metadata};
use freehold::platform::SharedCell;
use freehold::request::Request;
use freehold::stat::Events;
use freehold::topology::{Topology, TopologyPlan};
use freehold::units::{CpuId, FrameCount, MigrateType, NodeId, Order, Pfn};

/// An allocator of so many frames from the first on, for CPUs of one node.
pub(crate) fn allocator<D: Design<TestPlatform>>(
    frames: u64,
    cpus: usize,
    settings: &D::Settings,
) -> PageAllocator<TestPlatform, D> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    let layout = PageAllocator::<TestPlatform, D>::layout(&config, settings).unwrap();
    let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
    PageAllocator::new(TestPlatform, &config, settings, Metadata::from_static(buffer)).unwrap()
}

/// The only zone.
pub(crate) const ZONE: ZoneIndex = ZoneIndex(0);

/// A design with some frames from the first on and two CPUs.
pub(crate) struct Workbench<Y: Policy<TestPlatform>> {
    topology: Topology,
    pub(crate) design: Skeleton<TestPlatform, Y>,
}

/// Settings with lists of constant size.
pub(crate) fn fixed<O>(own: O, batch: u32, high: u32) -> ZonedSettings<O> {
    let of = ZonedSettings::<()>::default();
    ZonedSettings {
        pcp: Pcp::Fixed,
        batch,
        high,
        batch_scale: of.batch_scale,
        locking: of.locking,
        counters: of.counters,
        own,
    }
}

impl<Y: Policy<TestPlatform>> Workbench<Y> {
    pub(crate) fn new(frames: u64, settings: &ZonedSettings<Y::Settings>) -> Self {
        run_on(0);
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
        let cpus = [NodeId::new(0); 2];
        let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
        let mut builder = LayoutBuilder::new();
        let topology = TopologyPlan::new(&config, &mut builder).unwrap();
        let plan = Skeleton::plan(&config, settings, &mut builder).unwrap();
        let layout = builder.finish();
        let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
        let metadata = Metadata::from_static(buffer);
        let mut carver = Carver::new(metadata, &layout).unwrap();
        let topology = Topology::carve(&topology, &config, &mut carver);
        let design = Skeleton::carve(&plan, &config, &topology, settings, &mut carver);
        let bench = Workbench { topology, design };
        bench.design.add_memory(bench.context(), &ranges).unwrap();
        bench
    }

    pub(crate) fn context(&self) -> Context<'_, TestPlatform> {
        Context { platform: &TestPlatform, topology: &self.topology }
    }

    /// The lists of a CPU, locked.
    pub(crate) fn pages(&self, cpu: usize) -> LocalPages<'_, TestPlatform, Y> {
        self.design.lock_pcp(&TestPlatform, cpu, ZONE)
    }

    /// The zone, locked.
    pub(crate) fn lock(&self) -> Guard<'_, TestPlatform, Y> {
        self.design.lock_zone(&TestPlatform, ZONE)
    }

    /// Allocates a movable block on a CPU.
    pub(crate) fn alloc(&self, cpu: u32, order: u8) -> Pfn {
        run_on(cpu);
        let request = Request::new(Order::new(order)).node(NodeId::new(0));
        self.design.alloc(self.context(), &[0], request).expect("memory is free")
    }

    /// Allocates so many movable frames on CPU 0.
    pub(crate) fn alloc_frames(&self, count: usize) -> Vec<Pfn> {
        (0..count).map(|_| self.alloc(0, 0)).collect()
    }

    /// Frees a frame on a CPU.
    pub(crate) fn free(&self, cpu: u32, frame: u64) {
        run_on(cpu);
        self.design.free(self.context(), Pfn::new(frame), Order::ZERO).expect("it is held");
    }

    /// Frees frames to the zone without merging them.
    pub(crate) fn put_unmerged(&self, frames: &[u32]) {
        let guard = self.lock();
        for &frame in frames {
            guard.add_free(guard.put_unmerged(FrameIndex(frame)));
        }
    }

    /// Lets the policy take so many frames off a CPU's lists; returns how many it took.
    pub(crate) fn drain(&self, cpu: usize, wanted: u32, just_used: usize) -> u64 {
        let pages = self.pages(cpu);
        Y::begin_drain(&pages);
        let drained = Y::drain(&pages, wanted, just_used).get();
        pages.pcp.count.set(pages.pcp.count.get() - drained as u32);
        drained
    }

    /// Returns everything that a CPU caches to the zone.
    pub(crate) fn drain_all_of(&self, cpu: u32) {
        self.design.drain(self.context(), CpuId::new(cpu));
    }

    /// The movable blocks of an order on a CPU's lists, from the front.
    pub(crate) fn listed(&self, cpu: usize, order: u8) -> Vec<u32> {
        let pages = self.pages(cpu);
        let list = pages.pcp.list(Order::new(order), MigrateType::Movable);
        list.iter(&self.design.frames).map(|block| block.0).collect()
    }

    /// The free blocks of an order and type in the zone, from the front.
    pub(crate) fn in_zone(&self, order: u8, of: BlockType) -> Vec<u32> {
        let guard = self.lock();
        let list = guard.buddy.lists.list(Order::new(order), of);
        list.iter(&self.design.frames).map(|block: FrameIndex| block.0).collect()
    }

    /// The free frames of the zone.
    pub(crate) fn level(&self) -> u64 {
        self.design.zone(ZONE).free().get()
    }

    pub(crate) fn events(&self) -> Events {
        self.design.events(self.context())
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        self.design.validate(self.context()).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

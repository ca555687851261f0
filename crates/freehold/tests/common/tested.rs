//! Allocators of any design on the platform of tests, and short words for their memory.

use crate::common::{TestPlatform, run_on};
use crate::machine::Machine;
use freehold::designs::Design;
use freehold::{Config, FrameCount, MemoryRange, NodeId, Pfn};

/// A design on that platform.
pub(crate) trait TestDesign: Design<TestPlatform> {}

impl<D: Design<TestPlatform>> TestDesign for D {}

/// An allocator of it.
pub(crate) type Tested<D> = Machine<TestPlatform, D>;

pub(crate) const fn range(start: u64, frames: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(frames))
}

pub(crate) fn frames(count: u64) -> FrameCount {
    FrameCount::new(count)
}

/// An allocator of this memory for CPUs near these nodes, of which this thread is the first.
pub(crate) fn build_as<D: TestDesign>(
    ranges: &[MemoryRange],
    cpu_nodes: &[u16],
    min_free: u64,
    settings: &D::Settings,
) -> Tested<D> {
    run_on(0);
    let cpus: Vec<_> = cpu_nodes.iter().copied().map(NodeId::new).collect();
    let config = Config::new(ranges, &cpus).min_free(frames(min_free));
    Machine::new(TestPlatform, &config, settings)
}

/// The same with the settings that a design has by default.
pub(crate) fn build<D: TestDesign>(
    ranges: &[MemoryRange],
    cpu_nodes: &[u16],
    min_free: u64,
) -> Tested<D> {
    build_as(ranges, cpu_nodes, min_free, &D::Settings::default())
}

/// Checks that all memory is free, once no CPU caches any.
pub(crate) fn check_whole<D: TestDesign>(machine: &Tested<D>) {
    machine.drain_all();
    let census = machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.free, census.managed);
    assert!(machine.zones().all(|zone| zone.free == zone.managed));
}

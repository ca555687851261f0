//! The allocator of the design `freehold` on loom, in the initial states of its models.

use freehold::designs::{DoubleFree, Freehold, FreeholdSettings};
use freehold::platform::Platform;
use freehold::{Census, Config, Error, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use loom::sync::Arc;
use loom::thread::JoinHandle;

use super::loom_platform::LoomPlatform;
pub(crate) use super::loom_runs::explore;
pub(crate) use super::loom_threads::{join, on_cpu};
use super::machine::Machine;

pub(crate) type Frames<P> = Machine<P, Freehold<P>>;
pub(crate) type Sound = LoomPlatform;

/// Frames in a pageblock, and in both pageblocks.
pub(crate) const BLOCK: u64 = 512;
pub(crate) const ALL: u64 = 2 * BLOCK;

/// Two pageblocks, and so many CPUs.
pub(crate) fn build<P: Platform + Default>(cpus: usize) -> Arc<Frames<P>> {
    build_larger(2, cpus)
}

/// So many pageblocks and CPUs.
pub(crate) fn build_larger<P: Platform + Default>(blocks: u64, cpus: usize) -> Arc<Frames<P>> {
    build_of(&[range(0, blocks * BLOCK)], cpus, 0)
}

/// The setting that records for each frame whether it is in use.
pub(crate) fn exact() -> FreeholdSettings {
    FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() }
}

pub(crate) fn range(start: u64, frames: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(frames))
}

/// This memory, to which more may be added, so many CPUs, and a `min_free`.
pub(crate) fn build_of<P: Platform + Default>(
    ranges: &[MemoryRange],
    cpus: usize,
    min_free: u64,
) -> Arc<Frames<P>> {
    build_as(ranges, cpus, min_free, &Default::default())
}

/// The same with these settings.
pub(crate) fn build_as<P: Platform + Default>(
    ranges: &[MemoryRange],
    cpus: usize,
    min_free: u64,
    settings: &FreeholdSettings,
) -> Arc<Frames<P>> {
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config::new(ranges, &cpus).min_free(FrameCount::new(min_free));
    Arc::new(Machine::new(P::default(), &config, settings))
}

/// Runs `other` on another CPU of the machine, with what this thread has a share of, too.
pub(crate) fn on_cpu_with<P: Platform, U: 'static, R: 'static>(
    machine: &Arc<Frames<P>>,
    cpu: u32,
    with: &Arc<U>,
    other: impl FnOnce(&Frames<P>, &U) -> R + 'static,
) -> JoinHandle<R> {
    let with = Arc::clone(with);
    on_cpu(machine, cpu, move |machine| other(machine, &with))
}

pub(crate) fn frame() -> Request {
    Request::new(Order::ZERO)
}

pub(crate) fn free<P: Platform>(machine: &Frames<P>, frame: u64) {
    machine.free(Pfn::new(frame), Order::ZERO).expect("it is held");
}

/// Allocates so many frames to the running CPU, the lowest first.
pub(crate) fn take<P: Platform>(machine: &Frames<P>, frames: u64) {
    let mut out = vec![Pfn::default(); frames as usize];
    assert_eq!(machine.alloc_bulk(frame(), &mut out), Ok(out.len()));
}

/// A is the active pageblock of CPU 0's cache, and all frames of A are allocated.
pub(crate) fn active<P: Platform + Default>(cpus: usize) -> Arc<Frames<P>> {
    active_with(&FreeholdSettings::default(), cpus)
}

/// The same with these settings.
pub(crate) fn active_with<P: Platform + Default>(
    settings: &FreeholdSettings,
    cpus: usize,
) -> Arc<Frames<P>> {
    let machine = build_as(&[range(0, ALL)], cpus, 0, settings);
    take(&machine, BLOCK);
    machine
}

/// Both pageblocks of CPU 0's cache are full: all frames are allocated.
pub(crate) fn full<P: Platform + Default>(cpus: usize) -> Arc<Frames<P>> {
    full_of(2, cpus)
}

/// The same with so many pageblocks.
pub(crate) fn full_of<P: Platform + Default>(blocks: u64, cpus: usize) -> Arc<Frames<P>> {
    let machine = build_larger(blocks, cpus);
    take(&machine, blocks * BLOCK);
    assert_eq!(machine.alloc(frame()), Err(Error::OutOfMemory));
    machine
}

pub(crate) fn check<P: Platform>(machine: &Frames<P>) -> Census {
    machine.validate().unwrap_or_else(|violation| panic!("{violation}"))
}

/// Checks that after a drain, all but so many frames are free, and no cache holds any.
pub(crate) fn check_held<P: Platform>(machine: &Frames<P>, held: u64) {
    machine.drain_all();
    let census = check(machine);
    let places = (census.free.get(), census.per_cpu.get(), census.allocated.get());
    assert_eq!(places, (census.managed.get() - held, 0, held), "free, cached, allocated");
    let events = machine.events();
    assert_eq!(events.allocated.get(), events.freed.get() + held);
}

// Not every binary uses everything here.
const _: () = {
    let _: u64 = ALL;
    let _: fn(usize) -> Arc<Frames<Sound>> = full;
    let _: fn(usize) -> Arc<Frames<Sound>> = active;
    let _: fn(&Frames<Sound>, u64) = free;
};

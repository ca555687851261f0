//! What it takes to merge late: a request for a large block merges one pageblock and takes it in
//! the hold of the zone lock that merged it, however large the zone, and whatever others do.

use std::cell::Cell;
use std::rc::Rc;

use freehold::{Config, Design, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_linux::{Cluster, LazyMerge, OwnSettings, Pcp, ZonedSettings};
use freehold_sim::{Machine, Path, Report, Schedule, Sim, SimFrames, preset};

const HUGE: Order = Order::PAGEBLOCK;

/// The zone lock is held for so many frames at a time.
const WINDOW_FRAMES: u64 = 32;

type Shared<D> = Rc<SimFrames<D>>;

/// So many pageblocks on a machine of two CPUs.
fn build<D: Design<Sim>>(
    pageblocks: u64,
    seed: u64,
    settings: &D::Settings,
) -> (Machine, Shared<D>) {
    let mut machine = Machine::new(&preset("uma-2").unwrap(), seed).unwrap();
    let frames = FrameCount::new(pageblocks * HUGE.frames().get());
    let memory = [MemoryRange::new(Pfn::new(0), frames)];
    let nodes = [NodeId::new(0); 2];
    let config = Config::new(&memory, &nodes).min_free(FrameCount::ZERO);
    let allocator = Rc::new(SimFrames::<D>::new(&mut machine, Sim, &config, settings).unwrap());
    (machine, allocator)
}

/// Allocates all frames and frees them again, all but those in `kept`, so that none is merged.
fn shatter<D: Design<Sim>>(allocator: &SimFrames<D>, kept: impl Fn(Pfn) -> bool) {
    let all: Vec<_> = core::iter::from_fn(|| allocator.alloc(Request::default()).ok()).collect();
    all.into_iter()
        .filter(|&pfn| !kept(pfn))
        .for_each(|pfn| allocator.free(pfn, Order::ZERO).unwrap());
    allocator.drain_all();
}

fn zone_locks(report: &Report) -> u64 {
    report.lock("zone_lock").unwrap().acquisitions
}

/// Batches of several frames, however small the zone: otherwise `cluster` has no clusters, and
/// merges at once.
fn settings<O: OwnSettings>() -> ZonedSettings<O> {
    ZonedSettings { pcp: Pcp::Fixed, batch: 31, high: 186, ..Default::default() }
}

/// How often the zone lock is taken for so many huge blocks of a shattered zone.
fn locks_for_huge_blocks<D, O>(pageblocks: u64, blocks: u64) -> u64
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    let (mut machine, allocator) = build::<D>(pageblocks, 1, &settings());
    let shared = Rc::clone(&allocator);
    let gate = machine.barrier(1);
    machine.spawn(0, move |handle| {
        shatter(&shared, |_| false);
        handle.start_measuring(gate);
        for _ in 0..blocks {
            handle.on_path(Path::Alloc, || shared.alloc(Request::new(HUGE))).unwrap();
        }
    });
    let report = machine.run().unwrap();
    allocator.validate().unwrap();
    zone_locks(&report)
}

#[test]
fn a_huge_block_costs_the_holds_of_one_pageblock() {
    let holds = HUGE.frames().get() / WINDOW_FRAMES;
    // Neither the zone's size nor how many were had before matters, and the last hold takes the
    // block: no other is needed for that.
    for (pageblocks, blocks) in [(4, 3), (64, 3), (64, 48)] {
        let locks = locks_for_huge_blocks::<LazyMerge<Sim>, _>(pageblocks, blocks);
        assert_eq!(locks, blocks * holds, "{blocks} of {pageblocks}");
        // Two more begin and end the walk.
        let locks = locks_for_huge_blocks::<Cluster<Sim>, _>(pageblocks, blocks);
        assert_eq!(locks, blocks * (holds + 2), "{blocks} of {pageblocks}");
    }
}

/// One CPU takes huge blocks, and the other looks, under the lock, whether it could take them
/// first.
fn nothing_is_seen_in_between<D, O>(seed: u64)
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    const BLOCKS: u64 = 8;
    let (mut machine, allocator) = build::<D>(2 * BLOCKS, seed, &settings());
    machine.set_schedule(Schedule::Random { switches_per_million: 200_000 });
    let done = Rc::new(Cell::new(false));
    let gate = machine.barrier(2);
    let (shared, is_done) = (Rc::clone(&allocator), Rc::clone(&done));
    machine.spawn(0, move |handle| {
        // Every other pageblock has a frame in use.
        shatter(&shared, |pfn| pfn.get() % 1024 == 512);
        handle.wait(gate);
        for _ in 0..BLOCKS {
            let block = shared.alloc(Request::new(HUGE)).expect("there are enough pageblocks");
            assert_eq!(block.get() % 1024, 0, "a pageblock without a frame in use");
        }
        is_done.set(true);
    });
    let shared = Rc::clone(&allocator);
    machine.spawn(1, move |handle| {
        handle.wait(gate);
        while !done.get() {
            let whole = shared.zones().next().unwrap().free_pageblocks();
            assert_eq!(whole, 0, "a merged block is on the list");
            handle.idle_ns(100);
        }
    });
    machine.run().unwrap();
    allocator.validate().unwrap();
}

#[test]
fn a_block_is_taken_before_others_see_it() {
    for seed in 0..20 {
        nothing_is_seen_in_between::<LazyMerge<Sim>, _>(seed);
        nothing_is_seen_in_between::<Cluster<Sim>, _>(seed);
    }
}

/// As many requests as there are pageblocks that can be merged, at once: each gets one. A request
/// that passes by what another is merging still finds what that leaves.
fn all_requests_are_served<D, O>(seed: u64, order: Order)
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    const PAGEBLOCKS: u64 = 4;
    let (mut machine, allocator) = build::<D>(PAGEBLOCKS, seed, &settings());
    machine.set_schedule(Schedule::Random { switches_per_million: 200_000 });
    let blocks = (PAGEBLOCKS * HUGE.frames().get() / order.frames().get()) as usize;
    let gate = machine.barrier(2);
    for cpu in 0..2 {
        let shared = Rc::clone(&allocator);
        machine.spawn(cpu, move |handle| {
            if cpu == 0 {
                shatter(&shared, |_| false);
            }
            handle.wait(gate);
            for _ in 0..blocks / 2 {
                shared.alloc(Request::new(order)).expect("there is one for each request");
            }
        });
    }
    machine.run().unwrap();
    assert_eq!(allocator.validate().unwrap().free, FrameCount::ZERO);
}

#[test]
fn each_request_gets_one_of_as_many_blocks() {
    for seed in 0..20 {
        for order in [4, 6, 8, 9].map(Order::new) {
            all_requests_are_served::<LazyMerge<Sim>, _>(seed, order);
            all_requests_are_served::<Cluster<Sim>, _>(seed, order);
        }
    }
}

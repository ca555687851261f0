//! Where frames came from and where they were wanted, on machines made by hand.

mod common;
#[macro_use]
#[path = "common/designs.rs"]
mod designs;
#[path = "common/machine.rs"]
mod machine;

use common::{TestPlatform, run_on};
use freehold::designs::Design;
use freehold::{
    Config, FrameCount, MemoryRange, MigrateType, NodeId, NumaEvents, Order, Pfn, Request,
    Watermark, ZoneKind,
};
use machine::Machine;

const FRAMES: u64 = 1024;

fn range(nth: u64, node: u16, zone: ZoneKind) -> MemoryRange {
    MemoryRange::new(Pfn::new(nth * FRAMES), FrameCount::new(FRAMES))
        .on_node(NodeId::new(node))
        .in_zone(zone)
}

/// A machine with one CPU near each of `cpu_nodes`, without reserves.
fn machine<D: Design<TestPlatform>>(
    ranges: &[MemoryRange],
    cpu_nodes: &[u16],
) -> Machine<TestPlatform, D> {
    run_on(0);
    let cpus: Vec<_> = cpu_nodes.iter().copied().map(NodeId::new).collect();
    let config = Config { min_free: Some(FrameCount::ZERO), ..Config::new(ranges, &cpus) };
    Machine::new(TestPlatform, &config, &D::Settings::default())
}

/// Hit, miss, foreign, local, other and interleave hit of a zone, in frames.
fn events<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>, zone: usize) -> [u64; 6] {
    let NumaEvents { hit, miss, foreign, local, other, interleave_hit } =
        machine.numa_events(zone).expect("the design counts");
    [hit, miss, foreign, local, other, interleave_hit].map(FrameCount::get)
}

fn counts<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>) -> bool {
    let counts = machine.numa_events(0).is_some();
    assert_eq!(counts, D::NAME != "freehold", "{}", D::NAME);
    assert!(machine.numa_events(100).is_none());
    counts
}

fn at_home_everything_is_a_hit<D: Design<TestPlatform>>() {
    let machine =
        machine::<D>(&[range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)], &[0, 1]);
    if !counts(&machine) {
        return;
    }
    run_on(1);
    let frames: Vec<_> = (0..10).map(|_| machine.alloc(Request::default()).unwrap()).collect();
    let block = machine.alloc(Request::new(Order::new(4))).unwrap();
    let mut bulk = [Pfn::default(); 20];
    assert_eq!(machine.alloc_bulk(Request::default(), &mut bulk), Ok(20));
    assert_eq!(events(&machine, 1), [46, 0, 0, 46, 0, 0]);
    // Who frees them, and where, makes no difference.
    run_on(0);
    machine.free_bulk(&bulk, Order::ZERO).unwrap();
    machine.free_bulk(&frames, Order::ZERO).unwrap();
    machine.free(block, Order::new(4)).unwrap();
    machine.drain_all();
    assert_eq!(events(&machine, 1), [46, 0, 0, 46, 0, 0]);
    assert_eq!(events(&machine, 0), [0; 6]);
}

fn a_wish_for_another_node_is_a_hit_there_but_not_local<D: Design<TestPlatform>>() {
    let machine =
        machine::<D>(&[range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)], &[0, 1]);
    if !counts(&machine) {
        return;
    }
    for _ in 0..5 {
        machine.alloc(Request::default().node(NodeId::new(1))).unwrap();
    }
    assert_eq!(events(&machine, 1), [5, 0, 0, 0, 5, 0]);
    for node in [0, 1, 0, 1] {
        machine.alloc(Request::default().interleaved(NodeId::new(node))).unwrap();
    }
    assert_eq!(events(&machine, 0), [2, 0, 0, 2, 0, 2]);
    assert_eq!(events(&machine, 1), [7, 0, 0, 0, 7, 2]);
}

fn what_overflows_is_a_miss_here_and_foreign_there<D: Design<TestPlatform>>() {
    let machine =
        machine::<D>(&[range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)], &[0, 1]);
    if !counts(&machine) {
        return;
    }
    // Node 0 has been used up by somebody; 3 frames more come from node 1.
    let own = Request::default().node(NodeId::new(0)).only_node();
    while machine.alloc(own).is_ok() {}
    let before = events(&machine, 0);
    assert_eq!(before, [FRAMES, 0, 0, FRAMES, 0, 0]);
    for _ in 0..3 {
        machine.alloc(Request::default()).unwrap();
    }
    let mut bulk = [Pfn::default(); 4];
    assert_eq!(machine.alloc_bulk(Request::default(), &mut bulk), Ok(4));
    assert_eq!(events(&machine, 0), [FRAMES, 0, 7, FRAMES, 0, 0]);
    assert_eq!(events(&machine, 1), [0, 7, 0, 0, 7, 0]);
    // Interleaving chose node 0, and did not get it.
    machine.alloc(Request::default().interleaved(NodeId::new(0))).unwrap();
    assert_eq!(events(&machine, 1), [0, 8, 0, 0, 8, 0]);
    // CPU 1 asks for node 0 and gets what is local to itself.
    run_on(1);
    machine.alloc(Request::default().node(NodeId::new(0))).unwrap();
    assert_eq!(events(&machine, 0), [FRAMES, 0, 9, FRAMES, 0, 0]);
    assert_eq!(events(&machine, 1), [0, 9, 0, 1, 8, 0]);
}

fn a_cpu_without_memory_hits_its_nearest_node<D: Design<TestPlatform>>() {
    // CPU 0 is near node 1, which has no memory but what is movable.
    let ranges = [range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Movable)];
    let machine = machine::<D>(&ranges, &[1, 0]);
    if !counts(&machine) {
        return;
    }
    let kernel = Request::default().migratetype(MigrateType::Unmovable);
    machine.alloc(kernel).unwrap();
    // The best zone for it is on node 0: what it prefers, and yet remote.
    assert_eq!(events(&machine, 0), [1, 0, 0, 0, 1, 0]);
    machine.alloc(Request::default()).unwrap();
    assert_eq!(events(&machine, 1), [1, 0, 0, 1, 0, 0]);
}

fn zones_of_one_node_are_one_place<D: Design<TestPlatform>>() {
    let ranges = [range(0, 0, ZoneKind::Dma32), range(1, 0, ZoneKind::Normal)];
    let machine = machine::<D>(&ranges, &[0]);
    if !counts(&machine) {
        return;
    }
    while machine.alloc(Request::default().watermark(Watermark::Ignore)).is_ok() {}
    // The zone for devices is the second choice, but on the node that was wanted.
    assert_eq!(events(&machine, 0), [FRAMES, 0, 0, FRAMES, 0, 0]);
    assert_eq!(events(&machine, 1), [FRAMES, 0, 0, FRAMES, 0, 0]);
}

test_designs!(TestPlatform: [
    at_home_everything_is_a_hit,
    a_wish_for_another_node_is_a_hit_there_but_not_local,
    what_overflows_is_a_miss_here_and_foreign_there,
    a_cpu_without_memory_hits_its_nearest_node,
    zones_of_one_node_are_one_place,
]);

//! Where frames came from and where they were wanted, on hand-made machines.

use crate::common::{TestPlatform, run_on};
use crate::machine::Machine;
use freehold::designs::Design;
use freehold::{
    Config, FrameCount, Immovable, MemoryRange, MigrateType, NodeId, NumaEvents, Order, Pfn,
    RangeRequest, Request, Watermark, ZoneKind,
};

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
    let config = Config::new(ranges, &cpus).min_free(FrameCount::ZERO);
    Machine::new(TestPlatform, &config, &D::Settings::default())
}

/// Hit, miss, foreign, local, other and interleave hit of a zone, in frames.
fn events<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>, zone: usize) -> [u64; 6] {
    let NumaEvents { hit, miss, foreign, local, other, interleave_hit } =
        machine.numa_events(zone).expect("there is such a zone");
    [hit, miss, foreign, local, other, interleave_hit].map(FrameCount::get)
}

fn at_home_everything_is_a_hit<D: Design<TestPlatform>>() {
    let machine =
        machine::<D>(&[range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)], &[0, 1]);
    run_on(1);
    let frames: Vec<_> = (0..10).map(|_| machine.alloc(Request::default()).unwrap()).collect();
    let block = machine.alloc(Request::new(Order::new(4))).unwrap();
    let mut bulk = [Pfn::default(); 20];
    assert_eq!(machine.alloc_bulk(Request::default(), &mut bulk), Ok(20));
    assert_eq!(events(&machine, 1), [46, 0, 0, 46, 0, 0]);
    // Which CPU frees them makes no difference.
    run_on(0);
    machine.free_bulk(&bulk, Order::ZERO).unwrap();
    machine.free_bulk(&frames, Order::ZERO).unwrap();
    machine.free(block, Order::new(4)).unwrap();
    machine.drain_all();
    assert_eq!(events(&machine, 1), [46, 0, 0, 46, 0, 0]);
    assert_eq!(events(&machine, 0), [0; 6]);
    assert_eq!(machine.numa_events(2), None);
}

fn a_wish_for_another_node_is_a_hit_there_but_not_local<D: Design<TestPlatform>>() {
    let machine =
        machine::<D>(&[range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)], &[0, 1]);
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
    // Node 0 has been used up; 3 more frames come from node 1.
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
    // CPU 0 is near node 1, which has only movable memory.
    let ranges = [range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Movable)];
    let machine = machine::<D>(&ranges, &[1, 0]);
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
    while machine.alloc(Request::default().watermark(Watermark::Ignore)).is_ok() {}
    // The zone for devices is the second choice, but on the preferred node.
    assert_eq!(events(&machine, 0), [FRAMES, 0, 0, FRAMES, 0, 0]);
    assert_eq!(events(&machine, 1), [FRAMES, 0, 0, FRAMES, 0, 0]);
}

fn whole_pageblocks_and_ranges_count_every_frame<D: Design<TestPlatform>>() {
    let machine =
        machine::<D>(&[range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)], &[0, 1]);
    let of_300 = RangeRequest::new(FrameCount::new(300));
    // The owner refuses to move it; a move would count as well.
    let request = Request::new(Order::PAGEBLOCK).migratetype(MigrateType::Unmovable);
    let block = machine.alloc(request).unwrap();
    machine.alloc_range(of_300, &Immovable).unwrap();
    assert_eq!(events(&machine, 0), [812, 0, 0, 812, 0, 0]);
    // Node 0 has no room for another one, nor for another range.
    let other = machine.alloc(request).unwrap();
    machine.alloc_range(of_300, &Immovable).unwrap();
    assert_eq!(events(&machine, 0), [812, 0, 812, 812, 0, 0]);
    assert_eq!(events(&machine, 1), [0, 812, 0, 0, 812, 0]);
    // A pageblock that was just freed is allocated again.
    for pfn in [block, other] {
        machine.free(pfn, Order::PAGEBLOCK).unwrap();
    }
    run_on(1);
    machine.alloc(request).unwrap();
    machine.alloc(request.interleaved(NodeId::new(0))).unwrap();
    assert_eq!(events(&machine, 0), [1324, 0, 812, 812, 512, 512]);
    assert_eq!(events(&machine, 1), [512, 812, 0, 512, 812, 0]);
    let allocated = machine.events().allocated;
    assert_eq!(allocated.get(), 1324 + 1324);
}

fn below_the_low_watermark_they_count_as_well<D: Design<TestPlatform>>() {
    run_on(0);
    let ranges = [range(0, 0, ZoneKind::Normal), range(1, 1, ZoneKind::Normal)];
    let cpus = [NodeId::new(0), NodeId::new(1)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(400));
    let machine = Machine::<_, D>::new(TestPlatform, &config, &D::Settings::default());
    // Each zone serves this down to its minimum, 200, and in different ways on the way there.
    let here = Request::default().node(NodeId::new(0)).only_node();
    let mut taken = 0;
    while machine.alloc(here).is_ok() {
        taken += 1;
    }
    let urgent = here.watermark(Watermark::Ignore);
    while machine.alloc(urgent).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, FRAMES);
    assert_eq!(events(&machine, 0), [FRAMES, 0, 0, FRAMES, 0, 0]);
    // Requests that would have been content with node 0 go elsewhere, as deep.
    let urgent = Request::default().watermark(Watermark::Ignore);
    (0..FRAMES).for_each(|_| assert!(machine.alloc(urgent).is_ok()));
    assert_eq!(events(&machine, 0), [FRAMES, 0, FRAMES, FRAMES, 0, 0]);
    assert_eq!(events(&machine, 1), [0, FRAMES, 0, 0, FRAMES, 0]);
    assert!(machine.alloc(urgent).is_err());
}

test_designs!(TestPlatform: [
    whole_pageblocks_and_ranges_count_every_frame,
    below_the_low_watermark_they_count_as_well,
    at_home_everything_is_a_hit,
    a_wish_for_another_node_is_a_hit_there_but_not_local,
    what_overflows_is_a_miss_here_and_foreign_there,
    a_cpu_without_memory_hits_its_nearest_node,
    zones_of_one_node_are_one_place,
]);

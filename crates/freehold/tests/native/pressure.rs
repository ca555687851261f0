//! Low memory and out of memory: which requests get the last frames, from where, and what is left.

use crate::common::{TestPlatform, run_on};
use crate::designs::{fixed, is_lazy, uses_up_first, variants};
use crate::machine::Machine;
use crate::naive::Naive;
use freehold::designs::Design;
use freehold::{
    Config, CpuId, Error, FrameCount, MemoryRange, MigrateType, NodeId, Order, Pfn, Request,
    Watermark, ZoneKind, ZoneStats,
};

fn range(start: u64, frames: u64, node: u16, zone: ZoneKind) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(frames))
        .on_node(NodeId::new(node))
        .in_zone(zone)
}

/// A machine with one CPU near each of `cpu_nodes`.
fn machine<D: Design<TestPlatform>>(
    ranges: &[MemoryRange],
    cpu_nodes: &[u16],
    min_free: u64,
    settings: &D::Settings,
) -> Machine<TestPlatform, D> {
    let cpus: Vec<_> = cpu_nodes.iter().copied().map(NodeId::new).collect();
    let min_free = Some(FrameCount::new(min_free));
    Machine::new(TestPlatform, &Config::new(ranges, &cpus).min_free(min_free), settings)
}

fn zone<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>, nth: usize) -> ZoneStats {
    machine.zones().nth(nth).expect("there is such a zone")
}

/// Allocates until that fails.
fn exhaust<D: Design<TestPlatform>>(
    machine: &Machine<TestPlatform, D>,
    request: Request,
) -> (Vec<Pfn>, Error) {
    let mut blocks = vec![];
    loop {
        match machine.alloc(request) {
            Ok(block) => blocks.push(block),
            Err(error) => return (blocks, error),
        }
    }
}

fn free_all<D: Design<TestPlatform>>(
    machine: &Machine<TestPlatform, D>,
    blocks: &[Pfn],
    order: Order,
) {
    for &block in blocks {
        machine.free(block, order).expect("the block is held");
    }
}

/// Checks that 4096 frames are free and merged, unless the design is lazy.
fn check_merged<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>) {
    let zone = zone(machine, 0);
    assert_eq!(zone.free.get(), 4096);
    assert!(is_lazy(D::NAME) || zone.free_blocks[10] == 4, "all merged");
}

const CLASSES: [Watermark; 6] = [
    Watermark::High,
    Watermark::Low,
    Watermark::Min,
    Watermark::MinHalf,
    Watermark::Atomic,
    Watermark::Ignore,
];

/// Lists that move one frame at a time, so that levels are exact to the frame.
fn single<D: Design<TestPlatform>>() -> D::Settings {
    fixed(&D::Settings::default(), 1, 1)
}

/// Lists of every kind, with every own setting of this design.
fn all_kinds<D: Design<TestPlatform>>() -> impl Iterator<Item = D::Settings> {
    let kinds = |own| [fixed(&own, 1, 1), fixed(&own, 31, 186), own];
    variants::<D::Settings>().into_iter().flat_map(kinds)
}

fn everything_is_handed_out_to_those_who_may_ignore_the_marks<D: Design<TestPlatform>>() {
    let ranges = [
        range(0, 1000, 0, ZoneKind::Dma32),
        range(1024, 2000, 0, ZoneKind::Normal),
        range(4096 + 3, 1500, 1, ZoneKind::Normal),
        range(8192, 700, 1, ZoneKind::Movable),
    ];
    for settings in all_kinds::<D>() {
        for min_free in [0, 300] {
            let cpus = [0, 1, 0];
            let machine = machine::<D>(&ranges, &cpus, min_free, &settings);
            let nodes: Vec<_> = cpus.iter().copied().map(NodeId::new).collect();
            let model = Naive::new(&Config::new(&ranges, &nodes));
            for cpu in 0..3 {
                run_on(cpu);
                let request = Request::default().watermark(Watermark::Ignore);
                let (mut blocks, error) = exhaust(&machine, request);
                assert_eq!((blocks.len(), error), (5200, Error::OutOfMemory));
                blocks.sort();
                blocks.dedup();
                assert_eq!(blocks.len(), 5200, "every frame once");
                free_all(&machine, &blocks, Order::ZERO);
            }
            machine.drain_all();
            model.check_merged(&machine);
            machine.validate().expect("the books are right");
        }
    }
}

fn without_reserves_an_ordinary_request_gets_everything_too<D: Design<TestPlatform>>() {
    for settings in all_kinds::<D>() {
        for order in [0, 1, 3, 6, 9, 10] {
            let machine =
                machine::<D>(&[range(1024, 4096, 0, ZoneKind::Normal)], &[0], 0, &settings);
            run_on(0);
            let (blocks, error) = exhaust(&machine, Request::new(Order::new(order)));
            assert_eq!((blocks.len(), error), (4096 >> order, Error::OutOfMemory));
            free_all(&machine, &blocks, Order::new(order));
            machine.drain_all();
            check_merged(&machine);
        }
    }
}

/// One zone of 4096 frames: min is all of `min_free`, 400; the gap is a quarter of that.
fn marked<D: Design<TestPlatform>>() -> Machine<TestPlatform, D> {
    run_on(0);
    let machine = machine::<D>(&[range(0, 4096, 0, ZoneKind::Normal)], &[0], 400, &single::<D>());
    let marks = zone(&machine, 0).marks;
    assert_eq!([marks.min, marks.low, marks.high].map(FrameCount::get), [400, 500, 600]);
    assert_eq!(marks.lowmem_reserve, [FrameCount::ZERO; 4]);
    machine
}

fn each_class_stops_at_its_mark<D: Design<TestPlatform>>() {
    for (class, left) in CLASSES.into_iter().zip([600, 500, 400, 200, 150, 0]) {
        let machine = marked::<D>();
        let (blocks, error) = exhaust(&machine, Request::default().watermark(class));
        assert_eq!(blocks.len(), 4096 - left, "{class:?}");
        let expected = if left == 0 { Error::OutOfMemory } else { Error::BelowWatermark };
        assert_eq!(error, expected, "{class:?}");
        machine.validate().expect("the books are right");
    }
}

fn a_block_may_not_take_the_level_below_the_mark<D: Design<TestPlatform>>() {
    // 150 is not a multiple of 8: the last block would go below it.
    for (class, left) in CLASSES.into_iter().zip([600, 504, 400, 200, 152, 0]) {
        let machine = marked::<D>();
        let request = Request::new(Order::new(3)).watermark(class);
        assert_eq!(exhaust(&machine, request).0.len() as u64, (4096 - left) / 8, "{class:?}");
        assert_eq!(zone(&machine, 0).free.get(), left, "{class:?}");
    }
}

fn the_urgent_go_on_where_others_stop<D: Design<TestPlatform>>() {
    let machine = marked::<D>();
    let taken = CLASSES.map(|class| exhaust(&machine, Request::default().watermark(class)).0.len());
    assert_eq!(taken, [3496, 100, 100, 200, 50, 150]);
}

fn a_bulk_stops_at_the_mark_as_single_requests_do<D: Design<TestPlatform>>() {
    for order in [0, 1, 3] {
        let machine = marked::<D>();
        let mut out = [Pfn::default(); 4096];
        let count = machine.alloc_bulk(Request::new(Order::new(order)), &mut out);
        assert_eq!(count, Ok((4096 - 400) >> order), "order {order}");
        assert_eq!(zone(&machine, 0).free.get(), 400, "order {order}");
    }
}

fn lists_of_cpus_may_hold_at_most_one_refill_of_the_reserve<D: Design<TestPlatform>>() {
    // A refill checks the mark once, as in Linux, and then takes its batch.
    let machine = machine::<D>(
        &[range(0, 4096, 0, ZoneKind::Normal)],
        &[0],
        400,
        &fixed(&D::Settings::default(), 31, 186),
    );
    run_on(0);
    while machine.alloc(Request::default()).is_ok() {
        assert!(zone(&machine, 0).free.get() + 30 >= 400);
    }
    let stats = zone(&machine, 0);
    assert!(stats.free.get() <= 400 && stats.per_cpu == FrameCount::ZERO);
}

fn recovery_is_immediate<D: Design<TestPlatform>>() {
    let machine = marked::<D>();
    let (mut blocks, _) = exhaust(&machine, Request::default());
    blocks.sort();
    for nth in [0, 1, 1000, 3695] {
        machine.free(blocks[nth], Order::ZERO).expect("it is held");
        blocks[nth] = machine.alloc(Request::default()).expect("a frame came back");
        assert_eq!(machine.alloc(Request::default()), Err(Error::BelowWatermark));
    }
    free_all(&machine, &blocks, Order::ZERO);
    machine.drain_all();
    check_merged(&machine);
    machine.validate().expect("the books are right");
}

fn lowmem_stays_for_those_who_can_use_nothing_else<D: Design<TestPlatform>>() {
    // For each 256 frames above it, one frame of DMA32 memory is kept: 100.
    let ranges = [range(0, 1024, 0, ZoneKind::Dma32), range(1024, 25_600, 0, ZoneKind::Normal)];
    let machine = machine::<D>(&ranges, &[0], 0, &single::<D>());
    run_on(0);
    let reserve = zone(&machine, 0).marks.lowmem_reserve.map(FrameCount::get);
    assert_eq!(reserve, [0, 0, 100, 100]);
    let (blocks, error) = exhaust(&machine, Request::default());
    assert_eq!((blocks.len(), error), (25_600 + 924, Error::BelowWatermark));
    // The ordinary zone first, then the unreserved part of the other.
    assert!(blocks[..25_600].iter().all(|block| block.get() >= 1024));
    let (blocks, error) = exhaust(&machine, Request::default().zone_limit(ZoneKind::Dma32));
    assert_eq!((blocks.len(), error), (100, Error::OutOfMemory));
}

fn ordinary_memory_is_kept_from_those_who_can_use_movable_memory<D: Design<TestPlatform>>() {
    // One frame is kept for each 32 of the movable zone: 64.
    let ranges = [range(0, 1024, 0, ZoneKind::Normal), range(1024, 2048, 0, ZoneKind::Movable)];
    let machine = machine::<D>(&ranges, &[0], 0, &single::<D>());
    run_on(0);
    let (blocks, error) = exhaust(&machine, Request::default());
    assert_eq!((blocks.len(), error), (2048 + 1024 - 64, Error::BelowWatermark));
    let unmovable = Request::default().migratetype(MigrateType::Unmovable);
    assert_eq!(exhaust(&machine, unmovable).0.len(), 64);
}

fn content_that_cannot_move_never_comes_to_a_movable_zone<D: Design<TestPlatform>>() {
    let ranges = [range(0, 512, 0, ZoneKind::Normal), range(512, 512, 0, ZoneKind::Movable)];
    for migratetype in [MigrateType::Unmovable, MigrateType::Reclaimable] {
        let machine = machine::<D>(&ranges, &[0], 0, &D::Settings::default());
        run_on(0);
        let (blocks, error) = exhaust(&machine, Request::default().migratetype(migratetype));
        assert_eq!((blocks.len(), error), (512, Error::OutOfMemory));
        assert!(blocks.iter().all(|block| block.get() < 512));
    }
}

fn another_node_is_used_before_the_low_mark_is_passed<D: Design<TestPlatform>>() {
    // Each node has min 200, low 250.
    let ranges = [range(0, 2048, 0, ZoneKind::Normal), range(2048, 2048, 1, ZoneKind::Normal)];
    let machine = machine::<D>(&ranges, &[0, 1], 400, &single::<D>());
    run_on(0);
    let (blocks, error) = exhaust(&machine, Request::default());
    assert_eq!(error, Error::BelowWatermark);
    let nodes: Vec<_> = blocks.chunk_by(|a, b| a.get() / 2048 == b.get() / 2048).collect();
    let runs: Vec<_> = nodes.iter().map(|run| (run[0].get() / 2048, run.len())).collect();
    assert_eq!(runs, [(0, 1798), (1, 1798), (0, 50), (1, 50)]);
}

fn a_request_for_one_node_leaves_the_others_alone<D: Design<TestPlatform>>() {
    let ranges = [range(0, 512, 0, ZoneKind::Normal), range(512, 512, 1, ZoneKind::Normal)];
    let machine = machine::<D>(&ranges, &[0, 1], 0, &single::<D>());
    run_on(0);
    let request = Request::default().node(NodeId::new(1)).only_node();
    let (blocks, error) = exhaust(&machine, request);
    assert_eq!((blocks.len(), error), (512, Error::OutOfMemory));
    assert!(blocks.iter().all(|block| block.get() >= 512));
    assert_eq!(zone(&machine, 0).free.get(), 512);
}

fn a_request_for_its_own_node_leaves_the_others_alone<D: Design<TestPlatform>>() {
    let ranges = [range(0, 512, 0, ZoneKind::Normal), range(512, 512, 1, ZoneKind::Normal)];
    let machine = machine::<D>(&ranges, &[0, 1], 0, &single::<D>());
    run_on(1);
    let (blocks, error) = exhaust(&machine, Request::default().only_node());
    assert_eq!((blocks.len(), error), (512, Error::OutOfMemory));
    assert!(blocks.iter().all(|block| block.get() >= 512));
}

fn nodes_come_in_the_order_of_their_distance<D: Design<TestPlatform>>() {
    let ranges: Vec<_> =
        (0..4).map(|node| range(u64::from(node) * 512, 512, node, ZoneKind::Normal)).collect();
    let distances = [
        [10, 20, 30, 40], //
        [20, 10, 21, 21],
        [15, 12, 10, 11],
        [30, 20, 20, 10],
    ];
    // Ties go to the next node in the ring: 1 prefers 2 to 3, and 3 prefers 1 to 2.
    let expected = [[0, 1, 2, 3], [1, 0, 2, 3], [2, 3, 1, 0], [3, 1, 2, 0]];
    let cpus = [0, 1, 2, 3].map(NodeId::new);
    for (cpu, expected) in expected.into_iter().enumerate() {
        let distances = distances.concat();
        let min_free = Some(FrameCount::ZERO);
        let config = Config::new(&ranges, &cpus).distances(&distances).min_free(min_free);
        let machine = Machine::<_, D>::new(TestPlatform, &config, &single::<D>());
        run_on(cpu as u32);
        let (blocks, _) = exhaust(&machine, Request::default());
        let nodes: Vec<_> = blocks.chunks(512).map(|run| run[0].get() / 512).collect();
        assert_eq!(nodes, expected, "from node {cpu}");
        assert!(
            blocks.chunks(512).all(|run| run.iter().all(|b| b.get() / 512 == run[0].get() / 512))
        );
    }
}

fn frames_that_other_cpus_keep_are_found<D: Design<TestPlatform>>() {
    let kinds = |own| [fixed(&own, 64, 1024), own];
    for settings in variants::<D::Settings>().into_iter().flat_map(kinds) {
        for (order, expected) in [(0, 1024), (9, 2), (10, 1)] {
            let machine =
                machine::<D>(&[range(0, 1024, 0, ZoneKind::Normal)], &[0; 4], 0, &settings);
            let order = Order::new(order);
            // Each CPU takes frames, and caches what it can of them when it frees them.
            let parts: Vec<Vec<_>> = (0..4)
                .map(|cpu| {
                    run_on(cpu);
                    (0..200).map(|_| machine.alloc(Request::default()).expect("free")).collect()
                })
                .collect();
            for (cpu, part) in parts.iter().enumerate() {
                run_on(cpu as u32);
                free_all(&machine, part, Order::ZERO);
            }
            assert!(zone(&machine, 0).per_cpu > FrameCount::ZERO);
            run_on(0);
            let (blocks, error) = exhaust(&machine, Request::new(order));
            assert_eq!((blocks.len(), error), (expected, Error::OutOfMemory));
            machine.validate().expect("the books are right");
        }
    }
}

fn a_bulk_finds_the_frames_that_other_cpus_keep<D: Design<TestPlatform>>() {
    let machine = machine::<D>(
        &[range(0, 1024, 0, ZoneKind::Normal)],
        &[0; 2],
        0,
        &fixed(&D::Settings::default(), 64, 1024),
    );
    run_on(1);
    let (blocks, _) = exhaust(&machine, Request::default());
    free_all(&machine, &blocks, Order::ZERO);
    // All but a batch, or but a whole pageblock if that is the unit of return.
    assert!(zone(&machine, 0).per_cpu.get() >= 512);
    run_on(0);
    let mut out = [Pfn::default(); 1025];
    assert_eq!(machine.alloc_bulk(Request::default(), &mut out), Ok(1024));
}

fn quiet_cpus_give_back_what_they_keep_of_other_nodes<D: Design<TestPlatform>>() {
    if uses_up_first(D::NAME) {
        return; // It caches pageblocks, not frames, and returns the whole one at every tick.
    }
    let ranges = [range(0, 1024, 0, ZoneKind::Normal), range(1024, 1024, 1, ZoneKind::Normal)];
    let machine = machine::<D>(&ranges, &[0, 1], 0, &fixed(&D::Settings::default(), 8, 64));
    run_on(0);
    let far = Request::default().node(NodeId::new(1));
    let blocks: Vec<_> = (0..16).map(|_| machine.alloc(far).expect("free")).collect();
    free_all(&machine, &blocks, Order::ZERO);
    assert_eq!(zone(&machine, 1).per_cpu.get(), 16);
    // A batch of eight is returned after every third tick.
    let kept: Vec<_> = (0..6)
        .map(|_| {
            machine.tick(CpuId::new(0)).expect("there is a CPU 0");
            zone(&machine, 1).per_cpu.get()
        })
        .collect();
    assert_eq!(kept, [16, 16, 8, 8, 8, 0]);
}

test_designs!(TestPlatform: [
    everything_is_handed_out_to_those_who_may_ignore_the_marks,
    without_reserves_an_ordinary_request_gets_everything_too,
    each_class_stops_at_its_mark,
    a_block_may_not_take_the_level_below_the_mark,
    the_urgent_go_on_where_others_stop,
    a_bulk_stops_at_the_mark_as_single_requests_do,
    lists_of_cpus_may_hold_at_most_one_refill_of_the_reserve,
    recovery_is_immediate,
    lowmem_stays_for_those_who_can_use_nothing_else,
    ordinary_memory_is_kept_from_those_who_can_use_movable_memory,
    content_that_cannot_move_never_comes_to_a_movable_zone,
    another_node_is_used_before_the_low_mark_is_passed,
    a_request_for_one_node_leaves_the_others_alone,
    a_request_for_its_own_node_leaves_the_others_alone,
    nodes_come_in_the_order_of_their_distance,
    frames_that_other_cpus_keep_are_found,
    a_bulk_finds_the_frames_that_other_cpus_keep,
    quiet_cpus_give_back_what_they_keep_of_other_nodes,
]);

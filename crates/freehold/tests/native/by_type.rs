//! Free blocks by type, as counted without a lock.

use crate::common::{TestPlatform, run_on};
use crate::machine::Machine;
use freehold::designs::Design;
use freehold::{Config, FrameCount, FreeByType, MemoryRange, MigrateType, NodeId, Order, Pfn};
use freehold::{Request, ZoneKind};

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const FRAMES: u64 = 16 * PAGEBLOCK;
const HALF: u64 = PAGEBLOCK / 2;

/// Two zones, the second one with half a pageblock at its end.
fn machine<D: Design<TestPlatform>>() -> Machine<TestPlatform, D> {
    run_on(0);
    let ranges = [
        MemoryRange::new(Pfn::new(PAGEBLOCK), FrameCount::new(FRAMES)),
        MemoryRange::new(Pfn::new(PAGEBLOCK + FRAMES), FrameCount::new(FRAMES + HALF))
            .in_zone(ZoneKind::Movable),
    ];
    let cpus = [NodeId::new(0); 2];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    Machine::new(TestPlatform, &config, &D::Settings::default())
}

fn of_zone<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>, zone: usize) -> FreeByType {
    machine.free_by_type(zone).expect("there is such a zone")
}

fn frames_of(blocks: &[u64]) -> u64 {
    blocks.iter().enumerate().map(|(order, count)| count << order).sum()
}

fn at_first_all_is_movable_and_in_the_largest_blocks<D: Design<TestPlatform>>() {
    let machine = machine::<D>();
    // The zone begins with the upper half of a block of the largest order.
    let FreeByType { blocks, pageblocks } = of_zone(&machine, 0);
    let [unmovable, movable, reclaimable] = blocks;
    assert_eq!((frames_of(&unmovable), frames_of(&reclaimable)), (0, 0));
    let largest = Order::BUDDY_MAX.frames().get();
    let inside = (PAGEBLOCK + FRAMES) / largest - PAGEBLOCK.div_ceil(largest);
    assert_eq!((movable[Order::BUDDY_MAX.index()], pageblocks), (inside, [0, 16, 0]));
    assert_eq!(frames_of(&movable), FRAMES);
    // And this one ends with half a pageblock.
    let half = Order::PAGEBLOCK.index() - 1;
    assert_eq!(of_zone(&machine, 1).blocks[MigrateType::Movable.index()][half], 1);
}

fn a_type_has_what_it_was_given_and_does_not_use<D: Design<TestPlatform>>() {
    let machine = machine::<D>();
    // A pageblock or more for each of these types; movable content is in the other zone.
    for migratetype in MigrateType::ALL {
        machine.alloc(Request::default().migratetype(migratetype)).unwrap();
    }
    machine.drain_all();
    let FreeByType { blocks, pageblocks } = of_zone(&machine, 0);
    for of in MigrateType::ALL {
        let taken = if of == MigrateType::Movable { 0 } else { 1 };
        assert!((1..16).contains(&pageblocks[of.index()]), "{of:?}: {pageblocks:?}");
        assert_eq!(
            frames_of(&blocks[of.index()]),
            pageblocks[of.index()] * PAGEBLOCK - taken,
            "{of:?}"
        );
    }
    let movable = of_zone(&machine, 1).blocks[MigrateType::Movable.index()];
    assert_eq!(frames_of(&movable), FRAMES + HALF - 1);
}

test_designs!(TestPlatform: [
    at_first_all_is_movable_and_in_the_largest_blocks,
    a_type_has_what_it_was_given_and_does_not_use,
]);

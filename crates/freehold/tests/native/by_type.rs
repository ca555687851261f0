//! Free blocks by type, as counted without a lock.

use crate::common::TestPlatform;
use crate::random::Random;
use crate::tested::{TestDesign, Tested, build, range};
use freehold::{FreeByType, MigrateType, Order, Request, Watermark, ZoneKind};

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const FRAMES: u64 = 16 * PAGEBLOCK;
const ORDERS: usize = Order::PAGEBLOCK.index() + 1;
const HALF: u64 = PAGEBLOCK / 2;

/// Two zones, the second one with half a pageblock at its end.
fn machine<D: TestDesign>() -> Tested<D> {
    let second = range(PAGEBLOCK + FRAMES, FRAMES + HALF).in_zone(ZoneKind::Movable);
    build(&[range(PAGEBLOCK, FRAMES), second], &[0, 0], 0)
}

fn of_zone<D: TestDesign>(machine: &Tested<D>, zone: usize) -> FreeByType {
    machine.free_by_type(zone).expect("there is such a zone")
}

fn frames_of(blocks: &[u64]) -> u64 {
    blocks.iter().enumerate().map(|(order, count)| count << order).sum()
}

fn at_first_all_is_movable_and_in_the_largest_blocks<D: TestDesign>() {
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

fn a_type_has_what_it_was_given_and_does_not_use<D: TestDesign>() {
    let machine = machine::<D>();
    // A pageblock or more for each of these types; movable content is in the other zone.
    for migratetype in MigrateType::ALL {
        machine.alloc(Request::default().migratetype(migratetype)).unwrap();
    }
    machine.drain_all();
    let FreeByType { blocks, pageblocks } = of_zone(&machine, 0);
    if D::NAME == "llfree" {
        // All that is free is for any type.
        assert_eq!(pageblocks, [0, 16, 0]);
        assert_eq!(blocks.map(|of| frames_of(&of)), [0, FRAMES - 2, 0]);
        return;
    }
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

/// Asks for blocks of each order from one frame free to all, in random turns: there is one exactly
/// if it can be allocated, also if only a CPU has it.
fn a_block_is_there_if_it_can_be_had<D: TestDesign>() {
    let (machine, mut random) = (machine::<D>(), Random(3));
    let any = Request::default().watermark(Watermark::Ignore);
    let mut held: Vec<_> = std::iter::from_fn(|| machine.alloc(any).ok()).collect();
    assert_eq!(held.len() as u64, 2 * FRAMES + HALF);
    let (mut there, mut missing) = ([0; ORDERS], [0; ORDERS]);
    while !held.is_empty() {
        // Runs become longer when neighbours are freed together.
        let first = random.below(held.len()) & !63;
        for _ in 0..random.below(64).min(held.len() - first) {
            machine.free(held.remove(first), Order::ZERO).unwrap();
        }
        for order in 0..=Order::PAGEBLOCK.get() {
            // The others do not look into per-CPU lists.
            if D::NAME != "freehold" {
                machine.drain_all();
            }
            let has = machine.has_block(Order::new(order));
            let got = machine.alloc(any.with_order(Order::new(order)));
            // This one merges when it has to.
            let may_miss = D::NAME == "lazy-merge" && got.is_ok();
            assert!(has == got.is_ok() || may_miss, "order {order}, {} in use", held.len());
            let count = if has { &mut there } else { &mut missing };
            count[usize::from(order)] += 1;
            got.into_iter().for_each(|pfn| machine.free(pfn, Order::new(order)).unwrap());
        }
    }
    let both = |order: usize| there[order] > 0 && missing[order] > 0;
    assert!((4..=usize::from(Order::PAGEBLOCK.get())).all(both), "{there:?} {missing:?}");
}

test_designs!(TestPlatform: [
    a_block_is_there_if_it_can_be_had,
    at_first_all_is_movable_and_in_the_largest_blocks,
    a_type_has_what_it_was_given_and_does_not_use,
]);

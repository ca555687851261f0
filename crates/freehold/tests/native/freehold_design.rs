//! What the design `freehold` alone promises: the size of its metadata, blocks up to a GiB, frames
//! picked at random, and what it does when it falls back.

use std::collections::HashSet;

use crate::common::{TestPlatform, run_on};
use crate::tested::{Tested, build_as, check_whole, range};
use freehold::MigrateType::{Movable, Reclaimable, Unmovable};
use freehold::designs::{Design, DoubleFree, Freehold, FreeholdSettings, Pick};
use freehold::{Config, CpuId, Error, MemoryRange, NodeId, Order, PageAllocator, Pfn, Request};

type Design1 = Freehold<TestPlatform>;
type Frames = Tested<Design1>;

const PAGEBLOCK: u64 = 512;
const GIB: u64 = 1 << 18;

fn machine(ranges: &[MemoryRange], cpus: usize, settings: FreeholdSettings) -> Frames {
    build_as(ranges, &vec![0; cpus], 0, &settings)
}

#[test]
fn a_frame_costs_less_than_half_a_byte() {
    let nodes = [0, 1].map(|node| range(node * 512 * GIB, 512 * GIB));
    let nodes = [nodes[0], nodes[1].on_node(NodeId::new(1))];
    for (cpus, ranges, limit) in [(1, &nodes[..1], 0.445), (112, &nodes, 0.445), (448, &nodes, 0.5)]
    {
        let cpus: Vec<_> = (0..cpus).map(|cpu| NodeId::new(cpu % 2)).collect();
        let config = Config::new(ranges, &cpus);
        let layout = PageAllocator::<TestPlatform, Design1>::layout(&config, &Default::default());
        let frames: u64 = ranges.iter().map(|range| range.frames.get()).sum();
        let bytes = layout.unwrap().size() as f64 / frames as f64;
        assert!(bytes < limit, "{bytes} bytes a frame");
    }
}

#[test]
fn blocks_of_all_orders_lie_where_they_are_aligned() {
    // The first pageblocks are missing, so that nothing is aligned at the start.
    let frames = machine(&[range(3 * PAGEBLOCK, 3 * GIB)], 1, Default::default());
    for order in (9..=18).map(Order::new) {
        let mut got = HashSet::new();
        while let Ok(pfn) = frames.alloc(Request::new(order)) {
            assert!(pfn.is_aligned(order) && got.insert(pfn));
        }
        let size = order.frames().get();
        let aligned = (3 * GIB + 3 * PAGEBLOCK) / size - (3 * PAGEBLOCK).div_ceil(size);
        assert_eq!(got.len() as u64, aligned, "{order}");
        frames.validate().expect("the accounting is right");
        for pfn in got {
            assert!(frames.free(pfn, Order::new(order.get() + 1)).is_err());
            frames.free(pfn, order).unwrap();
            assert_eq!(frames.free(pfn, order), Err(Error::DoubleFree));
        }
        check_whole(&frames);
    }
    assert_eq!(Design1::ORDER_MAX, Order::new(18));
}

#[test]
fn a_gib_is_freed_in_parts_of_any_size() {
    let frames = machine(&[range(0, 2 * GIB)], 1, Default::default());
    let order = Order::new(18);
    for part in (0..18).map(Order::new) {
        let block = frames.alloc(Request::new(order)).unwrap();
        let size = part.frames().get();
        let at = Pfn::new(block.get() + (GIB / size / 3) * size);
        frames.free(at, part).unwrap();
        frames.validate().expect("the accounting is right");
        assert_eq!(frames.free(at, part), Err(Error::DoubleFree));
        assert!(frames.free(block, order).is_err(), "a part of it is free");
        // The rest, from both ends towards the part, in the largest blocks that are left.
        for half in (part.get()..18).rev().map(Order::new) {
            let half_size = half.frames().get();
            let other = ((at.get() / half_size) ^ 1) * half_size;
            frames.free(Pfn::new(other), half).unwrap();
        }
        check_whole(&frames);
    }
}

#[test]
fn parts_of_a_large_block_are_freed_by_many_at_the_same_time() {
    let frames = machine(&[range(0, 64 * PAGEBLOCK)], 4, Default::default());
    let order = Order::new(13);
    for round in 0..60 {
        let block = frames.alloc(Request::new(order)).unwrap();
        // Pageblocks and more, half of one, and a few words of one.
        let part = Order::new([10, 9, 8, 7][round % 4]);
        std::thread::scope(|scope| {
            for cpu in 0..4 {
                let frames = &frames;
                scope.spawn(move || {
                    run_on(cpu);
                    for nth in (u64::from(cpu)..1 << (order.get() - part.get())).step_by(4) {
                        let pfn = Pfn::new(block.get() + nth * part.frames().get());
                        frames.free(pfn, part).expect("it is held");
                    }
                });
            }
        });
        check_whole(&frames);
    }
}

#[test]
fn frames_are_picked_at_random_if_one_wants_that() {
    let settings = FreeholdSettings { pick: Pick::Random, ..Default::default() };
    let order_of = |settings| {
        let frames = machine(&[range(0, 4096)], 1, settings);
        let got: Vec<_> = (0..64).map(|_| frames.alloc(Request::default()).unwrap()).collect();
        for &pfn in &got {
            frames.free(pfn, Order::ZERO).unwrap();
        }
        check_whole(&frames);
        got
    };
    let (lowest, random) = (order_of(Default::default()), order_of(settings));
    assert!(lowest.is_sorted_by(|a, b| a.get() + 1 == b.get()));
    let mut sorted = random.clone();
    sorted.sort();
    assert_eq!(sorted, lowest, "the same word of 64");
    let ascending = random.windows(2).filter(|pair| pair[0].get() + 1 == pair[1].get()).count();
    assert!(ascending < 32, "{ascending} of 63 neighbours follow each other");
}

#[test]
fn exact_frees_serve_every_way_to_get_frames() {
    let exact = FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() };
    for pick in [Pick::Lowest, Pick::Random] {
        let frames = machine(&[range(0, 4096)], 2, FreeholdSettings { pick, ..exact });
        let twice = |pfn, order| {
            assert_eq!(frames.free(pfn, order), Ok(()));
            assert_eq!(frames.free(pfn, order), Err(Error::DoubleFree));
        };
        for order in Order::ZERO.to(Order::new(12)) {
            let block = frames.alloc(Request::new(order)).unwrap();
            // A part, from the CPU that has it cached and from another one, and the rest.
            run_on(u32::from(order.get() % 2));
            twice(block, Order::ZERO);
            for half in Order::ZERO.to(order).take(usize::from(order.get())) {
                twice(block.offset(half.frames()), half);
            }
            run_on(0);
        }
        let single = || frames.alloc(Request::default()).unwrap();
        [single(), single()].into_iter().for_each(|pfn| twice(pfn, Order::ZERO));
        let mut out = [Pfn::default(); 100];
        assert_eq!(frames.alloc_bulk(Request::default(), &mut out), Ok(100));
        assert_eq!(frames.free_bulk(&out[..50], Order::ZERO), Ok(()));
        out[50..].iter().for_each(|&pfn| twice(pfn, Order::ZERO));
        let lease = frames.lease(CpuId::new(1)).unwrap();
        for order in Order::ZERO.to(Order::PAGEBLOCK) {
            let block = lease.alloc(Request::new(order)).unwrap();
            assert_eq!(lease.free(block, order), Ok(()));
            assert_eq!(lease.free(block, order), Err(Error::DoubleFree));
        }
        drop(lease);
        check_whole(&frames);
    }
}

#[test]
fn cpus_take_pageblocks_of_their_own_but_share_few_for_what_cannot_move() {
    let pageblocks_of = |total: u64, of| {
        let frames = machine(&[range(0, total * PAGEBLOCK)], 4, Default::default());
        let rounds = (0..400).map(|nth| nth % 4);
        let of_cpus: HashSet<_> = rounds
            .map(|cpu| {
                run_on(cpu);
                let pfn = frames.alloc(Request::default().migratetype(of)).unwrap();
                (pfn.get() / PAGEBLOCK, cpu)
            })
            .collect();
        let cached = frames.zones().next().unwrap().per_cpu;
        let used: HashSet<_> = of_cpus.iter().map(|&(pageblock, _)| pageblock).collect();
        (used.len(), of_cpus.len(), cached.get() > 0)
    };
    for total in [31, 32, 64, 128] {
        assert_eq!(pageblocks_of(total, Movable), (4, 4, true), "{total}");
    }
    // 32 for each CPU, or else CPUs share a cache. With fewer than 32, they come from an orphan.
    assert_eq!(pageblocks_of(128, Unmovable), (4, 4, true));
    assert_eq!(pageblocks_of(127, Unmovable), (1, 4, true));
    assert_eq!(pageblocks_of(64, Reclaimable), (1, 4, true));
    assert_eq!(pageblocks_of(32, Unmovable), (1, 4, true));
    assert_eq!(pageblocks_of(31, Unmovable), (1, 4, false));
}

#[test]
fn what_cannot_move_claims_pageblocks_and_other_content_steals() {
    let counts = |frames: &Frames| {
        let zone = frames.zones().next().unwrap();
        (zone.claims, zone.steals)
    };
    let cases = [
        (Movable, Unmovable, true),
        (Movable, Reclaimable, true),
        (Unmovable, Movable, false),
        (Reclaimable, Unmovable, false),
    ];
    for (of, wanted, claims) in cases {
        for free in [1, 255, 500] {
            let frames = machine(&[range(0, PAGEBLOCK)], 1, Default::default());
            let take = |of| frames.alloc(Request::default().migratetype(of));
            let all: Vec<_> = std::iter::from_fn(|| take(of).ok()).collect();
            assert_eq!(all.len() as u64, PAGEBLOCK);
            let before = counts(&frames);
            all[..free].iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
            assert_eq!((0..free).filter(|_| take(wanted).is_ok()).count(), free);
            let after = counts(&frames);
            let steals = if claims { 0 } else { free as u64 };
            assert_eq!((after.0 - before.0, after.1 - before.1), (u64::from(claims), steals));
            assert_eq!(take(wanted), Err(Error::OutOfMemory));
            frames.validate().expect("the accounting is right");
        }
    }
}

#[test]
fn of_several_pageblocks_the_emptiest_is_claimed() {
    let frames = machine(&[range(0, 8 * PAGEBLOCK)], 1, Default::default());
    let all: Vec<_> = std::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
    assert_eq!(all.len() as u64, 8 * PAGEBLOCK);
    let block = |pfn: Pfn| pfn.get() / PAGEBLOCK;
    for &pfn in &all {
        // The higher, the emptier, except the last one.
        if pfn.get() % 8 < block(pfn) && block(pfn) < 7 {
            frames.free(pfn, Order::ZERO).unwrap();
        }
    }
    frames.drain_all();
    let unmovable = Request::default().migratetype(Unmovable);
    let got: Vec<_> = (0..6 * PAGEBLOCK / 8).map(|_| frames.alloc(unmovable).unwrap()).collect();
    assert!(got.iter().all(|&pfn| block(pfn) == 6), "{got:?}");
}

#[test]
fn the_lowest_pageblocks_are_used_up_first() {
    let frames = machine(&[range(0, 16 * PAGEBLOCK)], 1, Default::default());
    let alloc = || frames.alloc(Request::default()).unwrap().get() / PAGEBLOCK;
    (0..8 * PAGEBLOCK).for_each(|_| _ = alloc());
    // The last one is active. The first one is not worth it.
    for (block, free) in [(3, 32), (6, 32), (1, 400), (0, 8), (5, 32), (2, 32), (4, 400)] {
        for nth in 0..free {
            frames.free(Pfn::new(block * PAGEBLOCK + nth), Order::ZERO).unwrap();
        }
    }
    for (block, free) in [(1, 400), (2, 32), (3, 32), (4, 400), (5, 32), (6, 32)] {
        assert!((0..free).all(|_| alloc() == block), "pageblock {block} is next");
    }
    assert_eq!(alloc(), 8, "another pageblock is begun");
}

#[test]
fn what_was_just_freed_is_handed_out_again() {
    let frames = machine(&[range(0, 64 * PAGEBLOCK)], 1, Default::default());
    let hold = |count: u64| -> Vec<Pfn> {
        (0..count).map(|_| frames.alloc(Request::default()).unwrap()).collect()
    };
    let free = |pfn: &Pfn| frames.free(*pfn, Order::ZERO).unwrap();
    let scattered = hold(60 * PAGEBLOCK);
    scattered.iter().filter(|pfn| pfn.get() % 4 != 0).for_each(free);
    let rounds = (0..20).map(|_| hold(1000)).inspect(|held| held.iter().rev().for_each(free));
    let seen: std::collections::HashSet<Pfn> = rounds.flatten().collect();
    assert!(seen.len() < 2000, "{} frames were seen", seen.len());
}

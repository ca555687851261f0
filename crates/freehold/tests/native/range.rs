//! Contiguous ranges: if one fits anywhere, it is found; otherwise nothing changes.

use std::collections::BTreeSet;

use crate::common::TestPlatform;
use crate::designs::movable_together;
use crate::owner::{Owner, check_books, settle};
use crate::random::Random;
use crate::ranges::{ask, machine, sprinkle, with};
use crate::tested::{TestDesign, frames, range};
use freehold::{Error, Immovable, NodeId, Order, Pfn, Request, ZoneKind};

test_designs!(TestPlatform: [
    ranges_of_all_sizes_and_alignments_come_from_the_lowest_frames,
    requests_that_make_no_sense_are_refused,
    ranges_leave_the_reserves_alone,
    a_range_lies_where_the_lowest_could,
    the_soonest_place_is_one_of_all,
    large_blocks_move_out_of_the_way,
    ranges_are_freed_in_parts_or_at_once_but_not_twice,
    a_range_that_is_freed_is_memory_of_one_zone,
    ranges_stay_within_a_zone_and_content_goes_to_no_higher_one,
    gigabytes,
]);

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

fn ranges_of_all_sizes_and_alignments_come_from_the_lowest_frames<D: TestDesign>() {
    const FRAMES: u64 = 8 * PAGEBLOCK;
    let machine = machine::<D>(FRAMES);
    for align in (0..=12).map(|order| 1 << order) {
        for count in [1, 2, 3, 31, 64, 511, 512, 513, 1024, 1500, 2048, 4095, 4096] {
            // One frame in the way of everything that is not near the bottom.
            let stone = machine.alloc_range(ask(1).at(Pfn::new(5)), &Immovable).unwrap();
            let lowest = if count <= 5 { 0 } else { align.max(6_u64.next_multiple_of(align)) };
            let request = ask(count).align(frames(align));
            let got = machine.alloc_range(request, &Immovable);
            if lowest + count <= FRAMES {
                assert_eq!(got, Ok(Pfn::new(lowest)), "{count} frames at a multiple of {align}");
                check_books(&*machine, count + 1);
                machine.free_range(Pfn::new(lowest), frames(count)).unwrap();
            } else {
                let error = if count == FRAMES { Error::OutOfMemory } else { Error::RangeBusy };
                assert_eq!(got, Err(error), "{count} frames at a multiple of {align}");
            }
            machine.free(stone, Order::ZERO).unwrap();
            settle(&*machine);
            check_books(&*machine, 0);
            let zone = machine.zones().next().unwrap();
            assert_eq!(zone.free_blocks[10], FRAMES / 1024, "everything merges again");
        }
    }
}

/// A range that may lie anywhere lies where it is found soonest: it is there, it is aligned, and
/// the last one is found in what is left.
fn the_soonest_place_is_one_of_all<D: TestDesign>() {
    const FRAMES: u64 = 16 * PAGEBLOCK;
    for count in [511, 512, 700, 1024, 1500] {
        for align in [1, 256, 1024] {
            let machine = machine::<D>(FRAMES);
            let stone = machine.alloc_range(ask(1).at(Pfn::new(5)), &Immovable).unwrap();
            let request = ask(count).align(frames(align)).soonest();
            let take = || machine.alloc_range(request, &Immovable).ok();
            let all: Vec<Pfn> = std::iter::from_fn(take).collect();
            assert!(all.iter().all(|pfn| pfn.get().is_multiple_of(align)));
            check_books(&*machine, 1 + count * all.len() as u64);
            // No other place is left.
            let lowest = machine.alloc_range(ask(count).align(frames(align)), &Immovable);
            lowest.expect_err("all that fit were taken");
            assert!(all.len() as u64 >= FRAMES / count.next_multiple_of(align.max(PAGEBLOCK)) - 1);
            all.iter().for_each(|&pfn| machine.free_range(pfn, frames(count)).unwrap());
            machine.free(stone, Order::ZERO).unwrap();
            settle(&*machine);
            check_books(&*machine, 0);
        }
    }
}

fn requests_that_make_no_sense_are_refused<D: TestDesign>() {
    let ranges = [range(0, 2048), range(3072, 1000)];
    let machine = with::<D>(&ranges, 0);
    let try_for = |request| machine.alloc_range(request, &Immovable);
    assert_eq!(try_for(ask(0)), Err(Error::BadRange));
    for align in [0, 3, 6, 1000, u64::MAX] {
        assert_eq!(try_for(ask(1).align(frames(align))), Err(Error::BadAlignment));
    }
    for count in [2049, 4096, 5000, 1 << 32, u64::MAX] {
        assert_eq!(try_for(ask(count)), Err(Error::OutOfMemory), "{count}");
    }
    assert_eq!(try_for(ask(1).align(frames(1 << 63))), Ok(Pfn::new(0)));
    assert_eq!(try_for(ask(1).align(frames(1 << 63))), Err(Error::RangeBusy));
    machine.free_range(Pfn::new(0), frames(1)).unwrap();
    let at = |pfn| ask(8).align(frames(8)).at(Pfn::new(pfn));
    assert_eq!(try_for(at(4)), Err(Error::Misaligned));
    assert_eq!(try_for(at(4096)), Err(Error::OutsideSpan));
    assert_eq!(try_for(at(1 << 40)), Err(Error::OutsideSpan));
    assert_eq!(try_for(at(2048)), Err(Error::ForeignFrame));
    assert_eq!(try_for(ask(9).at(Pfn::new(2040))), Err(Error::ForeignFrame));
    assert_eq!(try_for(ask(90).at(Pfn::new(4000))), Err(Error::ForeignFrame));
    assert_eq!(try_for(ask(100).at(Pfn::new(4090))), Err(Error::OutsideSpan));
    assert_eq!(try_for(ask(1).node(NodeId::new(9))), Err(Error::UnknownNode));
    assert_eq!(try_for(ask(1).zone_limit(ZoneKind::Dma)), Err(Error::UnknownZone));
    assert_eq!(try_for(ask(1).node(NodeId::new(1)).only_node()), Err(Error::OutOfMemory));
    assert_eq!(try_for(at(3072)), Ok(Pfn::new(3072)));
    assert_eq!(try_for(at(3072)), Err(Error::RangeBusy));
    check_books(&*machine, 8);
}

fn ranges_leave_the_reserves_alone<D: TestDesign>() {
    let machine = with::<D>(&[range(0, 8192)], 200);
    let request = ask(8192 - 200);
    let pfn = machine.alloc_range(request, &Immovable).expect("just enough");
    machine.free_range(pfn, frames(8192 - 200)).unwrap();
    let error = machine.alloc_range(ask(8192 - 199), &Immovable);
    assert_eq!(error, Err(Error::BelowWatermark));
    let kept: Vec<_> = (0..4000).map(|_| machine.alloc(Request::default()).unwrap()).collect();
    assert_eq!(machine.alloc_range(request, &Immovable), Err(Error::OutOfMemory));
    check_books(&*machine, kept.len() as u64);
}

/// A range is found exactly where the lowest one fits.
fn a_range_lies_where_the_lowest_could<D: TestDesign>() {
    const FRAMES: u64 = 5 * PAGEBLOCK - 100;
    let together = movable_together(D::NAME);
    for seed in 0..60 {
        let random = &mut Random(seed);
        let machine = with::<D>(&[range(0, FRAMES)], 0);
        let counts = (random.below(FRAMES as usize / 2), random.below(6));
        let (owner, stones) = sprinkle(&machine, FRAMES, random, counts);
        let mut stones = BTreeSet::from_iter(stones);
        let mut held = owner.check();
        // Frames whose neighbours may count as obstacles.
        let mut suspects = stones.clone();
        for _ in 0..6 {
            let (count, align) = (1 + random.below(1200) as u64, 1 << random.below(9));
            let content: BTreeSet<u64> = (0..owner.slots())
                .filter_map(|slot| owner.block(slot))
                .map(|(pfn, _)| pfn.get())
                .collect();
            let near: BTreeSet<u64> = suspects.iter().map(|frame| frame / together).collect();
            let is_suspect = |frame: &u64| together > 1 && near.contains(&(frame / together));
            let suspected: BTreeSet<u64> = content.iter().copied().filter(is_suspect).collect();
            let within = |frames: &BTreeSet<u64>, first: u64| {
                frames.range(first..first + count).next().is_some()
            };
            // Whether the content of a place has too little room outside the pageblocks that it
            // touches.
            let is_crowded = |first: u64| {
                let (start, end) = (first / PAGEBLOCK, (first + count).div_ceil(PAGEBLOCK));
                let touched = start * PAGEBLOCK..(end * PAGEBLOCK).min(FRAMES);
                let inside = content.range(first..first + count).count() as u64;
                let used = content.len() + stones.len()
                    - content.range(touched.clone()).count()
                    - stones.range(touched.clone()).count();
                inside > FRAMES - (touched.end - touched.start) - used as u64
            };
            let fits = |&first: &u64| first + count <= FRAMES && !within(&stones, first);
            let places = || (0..FRAMES).step_by(align as usize).filter(fits);
            let lowest = places().next();
            let sure = places().find(|&first| !within(&suspected, first));
            let free = FRAMES - held - stones.len() as u64;
            let crowded = [lowest, sure].into_iter().flatten().any(is_crowded);
            let got = machine.alloc_range(ask(count).align(frames(align)), &owner);
            match (lowest, got) {
                _ if free < count => assert_eq!(got, Err(Error::OutOfMemory)),
                (None, got) => assert_eq!(got, Err(Error::RangeBusy)),
                (Some(_), Err(error)) => {
                    let full = crowded && error == Error::OutOfMemory;
                    assert!(full || sure.is_none(), "seed {seed}: {error}");
                }
                (Some(lowest), Ok(pfn)) => {
                    let last = sure.filter(|_| !crowded).unwrap_or(FRAMES);
                    let places = lowest..=last;
                    assert!(places.contains(&pfn.get()), "seed {seed}: {pfn} of {places:?}");
                    assert!(!within(&stones, pfn.get()) && pfn.get().is_multiple_of(align));
                    suspects.extend(pfn.get()..pfn.get() + count);
                    if random.below(2) == 0 {
                        machine.free_range(pfn, frames(count)).unwrap();
                    } else {
                        stones.extend(pfn.get()..pfn.get() + count);
                    }
                }
            }
            assert_eq!(owner.check(), held, "content has moved at most");
            let slot = random.below(owner.slots());
            owner.free(&*machine, slot);
            held = owner.check();
            check_books(&*machine, held + stones.len() as u64);
        }
        for slot in 0..owner.slots() {
            owner.free(&*machine, slot);
        }
        stones.iter().for_each(|&pfn| machine.free(Pfn::new(pfn), Order::ZERO).unwrap());
        settle(&*machine);
        check_books(&*machine, 0);
        let zone = machine.zones().next().unwrap();
        assert_eq!(zone.free_blocks[..11], [0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 2], "all is merged");
    }
}

/// Blocks of all orders are in the way, some of them extending beyond the range.
fn large_blocks_move_out_of_the_way<D: TestDesign>() {
    const FRAMES: u64 = 16 * PAGEBLOCK;
    for seed in 0..20 {
        let random = &mut Random(seed);
        let machine = machine::<D>(FRAMES);
        let owner = Owner::new(40, FRAMES);
        for slot in 0..40 {
            let _full =
                owner.alloc(&*machine, slot, Request::new(Order::new(random.below(11) as u8)));
        }
        for _ in 0..20 {
            owner.free(&*machine, random.below(40));
        }
        let held = owner.check();
        let (first, count) = (random.below(3000) as u64, 1 + random.below(1500) as u64);
        let got = machine.alloc_range(ask(count).at(Pfn::new(first)), &owner);
        assert_eq!(owner.check(), held);
        match got {
            Ok(pfn) => {
                assert_eq!(pfn, Pfn::new(first));
                check_books(&*machine, held + count);
                machine.free_range(pfn, frames(count)).unwrap();
            }
            // There may be no free block as large as the one in the way.
            Err(error) => assert!(matches!(error, Error::OutOfMemory), "{error}"),
        }
        check_books(&*machine, held);
        for slot in 0..40 {
            owner.free(&*machine, slot);
        }
        settle(&*machine);
        assert_eq!(machine.zones().next().unwrap().free_blocks[10], FRAMES / 1024);
    }
}

fn ranges_are_freed_in_parts_or_at_once_but_not_twice<D: TestDesign>() {
    let machine = machine::<D>(4096);
    let take = || machine.alloc_range(ask(2000).at(Pfn::new(7)), &Immovable).unwrap();
    let first = take();
    let free = |from: u64, count| machine.free_range(Pfn::new(from), frames(count));
    assert_eq!(free(7, 0), Err(Error::BadRange));
    assert_eq!(free(6, 10), Err(Error::DoubleFree), "a free frame before it");
    assert_eq!(free(2000, 8), Err(Error::DoubleFree), "a free frame behind it");
    assert_eq!(free(0, 5000), Err(Error::ForeignFrame));
    assert_eq!(free(1 << 40, 1), Err(Error::ForeignFrame));
    check_books(&*machine, 2000);
    // A part that lies within one block, parts of blocks, and blocks by their orders.
    assert_eq!(free(7, 1), Ok(()));
    assert_eq!(free(7, 1), Err(Error::DoubleFree));
    assert_eq!(free(600, 100), Ok(()));
    assert_eq!(free(599, 102), Err(Error::DoubleFree));
    check_books(&*machine, 1899);
    assert_eq!(machine.free(Pfn::new(8), Order::new(3)), Ok(()));
    assert_eq!(machine.free(Pfn::new(512), Order::new(6)), Ok(()));
    assert_eq!(free(16, 496), Ok(()));
    assert_eq!(free(576, 24), Ok(()));
    assert_eq!(free(700, 1307), Ok(()));
    check_books(&*machine, 0);
    settle(&*machine);
    assert_eq!(machine.zones().next().unwrap().free_blocks[10], 4);
    take();
    assert_eq!(free(first.get(), 2000), Ok(()));
    assert_eq!(free(first.get(), 2000), Err(Error::DoubleFree));
    check_books(&*machine, 0);
}

fn a_range_that_is_freed_is_memory_of_one_zone<D: TestDesign>() {
    // A hole in a pageblock, two pageblocks of holes, and two zones that meet.
    let ranges = [range(0, 1000), range(2048, 512), range(2560, 300).on_node(NodeId::new(1))];
    let machine = with::<D>(&ranges, 0);
    let node1 = ask(300).node(NodeId::new(1)).only_node().at(Pfn::new(2560));
    for request in [ask(1000).at(Pfn::new(0)), ask(512).at(Pfn::new(2048)), node1] {
        machine.alloc_range(request, &Immovable).expect("all is free");
    }
    let free = |from: u64, count| machine.free_range(Pfn::new(from), frames(count));
    for (from, count) in [(990, 20), (1010, 5), (1020, 10), (1600, 10), (2000, 100), (2855, 10)] {
        assert_eq!(free(from, count), Err(Error::ForeignFrame), "{count} frames from {from}");
    }
    for (from, count) in [(2500, 100), (2048, 513), (2559, 2), (2100, 760)] {
        assert_eq!(free(from, count), Err(Error::BadRange), "{count} frames from {from}");
    }
    check_books(&*machine, 1812);
    for (from, count) in [(0, 1000), (2048, 512), (2560, 300)] {
        assert_eq!(free(from, count), Ok(()), "nothing was freed before: {from}");
    }
    check_books(&*machine, 0);
}

fn ranges_stay_within_a_zone_and_content_goes_to_no_higher_one<D: TestDesign>() {
    let ranges = [
        range(0, 1024).in_zone(ZoneKind::Dma32),
        range(1024, 1024),
        range(2048, 1024).in_zone(ZoneKind::Movable),
        range(3072, 2048).on_node(NodeId::new(1)),
    ];
    let machine = with::<D>(&ranges, 0);
    let get = |request| machine.alloc_range(request, &Immovable);
    assert_eq!(get(ask(1500)), Ok(Pfn::new(3072)), "only node 1 has so much in one zone");
    machine.free_range(Pfn::new(3072), frames(1500)).unwrap();
    assert_eq!(get(ask(1500).only_node()), Err(Error::OutOfMemory));
    assert_eq!(get(ask(100)), Ok(Pfn::new(1024)), "the least restricted zone first");
    assert_eq!(get(ask(100).zone_limit(ZoneKind::Dma32)), Ok(Pfn::new(0)));
    assert_eq!(get(ask(100).node(NodeId::new(1))), Ok(Pfn::new(3072)));
    assert_eq!(get(ask(100).zone_limit(ZoneKind::Movable)), Ok(Pfn::new(1124)));
    assert_eq!(get(ask(100).at(Pfn::new(2048))), Err(Error::OutOfMemory), "for movable content");
    assert_eq!(get(ask(100).at(Pfn::new(1000))), Err(Error::OutOfMemory), "two zones");
    // Movable content of the lower zone stays there or goes to lower ones.
    let owner = Owner::new(500, 5120);
    let request = Request::default().zone_limit(ZoneKind::Dma32);
    for slot in 0..500 {
        owner.alloc(&*machine, slot, request).unwrap();
    }
    let limit = ask(400).zone_limit(ZoneKind::Dma32);
    let pfn = machine.alloc_range(limit, &owner).expect("there is room for it");
    assert!(pfn.get() < 1024 && (0..500).all(|slot| owner.block(slot).unwrap().0 < Pfn::new(1024)));
    owner.check();
    check_books(&*machine, 500 + 400 + 400);
}

/// Two ranges of a GiB each; the content of the first gets in the way of the second.
fn gigabytes<D: TestDesign>() {
    const GIB: u64 = 1 << 18;
    let machine = machine::<D>(3 * GIB);
    let request = ask(GIB).align(frames(GIB));
    let owner = Owner::new(200, 3 * GIB);
    for slot in 0..200 {
        let order = Order::new((slot % 11) as u8);
        owner.alloc(&*machine, slot, Request::new(order)).unwrap();
    }
    let held = owner.check();
    let first = machine.alloc_range(request, &owner).unwrap();
    let second = machine.alloc_range(request, &owner).unwrap();
    assert_eq!((first, second), (Pfn::new(0), Pfn::new(GIB)));
    assert!(machine.events().migrated.get() >= held, "all of it was in the first");
    assert_eq!(machine.alloc_range(request, &owner), Err(Error::OutOfMemory));
    assert_eq!(owner.check(), held);
    check_books(&*machine, held + 2 * GIB);
    machine.free_range(Pfn::new(GIB), frames(GIB)).unwrap();
    assert_eq!(machine.free_range(Pfn::new(GIB), frames(GIB)), Err(Error::DoubleFree));
    check_books(&*machine, held + GIB);
    assert_eq!(machine.events().ranges, 2);
}

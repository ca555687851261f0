//! Contiguous ranges: wherever one could lie, one is found; otherwise nothing changes.

mod common;
#[path = "common/machine.rs"]
mod machine;
#[path = "common/owner.rs"]
mod owner;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use common::{TestPlatform, run_on};
use freehold::designs::Design;
use freehold::designs::zone_lock::ZoneLock;
use freehold::{
    Config, Error, FrameCount, Immovable, MemoryRange, MigrateError, MigrateType, NodeId, Order,
    Pfn, RangeRequest, Request, ZoneKind,
};
use machine::Machine;
use owner::{Finish, Owner, Picky, Random, check_books};

const PAGEBLOCK: u64 = 512;
const CPUS: [NodeId; 2] = [NodeId::new(0), NodeId::new(1)];

type Baseline = ZoneLock<TestPlatform>;

fn range(start: u64, frames: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(frames))
}

fn with<D: Design<TestPlatform>>(
    ranges: &[MemoryRange],
    min_free: u64,
) -> Machine<TestPlatform, D> {
    let min_free = Some(FrameCount::new(min_free));
    let config = Config { min_free, ..Config::new(ranges, &CPUS) };
    Machine::new(TestPlatform, &config, &D::Settings::default())
}

fn machine(frames: u64) -> Machine<TestPlatform> {
    with(&[range(0, frames)], 0)
}

fn frames(count: u64) -> FrameCount {
    FrameCount::new(count)
}

fn ask(count: u64) -> RangeRequest {
    RangeRequest::new(frames(count))
}

#[test]
fn ranges_of_all_sizes_and_alignments_come_from_the_lowest_frames() {
    const FRAMES: u64 = 8 * PAGEBLOCK;
    let machine = machine(FRAMES);
    for align in (0..=12).map(|order| 1 << order) {
        for count in [1, 2, 3, 31, 64, 511, 512, 513, 1024, 1500, 2048, 4095, 4096] {
            // One frame in the way of whatever is not far from the bottom.
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
            machine.drain_all();
            check_books(&*machine, 0);
            let zone = machine.zones().next().unwrap();
            assert_eq!(zone.free_blocks[10], FRAMES / 1024, "everything merges again");
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let ranges = [range(0, 2048), range(3072, 1000)];
    let machine = with::<Baseline>(&ranges, 0);
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

#[test]
fn ranges_leave_the_reserves_alone() {
    let machine = with::<Baseline>(&[range(0, 8192)], 200);
    let request = ask(8192 - 200);
    let pfn = machine.alloc_range(request, &Immovable).expect("just enough");
    machine.free_range(pfn, frames(8192 - 200)).unwrap();
    let error = machine.alloc_range(ask(8192 - 199), &Immovable);
    assert_eq!(error, Err(Error::BelowWatermark));
    let kept: Vec<_> = (0..4000).map(|_| machine.alloc(Request::default()).unwrap()).collect();
    assert_eq!(machine.alloc_range(request, &Immovable), Err(Error::OutOfMemory));
    check_books(&*machine, kept.len() as u64);
}

/// Movable single frames and some that are not, at random places; the frames of the latter.
fn sprinkle<D: Design<TestPlatform>>(
    machine: &Machine<TestPlatform, D>,
    span: u64,
    random: &mut Random,
    (movable, fixed): (usize, usize),
) -> (Owner, Vec<u64>) {
    let owner = Owner::new(span as usize + 1, span);
    let mut slots = 0;
    while owner.alloc(machine, slots, Request::default()).is_ok() {
        slots += 1;
    }
    // Frames that cannot move are allocated where movable ones were before.
    let mut stones = Vec::new();
    while stones.len() < fixed {
        let slot = random.below(slots);
        let Some((pfn, _)) = owner.block(slot) else { continue };
        owner.free(machine, slot);
        machine.drain_all();
        machine.alloc_range(ask(1).at(pfn), &Immovable).expect("it was freed just now");
        stones.push(pfn.get());
    }
    let mut left = slots - fixed;
    while left > movable {
        let slot = random.below(slots);
        if owner.block(slot).is_some() {
            owner.free(machine, slot);
            left -= 1;
        }
    }
    machine.drain_all();
    (owner, stones)
}

/// Whether the content of a place finds too little room outside the pageblocks that it touches.
fn is_crowded(owner: &Owner, stones: &[u64], span: u64, first: u64, count: u64) -> bool {
    let mut used: Vec<_> = (0..owner.slots()).filter_map(|slot| owner.block(slot)).collect();
    let inside = used.iter().filter(|block| (first..first + count).contains(&block.0.get()));
    let inside = inside.count() as u64;
    used.extend(stones.iter().map(|&stone| (Pfn::new(stone), Order::ZERO)));
    let touched =
        first / PAGEBLOCK * PAGEBLOCK..(first + count).next_multiple_of(PAGEBLOCK).min(span);
    let elsewhere = used.iter().filter(|block| !touched.contains(&block.0.get())).count() as u64;
    inside > span - (touched.end - touched.start) - elsewhere
}

/// A range is found exactly where the lowest one could lie.
fn finds<D: Design<TestPlatform>>() {
    const FRAMES: u64 = 5 * PAGEBLOCK - 100;
    for seed in 0..60 {
        let random = &mut Random(seed);
        let machine = with::<D>(&[range(0, FRAMES)], 0);
        let counts = (random.below(FRAMES as usize / 2), random.below(6));
        let (owner, mut stones) = sprinkle(&machine, FRAMES, random, counts);
        let mut held = owner.check();
        for _ in 0..6 {
            let (count, align) = (1 + random.below(1200) as u64, 1 << random.below(9));
            let fixed = |first: u64| (first..first + count).any(|frame| stones.contains(&frame));
            let mut places = (0..FRAMES).step_by(align as usize);
            let fits = |first: u64| first + count <= FRAMES;
            let lowest = places.find(|&first| fits(first) && !fixed(first));
            let free = FRAMES - held - stones.len() as u64;
            let crowded =
                lowest.is_some_and(|first| is_crowded(&owner, &stones, FRAMES, first, count));
            let got = machine.alloc_range(ask(count).align(frames(align)), &owner);
            match (lowest, got) {
                _ if free < count => assert_eq!(got, Err(Error::OutOfMemory)),
                (None, got) => assert_eq!(got, Err(Error::RangeBusy)),
                (Some(_), Err(error)) => {
                    assert!(crowded && error == Error::OutOfMemory, "seed {seed}: {error}");
                }
                (Some(lowest), Ok(pfn)) => {
                    assert!(pfn.get() == lowest || crowded && pfn.get() > lowest, "seed {seed}");
                    assert!(!fixed(pfn.get()) && pfn.get().is_multiple_of(align));
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
        machine.drain_all();
        check_books(&*machine, 0);
        let zone = machine.zones().next().unwrap();
        assert_eq!(zone.free_blocks, [0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 2], "all is merged");
    }
}

#[test]
fn a_range_lies_where_the_lowest_could() {
    finds::<Baseline>();
}

/// Blocks of all orders are in the way, some of them reaching beyond the range.
#[test]
fn large_blocks_move_out_of_the_way() {
    const FRAMES: u64 = 16 * PAGEBLOCK;
    for seed in 0..20 {
        let random = &mut Random(seed);
        let machine = machine(FRAMES);
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
        machine.drain_all();
        assert_eq!(machine.zones().next().unwrap().free_blocks[10], FRAMES / 1024);
    }
}

#[test]
fn ranges_are_freed_in_parts_or_at_once_but_not_twice() {
    let machine = machine(4096);
    let take = || machine.alloc_range(ask(2000).at(Pfn::new(7)), &Immovable).unwrap();
    let first = take();
    let free = |from: u64, count| machine.free_range(Pfn::new(from), frames(count));
    assert_eq!(free(7, 0), Err(Error::BadRange));
    assert_eq!(free(6, 10), Err(Error::DoubleFree), "a free frame before it");
    assert_eq!(free(2000, 8), Err(Error::DoubleFree), "a free frame behind it");
    assert_eq!(free(0, 5000), Err(Error::ForeignFrame));
    assert_eq!(free(1 << 40, 1), Err(Error::ForeignFrame));
    check_books(&*machine, 2000);
    // A part that reaches beyond no block, parts of blocks, and blocks by their orders.
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
    machine.drain_all();
    assert_eq!(machine.zones().next().unwrap().free_blocks[10], 4);
    take();
    assert_eq!(free(first.get(), 2000), Ok(()));
    assert_eq!(free(first.get(), 2000), Err(Error::DoubleFree));
    check_books(&*machine, 0);
}

/// `free_range` against a table of frames, over blocks of all orders.
#[test]
fn frames_of_any_blocks_are_freed_side_by_side() {
    const FRAMES: u64 = 4 * PAGEBLOCK;
    for seed in 0..40 {
        let random = &mut Random(seed);
        let machine = machine(FRAMES);
        let mut used = vec![false; FRAMES as usize];
        for _ in 0..40 {
            let order = Order::new(random.below(8) as u8);
            if let Ok(pfn) = machine.alloc(Request::new(order)) {
                let first = pfn.get() as usize;
                used[first..first + (1 << order.get())].fill(true);
            }
        }
        for _ in 0..60 {
            let first = random.below(FRAMES as usize);
            let count = 1 + random.below((FRAMES as usize - first).min(90));
            let part = &mut used[first..first + count];
            let expected = part.iter().all(|&used| used);
            let got = machine.free_range(Pfn::new(first as u64), frames(count as u64));
            assert_eq!(got.is_ok(), expected, "seed {seed}: {count} frames from {first}: {got:?}");
            if expected {
                part.fill(false);
            }
            check_books(&*machine, used.iter().filter(|&&used| used).count() as u64);
        }
    }
}

#[test]
fn owners_that_refuse_or_panic_lose_nothing() {
    const FRAMES: u64 = 6 * PAGEBLOCK;
    for every in [1, 2, 5, 100] {
        let machine = machine(FRAMES);
        let counts = (FRAMES as usize / 3, 2);
        let (owner, stones) = sprinkle(&machine, FRAMES, &mut Random(every), counts);
        let (held, fixed) = (owner.check(), stones.len() as u64);
        let calls = Cell::new(0);
        let refuse = |_: Pfn, _: Pfn, _: Order| {
            calls.set(calls.get() + 1);
            if calls.get() % every == 0 { Err(MigrateError::Failed) } else { Ok(()) }
        };
        let before = machine.zones().next();
        let got = machine.alloc_range(ask(1024), &Picky(&owner, refuse));
        assert!(got == Err(Error::RangeBusy) || every > 1, "{got:?}");
        assert_eq!(owner.check(), held);
        check_books(&*machine, held + fixed + got.map_or(0, |_| 1024));
        if every == 1 {
            machine.drain_all();
            let zone = machine.zones().next();
            assert_eq!(zone.map(|zone| zone.free), before.map(|zone| zone.free));
        }
        let panics = |_: Pfn, _: Pfn, _: Order| {
            calls.set(calls.get() + 1);
            assert!(calls.get() % 37 != 0, "enough is enough");
            Ok(())
        };
        let alloc = || machine.alloc_range(ask(700), &Picky(&owner, panics));
        let more = catch_unwind(AssertUnwindSafe(alloc)).ok().and_then(Result::ok);
        assert_eq!(owner.check(), held);
        let ranges = got.map_or(0, |_| 1024) + more.map_or(0, |_| 700);
        check_books(&*machine, held + fixed + ranges);
    }
}

#[test]
fn owners_may_call_the_allocator() {
    const FRAMES: u64 = 8 * PAGEBLOCK;
    let machine = machine(FRAMES);
    let (owner, _) = sprinkle(&machine, FRAMES, &mut Random(9), (FRAMES as usize / 2, 0));
    let held = owner.check();
    let calls = Cell::new(0);
    let calling = |_: Pfn, _: Pfn, _: Order| {
        let pfn = machine.alloc(Request::default()).expect("memory is free");
        assert!(pfn >= Pfn::new(1500), "not in the range");
        calls.set(calls.get() + 1);
        if calls.get() % 50 == 0
            && let Ok(pfn) = machine.alloc_range(ask(10), &owner)
        {
            assert!(pfn >= Pfn::new(1500), "another range is under way there");
            machine.free_range(pfn, frames(10)).unwrap();
        }
        machine.free(pfn, Order::ZERO).map_err(|_| MigrateError::Failed)
    };
    let request = ask(1500).at(Pfn::new(0));
    let pfn = machine.alloc_range(request, &Picky(&owner, calling)).expect("content moves");
    assert_eq!(owner.check(), held);
    check_books(&*machine, held + 1500);
    machine.free_range(pfn, frames(1500)).unwrap();
    check_books(&*machine, held);
}

#[test]
fn memory_may_be_added_beside_a_range_under_way() {
    let ranges = [range(0, 700)];
    let span = Some((Pfn::new(0), frames(4096)));
    let config = Config { min_free: Some(FrameCount::ZERO), span, ..Config::new(&ranges, &CPUS) };
    let machine = Machine::<TestPlatform>::new(TestPlatform, &config, &Default::default());
    machine.add_memory(range(2048, 1024)).unwrap();
    let owner = Owner::new(600, 4096);
    for slot in 0..600 {
        owner.alloc(&*machine, slot, Request::default()).unwrap();
    }
    let added = Cell::new(false);
    let adding = |_: Pfn, _: Pfn, _: Order| {
        if !added.replace(true) {
            machine.add_memory(range(700, 400)).expect("it is new");
            let isolated: FrameCount = machine.zones().map(|zone| zone.isolated).sum();
            assert!(isolated >= frames(1024 - 700), "{isolated}: new memory is isolated as well");
        }
        Ok(())
    };
    let pfn = machine.alloc_range(ask(650).at(Pfn::new(20)), &Picky(&owner, adding)).unwrap();
    assert!(added.get());
    check_books(&*machine, owner.check() + 650);
    machine.free_range(pfn, frames(650)).unwrap();
    check_books(&*machine, 600);
}

#[test]
fn ranges_stay_within_a_zone_and_content_goes_to_no_higher_one() {
    let ranges = [
        range(0, 1024).in_zone(ZoneKind::Dma32),
        range(1024, 1024),
        range(2048, 1024).in_zone(ZoneKind::Movable),
        range(3072, 2048).on_node(NodeId::new(1)),
    ];
    run_on(0);
    let machine = with::<Baseline>(&ranges, 0);
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

/// Two ranges of a GiB each, the content of the first of which gets in the way of the second.
#[test]
fn gigabytes() {
    const GIB: u64 = 1 << 18;
    let machine = machine(3 * GIB);
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

/// Threads allocate and free while others take ranges out of their way.
fn races<D: Design<TestPlatform>>()
where
    Machine<TestPlatform, D>: Sync,
{
    const FRAMES: u64 = 12 * PAGEBLOCK;
    let machine = with::<D>(&[range(0, FRAMES)], 0);
    let owner = Owner::new(4000, FRAMES);
    let done = AtomicBool::new(false);
    let got = thread::scope(|scope| {
        let finish = Finish(&done);
        for worker in 0..2_usize {
            let (machine, owner, done) = (&machine, &owner, &done);
            scope.spawn(move || {
                run_on(worker as u32);
                let random = &mut Random(worker as u64);
                let mine = worker * 2000..(worker + 1) * 2000;
                while !done.load(SeqCst) {
                    let slot = mine.start + random.below(mine.len());
                    if owner.block(slot).is_some() {
                        owner.free(&**machine, slot);
                    } else {
                        let order = Order::new([0, 0, 0, 1, 3][random.below(5)]);
                        let _full = owner.alloc(&**machine, slot, Request::new(order));
                    }
                }
            });
        }
        let ranger = |seed: u64| {
            let (machine, owner) = (&machine, &owner);
            move || {
                let random = &mut Random(seed);
                let (mut ranges, mut got) = (Vec::new(), 0);
                for _ in 0..1000 {
                    let count = 1 + random.below(900) as u64;
                    if let Ok(pfn) = machine.alloc_range(ask(count), owner) {
                        ranges.push((pfn, frames(count)));
                        got += 1;
                    }
                    if ranges.len() > 2 {
                        let (pfn, count) = ranges.swap_remove(random.below(3));
                        machine.free_range(pfn, count).expect("it is held");
                    }
                }
                for (pfn, count) in ranges {
                    machine.free_range(pfn, count).expect("it is held");
                }
                got
            }
        };
        scope.spawn(|| {
            while !done.load(SeqCst) {
                machine.compact(&owner);
                thread::yield_now();
            }
        });
        let rangers = [scope.spawn(ranger(100)), scope.spawn(ranger(200))];
        let got: usize = rangers.into_iter().map(|ranger| ranger.join().unwrap()).sum();
        drop(finish);
        got
    });
    assert!(got > 10, "{got} of 2000 ranges were found");
    check_books(&*machine, owner.check());
}

#[test]
fn ranges_are_taken_while_others_allocate_and_free() {
    races::<Baseline>();
}

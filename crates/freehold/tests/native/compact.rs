//! Compaction: content really moves, free memory becomes contiguous, and nothing is lost.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::SeqCst;

use crate::common::TestPlatform;
use crate::designs::movable_together;
use crate::owner::{Owner, Picky, check_books, settle};
use crate::random::Random;
use crate::scattered::{PAGEBLOCK, PAGEBLOCKS, SPAN, machine, scatter};
use crate::tested::{TestDesign, Tested, build, range};
use freehold::{
    Compaction, Error, FrameCount, Immovable, MigrateError, MigrateType, NodeId, Order, Pfn,
    Request, ZoneKind,
};

test_designs!(TestPlatform: [
    free_memory_comes_to_lie_together,
    compacting_twice_moves_nothing_more,
    a_zone_is_compacted_until_enough_of_it_is_whole,
    content_that_does_not_move_stays_and_nothing_else_changes,
    owners_are_asked_for_their_content_alone,
    unmovable_content_is_never_asked_for,
    owners_that_fail_now_and_then_lose_nothing,
    blocks_are_made_for_requests_until_little_is_left,
    requests_that_need_no_compaction_cause_none,
    failures_put_off_further_attempts,
    zones_are_compacted_by_themselves,
]);

fn free_pageblocks<D: TestDesign>(machine: &Tested<D>) -> u64 {
    machine.drain_all();
    machine.zones().map(|zone| zone.free_pageblocks()).sum()
}

fn free_memory_comes_to_lie_together<D: TestDesign>() {
    for (orders, percent, spare) in [
        (&[0][..], 50, 1),
        (&[0], 10, 1),
        (&[0], 90, 1),
        (&[0, 1, 2, 3], 50, 2),
        (&[0, 1, 2, 3], 25, 2),
        (&[0, 0, 4, 6], 50, 4),
    ] {
        for seed in 0..3 {
            let machine = machine::<D>(0);
            let owner = scatter(&machine, &mut Random(seed), orders, percent);
            let held = owner.check();
            let report = machine.compact(&owner);
            assert_eq!(owner.check(), held);
            check_books(&*machine, held);
            let best = (SPAN - held) / PAGEBLOCK;
            let got = free_pageblocks(&machine);
            assert!(got + spare >= best, "{orders:?}, {percent} %, {seed}: {got} of {best} blocks");
            assert_eq!(report.busy + report.failed, 0);
            assert_eq!(machine.events().migrated, report.migrated);
            assert_eq!(machine.events().compactions, 1);
            assert!(report.migrated.get() <= held && owner.moves.load(SeqCst) > 0);
            for slot in 0..owner.slots() {
                owner.free(&*machine, slot);
            }
            settle(&*machine);
            assert_eq!(free_pageblocks(&machine), PAGEBLOCKS, "everything merges again");
            check_books(&*machine, 0);
        }
    }
}

fn compacting_twice_moves_nothing_more<D: TestDesign>() {
    let machine = machine::<D>(0);
    let owner = scatter(&machine, &mut Random(7), &[0], 40);
    let first = machine.compact(&owner);
    let second = machine.compact(&owner);
    assert!(first.migrated.get() > 1000);
    assert!(second.migrated.get() < PAGEBLOCK, "at most the pageblock in the middle: {second:?}");
}

fn a_zone_is_compacted_until_enough_of_it_is_whole<D: TestDesign>() {
    let migrated = |unusable_max| {
        let machine = machine::<D>(0);
        let owner = scatter(&machine, &mut Random(7), &[0], 50);
        let held = owner.check();
        let migrated = machine.compact_proactively(unusable_max, &owner).migrated.get();
        let free = SPAN - held;
        let unusable = (free - free_pageblocks(&machine) * PAGEBLOCK) * 1000 / free;
        assert!(unusable <= u64::from(unusable_max), "{unusable} of {unusable_max}");
        assert_eq!(machine.events().compactions, u64::from(migrated > 0));
        // Enough is whole now, by CPUs' caches too.
        let kept = machine.alloc(Request::new(Order::PAGEBLOCK)).ok();
        if let Some(pfn) = kept {
            machine.free(pfn, Order::PAGEBLOCK).unwrap();
        }
        let again = machine.compact_proactively(unusable_max, &owner);
        assert_eq!(again, Compaction::default());
        check_books(&*machine, owner.check());
        migrated
    };
    let [nothing, half, most] = [1000, 500, 200].map(migrated);
    assert!(nothing == 0 && half > PAGEBLOCK && half < most, "{nothing}, {half}, {most}");
}

fn content_that_does_not_move_stays_and_nothing_else_changes<D: TestDesign>() {
    let machine = machine::<D>(0);
    let owner = scatter(&machine, &mut Random(1), &[0, 1], 50);
    settle(&*machine);
    let (held, before) = (owner.check(), machine.zones().next());
    let report = machine.compact(&Immovable);
    assert!(report.failed > 100 && report.migrated == FrameCount::ZERO, "{report:?}");
    assert_eq!(machine.zones().next(), before);
    assert_eq!(owner.check(), held);
    check_books(&*machine, held);
}

/// A target that the owner refused may be kept for the next block, and is nobody's content
/// meanwhile.
fn owners_are_asked_for_their_content_alone<D: TestDesign>() {
    for orders in [&[0][..], &[0, 0, 0, 3], &[1, 2]] {
        let machine = machine::<D>(0);
        let owner = scatter(&machine, &mut Random(5), orders, 30);
        let held: Vec<_> = (0..owner.slots()).filter_map(|slot| owner.block(slot)).collect();
        let asked = Cell::new(0);
        let refuse = |from: Pfn, to: Pfn, order: Order| {
            asked.set(asked.get() + 1);
            assert!(held.contains(&(from, order)), "{from} is nobody's, for {to}");
            Err(MigrateError::Failed)
        };
        let report = machine.compact(&Picky(&owner, refuse));
        assert!(report.failed == asked.get() && asked.get() > 100, "{report:?}");
        check_books(&*machine, owner.check());
    }
}

fn unmovable_content_is_never_asked_for<D: TestDesign>() {
    let machine = machine::<D>(0);
    let random = &mut Random(2);
    let owner = Owner::new(4000, SPAN);
    for slot in 0..4000 {
        let migratetype = MigrateType::ALL[random.below(3)];
        owner.alloc(&*machine, slot, Request::default().migratetype(migratetype)).unwrap();
    }
    let fixed: Vec<_> = (0..4000).map(|slot| owner.block(slot)).collect();
    // Which slots are movable determines where they may go.
    for slot in (0..4000).filter(|slot| slot % 3 == 0) {
        owner.free(&*machine, slot);
    }
    let asked = RefCell::new(Vec::new());
    let note = |from: Pfn, _: Pfn, _: Order| {
        asked.borrow_mut().push(from);
        Ok(())
    };
    machine.compact(&Picky(&owner, note));
    check_books(&*machine, owner.check());
    let random = &mut Random(2);
    for (slot, block) in fixed.iter().enumerate() {
        let movable = MigrateType::ALL[random.below(3)] == MigrateType::Movable;
        if !movable && slot % 3 != 0 {
            assert_eq!(owner.block(slot), *block, "slot {slot} has not moved");
        }
    }
    assert!(!asked.borrow().is_empty());
}

fn owners_that_fail_now_and_then_lose_nothing<D: TestDesign>() {
    for every in [2, 3, 7] {
        let machine = machine::<D>(0);
        let owner = scatter(&machine, &mut Random(every), &[0, 2], 50);
        let held = owner.check();
        let calls = Cell::new(0);
        let some = |_: Pfn, _: Pfn, _: Order| {
            calls.set(calls.get() + 1);
            match calls.get() % every {
                0 if calls.get().is_multiple_of(2) => Err(MigrateError::Busy),
                0 => Err(MigrateError::Failed),
                _ => Ok(()),
            }
        };
        let report = machine.compact(&Picky(&owner, some));
        assert_eq!(report.busy + report.failed, calls.get() / every);
        assert_eq!(owner.check(), held);
        check_books(&*machine, held);
    }
}

fn blocks_are_made_for_requests_until_little_is_left<D: TestDesign>() {
    for order in [1, 3, 4, 8, 9, 10].map(Order::new) {
        for migratetype in MigrateType::ALL {
            let machine = machine::<D>(64);
            let owner = scatter(&machine, &mut Random(u64::from(order.get())), &[0], 60);
            let held = owner.check();
            let request = Request::new(order).migratetype(migratetype);
            let mut got = Vec::new();
            while let Ok(pfn) = machine.alloc_compacting(request, &owner) {
                assert!(pfn.is_aligned(order));
                got.push(pfn);
            }
            let frames = got.len() as u64 * order.frames().get();
            assert_eq!(owner.check(), held);
            check_books(&*machine, held + frames);
            // A few blocks' worth stay behind, since the scanners meet in the middle of one.
            let free = SPAN - held - frames;
            let most = 80 + 3 * order.frames().get();
            // Small unmovable blocks pin the content beside them, if the design does not separate
            // them.
            let alone = order.frames().get() >= movable_together(D::NAME);
            let mixes = migratetype != MigrateType::Movable && !alone;
            let most = if mixes { SPAN / 7 } else { most };
            assert!(free <= most, "{order}, {migratetype:?}: {free} frames are left");
            for pfn in got {
                machine.free(pfn, order).expect("it is held");
            }
            check_books(&*machine, held);
        }
    }
}

fn requests_that_need_no_compaction_cause_none<D: TestDesign>() {
    let machine = machine::<D>(0);
    let never = Picky(&Owner::new(1, SPAN), |_, _, _| panic!("there is no need"));
    machine.alloc_compacting(Request::new(Order::BUDDY_MAX), &never).expect("all is free");
    let order = Order::new(D::ORDER_MAX.get() + 1);
    assert_eq!(machine.alloc_compacting(Request::new(order), &never), Err(Error::OrderTooLarge));
    while machine.alloc(Request::default()).is_ok() {}
    // Too little is free for compaction to help.
    for order in [0, 1, 9].map(Order::new) {
        let request = Request::new(order);
        assert_eq!(machine.alloc_compacting(request, &never), Err(Error::OutOfMemory));
    }
    assert_eq!(machine.events().compactions, 0);
}

fn failures_put_off_further_attempts<D: TestDesign>() {
    let machine = machine::<D>(0);
    let owner = scatter(&machine, &mut Random(3), &[0], 50);
    // As in Linux, smaller orders are deferred as well until one has succeeded.
    let below = Order::new(8);
    let pfn = machine.alloc_compacting(Request::new(below), &owner).expect("content moves");
    machine.free(pfn, below).unwrap();
    let request = Request::new(Order::PAGEBLOCK);
    let runs = |attempts: usize| {
        let before = machine.events().compactions;
        for _ in 0..attempts {
            let got = machine.alloc_compacting(request, &Immovable);
            assert_eq!(got, Err(Error::OutOfMemory));
        }
        machine.events().compactions - before
    };
    // One attempt, then the second, the fourth, the eighth after each failure.
    assert_eq!(
        [runs(1), runs(1), runs(1), runs(3), runs(1), runs(7), runs(1)],
        [1, 0, 1, 0, 1, 0, 1]
    );
    // A caller that decides itself is not put off.
    let before = machine.events().compactions;
    for _ in 0..5 {
        let got = machine.alloc_compacting_now(request, &Immovable);
        assert_eq!(got, Err(Error::OutOfMemory));
    }
    assert_eq!(machine.events().compactions - before, 5);
    // Smaller blocks are unaffected, and whole compactions are not deferred.
    let smaller = Request::new(Order::new(4));
    let pfn = machine.alloc_compacting(smaller, &owner).expect("content moves");
    machine.free(pfn, Order::new(4)).unwrap();
    machine.compact(&owner);
    let pfn = machine.alloc_compacting(request, &owner).expect("memory is compact");
    machine.free(pfn, Order::PAGEBLOCK).unwrap();
    check_books(&*machine, owner.check());
}

fn zones_are_compacted_by_themselves<D: TestDesign>() {
    let low = range(0, 2048).in_zone(ZoneKind::Dma32);
    // A hole within a pageblock, and the next zone.
    let other = range(4096, 3000).on_node(NodeId::new(1));
    let machine = build::<D>(&[low, range(2048, 1900), other], &[0, 0], 0);
    let owner = Owner::new(8192, 8192);
    let mut slots = 0;
    while owner.alloc(&*machine, slots, Request::default()).is_ok() {
        slots += 1;
    }
    // A few frames of the lower zone are reserved for requests that need them.
    assert_eq!(slots, 2048 + 1900 + 3000 - 1900 / 256);
    let random = &mut Random(5);
    for _ in 0..slots {
        owner.free(&*machine, random.below(slots));
    }
    machine.drain_all();
    let levels = || machine.zones().map(|zone| zone.free).collect::<Vec<_>>();
    let (held, before) = (owner.check(), levels());
    machine.compact(&owner);
    assert_eq!(levels(), before, "nothing moves from one zone to another");
    assert_eq!(owner.check(), held);
    check_books(&*machine, held);
    for zone in machine.zones() {
        assert!(zone.free_pageblocks() + 2 >= zone.free.get() / PAGEBLOCK, "{zone:?}");
    }
    assert_eq!(machine.events().compactions, 3);
}

//! Memory that is removed from the design `freehold`, while other calls are stopped between two
//! steps; and pageblocks that come to another zone.

use std::cell::Cell;
use std::rc::Rc;

use crate::freehold_between::{CPU, Frames, PAGEBLOCK, each_step, each_step_then, machine};
use crate::freehold_queued;
use crate::machine::Machine;
use crate::steps::{Kind, StepPlatform, at_each_step, run_on, stop_at, unless_it_waits};
use freehold::designs::{DoubleFree, FreeholdSettings};
use freehold::platform::Platform;
use freehold::{
    Config, Error, FrameCount, FrameStatus, Immovable, MemoryRange, Migrate, MigrateError, NodeId,
    Order, Pfn, RangeRequest, Request, ZoneKind,
};

/// An owner whose content moves at once, except for this frame.
struct Moves(u64);

/// All of it moves.
const ALL: Moves = Moves(u64::MAX);

impl Migrate for Moves {
    fn migrate(&self, from: Pfn, _: Pfn, _: Order) -> Result<(), MigrateError> {
        if from.get() == self.0 { Err(MigrateError::Failed) } else { Ok(()) }
    }
}

fn frames(count: u64) -> FrameCount {
    FrameCount::new(count)
}

fn remove<P: Platform>(
    machine: &crate::freehold_queued::Frames<P>,
    first: u64,
    count: u64,
) -> bool {
    let removed = machine.remove_memory(Pfn::new(first), frames(count), &Immovable);
    let refused = [Error::RangeBusy, Error::ForeignFrame, Error::OutOfMemory];
    assert!(removed.is_ok() || refused.contains(&removed.unwrap_err()), "{removed:?}");
    removed.is_ok()
}

fn managed(machine: &Frames) -> u64 {
    machine.zones().map(|zone| zone.managed.get()).sum()
}

fn status(machine: &Frames, frame: u64) -> FrameStatus {
    machine.status(Pfn::new(frame))
}

/// The first frames are allocated, as one block.
fn with_block(order: u8) -> Rc<Frames> {
    let machine = machine(4, 0);
    assert_eq!(machine.alloc(Request::new(Order::new(order))), Ok(Pfn::new(0)));
    machine
}

/// Part of a block is freed while the frame behind it is removed, in the same word and in the next
/// one: it stays a hole.
#[test]
fn part_of_a_block_is_freed_while_the_frame_behind_it_is_removed() {
    for order in [2, 6] {
        let size = 1 << order;
        let beside = move |machine: &Frames| {
            unless_it_waits(|| remove(machine, size, 1));
        };
        let free = move |machine: &Frames| {
            let part = Order::new(order - 1);
            machine.free(Pfn::new(size / 2), part).expect("it is held");
        };
        let is_hole = |machine: &Frames| {
            let is_gone = managed(machine) < 4 * PAGEBLOCK;
            assert_eq!(status(machine, size) == FrameStatus::Foreign, is_gone);
        };
        each_step_then(1, || with_block(order), beside, free, is_hole);
    }
}

/// A frame, or part of a block, is freed while memory is added before it, in the same word: what
/// was a hole at the first look is no part of a larger block.
#[test]
fn frames_are_freed_while_memory_is_added_before_them() {
    let exact = FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() };
    for (settings, part) in
        [(FreeholdSettings::default(), Order::new(1)), (exact, Order::new(1)), (exact, Order::ZERO)]
    {
        let build = || {
            run_on(0);
            let machine = freehold_queued::machine_with(&settings, 4, 3, 0);
            assert_eq!(machine.alloc(Request::new(Order::new(3))), Ok(Pfn::new(0)));
            machine.free(Pfn::new(0), Order::new(2)).expect("it is held");
            assert!(remove(&machine, 0, 4));
            // Without a holder: what is added is free at once.
            machine.drain_all();
            Rc::new(machine)
        };
        let beside = |machine: &Frames| {
            let range = MemoryRange::new(Pfn::new(0), frames(4));
            unless_it_waits(|| machine.add_memory(range).expect("it was removed"));
        };
        let free = |machine: &Frames| machine.free(Pfn::new(6), part).expect("it is held");
        let is_free = |machine: &Frames| {
            assert_eq!(status(machine, 6), FrameStatus::Free);
            machine.validate().expect("all books agree");
        };
        each_step_then(1, build, beside, free, is_free);
    }
}

/// A frame is removed step by step: it never looks allocated, nor part of the block beside it.
#[test]
fn no_frame_looks_allocated_while_it_is_removed() {
    let look = |machine: &Frames| {
        let (first, order) = (Pfn::new(0), Order::ZERO);
        assert_eq!(status(machine, 0), FrameStatus::Allocated { first, order });
        assert!(matches!(status(machine, 1), FrameStatus::Free | FrameStatus::Foreign));
        machine.free(Pfn::new(1), Order::ZERO).expect_err("it is not held");
    };
    each_step(1, || with_block(0), look, |machine| assert!(remove(machine, 1, 1)));
    let beside = |machine: &Frames| {
        unless_it_waits(|| remove(machine, 1, 1));
    };
    each_step(1, || with_block(0), beside, look);
}

/// Frames are removed, or taken as a range, while some of them are removed: only one call gets
/// them.
#[test]
fn a_range_is_taken_while_part_of_it_is_removed() {
    for whole in [false, true] {
        let took = Rc::new(Cell::new(false));
        let other = Rc::clone(&took);
        let build = move || {
            other.set(false);
            machine(4, 0)
        };
        let part = |machine: &Frames| {
            unless_it_waits(|| remove(machine, PAGEBLOCK + 7, 2));
        };
        let call = |machine: &Frames| match whole {
            true => {
                let range = RangeRequest::new(frames(PAGEBLOCK)).at(Pfn::new(PAGEBLOCK));
                took.set(machine.alloc_range(range, &Immovable).is_ok());
            }
            false => _ = remove(machine, PAGEBLOCK, PAGEBLOCK),
        };
        each_step_then(1, build, part, call, |machine| {
            let left = managed(machine);
            assert!([0, 2, PAGEBLOCK].contains(&(4 * PAGEBLOCK - left)), "{left}");
            assert!(!took.get() || left == 4 * PAGEBLOCK);
        });
    }
}

/// Two removals at once: the watermarks are those of the memory that is left.
#[test]
fn watermarks_follow_whichever_removal_is_last() {
    let marks = |machine: &Frames| machine.zones().next().map(|zone| zone.marks);
    let expected = marks(&machine(2, 0));
    let other = |machine: &Frames| {
        unless_it_waits(|| assert!(remove(machine, 0, 2 * PAGEBLOCK)));
    };
    let removes = |machine: &Frames| assert!(remove(machine, 2 * PAGEBLOCK, 2 * PAGEBLOCK));
    each_step_then(
        7,
        || machine(16, 0),
        other,
        removes,
        |machine| {
            if managed(machine) == 2 * PAGEBLOCK {
                assert_eq!(marks(machine), expected);
            }
        },
    );
}

/// Some of the frames are added again while the rest of their pageblock is removed: they stay.
#[test]
fn memory_comes_back_while_it_is_removed() {
    let add = |machine: &Frames| {
        unless_it_waits(|| {
            let range = MemoryRange::new(Pfn::new(PAGEBLOCK), frames(70));
            let added = machine.add_memory(range);
            assert!([Ok(()), Err(Error::RangeOverlaps)].contains(&added), "{added:?}");
        });
    };
    let removes = |machine: &Frames| {
        remove(machine, PAGEBLOCK, PAGEBLOCK);
    };
    each_step_then(
        1,
        || machine(4, 0),
        add,
        removes,
        |machine| {
            let there = managed(machine) - 3 * PAGEBLOCK;
            assert!([0, 70, PAGEBLOCK].contains(&there), "{there}");
            machine.drain_all();
            assert_eq!(machine.is_free(Pfn::new(PAGEBLOCK)), there > 0);
        },
    );
}

/// So many pageblocks of a zone, and another zone without memory; the caches of CPU 0 are ahead.
fn with_other_zone() -> Rc<Frames> {
    run_on(0);
    let ranges = [MemoryRange::new(Pfn::new(0), frames(4 * PAGEBLOCK))];
    let spare_zones = [(NodeId::new(0), ZoneKind::Movable)];
    let cpus = [NodeId::new(0); 3];
    let config = Config::new(&ranges, &cpus).spare_zones(&spare_zones).min_free(FrameCount::ZERO);
    Rc::new(Machine::new(StepPlatform, &config, &Default::default()))
}

/// Moves the content of the first pageblock away, and the pageblock to the other zone.
fn change_zone(machine: &Frames, owner: &Moves) {
    if machine.remove_memory(Pfn::new(0), frames(PAGEBLOCK), owner).is_ok() {
        let there = MemoryRange::new(Pfn::new(0), frames(PAGEBLOCK)).in_zone(ZoneKind::Movable);
        machine.add_memory(there).expect("it is no memory now");
    }
}

fn take(machine: &Frames, count: u64, limit: ZoneKind) -> Vec<Pfn> {
    let request = Request::default().zone_limit(limit);
    (0..count).map(|_| machine.alloc(request).expect("memory is free")).collect()
}

/// A pageblock is full, and in the remote queue of its CPU, when it comes to another zone: what is
/// freed there is found there, whether the CPU drains its caches or only looks at its queues.
#[test]
fn a_pageblock_that_was_queued_comes_to_another_zone() {
    for drains in [true, false] {
        let machine = with_other_zone();
        let held = take(&machine, PAGEBLOCK + 1, ZoneKind::Normal);
        assert_eq!(held[0], Pfn::new(0));
        run_on(1);
        machine.free(Pfn::new(7), Order::ZERO).expect("it is held");
        change_zone(&machine, &ALL);
        assert_eq!(
            machine.zones().map(|zone| zone.managed.get() / PAGEBLOCK).collect::<Vec<_>>(),
            [3, 1]
        );
        run_on(0);
        // One more than there are: now the pageblock is known to be full.
        let there = take(&machine, PAGEBLOCK + 1, ZoneKind::Movable);
        assert_eq!(there.iter().filter(|pfn| pfn.get() < PAGEBLOCK).count() as u64, PAGEBLOCK);
        run_on(1);
        machine.free(Pfn::new(8), Order::ZERO).expect("it is held");
        match drains {
            true => machine.drain(CPU).expect("the CPU exists"),
            false => machine.tick(CPU).expect("the CPU exists"),
        }
        machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
        run_on(0);
        assert_eq!(machine.alloc(Request::default()), Ok(Pfn::new(8)), "found in the new zone");
        run_on(1);
        machine.free(Pfn::new(9), Order::ZERO).expect("it is held");
        machine.drain_all();
        let census = machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(census.free.get(), 4 * PAGEBLOCK - census.allocated.get());
    }
}

/// The same while other calls work on the pageblock: they free the last frames in it, look for
/// memory in the zone that it was in, collect, or move content.
#[test]
fn a_pageblock_comes_to_another_zone_while_calls_work_on_it() {
    type Call = fn(&Frames);
    let free: Call = |machine| machine.free(Pfn::new(7), Order::ZERO).expect("it is held");
    let alloc: Call = |machine| {
        for order in [0, 3, 9] {
            let request = Request::new(Order::new(order)).zone_limit(ZoneKind::Normal);
            // All of it may be gone.
            let _ = machine.alloc(request.nowait());
        }
    };
    let upkeep: Call = |machine| {
        machine.tick(CPU).expect("the CPU exists");
        machine.drain_all();
    };
    let compact: Call = |machine| _ = machine.compact(&ALL);
    let range: Call = |machine| {
        let range = RangeRequest::new(frames(40)).at(Pfn::new(8));
        let _ = machine.alloc_range(range, &ALL);
    };
    // The pageblock is full, has free frames in a cache, is without a holder, or is free.
    let taken = |count| {
        let machine = with_other_zone();
        take(&machine, count, ZoneKind::Normal);
        machine
    };
    let without_a_holder = || {
        let machine = taken(9);
        machine.drain_all();
        machine
    };
    let builds: [&dyn Fn() -> Rc<Frames>; 4] =
        [&|| taken(PAGEBLOCK + 1), &|| taken(9), &without_a_holder, &with_other_zone];
    // With the frame that the call frees, and how many of its steps are left out between stops.
    let none = u64::MAX;
    let calls = [(free, 7, 1), (alloc, none, 5), (upkeep, none, 1), (range, none, 11)];
    let calls = calls.into_iter().chain([(compact, none, 5)]);
    for (nth, build) in builds.into_iter().enumerate() {
        for (call, stays, stride) in calls.clone().skip(usize::from(nth == 3)) {
            let meanwhile = move |machine: &Frames| {
                unless_it_waits(|| change_zone(machine, &Moves(stays)));
            };
            each_step_then(stride, build, meanwhile, call, |machine| {
                machine.drain_all();
                machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
            });
        }
    }
}

/// Memory that a zone has no room for in its trees is refused.
#[test]
fn memory_is_added_only_where_a_zone_may_have_some() {
    let other = |first| {
        let range = MemoryRange::new(Pfn::new(first), frames(PAGEBLOCK));
        range.on_node(NodeId::new(1))
    };
    let ranges = [MemoryRange::new(Pfn::new(0), frames(130 * PAGEBLOCK)), other(130 * PAGEBLOCK)];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    let machine: Frames = Machine::new(StepPlatform, &config, &Default::default());
    run_on(0);
    assert!(remove(&machine, 0, PAGEBLOCK));
    assert_eq!(machine.add_memory(other(0)), Err(Error::OutsideSpan));
    machine.add_memory(MemoryRange::new(Pfn::new(0), frames(PAGEBLOCK))).expect("it was there");
    machine.validate().expect("the accounting is right");
}

/// Other CPUs allocate, free and look wherever a removal stops.
#[test]
fn a_removal_stops_anywhere() {
    let stops = at_each_step(|step| {
        let machine = machine(4, 0);
        let held = take(&machine, 9, ZoneKind::Normal);
        let (other, theirs) = (Rc::clone(&machine), held.clone());
        let meanwhile = move || {
            run_on(1);
            other.free(theirs[3], Order::ZERO).expect("it is held");
            let pfn = other.alloc(Request::default()).expect("memory is free");
            assert!(
                matches!(other.status(pfn), FrameStatus::Allocated { first, .. } if first == pfn)
            );
            other.free(pfn, Order::ZERO).expect("it is held");
        };
        let call = || machine.remove_memory(Pfn::new(4), frames(PAGEBLOCK), &ALL);
        let (removed, was_stopped) = stop_at(step, Kind::Stop, meanwhile, call);
        assert_eq!(removed, Some(Ok(())), "step {step}");
        let census = machine.validate().unwrap_or_else(|violation| panic!("{step}: {violation}"));
        assert_eq!(census.managed.get(), 3 * PAGEBLOCK);
        was_stopped
    });
    assert!(stops > 100, "{stops} stops");
}

//! An allocation of the design `freehold` between two steps of another call: it finds what is free,
//! or waits for that call.

use std::cell::Cell;
use std::rc::Rc;

use crate::freehold_between::{Frames, PAGEBLOCK, below, each_step, machine};
use crate::steps::{Kind, at_each_step, run_on, stop_again, stop_at, unless_it_waits};
use freehold::{CpuId, Error, Order, Pfn, Request};

/// Allocates a block on CPU 1 between all steps of a call on CPU 0: it finds what is free, or waits
/// for the stopped call, if `may_wait`. `before` may run something first.
fn finds_at_each_step(
    order: Order,
    build: impl Fn() -> Rc<Frames>,
    call: impl Fn(&Frames),
    (before, may_wait): (fn(&Frames), bool),
) {
    for nowait in [false, true] {
        let meanwhile = move |frames: &Frames| {
            before(frames);
            let request = if nowait { below(order).nowait() } else { below(order) };
            match unless_it_waits(|| frames.alloc(request)) {
                Some(Ok(_)) => {}
                Some(Err(Error::WouldWait)) if nowait => {}
                Some(Err(error)) => panic!("{error}, though a block is free"),
                None => assert!(may_wait && !nowait, "it waits forever"),
            }
        };
        each_step(1, &build, meanwhile, &call);
    }
}

/// All memory of two pageblocks is allocated, and the zone is not marked as cached. CPU `of` has
/// had all of it.
fn all_taken(of: u32) -> Rc<Frames> {
    let frames = machine(2, 0);
    run_on(of);
    while frames.alloc(below(Order::ZERO)).is_ok() {}
    frames
}

/// A free marks a pageblock as queued and is stopped before it pushes it: another free relies on
/// the mark, and an allocation finds the frames.
#[test]
fn what_is_freed_in_a_pageblock_that_is_not_pushed_yet_is_found() {
    let (free, another) = (|frames: &Frames| give(frames, 7), |frames: &Frames| give(frames, 8));
    finds_at_each_step(Order::ZERO, || all_taken(2), free, (another, false));
}

/// A free has its cache acquire a pageblock with a free frame, which must be found all the time.
#[test]
fn what_a_cache_acquires_for_a_free_is_found() {
    let build = || {
        let frames = all_taken(1);
        frames.offline_cpu(CpuId::new(1)).expect("the CPU exists");
        give(&frames, 7);
        frames.drain(CpuId::new(1)).expect("the CPU exists");
        // From now on the zone is not marked as cached.
        frames.alloc(below(Order::new(3))).expect_err("one frame is free");
        frames
    };
    finds_at_each_step(Order::ZERO, build, |frames| give(frames, 9), (|_| (), true));
}

/// A cache takes the last whole pageblock for one frame: all others must be found all the time.
#[test]
fn what_a_cache_takes_from_the_pool_is_found() {
    let build = || {
        let frames = all_taken(1);
        frames.offline_cpu(CpuId::new(1)).expect("the CPU exists");
        (0..PAGEBLOCK).for_each(|pfn| give(&frames, pfn));
        frames.drain(CpuId::new(1)).expect("the CPU exists");
        frames.alloc(below(Order::new(10))).expect_err("one pageblock is free");
        frames
    };
    let alloc = |frames: &Frames| _ = frames.alloc(Request::default()).expect("memory is free");
    finds_at_each_step(Order::ZERO, build, alloc, (|_| (), true));
}

fn take(frames: &Frames) {
    frames.alloc(below(Order::ZERO)).expect("memory is free");
}

fn give(frames: &Frames, pfn: u64) {
    frames.free(Pfn::new(pfn), Order::ZERO).expect("it is held");
}

/// How many frames are free, wherever that is noted.
fn free_frames(frames: &Frames) -> u64 {
    let census = frames.validate().expect("the accounting is right");
    (census.free + census.per_cpu).get()
}

/// So many pageblocks, of which the last ones are in the pool, and caches hold nothing.
fn pool_of(pageblocks: u64, left: u64, min_free: u64) -> Rc<Frames> {
    let frames = machine(pageblocks, min_free);
    run_on(1);
    let taken = std::iter::from_fn(|| frames.alloc(below(Order::PAGEBLOCK)).ok());
    assert_eq!({ taken }.count() as u64, pageblocks);
    for block in pageblocks - left..pageblocks {
        frames.free(Pfn::new(block * PAGEBLOCK), Order::PAGEBLOCK).expect("it is held");
    }
    frames.drain_all();
    frames.alloc(below(Order::new(15))).expect_err("not so much is free");
    frames
}

/// An allocation that fails drains all caches: another one finds on its way what they held.
#[test]
fn what_a_drain_has_not_reached_is_found() {
    let build = || {
        let frames = all_taken(2);
        give(&frames, 7);
        frames
    };
    let fails = |frames: &Frames| {
        frames.alloc(below(Order::new(3))).expect_err("not so much is free");
    };
    finds_at_each_step(Order::ZERO, build, fails, (|_| (), true));
}

/// In memory so low that caches hold nothing, an allocation takes a frame of the last pageblock:
/// the others must be found all the time.
#[test]
fn what_is_left_of_a_pageblock_is_found() {
    for order in [Order::ZERO, Order::new(3)] {
        let build = || pool_of(2, 1, 2 * PAGEBLOCK);
        finds_at_each_step(order, build, take, (|_| (), true));
    }
}

/// The same in a pageblock of which some frames are free.
#[test]
fn runs_of_an_orphan_are_found() {
    let build = || {
        let frames = all_taken_of_low_zone();
        (8..24).for_each(|pfn| give(&frames, pfn));
        frames
    };
    finds_at_each_step(Order::new(3), build, take, (|_| (), true));
}

/// Two pageblocks, all of which is allocated, one of them in single frames; caches hold nothing.
fn all_taken_of_low_zone() -> Rc<Frames> {
    let frames = machine(2, 2 * PAGEBLOCK);
    run_on(1);
    frames.alloc(below(Order::PAGEBLOCK)).expect("memory is free");
    while frames.alloc(below(Order::ZERO)).is_ok() {}
    frames
}

/// A block of a pageblock waits for no call that moves less, though that stops for ever.
#[test]
fn whole_pageblocks_are_looked_for_past_calls_that_move_parts() {
    let build = || {
        let frames = all_taken_of_low_zone();
        give(&frames, PAGEBLOCK + 7);
        frames.alloc(below(Order::new(3))).expect_err("one frame is free");
        frames
    };
    let meanwhile = |frames: &Frames| {
        let whole = unless_it_waits(|| frames.alloc(below(Order::PAGEBLOCK)));
        assert_eq!(whole, Some(Err(Error::OutOfMemory)));
    };
    each_step(1, build, meanwhile, take);
    each_step(1, build, meanwhile, |frames| give(frames, PAGEBLOCK + 9));
}

/// A cache acquires the last two pageblocks as spares, for a block of one.
#[test]
fn spares_of_a_cache_are_found() {
    let alloc = |frames: &Frames| {
        frames.alloc(Request::new(Order::PAGEBLOCK)).expect("memory is free");
    };
    for order in [Order::ZERO, Order::PAGEBLOCK] {
        finds_at_each_step(order, || pool_of(96, 2, 0), alloc, (|_| (), true));
    }
}

/// A block of two words of pageblocks cannot be had, since all of the second were taken a moment
/// ago: the others are put back, and must be found all the time.
#[test]
fn what_a_large_block_would_have_taken_is_found() {
    let large = Order::new(16);
    for first in 0.. {
        let mut was_stopped = false;
        for second in (0..).step_by(3) {
            let frames = machine(128, 0);
            let (other, found) = (Rc::clone(&frames), Rc::new(Cell::new(None)));
            let result = Rc::clone(&found);
            let meanwhile = move || {
                run_on(1);
                let half = Order::new(15);
                let lower = other.alloc(below(half).nowait());
                let upper = other.alloc(below(half).nowait());
                if let (Ok(pfn), Ok(_)) = (lower, upper) {
                    other.free(pfn, half).expect("it is held");
                }
                stop_again(second, Kind::Stop, move || {
                    run_on(2);
                    result.set(unless_it_waits(|| other.alloc(below(Order::PAGEBLOCK))));
                });
            };
            run_on(0);
            let call = || frames.alloc(below(large)).is_ok();
            let (taken, stopped_again) = stop_at(first, Kind::Stop, meanwhile, call);
            if let (Some(false), Some(result)) = (taken, found.get()) {
                assert!(result.is_ok(), "steps {first} and {second}: {result:?}");
            }
            was_stopped |= stopped_again;
            if !stopped_again {
                break;
            }
        }
        if !was_stopped {
            return;
        }
    }
}

/// Makes the zone low, by taking all that can be had past caches that are in use.
fn take_all(frames: &Frames) {
    for order in [Order::PAGEBLOCK, Order::ZERO] {
        while frames.alloc(below(order).nowait()).is_ok() {}
    }
}

/// What came to a cache while the zone became low: `call` has stopped before this step for that.
fn cached_in_a_low_zone(
    build: impl Fn() -> Rc<Frames>,
    call: impl Fn(&Frames),
    step: u64,
) -> (Rc<Frames>, bool) {
    let frames = build();
    let other = Rc::clone(&frames);
    let meanwhile = move || {
        run_on(1);
        take_all(&other);
    };
    run_on(0);
    let (_, was_stopped) = stop_at(step, Kind::Stop, meanwhile, || call(&frames));
    (frames, was_stopped)
}

/// The cache of CPU 0 has a full pageblock, and one pageblock is in the pool.
fn full_and_pool() -> Rc<Frames> {
    let frames = machine(4, 64);
    (0..PAGEBLOCK).for_each(|_| take(&frames));
    run_on(1);
    let taken = [(); 3].map(|()| frames.alloc(below(Order::PAGEBLOCK)).expect("memory is free"));
    frames.free(taken[2], Order::PAGEBLOCK).expect("it is held");
    frames.drain(CpuId::new(1)).expect("the CPU exists");
    frames.alloc(below(Order::new(10))).expect_err("not so much is free");
    frames
}

/// A cache comes to hold free frames because the zone was not low when it checked: an allocation in
/// the zone that is low by now finds them.
#[test]
fn what_comes_to_a_cache_while_the_zone_becomes_low_is_found() {
    let free = |frames: &Frames| give(frames, 7);
    let fetch = |frames: &Frames| _ = frames.alloc(Request::new(Order::PAGEBLOCK));
    let stash = |frames: &Frames| {
        frames.free(Pfn::new(0), Order::PAGEBLOCK).expect("it is held");
    };
    type Case = (fn() -> Rc<Frames>, fn(&Frames));
    let cases: [Case; 3] =
        [(full_and_pool, free), (|| pool_of(96, 4, 64), fetch), (|| pool_of(4, 1, 64), stash)];
    for (build, call) in cases {
        at_each_step(|step| {
            let (frames, was_stopped) = cached_in_a_low_zone(build, call, step);
            run_on(2);
            if free_frames(&frames) > 0 {
                let found = frames.alloc(below(Order::ZERO));
                found.unwrap_or_else(|error| panic!("step {step}: {error}"));
            }
            was_stopped
        });
    }
}

/// Tries all cases in which the cache of CPU 0 holds a free frame though the zone is low.
fn where_a_low_zone_is_cached(act: impl Fn(&Rc<Frames>)) {
    let mut cached = 0;
    at_each_step(|step| {
        let (frames, was_stopped) = cached_in_a_low_zone(full_and_pool, |it| give(it, 7), step);
        let census = frames.validate().expect("the accounting is right");
        if was_stopped && census.per_cpu.get() > 0 {
            act(&frames);
            cached += 1;
        }
        was_stopped
    });
    assert!(cached > 0, "the low zone was never cached");
}

/// A low zone all of which is allocated, but for these frames of full pageblocks: of the first one,
/// which CPU 0 holds, and of the third, of CPU 2. They are queued, and these caches marked.
fn queued_in_a_low_zone(free: &[u64]) -> Rc<Frames> {
    let frames = machine(4, 64);
    for cpu in [0, 2] {
        run_on(cpu);
        (0..=PAGEBLOCK).for_each(|_| take(&frames));
    }
    run_on(1);
    take_all(&frames);
    free.iter().for_each(|&pfn| give(&frames, pfn));
    let census = frames.validate().expect("the accounting is right");
    assert_eq!((census.free.get(), census.per_cpu.get()), (0, free.len() as u64));
    frames
}

/// It is found at once, though a call that is stopped uses another cache, which is marked.
#[test]
fn what_a_cache_holds_is_found_without_waiting_for_another_one() {
    let mut locked = 0;
    at_each_step(|step| {
        let frames = queued_in_a_low_zone(&[7, 2 * PAGEBLOCK + 7]);
        let (other, was_locked) = (Rc::clone(&frames), Rc::new(Cell::new(false)));
        let locks = Rc::clone(&was_locked);
        let alloc = move || {
            run_on(1);
            let frame = unless_it_waits(|| other.alloc(below(Order::ZERO)));
            frame.expect("it need not wait").expect("a frame is free");
            locks.set(unless_it_waits(|| other.drain(CpuId::new(0))).is_none());
        };
        run_on(0);
        let tick = || frames.tick(CpuId::new(0)).expect("the CPU exists");
        let (_, was_stopped) = stop_at(step, Kind::Stop, alloc, tick);
        locked += u32::from(was_locked.get());
        was_stopped
    });
    assert!(locked > 0, "the cache was never locked");
}

/// A drain of a cache is stopped at each step: at no time is what it moves neither marked nor in a
/// section.
#[test]
fn what_a_drain_moves_is_found() {
    let drain = |frames: &Frames| frames.drain(CpuId::new(0)).expect("the CPU exists");
    finds_at_each_step(Order::ZERO, || queued_in_a_low_zone(&[7]), drain, (|_| (), true));
}

/// It is found, though a drain has begun that never comes to this cache.
#[test]
fn what_a_drain_never_reaches_is_found() {
    for nowait in [false, true] {
        where_a_low_zone_is_cached(|frames| {
            let other = Rc::clone(frames);
            let drain = move || {
                run_on(1);
                let waits = unless_it_waits(|| other.alloc(below(Order::new(3))));
                assert_eq!(waits, None, "the cache is in use");
            };
            run_on(0);
            let tick = || frames.tick(CpuId::new(0)).expect("the CPU exists");
            // Before it releases the lock.
            stop_at(2, Kind::Stop, drain, tick);
            run_on(2);
            let wanted = if nowait { below(Order::ZERO).nowait() } else { below(Order::ZERO) };
            let found = unless_it_waits(|| frames.alloc(wanted));
            found.expect("it need not wait").expect("a frame is free");
        });
    }
}

/// A drain waits for ever for a cache that a stopped call uses: allocations end all the same, those
/// that fail as well.
#[test]
fn others_end_though_a_drain_never_does() {
    at_each_step(|step| {
        let frames = all_taken(1);
        give(&frames, 7);
        let other = Rc::clone(&frames);
        let drain = move || {
            run_on(0);
            let fails = || other.alloc(below(Order::new(3)));
            let _ = unless_it_waits(fails);
        };
        let tick = || frames.tick(CpuId::new(2)).expect("the CPU exists");
        let (ended, was_stopped) = stop_at(step, Kind::Stop, drain, tick);
        assert!(ended.is_some(), "it waits for nothing");
        run_on(1);
        let alloc = || unless_it_waits(|| frames.alloc(below(Order::ZERO)));
        assert!(matches!(alloc(), Some(Ok(_))), "step {step}: a frame is free");
        assert_eq!(alloc(), Some(Err(Error::OutOfMemory)), "step {step}");
        was_stopped
    });
}

/// A free has marked a pageblock as queued and not pushed it. While another call looks for such
/// marks, its holder makes the pageblock partial, or it loses its holder.
#[test]
fn a_pageblock_changes_hands_while_its_mark_is_found() {
    let changes: [fn(&Frames); 2] = [
        |frames| {
            run_on(2);
            let _ = unless_it_waits(|| give(frames, 9));
        },
        |frames| _ = unless_it_waits(|| frames.offline_cpu(CpuId::new(2))),
    ];
    for change in changes {
        for first in 0.. {
            let (mut was_stopped, mut second) = (false, 0);
            loop {
                let frames = all_taken(2);
                let (other, again) = (Rc::clone(&frames), Rc::new(Cell::new(false)));
                let stopped_again = Rc::clone(&again);
                let meanwhile = move || {
                    run_on(1);
                    give(&other, 8);
                    let changing = Rc::clone(&other);
                    let alloc = || other.alloc(below(Order::ZERO).nowait());
                    let change = move || change(&changing);
                    let (found, stopped) = stop_at(second, Kind::Stop, change, alloc);
                    let may = matches!(found, None | Some(Ok(_) | Err(Error::WouldWait)));
                    assert!(may, "steps {first} and {second}: {found:?}");
                    stopped_again.set(stopped);
                };
                run_on(0);
                let (ended, stopped) = stop_at(first, Kind::Stop, meanwhile, || give(&frames, 7));
                was_stopped |= stopped;
                if ended.is_some() {
                    let valid = frames.validate();
                    valid.unwrap_or_else(|broken| panic!("steps {first} and {second}: {broken}"));
                }
                if !again.get() {
                    break;
                }
                second += 1;
            }
            if !was_stopped {
                break;
            }
        }
    }
}

/// A notification of a frame is under way to a CPU that goes offline meanwhile: another frame of
/// the pageblock, whose free relies on that, is found.
#[test]
fn what_is_freed_in_a_pageblock_queued_for_a_cpu_that_is_gone_is_found() {
    let build = || {
        let frames = machine(2, 64);
        run_on(2);
        while frames.alloc(below(Order::ZERO)).is_ok() {}
        frames
    };
    let before = |frames: &Frames| {
        let _ = unless_it_waits(|| frames.offline_cpu(CpuId::new(2)));
        let _ = frames.alloc(below(Order::ZERO).nowait());
        give(frames, 8);
    };
    finds_at_each_step(Order::ZERO, build, |frames| give(frames, 7), (before, false));
}

//! The counters of the design `freehold`, read while frames and pageblocks change hands, under
//! loom: all interleavings with a few preemptions, and all values that the memory orderings allow a
//! load to see; `LOOM_MAX_PREEMPTIONS` explores further.
//!
//! Of several loads before a write, loom remembers the last only. Therefore the thread that writes
//! is the one that runs first.

use std::ops::RangeInclusive;

use crate::freehold_models::{
    BLOCK, Frames, Sound, active, build, build_of, check_held, explore, frame, free, join, on_cpu,
    range, take,
};
use crate::loom_platform::run_on;
use freehold::{Order, Request};

/// Reads the counters: so many frames have been allocated, and so many are in use.
fn look(machine: &Frames<Sound>, allocated: RangeInclusive<u64>, used: RangeInclusive<u64>) {
    let events = machine.events();
    let (handed_out, freed) = (events.allocated.get(), events.freed.get());
    assert!(allocated.contains(&handed_out), "{handed_out} were handed out, of {allocated:?}");
    let in_use = handed_out.checked_sub(freed).expect("no more is freed than was handed out");
    assert!(used.contains(&in_use), "{in_use} are in use, of {used:?}");
}

/// A frame that another CPU has freed is collected, and its pageblock leaves the cache: that
/// changes nothing in what is in use.
#[test]
fn a_look_while_a_cache_is_drained() {
    explore(1, || {
        let machine = active(2);
        run_on(1);
        free(&machine, 7);
        let reader = on_cpu(&machine, 1, |machine| {
            look(machine, BLOCK..=BLOCK, BLOCK - 1..=BLOCK - 1);
        });
        run_on(0);
        machine.drain_all();
        join(reader);
        check_held(&machine, BLOCK - 1);
    });
}

/// The holder collects such a frame and allocates it again. It is in use then, or not yet.
#[test]
fn a_look_while_the_holder_runs_dry() {
    explore(2, || {
        let machine = active(2);
        run_on(1);
        free(&machine, 7);
        let reader = on_cpu(&machine, 1, |machine| {
            look(machine, BLOCK..=BLOCK + 1, BLOCK - 1..=BLOCK);
        });
        run_on(0);
        machine.alloc(frame()).expect("a frame is free");
        join(reader);
        look(&machine, BLOCK + 1..=BLOCK + 1, BLOCK..=BLOCK);
        check_held(&machine, BLOCK);
    });
}

/// The last frame of a pageblock is freed, and all of it is allocated at once.
#[test]
fn a_look_while_a_pageblock_becomes_whole_and_is_handed_out() {
    explore(2, || {
        let machine = build(2);
        let held = machine.alloc(frame()).expect("memory is free");
        let reader = on_cpu(&machine, 1, |machine| {
            look(machine, 1..=1 + 2 * BLOCK, 0..=1 + 2 * BLOCK);
        });
        machine.free(held, Order::ZERO).expect("it is held");
        machine.alloc(Request::new(Order::new(10))).expect("all is free");
        join(reader);
        look(&machine, 1 + 2 * BLOCK..=1 + 2 * BLOCK, 2 * BLOCK..=2 * BLOCK);
        check_held(&machine, 2 * BLOCK);
    });
}

/// Part of a pageblock that was allocated whole is freed.
#[test]
fn a_look_while_a_pageblock_is_broken_up() {
    explore(1, || {
        let machine = build(2);
        let block = machine.alloc(Request::new(Order::PAGEBLOCK)).expect("memory is free");
        let reader = on_cpu(&machine, 1, |machine| {
            look(machine, BLOCK..=BLOCK, BLOCK - 8..=BLOCK);
        });
        machine.free(block, Order::new(3)).expect("it is held");
        join(reader);
        check_held(&machine, BLOCK - 8);
    });
}

/// Memory is added to a pageblock without a holder: none of it has ever been in use.
#[test]
fn a_look_while_memory_is_added() {
    let ranges = [range(0, 64), range(BLOCK, 8)];
    explore(1, move || {
        let machine = build_of::<Sound>(&ranges, 2, 0);
        take(&machine, 40);
        (0..20).for_each(|nth| free(&machine, nth));
        let reader = on_cpu(&machine, 1, |machine| look(machine, 40..=40, 20..=20));
        machine.add_memory(range(BLOCK + 8, 8)).expect("it is new");
        join(reader);
        check_held(&machine, 20);
    });
}

//! What calls of the design `freehold` cost, in steps: accesses to words that CPUs share, and to
//! locks. Only so does it show that a fast path is taken, since the slow one has the same results.

use crate::freehold_queued;
use crate::steps::{StepPlatform, run_on, steps_of};
use freehold::{CpuId, Order, Pfn, Request};

type Frames = freehold_queued::Frames<StepPlatform>;

const PAGEBLOCK: u64 = 512;

/// Single frames, runs within a word, a run of two words, and pageblocks.
const ORDERS: [u8; 5] = [0, 3, 6, 7, 9];

/// Two CPUs and so many pageblocks: of 64, a cache acquires eight spares at once.
fn machine(pageblocks: u64) -> Frames {
    run_on(0);
    freehold_queued::machine(pageblocks, 2, 0)
}

/// The steps of an allocation and a free of each order, once the cache has a pageblock for it.
#[test]
fn blocks_come_and_go_in_few_steps() {
    let steps = ORDERS.map(|order| {
        let (frames, order) = (machine(64), Order::new(order));
        frames.alloc(Request::new(order)).expect("memory is free");
        let (alloc, pfn) = steps_of(|| frames.alloc(Request::new(order)).expect("memory is free"));
        let (free, freed) = steps_of(|| frames.free(pfn, order));
        assert_eq!(freed, Ok(()));
        (alloc, free)
    });
    assert_eq!(steps, [(6, 9), (7, 10), (12, 10), (14, 30), (4, 7)]);
}

#[test]
fn a_lease_has_no_locks_to_take() {
    let steps = ORDERS.map(|order| {
        let (frames, order) = (machine(64), Order::new(order));
        let lease = frames.lease(CpuId::new(0)).expect("no other lease has it");
        lease.alloc(Request::new(order)).expect("memory is free");
        let (alloc, pfn) = steps_of(|| lease.alloc(Request::new(order)).expect("memory is free"));
        let (free, freed) = steps_of(|| lease.free(pfn, order));
        assert_eq!(freed, Ok(()));
        (alloc, free)
    });
    assert_eq!(steps, [(7, 10), (8, 13), (13, 13), (15, 41), (6, 9)]);
}

#[test]
fn a_block_of_another_cpu_is_freed_in_few_steps() {
    let steps = ORDERS.map(|order| {
        let (frames, order) = (machine(64), Order::new(order));
        // Not the only one of its pageblock, which would be released.
        let [pfn, _] = [(); 2].map(|()| frames.alloc(Request::new(order)).expect("memory is free"));
        run_on(1);
        let (steps, freed) = steps_of(|| frames.free(pfn, order));
        assert_eq!(freed, Ok(()));
        steps
    });
    assert_eq!(steps, [6, 10, 15, 35, 14]);
}

/// A word of 64 frames costs hardly more than a frame.
#[test]
fn bulk_calls_take_a_word_at_a_time() {
    let frames = machine(64);
    let mut out = [Pfn::default(); 256];
    // The first call acquires pageblocks.
    assert_eq!(frames.alloc_bulk(Request::default(), &mut out[..1]), Ok(1));
    let (alloc, count) = steps_of(|| frames.alloc_bulk(Request::default(), &mut out));
    assert_eq!(count, Ok(256));
    let (free, freed) = steps_of(|| frames.free_bulk(&out, Order::ZERO));
    assert_eq!(freed, Ok(()));
    assert_eq!([alloc, free], [54, 55]);
}

/// Where the pool is empty, another CPU gives one of its pageblocks, and keeps the others.
#[test]
fn a_cache_that_has_some_gives_one() {
    let frames = machine(64);
    run_on(1);
    for order in [0, 3].map(Order::new) {
        frames.alloc(Request::new(order)).expect("memory is free");
    }
    run_on(0);
    let whole = Request::new(Order::PAGEBLOCK);
    (2..64).for_each(|_| _ = frames.alloc(whole).expect("so many are left"));
    let cached = || frames.validate().expect("the books are in order").per_cpu.get();
    let before = cached();
    assert_eq!(before, 2 * PAGEBLOCK - 9);
    frames.alloc(Request::default()).expect("the other CPU has some");
    assert_eq!(cached(), before - (PAGEBLOCK - 8), "that of larger blocks goes first");
}

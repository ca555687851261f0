//! Pageblocks of the design `freehold` in the remote queue of a CPU that holds them no more; and
//! frees after which a frame, or a whole pageblock, is available at once.

use crate::common::{TestPlatform, run_on};
use crate::machine::Machine;
use freehold::designs::{Freehold, FreeholdSettings};
use freehold::platform::Platform;
use freehold::{
    Config, CpuId, FrameCount, MemoryRange, Migrate, MigrateError, NodeId, Order, Pfn,
    RangeRequest, Request, Watermark,
};

pub(crate) type Frames<P> = Machine<P, Freehold<P>>;

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

/// So many pageblocks and CPUs, and a `min_free`.
pub(crate) fn machine<P: Platform + Default>(
    pageblocks: u64,
    cpus: usize,
    min_free: u64,
) -> Frames<P> {
    machine_with(&Default::default(), pageblocks, cpus, min_free)
}

/// The same with these settings.
pub(crate) fn machine_with<P: Platform + Default>(
    settings: &FreeholdSettings,
    pageblocks: u64,
    cpus: usize,
    min_free: u64,
) -> Frames<P> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(pageblocks * PAGEBLOCK))];
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(min_free));
    Machine::new(P::default(), &config, settings)
}

fn take<P: Platform>(frames: &Frames<P>, count: u64) -> Vec<u64> {
    let request = Request::default().watermark(Watermark::Ignore);
    let one = || frames.alloc(request).expect("memory is free").get();
    (0..count).map(|_| one()).collect()
}

fn give<P: Platform>(frames: &Frames<P>, pfn: u64) {
    frames.free(Pfn::new(pfn), Order::ZERO).expect("it is held");
}

/// Frames that are free, cached and allocated.
fn places<P: Platform>(frames: &Frames<P>) -> [u64; 3] {
    let census = frames.validate().expect("the accounting is right");
    [census.free, census.per_cpu, census.allocated].map(FrameCount::get)
}

fn drain<P: Platform>(frames: &Frames<P>, cpu: u32) {
    frames.drain(CpuId::new(cpu)).expect("the CPU exists");
}

/// An owner that moves nothing.
struct Refuses;

impl Migrate for Refuses {
    fn migrate(&self, _: Pfn, _: Pfn, _: Order) -> Result<(), MigrateError> {
        Err(MigrateError::Failed)
    }
}

/// CPU 1 has had so many frames, and CPU 2 has freed the seventh of the first pageblock. A range
/// was requested there, and refused. So the pageblock has no holder, and is on the stack of CPU 1.
/// Returns its first frame.
fn queued_without_holder<P: Platform>(frames: &Frames<P>, taken: u64) -> u64 {
    run_on(1);
    let first = take(frames, taken)[0];
    assert_eq!(first % PAGEBLOCK, 0);
    run_on(2);
    give(frames, first + 7);
    let range = RangeRequest::new(FrameCount::new(PAGEBLOCK)).at(Pfn::new(first));
    frames.alloc_range(range, &Refuses).expect_err("its frames are in use");
    // It has taken frames to move content to.
    drain(frames, 2);
    first
}

/// CPU 0 acquires that pageblock, and uses it up: it is full there, and still on the stack of CPU
/// 1.
fn queued_and_full_elsewhere<P: Platform>(frames: &Frames<P>) -> u64 {
    let first = queued_without_holder(frames, PAGEBLOCK + 1);
    run_on(0);
    (8..40).for_each(|nth| give(frames, first + nth));
    assert!(take(frames, 33).iter().all(|pfn| pfn / PAGEBLOCK == first / PAGEBLOCK));
    take(frames, 1);
    first
}

/// The new holder has been drained when a drain comes to the stack of the former one: no cache
/// holds the frame then.
#[test]
fn a_drain_of_the_former_holder_makes_the_new_one_release() {
    let frames = machine::<TestPlatform>(4, 3, 0);
    let first = queued_and_full_elsewhere(&frames);
    run_on(2);
    give(&frames, first + 9);
    drain(&frames, 0);
    assert_eq!(places(&frames)[1], PAGEBLOCK, "what CPU 1 keeps, and the frame");
    drain(&frames, 1);
    assert_eq!(places(&frames), [3 * PAGEBLOCK - 1, 0, PAGEBLOCK + 1]);
}

/// It has no holder, and counts as watched: the call that takes it off the stack collects its
/// frames.
#[test]
fn a_drain_of_the_former_holder_finds_what_has_no_holder() {
    let frames = machine::<TestPlatform>(4, 3, 0);
    let first = queued_without_holder(&frames, PAGEBLOCK + 1);
    run_on(2);
    give(&frames, first + 9);
    drain(&frames, 1);
    assert_eq!(places(&frames), [3 * PAGEBLOCK + 1, 0, PAGEBLOCK - 1]);
}

/// In a zone that is used up, no cache acquires a pageblock for a free: the frame is in the level
/// at once.
#[test]
fn a_zone_that_is_used_up_gets_what_is_freed_elsewhere_at_once() {
    let frames = machine::<TestPlatform>(4, 3, 64);
    let all = 4 * PAGEBLOCK;
    let first = queued_without_holder(&frames, all);
    assert_eq!(places(&frames), [1, 0, all - 1]);
    run_on(2);
    give(&frames, first + 9);
    assert_eq!(places(&frames), [2, 0, all - 2]);
}

/// A full pageblock becomes partial when its holder frees a frame of it, unless the zone is low.
#[test]
fn a_low_zone_gets_what_is_freed_locally_at_once() {
    for (min_free, cached) in [(0, 1), (64, 0)] {
        let frames = machine::<TestPlatform>(2, 1, min_free);
        run_on(0);
        let below = Request::default().watermark(Watermark::Ignore);
        while frames.alloc(below).is_ok() {}
        give(&frames, 7);
        assert_eq!(places(&frames)[1], cached, "min_free {min_free}");
    }
}

/// A pageblock whose holder has used it up, and whose last frame another CPU frees, becomes a spare
/// of its holder.
#[test]
fn a_pageblock_that_others_have_freed_is_whole_at_once() {
    let frames = machine::<TestPlatform>(8, 2, 0);
    run_on(0);
    let first = take(&frames, PAGEBLOCK + 1)[0];
    let refills = frames.events().refills;
    run_on(1);
    (0..PAGEBLOCK).for_each(|nth| give(&frames, first + nth));
    run_on(0);
    assert_eq!(frames.alloc(Request::new(Order::PAGEBLOCK)), Ok(Pfn::new(first)));
    assert_eq!(frames.events().refills, refills, "it was there already");
}

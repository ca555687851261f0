//! How pageblocks change hands in the design `freehold`, under loom: all interleavings with a few
//! preemptions (nearly always two; each model says how many), and all values that the memory
//! orderings allow a load to see; `LOOM_MAX_PREEMPTIONS` explores further.
//!
//! Every model runs the real allocator. Its pageblocks are brought into the relevant state before
//! the threads start.
//!
//! Of several loads before a write, loom remembers the last only, and so would miss that the write
//! could have come before the others. Therefore the thread that writes is the one that runs first.

use crate::freehold_models::{
    ALL, BLOCK, Frames, Sound, active, build, build_larger, build_of, check, check_held, explore,
    frame, free, full, full_of, join, on_cpu, range, take,
};
use crate::loom_platform::{LoomCell, LoomPlatform, run_on};
use freehold::MigrateType::Unmovable;
use freehold::platform::{Platform, SharedCell};
use freehold::{CpuId, Error, FrameCount, Order, Pfn, Request, Watermark};
use loom::sync::Arc;

/// A platform where a read-modify-write may be a load and a store, or words may order nothing.
type Broken<const ATOMIC: bool, const ACQUIRES: bool> = LoomPlatform<true, ATOMIC, ACQUIRES>;

fn alloc<P: Platform>(machine: &Frames<P>) -> u64 {
    machine.alloc(frame()).expect("memory is free").get()
}

/// What a thread wrote into a frame: loom panics if two threads that had it are not ordered.
#[derive(Clone)]
pub(crate) struct Content(Arc<LoomCell<u64>>);

impl Content {
    pub(crate) fn new() -> Self {
        Content(Arc::new(LoomCell::new(0)))
    }

    pub(crate) fn touch(&self) {
        self.0.set(self.0.get() + 1);
    }
}

fn remote_free_against_collection<P: Platform + Default + Send + Sync>() {
    explore(2, || {
        let (machine, content) = (active::<P>(2), Content::new());
        let theirs = content.clone();
        let owner = on_cpu(&machine, 0, move |machine| {
            if alloc(machine) == 7 {
                theirs.touch();
            }
        });
        run_on(1);
        content.touch();
        free(&machine, 7);
        join(owner);
        check_held(&machine, BLOCK);
    });
}

/// The holder collects from its pageblock while a frame of it is freed, and marks it full if it
/// finds nothing. Either its last look finds the frame, or the freeing CPU sees that the pageblock
/// is full.
#[test]
fn a_frame_is_freed_while_the_holder_runs_dry() {
    remote_free_against_collection::<Sound>();
}

#[test]
#[should_panic]
fn a_collection_that_orders_nothing_is_caught() {
    remote_free_against_collection::<Broken<true, false>>();
}

#[test]
#[should_panic]
fn a_remote_free_in_two_steps_is_caught() {
    remote_free_against_collection::<Broken<false, true>>();
}

/// Of so many pageblocks, all full, two are queued, by frees of these frames, while their holder
/// takes the stacks of its remote queue.
fn two_are_queued(blocks: u64, frames: [u64; 2]) {
    explore(2, move || {
        let machine = full_of::<Sound>(blocks, 3);
        let owner = on_cpu(&machine, 0, |machine| machine.tick(CpuId::new(0)));
        let other = on_cpu(&machine, 2, move |machine| free(machine, frames[1]));
        run_on(1);
        free(&machine, frames[0]);
        join(owner).expect("the CPU exists");
        join(other);
        check_held(&machine, blocks * BLOCK - 2);
    });
}

#[test]
fn two_pageblocks_are_queued_while_the_holder_collects() {
    two_are_queued(2, [7, BLOCK + 3]);
}

/// They reach one stack: the third and the fourth.
#[test]
fn two_pageblocks_come_to_one_stack_while_the_holder_collects() {
    two_are_queued(4, [2 * BLOCK + 7, 3 * BLOCK + 3]);
}

/// CPU 1 frees a frame while another CPU makes a call. Users hold so many frames then.
fn free_beside<P: Platform + Default + Send + Sync>(
    machine: &Arc<Frames<P>>,
    cpu: u32,
    call: fn(&Frames<P>) -> Result<(), Error>,
    held: u64,
) {
    let other = on_cpu(machine, cpu, call);
    run_on(1);
    free(machine, 7);
    join(other).expect("the CPU exists");
    check_held(machine, held);
}

fn push_against_drain<P: Platform + Default + Send + Sync>() {
    explore(2, || {
        free_beside(&full::<P>(2), 0, |machine| machine.drain(CpuId::new(0)), ALL - 1);
    });
}

/// A pageblock is queued while all that its holder caches is drained.
#[test]
fn a_pageblock_is_queued_while_its_holder_is_drained() {
    push_against_drain::<Sound>();
}

#[test]
#[should_panic]
fn a_push_in_two_steps_is_caught() {
    push_against_drain::<Broken<false, true>>();
}

/// A pageblock that is full and still queued, though what was freed remotely has been allocated
/// again.
fn full_and_queued(cpus: usize) -> Arc<Frames<Sound>> {
    let machine = full::<Sound>(cpus);
    run_on(1);
    free(&machine, 7);
    run_on(0);
    // A local free makes it partial, and it becomes active; so the holder need not collect the
    // queue.
    free(&machine, 8);
    assert_eq!([alloc(&machine), alloc(&machine)], [7, 8]);
    // Another pageblock has a free frame, so it still need not.
    free(&machine, BLOCK);
    assert_eq!(alloc(&machine), BLOCK);
    machine
}

/// A frame of a queued pageblock is freed while the holder unqueues it. The look that follows may
/// be the last one, as the pageblock is not listed.
#[test]
fn a_frame_is_freed_while_its_pageblock_is_unqueued() {
    explore(3, || {
        free_beside(&full_and_queued(2), 0, |machine| machine.tick(CpuId::new(0)), ALL - 1);
    });
}

/// Of four pageblocks, CPU 0 holds the second, full, which is on the stack of CPU 1: that one had
/// it before. All frames but those of another one are handed out.
fn queued_elsewhere() -> Arc<Frames<Sound>> {
    let (machine, first, next) = (build_larger(4, 3), BLOCK, 2 * BLOCK);
    run_on(1);
    take(&machine, 2 * BLOCK + 1);
    run_on(2);
    free(&machine, first);
    // Two pageblocks become partial. The one that becomes whole then becomes a spare, so that the
    // other one has what is asked for next, and the queue is not collected.
    run_on(1);
    (first + 1..=next).rev().for_each(|frame| free(&machine, frame));
    take(&machine, BLOCK);
    let whole = machine.alloc(Request::new(Order::PAGEBLOCK));
    assert_eq!(whole, Ok(Pfn::new(first)));
    run_on(0);
    machine.free(Pfn::new(first), Order::PAGEBLOCK).expect("it is held");
    take(&machine, BLOCK + 1);
    machine
}

/// A pageblock has come to another CPU while it was in the remote queue of the one that had it. The
/// call that takes that stack ensures that it is collected, even if the new holder has been drained
/// by then.
#[test]
fn a_pageblock_is_queued_for_a_cpu_that_no_longer_holds_it() {
    explore(2, || {
        let machine = queued_elsewhere();
        let former = on_cpu(&machine, 1, |machine| machine.tick(CpuId::new(1)));
        let holder = on_cpu(&machine, 0, |machine| machine.tick(CpuId::new(0)));
        run_on(2);
        free(&machine, BLOCK);
        join(former).expect("the CPU exists");
        join(holder).expect("the CPU exists");
        check_held(&machine, 3 * BLOCK);
    });
}

/// A drain of all CPUs comes to the stack after the holder: the frame is found all the same.
#[test]
fn the_new_holder_is_drained_before_the_former_one() {
    explore(0, || {
        let machine = queued_elsewhere();
        run_on(2);
        free(&machine, BLOCK);
        check_held(&machine, 3 * BLOCK);
    });
}

/// CPU 1 has had all frames of its pageblock; of CPU 0's, one is allocated, which is returned.
fn to_steal(cpus: usize) -> (Arc<Frames<Sound>>, u64) {
    let machine = build(cpus);
    run_on(1);
    take(&machine, BLOCK);
    run_on(0);
    let frame = alloc(&machine);
    (machine, frame)
}

/// An allocation makes another CPU's cache release a pageblock while a CPU frees into it.
fn a_cache_releases_a_pageblock(cpus: usize, freeing: u32) {
    explore(1, move || {
        let ((machine, held), content) = (to_steal(cpus), Content::new());
        let theirs = content.clone();
        let thief = on_cpu(&machine, 1, move |machine| {
            if alloc(machine) == held {
                theirs.touch();
            }
        });
        run_on(freeing);
        content.touch();
        free(&machine, held);
        join(thief);
        check_held(&machine, BLOCK + 1);
    });
}

#[test]
fn a_cache_releases_a_pageblock_while_its_cpu_frees() {
    a_cache_releases_a_pageblock(2, 0);
}

#[test]
fn a_cache_releases_a_pageblock_while_another_cpu_frees() {
    a_cache_releases_a_pageblock(3, 2);
}

/// An allocation drains all caches while a pageblock is pushed on the remote queue of one of them:
/// it finds the frame, or there was none yet.
#[test]
fn the_last_frame_is_freed_while_an_allocation_drains() {
    explore(2, || {
        let machine = full::<Sound>(3);
        let taker = on_cpu(&machine, 1, |machine| machine.alloc(frame()));
        run_on(2);
        free(&machine, 7);
        let taken = join(taker);
        if let Err(error) = taken {
            assert_eq!(error, Error::OutOfMemory);
            assert_eq!(alloc(&machine), 7, "it is free now");
        }
        check_held(&machine, ALL);
    });
}

/// Two frames of an orphan are freed at once: one CPU may acquire it, and the other one frees
/// remotely.
#[test]
fn a_pageblock_is_acquired_while_another_cpu_frees() {
    explore(2, || {
        let machine = build::<Sound>(3);
        take(&machine, BLOCK);
        machine.drain_all();
        let other = on_cpu(&machine, 1, |machine| free(machine, 8));
        free(&machine, 7);
        join(other);
        check_held(&machine, BLOCK - 2);
    });
}

/// A pageblock is released while frames of it are freed: the last look finds them, or the free sees
/// that it has no holder.
#[test]
fn a_pageblock_is_released_while_another_cpu_frees() {
    explore(2, || {
        let machine = active::<Sound>(3);
        free_beside(&machine, 2, |machine| machine.drain(CpuId::new(0)), BLOCK - 1);
    });
}

/// A cache looks for a movable pageblock while a fallback makes it an unmovable one.
#[test]
fn a_pageblock_is_acquired_while_its_type_changes() {
    explore(2, || {
        // So many CPUs that all look at the first pageblock first.
        let machine = build::<Sound>(3);
        take(&machine, BLOCK + 1);
        for frame in 1..BLOCK {
            free(&machine, frame);
        }
        machine.drain_all();
        let other = on_cpu(&machine, 1, |machine| machine.alloc(frame().migratetype(Unmovable)));
        let first = alloc(&machine);
        let second = join(other).expect("memory is free");
        check(&machine);
        assert_ne!(first / BLOCK, second.get() / BLOCK, "there is one for each type");
        check_held(&machine, 4);
    });
}

/// Two CPUs take whole pageblocks out of the pool and free them: none is lost, and none is
/// allocated twice.
#[test]
fn pageblocks_come_to_the_pool_and_leave_it() {
    explore(2, || {
        let machine = build::<Sound>(2);
        let (both, one) = (Request::new(Order::new(10)), Request::new(Order::PAGEBLOCK));
        let block = machine.alloc(both).expect("memory is free");
        let other = on_cpu(&machine, 1, move |machine| {
            if let Ok(block) = machine.alloc(one) {
                machine.free(block, one.order()).expect("it is held");
            }
        });
        machine.free(block, both.order()).expect("it is held");
        join(other);
        check_held(&machine, 0);
        assert_eq!(machine.alloc(both), Ok(block));
    });
}

/// A request as deep as may be.
fn all(order: u8) -> Request {
    Request::new(Order::new(order)).watermark(Watermark::Ignore)
}

/// Four pageblocks, all of which are allocated; two of them are full ones of CPU 0. CPU 1 is next.
fn used_up() -> Arc<Frames<Sound>> {
    let machine = build_of::<Sound>(&[range(0, 4 * BLOCK)], 3, 8);
    take(&machine, 3 * BLOCK);
    machine.alloc(all(9)).expect("memory is free");
    run_on(1);
    machine
}

/// A pageblock is queued while memory has run out and an allocation drains all caches: the zone is
/// marked as cached, which the next allocation sees, or this one has found the frame.
#[test]
fn a_pageblock_is_queued_while_an_allocation_drains() {
    explore(1, || {
        let machine = used_up();
        // One has been queued, for which the zone is still marked as cached.
        free(&machine, 7);
        assert_eq!(machine.alloc(all(0)), Ok(Pfn::new(7)));
        let other = on_cpu(&machine, 2, |machine| free(machine, BLOCK + 7));
        let taken = machine.alloc(all(0));
        join(other);
        taken.or_else(|_| machine.alloc(all(0))).expect("a frame is free now");
        check_held(&machine, 4 * BLOCK);
    });
}

/// The same with a cache that is marked already: the free leaves the mark as it is, and the drain,
/// which clears it, finds the pageblock on its stack, or the free sees that the mark is gone.
#[test]
fn a_pageblock_is_queued_for_a_marked_cache_while_an_allocation_drains() {
    explore(1, || {
        let machine = used_up();
        free(&machine, 7);
        let other = on_cpu(&machine, 2, |machine| free(machine, BLOCK + 7));
        machine.alloc(all(0)).expect("a frame is free");
        join(other);
        machine.alloc(all(0)).expect("a frame is free");
        check_held(&machine, 4 * BLOCK);
    });
}

/// Memory is added to a pageblock that a cache holds and that becomes full at the same time: the
/// last look of the holder finds the frames, or the pageblock is queued.
#[test]
fn memory_is_added_while_a_pageblock_becomes_full() {
    explore(1, || {
        let machine = build_of::<Sound>(&[range(0, 8), range(BLOCK, BLOCK)], 2, 0);
        take(&machine, 8);
        let adder = on_cpu(&machine, 1, |machine| machine.add_memory(range(8, 8)));
        alloc(&machine);
        join(adder).expect("it is new");
        check_held(&machine, 9);
    });
}

/// 32 pageblocks, of which two caches may have two spares each, and a low watermark of two and a
/// half. CPU 0 has one spare and one pageblock allocated, CPU 1 one allocated; three are in the
/// pool, or spares, and the others were taken before. Returns what CPU 0 has allocated.
fn low_with_a_spare() -> (Arc<Frames<Sound>>, Pfn) {
    let machine = build_of::<Sound>(&[range(0, 32 * BLOCK)], 2, 2 * BLOCK);
    run_on(0);
    let take = |order| machine.alloc(Request::new(Order::new(order))).expect("memory is free");
    for order in [13, 12, 10, 9] {
        take(order);
    }
    let [a, b, c] = [9, 9, 9].map(take);
    // The zone is low now, so the first one goes to the pool.
    let put = |block| machine.free(block, Order::PAGEBLOCK).expect("it is held");
    put(a);
    put(b);
    let cached = machine.validate().expect("the accounting is right").per_cpu;
    assert_eq!(cached, FrameCount::new(BLOCK), "there is one spare");
    run_on(1);
    take(9);
    run_on(0);
    (machine, c)
}

/// A pageblock is freed to a cache with a spare, which checks no watermark, while another CPU takes
/// the zone below its low one: the spares are found all the same.
#[test]
fn a_spare_is_added_while_another_cpu_drains() {
    explore(2, || {
        let (machine, held) = low_with_a_spare();
        let huge = Request::new(Order::PAGEBLOCK);
        let taker = on_cpu(&machine, 1, move |machine| machine.alloc(huge));
        machine.free(held, Order::PAGEBLOCK).expect("it is held");
        join(taker).expect("memory is free");
        run_on(1);
        machine.alloc(huge).expect("as much is free above the minimum");
        assert_eq!(machine.alloc(huge), Err(Error::BelowWatermark));
        check(&machine);
    });
}

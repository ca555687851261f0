//! The fast paths of the design `freehold`: what a cache holds, and that the fast paths have the
//! same results as the slow ones.

use std::collections::HashSet;

use crate::common::{TestPlatform, run_on};
use crate::tested::{Tested, build, check_whole, range};
use freehold::designs::Freehold;
use freehold::{
    Error, Events, FrameCount, Immovable, MigrateType, Order, Pfn, RangeRequest, Request,
};

pub(crate) type Frames = Tested<Freehold<TestPlatform>>;

pub(crate) const PAGEBLOCK: u64 = 512;

/// So many pageblocks, without watermarks.
pub(crate) fn machine(pageblocks: u64, cpus: usize) -> Frames {
    build(&[range(0, pageblocks * PAGEBLOCK)], &vec![0; cpus], 0)
}

fn cached(frames: &Frames) -> u64 {
    frames.validate().expect("the accounting is right").per_cpu.get()
}

/// How many pageblocks came to caches and left them.
fn moves(events: Events) -> (u64, u64) {
    (events.refills, events.drains)
}

#[test]
fn a_block_that_comes_and_goes_moves_no_pageblock() {
    for order in (0..=8).map(Order::new) {
        let frames = machine(64, 1);
        let pair = || {
            let pfn = frames.alloc(Request::new(order)).expect("memory is free");
            frames.free(pfn, order).expect("it is held");
        };
        pair();
        let before = moves(frames.events());
        (0..100).for_each(|_| pair());
        assert_eq!(moves(frames.events()), before, "{order}");
        assert_eq!(cached(&frames), PAGEBLOCK, "{order}: one pageblock serves all");
        check_whole(&frames);
    }
}

#[test]
fn larger_blocks_and_single_frames_have_a_pageblock_each() {
    let frames = machine(64, 1);
    let singles: Vec<_> = (0..64).map(|_| frames.alloc(Request::default()).unwrap()).collect();
    let runs: Vec<_> =
        (0..32).map(|_| frames.alloc(Request::new(Order::new(3))).unwrap()).collect();
    let of = |pfn: &Pfn| pfn.get() / PAGEBLOCK;
    let [of_singles, of_runs] =
        [&singles, &runs].map(|all| all.iter().map(of).collect::<HashSet<_>>());
    assert_eq!((of_singles.len(), of_runs.len()), (1, 1));
    assert!(of_singles.is_disjoint(&of_runs));
    // If pageblocks are few, both come out of one.
    let frames = machine(16, 1);
    let single = frames.alloc(Request::default()).unwrap();
    let run = frames.alloc(Request::new(Order::new(3))).unwrap();
    assert_eq!(of(&single), of(&run));
}

/// Allocates a block of content that cannot move.
fn unmovable(frames: &Frames, order: u8) -> Pfn {
    let request = Request::new(Order::new(order)).migratetype(MigrateType::Unmovable);
    frames.alloc(request).expect("memory is free")
}

/// A machine of 64 pageblocks and two CPUs, with a pageblock that is active for both larger blocks
/// and single frames: a block of 8 frames was taken out of it, and so many single ones, which are
/// returned.
fn joined(singles: u64) -> (Frames, Vec<Pfn>) {
    let frames = machine(64, 2);
    let run = unmovable(&frames, 3);
    let held: Vec<_> = (0..singles).map(|_| unmovable(&frames, 0)).collect();
    assert!(held.iter().all(|pfn| pfn.get() / PAGEBLOCK == run.get() / PAGEBLOCK));
    (frames, held)
}

#[test]
fn larger_blocks_and_single_frames_that_cannot_move_share_a_pageblock() {
    let (frames, held) = joined(1);
    let run = unmovable(&frames, 4);
    assert_eq!(run.get() / PAGEBLOCK, held[0].get() / PAGEBLOCK);
    assert_eq!(cached(&frames), PAGEBLOCK - 8 - 1 - 16);
    frames.drain_all();
    assert_eq!(cached(&frames), 0);
    // The other way round: larger blocks come to where single frames do.
    let frames = machine(64, 1);
    let [single, run, next] = [0, 3, 3].map(|order| unmovable(&frames, order).get() / PAGEBLOCK);
    assert_eq!((single, single), (run, next));
    assert_eq!(cached(&frames), PAGEBLOCK - 1 - 2 * 8);
}

#[test]
fn a_shared_pageblock_without_frames_is_active_for_nothing() {
    let (frames, held) = joined(PAGEBLOCK - 8);
    let single = unmovable(&frames, 0);
    assert_ne!(single.get() / PAGEBLOCK, held[0].get() / PAGEBLOCK);
    frames.free(held[0], Order::ZERO).unwrap();
    assert_eq!(cached(&frames), PAGEBLOCK - 1 + 1);
    assert_eq!(unmovable(&frames, 3).get() / PAGEBLOCK, single.get() / PAGEBLOCK);
}

#[test]
fn a_shared_pageblock_that_single_frames_leave_stays_active_for_larger_blocks() {
    let (frames, held) = joined(PAGEBLOCK - 8);
    run_on(1);
    held[..2].iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
    run_on(0);
    let single = unmovable(&frames, 0);
    assert_ne!(single.get() / PAGEBLOCK, held[0].get() / PAGEBLOCK, "two frames are too few");
    assert_eq!(cached(&frames), PAGEBLOCK - 1 + 2);
    assert_eq!(unmovable(&frames, 1), held[0], "a pair of them serves");
    assert_eq!(cached(&frames), PAGEBLOCK - 1);
}

#[test]
fn a_shared_pageblock_that_larger_blocks_leave_stays_active_for_single_frames() {
    let (frames, held) = joined(300);
    let large = unmovable(&frames, 8);
    assert_ne!(large.get() / PAGEBLOCK, held[0].get() / PAGEBLOCK, "there is no run of 256");
    let single = unmovable(&frames, 0);
    assert_eq!(single.get() / PAGEBLOCK, held[0].get() / PAGEBLOCK);
    assert_eq!(cached(&frames), 2 * PAGEBLOCK - 8 - 301 - 256);
}

#[test]
fn single_frames_come_out_of_what_larger_blocks_left() {
    let frames = machine(32, 1);
    let run = frames.alloc(Request::new(Order::new(3))).unwrap();
    let mut all: Vec<_> = std::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
    assert_eq!(all.len() as u64, 32 * PAGEBLOCK - 8);
    all.drain(..).for_each(|pfn| frames.free(pfn, Order::ZERO).unwrap());
    frames.free(run, Order::new(3)).unwrap();
    check_whole(&frames);
}

/// As many spares as a cache may have while there is enough besides: half of them go at once.
#[test]
fn spares_and_pool_exchange_several_pageblocks_at_once() {
    let frames = machine(64, 2);
    let huge = Request::new(Order::PAGEBLOCK);
    let held: Vec<_> = (0..40).map(|_| frames.alloc(huge).unwrap()).collect();
    assert_eq!(moves(frames.events()), (5, 0));
    let is_next_to = |pair: &[Pfn]| pair[0].get() + PAGEBLOCK == pair[1].get();
    assert!(held.chunks(8).all(|chunk| chunk.windows(2).all(is_next_to)), "{held:?}");
    assert_eq!(cached(&frames), 0);
    for (nth, &pfn) in (1..).zip(&held) {
        frames.free(pfn, Order::PAGEBLOCK).unwrap();
        assert_eq!(frames.free(pfn, Order::PAGEBLOCK), Err(Error::DoubleFree));
        let spares = if nth <= 16 { nth } else { 9 + (nth - 17) % 8 };
        assert_eq!(cached(&frames), spares * PAGEBLOCK, "after {nth}");
    }
    check_whole(&frames);
}

/// A pool that is dry gets all spares back, and then caches may have an eighth of the 64 between
/// them, until an eighth is free besides, and 16 in one word of the pool.
#[test]
fn caches_have_many_spares_only_while_there_is_enough_besides() {
    let frames = machine(64, 2);
    let huge = Request::new(Order::PAGEBLOCK);
    let held: Vec<_> = (0..16).map(|_| frames.alloc(huge).unwrap()).collect();
    held.iter().for_each(|&pfn| frames.free(pfn, Order::PAGEBLOCK).unwrap());
    assert_eq!(cached(&frames), 16 * PAGEBLOCK);
    run_on(1);
    let mut held: Vec<_> = (0..48).map(|_| frames.alloc(huge).unwrap()).collect();
    assert_eq!(cached(&frames), 16 * PAGEBLOCK, "another CPU's");
    held.push(frames.alloc(huge).unwrap());
    assert_eq!(cached(&frames), 7 * PAGEBLOCK, "eight of them were acquired");
    held.extend(std::iter::from_fn(|| frames.alloc(huge).ok()));
    assert_eq!(held.len(), 64);
    for (nth, &pfn) in (1..).zip(&held) {
        frames.free(pfn, Order::PAGEBLOCK).unwrap();
        let spares = match nth {
            ..=4 => nth,
            5..=19 => 4 - nth % 2,
            20..=32 => nth - 16,
            _ => 9 + (nth - 33) % 8,
        };
        assert_eq!(cached(&frames), spares * PAGEBLOCK, "after {nth}");
    }
    check_whole(&frames);
    // Nor do types fall back on each other while caches have many.
    let held: Vec<_> = (0..16).map(|_| frames.alloc(huge).unwrap()).collect();
    run_on(0);
    let singles: Vec<_> =
        (0..48 * PAGEBLOCK).map(|_| frames.alloc(Request::default()).unwrap()).collect();
    frames.free(singles[0], Order::ZERO).unwrap();
    frames.drain_all();
    run_on(1);
    held.iter().for_each(|&pfn| frames.free(pfn, Order::PAGEBLOCK).unwrap());
    assert_eq!(cached(&frames), 16 * PAGEBLOCK);
    run_on(0);
    assert_ne!(unmovable(&frames, 0), singles[0], "the only frame of movable ones");
}

#[test]
fn a_pageblock_with_a_frame_that_is_freed_twice_is_no_spare() {
    let frames = machine(64, 1);
    let pfn = frames.alloc(Request::new(Order::PAGEBLOCK)).unwrap();
    frames.free(pfn, Order::ZERO).expect("part of it may be freed");
    assert_eq!(frames.free(pfn, Order::PAGEBLOCK), Err(Error::DoubleFree));
    for frame in 1..PAGEBLOCK {
        frames.free(pfn.offset(FrameCount::new(frame)), Order::ZERO).unwrap();
    }
    check_whole(&frames);
}

/// What is left of a block of more than a word when part of a word has been freed begins anew in
/// the next word: only so is a look at one word enough.
#[test]
fn blocks_that_go_on_behind_a_word_are_freed_in_any_parts() {
    for order in [7, 8].map(Order::new) {
        for first in [0, 1, 62, 63, 64, 65, 127] {
            let frames = machine(16, 1);
            let block = frames.alloc(Request::new(order)).unwrap();
            let at = |frame: u64| block.offset(FrameCount::new(frame));
            frames.free(at(first), Order::ZERO).unwrap();
            frames.validate().expect("the marks are right");
            assert!(frames.free(block, order).is_err(), "part of it is free");
            // The other one of each remaining pair, then all larger blocks around it.
            let (mut around, mut size) = (first, 1);
            while size < order.frames().get() {
                let other = around ^ size;
                frames.free(at(other), Order::new(size.ilog2() as u8)).unwrap();
                assert_eq!(frames.free(at(other), Order::ZERO), Err(Error::DoubleFree));
                frames.validate().expect("the marks are right");
                around &= !size;
                size *= 2;
            }
            check_whole(&frames);
        }
        // From the front, frame by frame.
        let frames = machine(16, 1);
        let block = frames.alloc(Request::new(order)).unwrap();
        for frame in 0..order.frames().get() {
            frames.free(block.offset(FrameCount::new(frame)), Order::ZERO).unwrap();
            frames.validate().expect("the marks are right");
        }
        check_whole(&frames);
    }
}

#[test]
fn what_comes_and_goes_in_parts_is_one_of_two_pageblocks() {
    for size in [256, 300, 384, 480] {
        let frames = machine(64, 1);
        let pageblock = || {
            let first = unmovable(&frames, 9);
            // It has no holder. With the first word it comes to this CPU, and the others of it
            // are freed remotely.
            frames.free_range(first + FrameCount::new(size), FrameCount::new(PAGEBLOCK - size))?;
            frames.free_range(first, FrameCount::new(size))?;
            Ok::<_, Error>(first)
        };
        let used: HashSet<_> = (0..1000).map(|_| pageblock().expect("it is held")).collect();
        assert!(used.len() <= 2, "{size}: {}", used.len());
        assert_eq!(cached(&frames), PAGEBLOCK);
    }
}

#[test]
fn a_range_that_comes_and_goes_is_one_of_two_places() {
    for size in [513, 550, 768, 1024, 1500].map(FrameCount::new) {
        let frames = machine(64, 1);
        // CPUs keep several pageblocks, between which no range is looked for.
        let blocks: Vec<_> = (0..32).map(|_| unmovable(&frames, 9)).collect();
        blocks.into_iter().for_each(|pfn| frames.free(pfn, Order::PAGEBLOCK).unwrap());
        let range = || {
            let first = frames.alloc_range(RangeRequest::new(size).soonest(), &Immovable)?;
            frames.free_range(first, size).map(|()| first)
        };
        let used: HashSet<_> = (0..100).map(|_| range().expect("there is room")).collect();
        assert!(used.len() <= 2, "{size}: {}", used.len());
    }
}

#[test]
fn a_large_block_is_found_behind_many_pageblocks_without_room() {
    let frames = machine(128, 1);
    let blocks: Vec<_> = (0..64 * 8).map(|_| unmovable(&frames, 6)).collect();
    // A block of the middle is free, and of all pageblocks half a block.
    for first in blocks.iter().step_by(8) {
        frames.free(*first, Order::new(5)).expect("half of a block");
    }
    let free = blocks[40 * 8 + 3];
    frames.free(free, Order::new(6)).expect("it is held");
    assert_eq!(unmovable(&frames, 6), free);
}

#[test]
fn a_pageblock_whose_last_word_two_cpus_have_freed_is_whole() {
    let frames = machine(64, 2);
    let first = unmovable(&frames, 9);
    for (cpu, part) in [(0, 0..64), (1, 480..512), (0, 64..480)] {
        run_on(cpu);
        let count = FrameCount::new(part.end - part.start);
        frames.free_range(first + FrameCount::new(part.start), count).expect("it is held");
    }
    assert_eq!(unmovable(&frames, 9), first);
}

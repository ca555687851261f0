//! What the caches of `freehold` leave to each other where there are few pageblocks for each CPU:
//! less than 32.

use crate::common::{relaxed, run_on};
use crate::freehold_paths::{Frames, PAGEBLOCK, machine};
use freehold::MigrateType::{Movable, Unmovable};
use freehold::{CpuId, MigrateType, Order, Pfn, Request};

fn alloc(frames: &Frames, order: u8, of: MigrateType) -> Pfn {
    frames.alloc(Request::new(Order::new(order)).migratetype(of)).expect("memory is free")
}

fn pageblock(pfn: Pfn) -> u64 {
    pfn.get() / PAGEBLOCK
}

/// The free frames that no cache holds.
fn uncached(frames: &Frames) -> u64 {
    frames.validate().expect("the accounting is right");
    frames.zones().map(|zone| zone.free.get()).sum()
}

#[test]
fn larger_blocks_come_from_orphans_before_whole_pageblocks() {
    // With few pageblocks for each CPU, and with enough.
    for (pageblocks, of) in [(63, Movable), (64, Movable), (64, Unmovable)] {
        let frames = machine(pageblocks, 2);
        let first = alloc(&frames, 3, of);
        frames.drain_all();
        run_on(1);
        let second = alloc(&frames, 3, of);
        assert_eq!(pageblock(first), pageblock(second), "{pageblocks}");
    }
}

#[test]
fn of_pageblocks_for_what_cannot_move_only_the_active_ones_are_retained() {
    // CPUs 0 to 3 share a cache, and 4 to 7 another one.
    for freed_on in [0, 5] {
        let frames = machine(128, 8);
        let held: Vec<_> = (0..3 * PAGEBLOCK).map(|_| alloc(&frames, 0, Unmovable)).collect();
        run_on(freed_on);
        let is_full = |pfn: &&Pfn| pageblock(**pfn) == pageblock(held[1200]);
        free_all(&frames, held.iter().step_by(4).filter(|pfn| !is_full(pfn)));
        run_on(0);
        let before = uncached(&frames);
        let next = pageblock(alloc(&frames, 0, Unmovable));
        assert_eq!(uncached(&frames), before + PAGEBLOCK / 4, "one is activated, one an orphan");
        run_on(4);
        let other = pageblock(alloc(&frames, 0, Unmovable));
        let both = [pageblock(held[0]), pageblock(held[600])];
        assert!(next != other && both.contains(&next) && both.contains(&other), "{next}, {other}");
    }
}

#[test]
fn with_less_than_half_a_pageblock_a_cpu_more_cpus_share_a_cache() {
    for (cpus, sharers) in [(64, 4), (128, 8)] {
        let frames = machine(32, cpus);
        let next = |cpu| {
            run_on(cpu);
            pageblock(alloc(&frames, 0, Unmovable))
        };
        assert_eq!(next(0), next(sharers - 1), "{cpus}");
        assert_ne!(next(0), next(sharers), "{cpus}");
    }
}

/// The frames of each pageblock that single frames have filled, in a machine of 16.
fn fill_pageblocks(frames: &Frames, count: u64) -> Vec<Vec<Pfn>> {
    let held: Vec<_> = (0..count * PAGEBLOCK).map(|_| alloc(frames, 0, Movable)).collect();
    let of = |nth| held.iter().copied().filter(|&pfn| pageblock(pfn) == nth).collect();
    (0..16).map(of).filter(|of: &Vec<_>| of.len() as u64 == PAGEBLOCK).collect()
}

fn free_all<'a>(frames: &Frames, pfns: impl IntoIterator<Item = &'a Pfn>) {
    pfns.into_iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
}

/// Allocates single frames until one comes out of one of these pageblocks, which it returns.
fn next_of(frames: &Frames, pageblocks: [&Vec<Pfn>; 2]) -> u64 {
    let is_of = |nth: &u64| pageblocks.iter().any(|of| pageblock(of[0]) == *nth);
    std::iter::repeat_with(|| pageblock(alloc(frames, 0, Movable))).find(is_of).unwrap()
}

#[test]
fn single_frames_leave_large_runs_to_other_caches() {
    // Frames freed in the lower pageblock, and how many of them become those of an orphan.
    for (run, released) in [(64, 64), (16, 0), (1, 0)] {
        let frames = machine(16, 1);
        alloc(&frames, 3, Movable);
        let full = fill_pageblocks(&frames, 4);
        free_all(&frames, &full[0][..run]);
        free_all(&frames, full[1].iter().step_by(4));
        let before = uncached(&frames);
        let next = next_of(&frames, [&full[0], &full[1]]);
        assert_eq!(next, pageblock(full[1][0]), "{run}: its runs are small, and it has many");
        assert_eq!(uncached(&frames), before + released, "{run}");
    }
}

#[test]
fn a_run_that_another_cpu_has_freed_counts_as_well() {
    let frames = machine(16, 2);
    alloc(&frames, 3, Movable);
    let full = fill_pageblocks(&frames, 3);
    free_all(&frames, full[0].iter().step_by(4));
    run_on(1);
    free_all(&frames, (0..64).filter(|nth| nth % 4 != 0).map(|nth| &full[0][nth]));
    run_on(0);
    let before = frames.events().drains;
    next_of(&frames, [&full[0], &full[0]]);
    assert_eq!(frames.events().drains, before + 1, "it has been an orphan");
}

#[test]
fn caches_retain_runs_that_are_of_no_use_to_others() {
    // Without blocks of more than one frame; and where no other pageblock can be fetched.
    for has_runs in [false, true] {
        let frames = machine(16, 1);
        if has_runs {
            alloc(&frames, 3, Movable);
        }
        let full = fill_pageblocks(&frames, if has_runs { 15 } else { 3 });
        free_all(&frames, &full[0][..64]);
        let before = frames.events().drains;
        next_of(&frames, [&full[0], &full[0]]);
        assert_eq!(frames.events().drains, before, "{has_runs}");
    }
}

#[test]
fn a_cache_that_takes_an_orphan_leaves_others_its_runs() {
    let frames = machine(16, 2);
    let full: Vec<_> = (0..32).map(|_| alloc(&frames, 5, Movable)).collect();
    frames.free(full[0], Order::new(5)).unwrap();
    run_on(1);
    let orphan = alloc(&frames, 3, Movable);
    frames.drain(CpuId::new(1)).expect("there is such a CPU");
    run_on(0);
    let before = uncached(&frames);
    assert_eq!(pageblock(alloc(&frames, 7, Movable)), pageblock(orphan));
    assert_eq!(uncached(&frames), before - (PAGEBLOCK - 8) + 32, "one comes, one goes");
}

#[test]
fn what_is_too_large_for_the_active_pageblock_is_taken_in_passing() {
    let frames = machine(16, 1);
    let full: Vec<_> = (0..PAGEBLOCK / 4).map(|_| alloc(&frames, 3, Movable)).collect();
    let [low, high] = [full[0], full[64]];
    assert_eq!(pageblock(low) + 1, pageblock(high));
    // Parts of blocks may be freed: two pairs in one pageblock, and a block in the next.
    for (pfn, order) in [(low, 1), (full[1], 1), (high, 3)] {
        frames.free(pfn, Order::new(order)).unwrap();
    }
    frames.drain_all();
    assert_eq!(alloc(&frames, 1, Movable), low, "runs are as small as they can be");
    assert_eq!(alloc(&frames, 3, Movable), high, "which is full now");
    assert_eq!(alloc(&frames, 1, Movable), full[1], "its pageblock is still active");
    frames.free(high, Order::new(3)).unwrap();
    assert_eq!(alloc(&frames, 3, Movable), high, "its cache has it");
    frames.validate().expect("the accounting is right");
}

#[test]
fn an_active_pageblock_stays_so_while_it_has_a_pair() {
    for (pageblocks, few) in [(16, true), (64, false)] {
        let frames = machine(pageblocks, 1);
        let full: Vec<_> = (0..PAGEBLOCK / 4).map(|_| alloc(&frames, 3, Movable)).collect();
        let free = |pfn, order| frames.free(pfn, Order::new(order)).unwrap();
        [full[0], full[1]].into_iter().for_each(|pfn| free(pfn, 1));
        assert_eq!(alloc(&frames, 1, Movable), full[0]);
        free(full[64], 3);
        free(full[66], 1);
        assert_eq!(alloc(&frames, 3, Movable), full[64], "of the other pageblock");
        let pair = alloc(&frames, 1, Movable);
        assert_eq!(pair, full[if few { 1 } else { 66 }], "{pageblocks}");
    }
}

#[test]
fn a_shared_cache_is_tried_again_unless_a_lease_has_it() {
    let frames = machine(128, 8);
    run_on(1);
    let request = Request::default().migratetype(Unmovable);
    let waits = |request| {
        let before = relaxed();
        frames.alloc(request).expect("memory is free");
        relaxed() - before
    };
    let frozen = frames.freeze();
    assert!(waits(request) > 0, "all locks are taken");
    assert_eq!(waits(request.nowait()), 0);
    frames.thaw(frozen);
    let _lease = frames.lease(CpuId::new(0)).expect("there is no other lease");
    assert_eq!(waits(request), 0);
}

//! What the caches of `freehold` leave to each other where there are few pageblocks for each CPU:
//! less than 32.

use crate::common::run_on;
use crate::freehold_paths::{Frames, PAGEBLOCK, machine};
use freehold::MigrateType::{Movable, Unmovable};
use freehold::{MigrateType, Order, Pfn, Request};

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
    for (pageblocks, few) in [(63, true), (64, false)] {
        let frames = machine(pageblocks, 2);
        let first = alloc(&frames, 3, Movable);
        frames.drain_all();
        run_on(1);
        let second = alloc(&frames, 3, Movable);
        assert_eq!(pageblock(first) == pageblock(second), few, "{pageblocks}");
    }
}

#[test]
fn of_pageblocks_for_what_cannot_move_only_the_active_ones_are_retained() {
    // CPUs 0 to 3 share a cache, and 4 to 7 another one.
    let frames = machine(128, 8);
    let held: Vec<_> = (0..3 * PAGEBLOCK).map(|_| alloc(&frames, 0, Unmovable)).collect();
    for pfn in held.iter().step_by(4).filter(|&&pfn| pageblock(pfn) != pageblock(held[1200])) {
        frames.free(*pfn, Order::ZERO).unwrap();
    }
    let before = uncached(&frames);
    let next = pageblock(alloc(&frames, 0, Unmovable));
    assert_eq!(uncached(&frames), before + PAGEBLOCK / 4, "one is activated, and one an orphan");
    run_on(4);
    let other = pageblock(alloc(&frames, 0, Unmovable));
    let both = [pageblock(held[0]), pageblock(held[600])];
    assert!(next != other && both.contains(&next) && both.contains(&other), "{next}, {other}");
}

#[test]
fn single_frames_leave_large_runs_to_other_caches() {
    let frames = machine(16, 1);
    alloc(&frames, 3, Movable);
    let held: Vec<_> = (0..4 * PAGEBLOCK).map(|_| alloc(&frames, 0, Movable)).collect();
    let whole = |nth: &u64| {
        let of: Vec<_> = held.iter().filter(|&&pfn| pageblock(pfn) == *nth).collect();
        (of.len() as u64 == PAGEBLOCK).then_some(of)
    };
    let mut all = (0..16).filter_map(|nth| whole(&nth));
    let (low, high) = (all.next().unwrap(), all.next().unwrap());
    low[..64].iter().for_each(|&&pfn| frames.free(pfn, Order::ZERO).unwrap());
    high.iter().step_by(4).for_each(|&&pfn| frames.free(pfn, Order::ZERO).unwrap());
    let before = uncached(&frames);
    let single = loop {
        let pfn = alloc(&frames, 0, Movable);
        if [*low[0], *high[0]].map(pageblock).contains(&pageblock(pfn)) {
            break pfn;
        }
    };
    assert_eq!(pageblock(single), pageblock(*high[0]), "its runs are small");
    assert_eq!(uncached(&frames), before + 64, "the other one is an orphan");
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

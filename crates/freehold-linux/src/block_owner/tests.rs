//! Ownership of pageblocks, and how their frames return.

extern crate std;

use std::vec::Vec;

use super::*;
use crate::pageblock::BlockType::Movable;
use crate::tests::{Workbench, ZONE, fixed};
use freehold::designs::traits::{Inspect, Upkeep};
use freehold::platform::SharedCell;
use freehold::units::{CpuId, MigrateType};

type Bench = Workbench<Owners>;

/// Four pageblocks, and CPUs that may cache two.
fn bench() -> Bench {
    Bench::new(2048, &fixed(NoneOfItsOwn, 4, 1024))
}

fn owner(bench: &Bench, frame: u32) -> Option<usize> {
    bench.design.blocks.owner(FrameIndex(frame))
}

fn remembered(bench: &Bench, cpu: usize) -> Vec<u32> {
    let guard = bench.lock();
    guard.buddy.beside.remembered(cpu).map(|block| block.0).collect()
}

fn refill(bench: &Bench, order: u8, wanted: u64) -> u64 {
    let pages = bench.pages(0);
    let kind = Kind::movable(Order::new(order));
    let taken = refill::refill(&pages, kind, FrameCount::new(wanted)).get();
    pages.pcp.count.set(pages.pcp.count.get() + taken as u32);
    taken
}

fn tag(bench: &Bench, frame: u32) -> Tag {
    bench.design.frames.state(FrameIndex(frame)).tag()
}

/// Frees a frame on CPU 1 while the lists of CPU 0 are locked.
fn free_past_the_lists(bench: &Bench, frame: u64) {
    let _pages = bench.pages(0);
    bench.free(1, frame);
}

#[test]
fn a_refill_takes_a_whole_pageblock_and_owns_it() {
    let bench = bench();
    assert_eq!(bench.alloc(0, 0).get(), 0);
    assert_eq!((owner(&bench, 511), owner(&bench, 512)), (Some(0), None));
    // The rest is on the lists, split at once.
    for order in 0..9 {
        assert_eq!(bench.listed(0, order), [1 << order]);
        assert_eq!(tag(&bench, 1 << order), Tag::PcpBuddy);
    }
    bench.check();
}

#[test]
fn short_lists_and_low_zones_own_nothing() {
    let bench = Bench::new(1024, &fixed(NoneOfItsOwn, 4, 511));
    bench.alloc(0, 0);
    assert_eq!(owner(&bench, 0), None);
    let bench = self::bench();
    bench.design.zone(ZONE).note_below_high();
    bench.alloc(0, 0);
    assert_eq!((owner(&bench, 0), bench.listed(0, 0)), (None, [1, 2, 3].into()));
    assert_eq!(tag(&bench, 1), Tag::Pcp);
    bench.check();
}

#[test]
fn partial_blocks_come_before_whole_ones_and_chunks() {
    let bench = bench();
    bench.alloc(0, 9);
    bench.free(0, 100);
    assert_eq!(owner(&bench, 100), Some(0));
    // To the zone, which makes the block remembered.
    bench.drain_all_of(0);
    assert_eq!(remembered(&bench, 0), [0]);
    // Phase 0 is enough for one frame.
    assert_eq!(refill(&bench, 0, 1), 1);
    assert_eq!((bench.listed(0, 0), tag(&bench, 100)), ([100].into(), Tag::PcpBuddy));
    assert_eq!((remembered(&bench, 0), owner(&bench, 512)), ([].into(), None));
    // Phase 1 follows: a whole block for one frame more.
    assert_eq!(refill(&bench, 0, 1), 512);
    assert_eq!((bench.listed(0, 9), owner(&bench, 512)), ([512].into(), Some(0)));
    bench.check();
}

#[test]
fn what_is_too_small_for_the_request_is_not_counted_for_it() {
    let bench = bench();
    bench.alloc(0, 9);
    (0..4).for_each(|frame| bench.free(0, 2 * frame));
    bench.drain_all_of(0);
    // Four single frames return, and are useless to a request for two together.
    assert_eq!(refill(&bench, 1, 2), 4 + 512);
    bench.check();
}

#[test]
fn without_whole_blocks_come_chunks_and_then_splits() {
    // Two and a half pageblocks, except the whole ones, which are in use.
    let bench = Bench::new(512 + 256 + 64, &fixed(NoneOfItsOwn, 4, 1024));
    bench.alloc(0, 9);
    bench.drain_all_of(0);
    assert_eq!(
        (bench.in_zone(6, Movable), bench.in_zone(8, Movable)),
        ([768].into(), [512].into())
    );
    // Phase 2: the largest chunk that does not exceed what is wanted, then phase 3 for the rest.
    assert_eq!(refill(&bench, 0, 66), 66);
    assert_eq!((bench.listed(0, 6), bench.listed(0, 0)), ([768].into(), [512, 513].into()));
    assert_eq!((tag(&bench, 768), owner(&bench, 768)), (Tag::Pcp, None));
    bench.check();
}

#[test]
fn frames_come_home_from_other_cpus() {
    let bench = bench();
    bench.alloc(0, 9);
    bench.free(1, 7);
    assert_eq!((bench.listed(0, 0).len(), bench.pages(1).pcp.count.get()), (1, 0));
    let per_cpu = |bench: &Bench| {
        bench.design.zone_stats(bench.context(), 0).expect("the zone").per_cpu.get()
    };
    assert_eq!((per_cpu(&bench), bench.events().freed.get()), (1, 1));
    // It is allocated next.
    assert_eq!(bench.alloc(0, 0).get(), 7);
    assert_eq!((per_cpu(&bench), bench.events().freed.get()), (0, 1));
    bench.check();
}

#[test]
fn a_frame_that_finds_the_lists_locked_is_recovered() {
    let bench = bench();
    bench.alloc(0, 9);
    free_past_the_lists(&bench, 7);
    assert_eq!((bench.in_zone(0, Movable), remembered(&bench, 0)), ([7].into(), [0].into()));
    bench.check();
    assert_eq!(bench.alloc(0, 0).get(), 7);
    assert_eq!((owner(&bench, 7), remembered(&bench, 0)), (Some(0), [].into()));
    bench.check();
}

#[test]
fn ownership_ends_when_the_zone_completes_the_block() {
    let bench = bench();
    bench.alloc(0, 9);
    (0..512).for_each(|frame| bench.free(0, frame));
    assert_eq!(owner(&bench, 0), Some(0));
    bench.drain_all_of(0);
    assert_eq!(owner(&bench, 0), None);
    // By another CPU, too, although most of the block went to the zone before.
    bench.alloc(0, 9);
    (0..511).for_each(|frame| bench.free(0, frame));
    bench.drain_all_of(0);
    assert_eq!((owner(&bench, 0), remembered(&bench, 0)), (Some(0), [0].into()));
    free_past_the_lists(&bench, 511);
    assert_eq!((owner(&bench, 0), remembered(&bench, 0)), (None, [].into()));
    bench.check();
}

#[test]
fn ownership_ends_when_the_block_changes_its_type() {
    type Change = fn(&Bench);
    let changes: [Change; 2] = [
        |bench| {
            bench.lock().buddy.retype_pageblock(FrameIndex(0), MigrateType::Unmovable);
        },
        |bench| assert!(bench.lock().isolate(FrameIndex(0))),
    ];
    for change in changes {
        let bench = bench();
        bench.alloc(0, 9);
        (0..4).for_each(|frame| bench.free(0, frame));
        free_past_the_lists(&bench, 100);
        assert_eq!(remembered(&bench, 0), [0]);
        change(&bench);
        assert_eq!((owner(&bench, 0), remembered(&bench, 0)), (None, [].into()));
        bench.check();
        // Frames marked as the owner's own are returned like any frame.
        bench.drain_all_of(0);
        bench.check();
    }
}

#[test]
fn ownership_ends_when_the_cpu_goes_away() {
    let bench = bench();
    bench.alloc(0, 9);
    bench.free(1, 7);
    bench.design.offline_cpu(bench.context(), CpuId::new(0));
    assert_eq!((owner(&bench, 0), bench.in_zone(0, Movable)), (None, [7].into()));
    assert_eq!(remembered(&bench, 0), []);
    // From now on frames stay where they are freed.
    bench.free(1, 8);
    assert_eq!(bench.listed(1, 0), [8]);
    bench.check();
}

#[test]
fn a_drain_merges_and_gives_whole_blocks_first() {
    let bench = bench();
    bench.alloc(0, 9);
    bench.alloc(0, 9);
    // A few frames of the first block, then all of the second.
    (0..3).chain(512..1024).for_each(|frame| bench.free(0, frame));
    assert_eq!(bench.drain(0, 1, 0), 512);
    assert_eq!((owner(&bench, 0), owner(&bench, 512)), (Some(0), None));
    // The pair has been merged; being partial, it stays.
    assert_eq!((bench.listed(0, 1), bench.listed(0, 0)), ([0].into(), [2].into()));
    bench.check();
    // What is left of a partial block goes to the back, the larger part first.
    assert_eq!(bench.drain(0, 1, 0), 2);
    assert_eq!((bench.in_zone(1, Movable), remembered(&bench, 0)), ([0].into(), [0].into()));
    bench.check();
}

#[test]
fn a_block_on_the_list_of_another_cpu_is_found() {
    let bench = bench();
    bench.alloc(0, 9);
    bench.free(0, 100);
    bench.drain_all_of(0);
    assert_eq!(remembered(&bench, 0), [0]);
    bench.check();
    bench.design.blocks.set_owner(FrameIndex(0), Some(1));
    let violation = bench.design.validate(bench.context()).expect_err("its owner is CPU 1");
    assert_eq!(violation.rule, freehold::stat::Rule::KeptBeside);
}

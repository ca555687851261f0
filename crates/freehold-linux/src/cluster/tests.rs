//! Refills that cut off clusters, and drains that become one.

extern crate std;

use std::vec::Vec;

use super::*;
use crate::pageblock::BlockType::{Isolated, Movable, Unmovable};
use crate::testing::TestPlatform;
use crate::tests::{Workbench, ZONE, fixed};

type Bench = Workbench<Clustered>;

const MOVABLE: usize = MigrateType::Movable.index();

/// Lists that move four frames at a time, and sixteen frames in use out of twice as many, so that
/// no allocation had to drain the lists.
fn bench(single_type: SingleType, high: u32) -> Bench {
    let own = ClusterOptions { single_type, ..Default::default() };
    let bench = Bench::new(32, &fixed(own, 4, high));
    bench.alloc_frames(16);
    bench
}

/// Drains that moved only movable frames, and those that became a cluster.
fn counted(bench: &Bench) -> (u64, u64) {
    let events = bench.events();
    (events.single_type_drains[MOVABLE], events.clustered_drains)
}

fn refill(bench: &Bench, wanted: u32) -> u64 {
    let pages = bench.pages(0);
    let kind = Kind::movable(Order::ZERO);
    let taken = Clustered::refill(&pages, kind, wanted).get();
    pages.pcp.count.set(pages.pcp.count.get() + taken as u32);
    taken
}

#[test]
fn a_refill_cuts_whole_clusters() {
    let bench = bench(SingleType::Off, 100);
    // From the front: a cluster of three, and two of four.
    bench.put_unmerged(&(0..11).collect::<Vec<_>>());
    // One more frame than the first cluster has brings the whole second one: the batch less one too
    // many.
    assert_eq!(refill(&bench, 4), 7);
    assert_eq!(bench.listed(0, 0), [10, 9, 8, 7, 6, 5, 4]);
    assert_eq!(bench.in_zone(0, Movable), [3, 2, 1, 0]);
    let frame = FrameIndex(7);
    let state = FrameState::head(Tag::Pcp, Order::ZERO, Movable);
    assert_eq!(bench.design.frames.state(frame), state);
    let zone = bench.design.tables.of_zone(&TestPlatform, ZONE);
    assert_eq!(zone.cluster_of(&bench.design.frames, frame), None);
    bench.check();
}

#[test]
fn a_refill_takes_what_is_missing_one_by_one() {
    let bench = bench(SingleType::Off, 100);
    bench.put_unmerged(&[0]);
    {
        // A block of two has to be split.
        let guard = bench.lock();
        guard.add_free(guard.put(FrameIndex(2), Order::new(1), None));
    }
    assert_eq!(refill(&bench, 3), 3);
    assert_eq!(bench.listed(0, 0), [0, 2, 3]);
    bench.check();
}

#[test]
fn no_cluster_is_cut_during_a_walk() {
    let bench = bench(SingleType::Off, 100);
    bench.put_unmerged(&[0, 1, 2, 3]);
    Clustered::begin_walk(&bench.design, &TestPlatform, ZONE);
    Clustered::begin_walk(&bench.design, &TestPlatform, ZONE);
    assert_eq!(refill(&bench, 1), 1);
    Clustered::end_walk(&bench.design, &TestPlatform, ZONE);
    assert_eq!(refill(&bench, 1), 1);
    assert!(!Clustered::puts_off_merging(&bench.design, ZONE));
    Clustered::end_walk(&bench.design, &TestPlatform, ZONE);
    assert_eq!(refill(&bench, 1), 2);
    bench.check();
}

#[test]
fn a_drain_of_one_type_becomes_a_cluster() {
    for (single_type, clustered) in
        [(SingleType::Off, 0), (SingleType::Movable, 1), (SingleType::Any, 1)]
    {
        let bench = bench(single_type, 4);
        (0..4).for_each(|frame| bench.free(0, frame));
        assert_eq!(counted(&bench), (1, clustered));
        // As a cluster they keep the order of the CPU's list; one by one the oldest comes last.
        let mut expected = [0, 1, 2, 3];
        expected.reverse();
        assert_eq!(bench.in_zone(0, Movable), expected);
        bench.check();
    }
}

#[test]
fn other_types_can_be_left_out() {
    for (single_type, clustered) in [(SingleType::Movable, 0), (SingleType::Any, 1)] {
        let bench = bench(single_type, 4);
        bench.lock().buddy.retype_pageblock(FrameIndex(0), MigrateType::Unmovable);
        (0..4).for_each(|frame| bench.free(0, frame));
        let events = bench.events();
        assert_eq!(events.single_type_drains[MigrateType::Unmovable.index()], 1);
        assert_eq!(events.clustered_drains, clustered);
        bench.check();
    }
}

#[test]
fn only_a_batch_of_one_type_becomes_a_cluster() {
    // Less than a batch; and more, of which the batch goes first.
    for (wanted, drained, clustered) in [(3, 3, 0), (5, 4, 1)] {
        let bench = bench(SingleType::Any, 100);
        (0..6).for_each(|frame| bench.free(0, frame));
        assert_eq!(bench.drain(0, wanted, MOVABLE), drained);
        assert_eq!(counted(&bench), (1, clustered));
        bench.check();
    }
}

#[test]
fn a_drain_of_several_types_goes_the_ordinary_way() {
    let own = ClusterOptions::default();
    let bench = Bench::new(2048, &fixed(own, 4, 100));
    bench.alloc_frames(1024);
    bench.lock().buddy.retype_pageblock(FrameIndex(512), MigrateType::Unmovable);
    [0, 1, 2, 3, 512].into_iter().for_each(|frame| bench.free(0, frame));
    assert_eq!(bench.drain(0, 4, MOVABLE), 4);
    assert_eq!(counted(&bench), (0, 0));
    assert_eq!(bench.in_zone(0, Unmovable), [512]);
    bench.check();
}

#[test]
fn frames_whose_pageblock_has_changed_go_the_ordinary_way() {
    for isolates in [false, true] {
        let bench = bench(SingleType::Any, 100);
        (0..4).for_each(|frame| bench.free(0, frame));
        let of = if isolates {
            assert!(bench.lock().isolate(FrameIndex(0)));
            Isolated
        } else {
            bench.lock().buddy.retype_pageblock(FrameIndex(0), MigrateType::Unmovable);
            Unmovable
        };
        assert_eq!(bench.drain(0, 4, MOVABLE), 4);
        assert_eq!(counted(&bench), (1, 0));
        let order = if isolates { 2 } else { 0 };
        assert!(!bench.in_zone(order, of).is_empty());
        bench.check();
    }
}

#[test]
fn without_a_slot_a_drain_goes_the_ordinary_way() {
    let bench = bench(SingleType::Any, 100);
    (0..4).for_each(|frame| bench.free(0, frame));
    {
        let guard = bench.lock();
        while guard.buddy.beside.start(FrameIndex(0), 1).is_some() {}
    }
    assert_eq!(bench.drain(0, 4, MOVABLE), 4);
    assert_eq!(counted(&bench), (1, 0));
    assert_eq!(bench.in_zone(0, Movable).len(), 4);
    bench.check();
}

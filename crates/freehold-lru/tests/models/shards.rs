//! The protocols of shards between CPUs under loom: lists are divided and joined again while frames
//! come to them and leave them.

use crate::loom_platform::run_on;
use crate::loom_runs::explore;
use crate::loom_threads::race;
use crate::sound::{FRAME, OTHER, ROOT, Sound, build_shards, read};
use freehold::{FrameCount, Order, Pfn};
use freehold_lru::{GroupId, Kind, Scope};
use loom::sync::Arc;

/// A block of 16 frames, by which lists are large: as large as eight for each shard.
const BLOCK: Pfn = Pfn::new(16);
const BLOCK_ORDER: Order = Order::new(4);

fn shards(lru: &Sound, group: GroupId) -> usize {
    lru.group_stats(group).expect("it is there").shards
}

fn add(lru: &Sound, frame: Pfn, group: GroupId) {
    lru.add(frame, group, Kind::File).expect("it is new");
    lru.owner().index().push(frame);
}

/// A group whose lists are divided, with one frame, which is in the shard of CPU 1.
fn with_frame_in_shard_1(lru: &Sound, group: GroupId) {
    run_on(0);
    lru.add_block(BLOCK, BLOCK_ORDER, group, Kind::File).expect("it is new");
    run_on(1);
    // The first one that takes the lock divides the lists, and still goes to shard 0.
    lru.add(OTHER, group, Kind::File).expect("it is new");
    assert_eq!(shards(lru, group), 2);
    add(lru, FRAME, group);
    lru.put_bulk(&[BLOCK, OTHER]).expect("they were added");
    run_on(0);
}

/// Asks for no frame, which is enough to find that lists are small.
fn join_small(lru: &Sound) {
    lru.reclaim(Scope::All, FrameCount::ZERO).expect("it is the only one");
}

/// Two CPUs add the first frames of a group: one of them divides its lists, and both frames are
/// there.
#[test]
fn two_adds_divide_the_lists() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(0);
        race(&lru, |lru| add(lru, FRAME, ROOT), |lru| add(lru, OTHER, ROOT));
        assert_eq!(shards(&lru, ROOT), 2);
        assert_eq!(lru.check().listed.map(FrameCount::get), [0, 0, 2, 0, 0]);
    });
}

/// The lists are divided while a frame that is on them is released: it stays where it is, and its
/// word says so.
#[test]
fn a_release_races_with_the_division() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(1);
        add(&lru, FRAME, ROOT);
        race(&lru, |lru| add(lru, OTHER, ROOT), |lru| lru.put(FRAME).expect("it was added"));
        assert_eq!((lru.check().used.get(), lru.owner().released()), (1, 1));
    });
}

/// Lists that have become small are joined while a frame of one of them is isolated and put back.
///
/// The frame is renamed under the locks of both shards. The call that has cleared its mark before
/// that waits for the lock of the shard that it has read, and reads the word again once it has it.
#[test]
fn isolation_races_with_a_join() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(8);
        with_frame_in_shard_1(&lru, ROOT);
        let ((), isolated) = race(&lru, join_small, |lru| lru.isolate(FRAME).map(drop));
        assert_eq!((isolated, shards(&lru, ROOT)), (Ok(()), 1));
        assert_eq!(lru.check().listed.map(FrameCount::get), [0, 0, 1, 0, 0]);
    });
}

/// The same, and the lists are divided again: the frame is not in the shard that its word named.
#[test]
fn isolation_races_with_a_join_and_a_division() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(8);
        with_frame_in_shard_1(&lru, ROOT);
        let ((), isolated) = race(
            &lru,
            |lru| {
                join_small(lru);
                lru.add_block(BLOCK, BLOCK_ORDER, ROOT, Kind::File).expect("it is free");
                lru.add(OTHER, ROOT, Kind::File).expect("it is free");
            },
            |lru| lru.isolate(FRAME).map(drop),
        );
        assert_eq!((isolated, shards(&lru, ROOT)), (Ok(()), 2));
        assert_eq!(lru.check().listed.map(FrameCount::get), [0, 0, 18, 0, 0]);
    });
}

/// The same as the first, while the last reference to the frame is dropped.
#[test]
fn release_races_with_a_join() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(8);
        with_frame_in_shard_1(&lru, ROOT);
        race(&lru, join_small, |lru| lru.put(FRAME).expect("it was added"));
        assert_eq!((lru.check().used.get(), lru.owner().released()), (0, 3));
    });
}

/// The same, while a frame is added, which goes to the shard that is being closed or to the first.
#[test]
fn an_add_races_with_a_join() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(8);
        with_frame_in_shard_1(&lru, ROOT);
        race(&lru, join_small, |lru| add(lru, OTHER, ROOT));
        assert_eq!(lru.check().listed.map(FrameCount::get), [0, 0, 2, 0, 0]);
    });
}

/// A group is removed while a frame of a shard of it is isolated and put back: frames keep its name
/// then, and are found in the first shard of the parent.
#[test]
fn isolation_races_with_the_removal_of_a_divided_group() {
    explore(2, || {
        let lru: Arc<Sound> = build_shards(8);
        let group = lru.create_group(ROOT, None).expect("a slot is free");
        with_frame_in_shard_1(&lru, group);
        let (removed, isolated) = race(
            &lru,
            move |lru| lru.remove_group(group),
            |lru| {
                lru.isolate(FRAME).map(|isolated| {
                    read(lru, FRAME);
                    drop(isolated);
                })
            },
        );
        assert_eq!((removed, isolated), (Ok(()), Ok(())));
        assert_eq!(lru.check().listed.map(FrameCount::get), [0, 0, 1, 0, 0]);
    });
}

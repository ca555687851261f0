//! The operations of the LRU, one at a time: lists, batches, groups, reclaim, migration.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{TestPlatform, run_on};
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn, reclaim};
use crate::shelf::Shelf;
use freehold::{Config, CpuId, FrameCount, MemoryRange, Migrate, MigrateError, NodeId, Order};
use freehold_lru::{GroupId, Kind, List, LruError, LruLock, LruSettings, Scope, Verdict};

type Lru = Room<TestPlatform, Shelf>;

/// 1000 frames on node 0, as many on node 1, and two CPUs.
fn build(settings: LruSettings) -> Lru {
    let range = |start, node| MemoryRange::new(pfn(start), count(1000)).on_node(NodeId::new(node));
    let ranges = [range(0, 0), range(2048, 1)];
    let cpus = [NodeId::new(0), NodeId::new(1)];
    Room::new(TestPlatform, &Config::new(&ranges, &cpus), &settings, Shelf::default())
}

fn lru() -> Lru {
    build(LruSettings::default().groups(5))
}

fn list_of(lru: &Lru, frame: u64) -> Option<List> {
    lru.frame_stats(pfn(frame)).expect("the frame was added").list
}

fn listed(lru: &Lru, group: GroupId) -> [u64; List::COUNT] {
    lru.group_stats(group).expect("the group exists").listed.map(FrameCount::get)
}

fn charged(lru: &Lru, group: GroupId) -> u64 {
    lru.group_stats(group).expect("the group exists").charged.get()
}

#[test]
fn a_frame_waits_in_a_batch_and_then_on_a_list() {
    let lru = lru();
    for frame in 0..30 {
        lru.add(pfn(frame), ROOT, Kind::File).unwrap();
        assert_eq!(list_of(&lru, frame), None);
    }
    let census = lru.check();
    assert_eq!((census.used.get(), census.unlisted.get(), census.batched.get()), (30, 30, 30));
    lru.add(pfn(30), ROOT, Kind::File).unwrap();
    assert_eq!(list_of(&lru, 0), Some(List::InactiveFile));
    assert_eq!(lru.check().listed[List::InactiveFile as usize].get(), 31);
    lru.add(pfn(2048), ROOT, Kind::Anon).unwrap();
    assert_eq!(list_of(&lru, 2048), None);
    lru.drain(CpuId::new(0)).unwrap();
    assert_eq!(list_of(&lru, 2048), Some(List::InactiveAnon));
    assert_eq!(listed(&lru, ROOT), [1, 0, 31, 0, 0]);
}

#[test]
fn many_are_released_at_once() {
    let lru = lru();
    let group = lru.create_group(ROOT, None).unwrap();
    lru.fill((0..50).chain(2048..2060), ROOT, Kind::File);
    lru.fill(100..150, group, Kind::Anon);
    let frames: Vec<_> = (0..50).chain(100..150).chain(2048..2060).map(pfn).collect();
    lru.put_bulk(&frames).unwrap();
    assert_eq!(lru.owner().take_released().len(), 112);
    lru.drain_all();
    assert_eq!((lru.check().used.get(), charged(&lru, ROOT)), (0, 0));
    lru.fill(0..3, ROOT, Kind::File);
    let error = lru.put_bulk(&[pfn(0), pfn(7), pfn(1)]).unwrap_err();
    assert_eq!((error.put, error.error), (1, LruError::NotAdded));
    assert_eq!((lru.owner().take_released(), lru.check().used.get()), (vec![0], 2));
    // More than are looked at together: one in the second batch is released already, one nowhere.
    for (wrong, reason) in [(5, LruError::NotAdded), (1 << 20, LruError::ForeignFrame)] {
        lru.fill(10..60, ROOT, Kind::File);
        let frames: Vec<_> = (10..50).chain([wrong]).chain(50..60).map(pfn).collect();
        let error = lru.put_bulk(&frames).unwrap_err();
        assert_eq!((error.put, error.error), (40, reason));
        assert_eq!((lru.owner().take_released().len(), lru.check().used.get()), (40, 12));
        lru.put_bulk(&frames[41..]).unwrap();
        assert_eq!(lru.owner().take_released().len(), 10);
    }
}

#[test]
fn a_frame_comes_back_on_another_node() {
    let lru = lru();
    lru.fill(0..20, ROOT, Kind::File);
    lru.remove_memory(pfn(20), count(10)).unwrap();
    assert_eq!(lru.add(pfn(25), ROOT, Kind::File), Err(LruError::ForeignFrame));
    lru.add_memory(MemoryRange::new(pfn(22), count(6)).on_node(NodeId::new(1))).unwrap();
    lru.fill([25], ROOT, Kind::File);
    assert_eq!(reclaim(&lru, Scope::Node(NodeId::new(1)), 1).reclaimed, 1);
    assert_eq!(lru.frame_stats(pfn(25)), Err(LruError::NotAdded), "the only one on its node");
}

#[test]
fn the_frames_of_a_removed_group_go_to_its_parent() {
    for lock in [LruLock::Node, LruLock::Group] {
        let lru = build(LruSettings::default().groups(4).lock(lock));
        let parent = lru.create_group(ROOT, None).unwrap();
        let child = lru.create_group(parent, None).unwrap();
        lru.fill((0..40).chain(2048..2050), child, Kind::File);
        lru.fill(100..110, parent, Kind::File);
        lru.add(pfn(500), child, Kind::File).unwrap();
        lru.owner().contents().index.insert(pfn(500), 500);
        let isolated = lru.isolate(pfn(0)).unwrap();
        lru.remove_group(child).unwrap();
        assert_eq!(listed(&lru, parent), [0, 0, 51, 0, 0]);
        assert_eq!(lru.group_stats(child), Err(LruError::UnknownGroup));
        // What was in transit finds the parent.
        drop(isolated);
        lru.drain_all();
        assert_eq!((listed(&lru, parent), charged(&lru, parent)), ([0, 0, 53, 0, 0], 53));
        lru.check();
        // The slot is taken while an isolated frame has its number, and so is that of its parent.
        lru.pin(pfn(1)).unwrap();
        let isolated = [0, 1, 2].map(|frame| lru.isolate(pfn(frame)).unwrap());
        lru.remove_group(parent).unwrap();
        assert_eq!(charged(&lru, ROOT), 53);
        let other = lru.create_group(ROOT, Some(count(1))).unwrap();
        assert_eq!(lru.create_group(ROOT, None), Err(LruError::TooManyGroups));
        drop(isolated);
        // Frames that are on lists keep no slot, and move to the groups that inherited them.
        let again = lru.create_group(other, None).unwrap();
        assert_eq!((listed(&lru, ROOT), charged(&lru, ROOT)), ([0, 0, 52, 0, 1], 53));
        assert_eq!(lru.group_stats(ROOT).unwrap().pinned, count(1));
        lru.check();
        assert!(![child, parent].contains(&again), "an old name stays unknown");
        lru.remove_group(again).unwrap();
        lru.unpin(pfn(1)).unwrap();
        assert_eq!(reclaim(&lru, Scope::All, 100).reclaimed, 53);
        let again = lru.create_group(ROOT, None).unwrap();
        lru.fill(0..5, again, Kind::Anon);
        assert_eq!(listed(&lru, again), [5, 0, 0, 0, 0]);
        lru.check();
    }
}

#[test]
fn a_frame_that_only_waits_in_a_batch_keeps_no_slot() {
    let lru = build(LruSettings::default().groups(2));
    let group = lru.create_group(ROOT, None).unwrap();
    lru.add(pfn(0), group, Kind::File).unwrap();
    lru.put(pfn(0)).unwrap();
    lru.remove_group(group).unwrap();
    lru.create_group(ROOT, None).unwrap();
    assert_eq!(lru.owner().take_released(), [0]);
}

#[test]
fn a_limit_holds_for_the_group_and_those_below() {
    let lru = lru();
    let parent = lru.create_group(ROOT, Some(count(10))).unwrap();
    let [one, two] = [(); 2].map(|()| lru.create_group(parent, Some(count(8))).unwrap());
    lru.fill(0..8, one, Kind::File);
    assert_eq!(lru.add(pfn(8), one, Kind::File), Err(LruError::GroupLimit(one)));
    lru.fill(10..12, two, Kind::File);
    assert_eq!(lru.add(pfn(12), two, Kind::File), Err(LruError::GroupLimit(parent)));
    lru.check();
    assert_eq!(charged(&lru, two), 2);
    // Reclaim makes room in the group whose limit was hit, and in no other.
    lru.fill(20..30, ROOT, Kind::File);
    lru.add_reclaiming(pfn(12), two, Kind::File).unwrap();
    assert!([[0], [10]].contains(&lru.owner().take_released()[..].try_into().unwrap()));
    assert_eq!(listed(&lru, ROOT), [0, 0, 10, 0, 0]);
    lru.drain_all();
    assert_eq!(charged(&lru, parent), 10);
    lru.check();
}

#[test]
fn a_lowered_limit_holds_whatever_cpus_have_charged_ahead() {
    let lru = lru();
    let parent = lru.create_group(ROOT, None).unwrap();
    let child = lru.create_group(parent, None).unwrap();
    for (frame, lowered) in [(0, child), (2, parent)] {
        for cpu in 0..2 {
            run_on(cpu);
            lru.add(pfn(frame + u64::from(cpu)), child, Kind::File).unwrap();
        }
        lru.set_max(lowered, Some(count(frame + 1))).unwrap();
        for cpu in 0..2 {
            run_on(cpu);
            assert_eq!(
                lru.add(pfn(frame + 2), child, Kind::File),
                Err(LruError::GroupLimit(lowered))
            );
        }
        lru.set_max(lowered, None).unwrap();
    }
    run_on(0);
    lru.check();
}

#[test]
fn reclaim_takes_what_waited_longest_and_leaves_what_is_active() {
    let lru = lru();
    lru.fill(0..100, ROOT, Kind::File);
    for frame in 0..40 {
        lru.activate(pfn(frame)).unwrap();
    }
    lru.drain_all();
    let done = reclaim(&lru, Scope::All, 31);
    assert_eq!((done.reclaimed, done.scanned), (31, 31));
    assert_eq!(lru.owner().take_released(), (40..71).collect::<Vec<_>>());
    lru.check();
}

#[test]
fn twice_read_content_survives_a_stream_of_once_read() {
    let lru = lru();
    let group = lru.create_group(ROOT, Some(count(100))).unwrap();
    for frame in 0..40 {
        lru.add(pfn(frame), group, Kind::File).unwrap();
        lru.owner().contents().index.insert(pfn(frame), frame);
        lru.mark_accessed(pfn(frame)).unwrap();
        lru.mark_accessed(pfn(frame)).unwrap();
    }
    for frame in 100..900 {
        lru.add_reclaiming(pfn(frame), group, Kind::File).unwrap();
        lru.owner().contents().index.insert(pfn(frame), frame);
        lru.mark_accessed(pfn(frame)).unwrap();
    }
    let released = lru.owner().take_released();
    assert!(released.len() >= 740 && released.iter().all(|frame| *frame >= 100), "{released:?}");
    lru.drain_all();
    assert_eq!(listed(&lru, group)[List::ActiveFile as usize], 40);
    lru.check();
}

/// So few that only the last round scans any of them.
#[test]
fn a_few_frames_that_are_all_in_use_can_still_be_had() {
    for frames in 1..9 {
        let lru = lru();
        let group = lru.create_group(GroupId::ROOT, Some(count(frames))).expect("a slot is free");
        lru.fill(0..frames, group, Kind::File);
        (0..frames).for_each(|frame| lru.activate(pfn(frame)).expect("it is in use"));
        lru.drain_all();
        (0..frames).for_each(|frame| lru.mark_accessed(pfn(frame)).expect("it is in use"));
        assert_eq!(listed(&lru, group)[List::ActiveFile as usize], frames);
        let added = lru.add_reclaiming(pfn(20), group, Kind::File);
        assert_eq!(added, Ok(()), "of {frames}");
        assert_eq!(reclaim(&lru, Scope::Group(group), frames).reclaimed, frames - 1);
        lru.check();
    }
}

#[test]
fn a_refusal_loses_nothing() {
    let lru = lru();
    lru.fill(0..7, ROOT, Kind::File);
    {
        let mut contents = lru.owner().contents();
        let verdicts = [Verdict::Keep, Verdict::Activate, Verdict::Failed];
        contents.verdicts.extend((0..).map(pfn).zip(verdicts));
        contents.dirty.insert(pfn(3));
        // Not in the index: it has just been removed.
        contents.index.remove(&pfn(4));
    }
    lru.get(pfn(5)).unwrap();
    let done = reclaim(&lru, Scope::All, 7);
    assert_eq!((done.reclaimed, done.written), (2, 1));
    assert!(done.failed > 0 && done.kept > 0);
    assert_eq!(lru.owner().take_released(), [3, 6]);
    let lists = [0, 1, 2, 4, 5].map(|frame| list_of(&lru, frame));
    assert!(lists.iter().all(Option::is_some), "{lists:?}");
    assert_eq!(lru.check().used.get(), 5);
}

#[test]
fn a_panic_of_the_owner_loses_nothing() {
    let lru = lru();
    lru.fill(0..10, ROOT, Kind::File);
    lru.owner().contents().panics_at = Some(pfn(5));
    let outcome = catch_unwind(AssertUnwindSafe(|| reclaim(&lru, Scope::All, 10)));
    assert!(outcome.is_err());
    let released = lru.owner().take_released();
    assert!(!released.contains(&5), "{released:?}");
    assert_eq!(lru.check().used.get(), 10 - released.len() as u64);
    lru.owner().contents().panics_at = None;
    reclaim(&lru, Scope::All, 10);
    assert_eq!(lru.check().used.get(), 0);
}

#[test]
fn reclaim_keeps_to_its_scope() {
    let lru = lru();
    let group = lru.create_group(ROOT, None).unwrap();
    let below = lru.create_group(group, None).unwrap();
    lru.fill((0..5).chain(2048..2053), ROOT, Kind::File);
    lru.fill(10..15, group, Kind::Anon);
    lru.fill(20..25, below, Kind::File);
    reclaim(&lru, Scope::Node(NodeId::new(1)), 100);
    assert_eq!(lru.owner().take_released(), (2048..2053).collect::<Vec<_>>());
    reclaim(&lru, Scope::Group(group), 100);
    assert_eq!(lru.owner().take_released(), (10..15).chain(20..25).collect::<Vec<_>>());
    reclaim(&lru, Scope::All, 100);
    assert_eq!(lru.owner().take_released(), (0..5).collect::<Vec<_>>());
    lru.check();
}

#[test]
fn frames_in_batches_are_found_when_nothing_else_is_left() {
    let lru = lru();
    run_on(1);
    lru.add(pfn(0), ROOT, Kind::File).unwrap();
    lru.owner().contents().index.insert(pfn(0), 0);
    run_on(0);
    assert_eq!(reclaim(&lru, Scope::All, 1).reclaimed, 1);
    lru.check();
}

#[test]
fn content_migrates_with_all_that_is_known_of_it() {
    let lru = lru();
    let group = lru.create_group(ROOT, None).unwrap();
    lru.fill([0, 1], group, Kind::Anon);
    lru.pin(pfn(0)).unwrap();
    lru.drain_all();
    let migrate = |from, to| lru.migrate(pfn(from), pfn(to), Order::ZERO);
    assert_eq!(migrate(0, 2500), Ok(()));
    assert_eq!(lru.frame_stats(pfn(0)), Err(LruError::NotAdded));
    assert_eq!((list_of(&lru, 2500), lru.owner().contents().index[&pfn(2500)]), {
        (Some(List::Unevictable), 0)
    });
    assert_eq!(lru.frame_stats(pfn(2500)).unwrap().node, NodeId::new(1));
    // One that is in use, one that is not in the LRU, one to a frame that is in use.
    lru.get(pfn(1)).unwrap();
    assert_eq!(migrate(1, 5), Err(MigrateError::Busy));
    lru.put(pfn(1)).unwrap();
    assert_eq!(migrate(7, 5), Err(MigrateError::Busy));
    assert_eq!(migrate(1, 2500), Err(MigrateError::Failed));
    lru.owner().contents().verdicts.insert(pfn(1), Verdict::Failed);
    assert_eq!(migrate(1, 5), Err(MigrateError::Failed));
    assert_eq!(lru.migrate(pfn(1), pfn(5), Order::new(1)), Err(MigrateError::Failed));
    assert_eq!((list_of(&lru, 1), lru.frame_stats(pfn(5))), {
        (Some(List::InactiveAnon), Err(LruError::NotAdded))
    });
    assert_eq!(lru.owner().take_released(), []);
    lru.drain_all();
    assert_eq!((charged(&lru, group), lru.check().used.get()), (2, 2));
}

//! Every error of the LRU, by a call that a user could make, with a check that it changed nothing.

use std::fmt::Debug;
use std::mem::MaybeUninit;

use crate::common::TestPlatform;
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn};
use crate::shelf::Shelf;
use freehold::{Config, CpuId, Error, FrameCount, MemoryRange, Metadata, NodeId, Pfn};
use freehold_lru::{
    BATCH_MAX, FrameStats, GroupId, GroupStats, Kind, Lru, LruCensus, LruError, LruLock,
    LruSettings, Scope,
};

const CPUS: [NodeId; 2] = [NodeId::new(0); 2];

/// A hole lies from 100 to 200, and no memory from 300 on.
const RANGES: [MemoryRange; 2] = [range(0, 100), range(200, 100)];

const fn range(start: u64, frames: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(frames))
}

type Small = Room<TestPlatform, Shelf>;

/// A call that is to be refused.
type Call<'a> = &'a dyn Fn(&Small) -> Result<(), LruError>;

fn lru() -> Small {
    let settings = LruSettings::default().groups(3);
    let span = Some((pfn(0), count(400)));
    let config = Config::new(&RANGES, &CPUS).span(span);
    Room::new(TestPlatform, &config, &settings, Shelf::default())
}

/// An LRU with frame 0, on a list of the root.
fn with_frame() -> Small {
    let lru = lru();
    lru.add(pfn(0), ROOT, Kind::File).expect("it is new");
    lru.drain_all();
    lru
}

/// The observable state of an LRU: where frames are, the groups, and each frame.
type Books = (LruCensus, Vec<GroupStats>, Vec<Option<FrameStats>>);

fn books(lru: &Small, groups: &[GroupId]) -> Books {
    let stats = groups.iter().map(|&group| lru.group_stats(group).expect("it is there"));
    let frames = (0..400).map(|frame| lru.frame_stats(pfn(frame)).ok());
    (lru.check(), stats.collect(), frames.collect())
}

/// Checks that `call` fails with `error` and changes nothing, neither in total nor in these groups.
#[track_caller]
fn refused<T: Debug, E: Debug + PartialEq>(
    lru: &Small,
    groups: &[GroupId],
    error: E,
    call: impl Fn(&Small) -> Result<T, E>,
) {
    lru.drain_all();
    let before = books(lru, groups);
    assert_eq!(call(lru).map(|_| ()), Err(error));
    // A limit that is hit may cost what CPUs have charged ahead.
    lru.drain_all();
    assert_eq!(books(lru, groups), before);
    assert_eq!(lru.owner().take_released(), []);
}

#[test]
fn a_frame_must_be_memory() {
    let lru = with_frame();
    for foreign in [100, 199, 300, 399, 1023, 1 << 40, u64::MAX].map(pfn) {
        let calls: [Call<'_>; 10] = [
            &|lru| lru.add(foreign, ROOT, Kind::File),
            &|lru| lru.get(foreign),
            &|lru| lru.put(foreign),
            &|lru| lru.mark_accessed(foreign),
            &|lru| lru.activate(foreign),
            &|lru| lru.deactivate(foreign),
            &|lru| lru.rotate(foreign),
            &|lru| lru.pin(foreign),
            &|lru| lru.unpin(foreign),
            &|lru| lru.frame_stats(foreign).map(|_| ()),
        ];
        for call in calls {
            refused(&lru, &[ROOT], LruError::ForeignFrame, call);
        }
        refused(&lru, &[ROOT], LruError::ForeignFrame, |lru| lru.isolate(foreign).map(drop));
    }
}

#[test]
fn a_frame_must_be_in_use() {
    let lru = with_frame();
    let calls: [Call<'_>; 9] = [
        &|lru| lru.get(pfn(1)),
        &|lru| lru.put(pfn(1)),
        &|lru| lru.put_bulk(&[pfn(1)]).map_err(|stopped| stopped.error),
        &|lru| lru.mark_accessed(pfn(1)),
        &|lru| lru.activate(pfn(1)),
        &|lru| lru.pin(pfn(1)),
        &|lru| lru.unpin(pfn(1)),
        &|lru| lru.isolate(pfn(1)).map(drop),
        &|lru| lru.frame_stats(pfn(1)).map(|_| ()),
    ];
    for call in calls {
        refused(&lru, &[ROOT], LruError::NotAdded, call);
    }
    refused(&lru, &[ROOT], LruError::NotPinned, |lru| lru.unpin(pfn(0)));
}

#[test]
fn references_and_pins_are_counted_up_to_a_limit() {
    let lru = with_frame();
    while lru.pin(pfn(0)).is_ok() {}
    refused(&lru, &[ROOT], LruError::TooManyReferences, |lru| lru.pin(pfn(0)));
    while lru.frame_stats(pfn(0)).is_ok_and(|stats| stats.pins > 1) {
        lru.unpin(pfn(0)).expect("it is pinned");
    }
    while lru.get(pfn(0)).is_ok() {}
    // The batches that the frame would wait in have references, too.
    assert_eq!(lru.unpin(pfn(0)), Err(LruError::TooManyReferences));
    let before = lru.frame_stats(pfn(0));
    assert_eq!(lru.get(pfn(0)), Err(LruError::TooManyReferences));
    assert_eq!(lru.activate(pfn(0)), Err(LruError::TooManyReferences));
    assert_eq!(lru.isolate(pfn(0)).err(), Some(LruError::TooManyReferences));
    assert_eq!(lru.frame_stats(pfn(0)), before);
    lru.check();
}

#[test]
fn memory_comes_where_there_is_room() {
    let settings = LruSettings::default().groups(3);
    let config = Config::new(&RANGES, &CPUS).room((count(1024), 1));
    let lru: Small = Room::new(TestPlatform, &config, &settings, Shelf::default());
    let far = 1 << 39;
    refused(&lru, &[ROOT], LruError::ForeignFrame, |lru| lru.add(pfn(far), ROOT, Kind::File));
    lru.add_memory(range(far, 10)).expect("there is room");
    lru.add(pfn(far + 9), ROOT, Kind::File).expect("it is memory now");
    refused(&lru, &[ROOT], Error::RangeOverlaps, |lru| lru.add_memory(range(far + 9, 2)));
    refused(&lru, &[ROOT], Error::OutsideSpan, |lru| lru.add_memory(range(2 * far, 1)));
    lru.drain_all();
    lru.check();
}

#[test]
fn numbers_must_be_of_something() {
    let lru = with_frame();
    refused(&lru, &[ROOT], LruError::UnknownCpu, |lru| lru.drain(CpuId::new(2)));
    let scope = Scope::Node(NodeId::new(1));
    refused(&lru, &[ROOT], LruError::UnknownNode, |lru| lru.reclaim(scope, count(1)));
    let elsewhere = range(320, 10).on_node(NodeId::new(1));
    refused(&lru, &[ROOT], Error::UnknownNode, |lru| lru.add_memory(elsewhere));
    refused(&lru, &[ROOT], Error::RangeOverlaps, |lru| lru.add_memory(range(290, 20)));
    refused(&lru, &[ROOT], Error::OutsideSpan, |lru| lru.add_memory(range(1020, 20)));
    refused(&lru, &[ROOT], Error::BadRange, |lru| lru.add_memory(range(320, 0)));
    refused(&lru, &[ROOT], LruError::ForeignFrame, |lru| lru.add(pfn(320), ROOT, Kind::File));
    lru.add_memory(range(320, 10)).expect("it is within the span");
    lru.add(pfn(320), ROOT, Kind::File).expect("it is memory now");
    lru.drain_all();
    lru.check();
    for (first, frames, error) in [
        (318, 5, LruError::ForeignFrame),
        (326, 5, LruError::ForeignFrame),
        (1020, 20, LruError::ForeignFrame),
        (u64::MAX, 2, LruError::ForeignFrame),
        (1, u64::MAX, LruError::ForeignFrame),
        (320, 10, LruError::FrameBusy),
    ] {
        let frames = count(frames);
        refused(&lru, &[ROOT], error, |lru| lru.remove_memory(pfn(first), frames));
    }
    assert_eq!(lru.frame_stats(pfn(328)), Err(LruError::NotAdded), "all are as they were");
}

/// Bad calls leave nothing behind that later behaviour reveals, and not even one batch is drained:
/// of two equal LRUs, one gets the bad calls, and then both are emptied.
#[test]
fn bad_calls_leave_no_trace() {
    let made = || {
        let lru = lru();
        let group = || lru.create_group(ROOT, Some(count(90))).expect("a slot is free");
        let groups = [ROOT, group(), group()];
        for frame in 0..60 {
            let kind = if frame % 3 == 0 { Kind::Anon } else { Kind::File };
            lru.add(pfn(frame), groups[frame as usize % 3], kind).expect("it is new");
            lru.owner().contents().index.insert(pfn(frame), frame);
        }
        (0..60).step_by(7).for_each(|frame| lru.activate(pfn(frame)).expect("it is in use"));
        (0..60).step_by(11).for_each(|frame| lru.pin(pfn(frame)).expect("it is in use"));
        (0..60).step_by(13).for_each(|frame| lru.mark_accessed(pfn(frame)).expect("it is in use"));
        (lru, groups)
    };
    let ((lru, groups), (twin, _)) = (made(), made());
    assert_eq!(books(&lru, &groups), books(&twin, &groups));
    {
        let visit = lru.enter(groups[1]).expect("it is there");
        assert_eq!(lru.remove_group(visit.group()), Err(LruError::GroupInUse));
    }
    let other = Room::new(
        TestPlatform,
        &Config::new(&RANGES, &CPUS),
        &LruSettings::default(),
        Shelf::default(),
    );
    let foreign = (0..9).map(|_| other.create_group(ROOT, None).expect("a slot is free")).last();
    let unknown = foreign.expect("there are nine");
    assert_eq!(lru.add(pfn(70), unknown, Kind::File), Err(LruError::UnknownGroup));
    assert_eq!(lru.add_reclaiming(pfn(70), unknown, Kind::File), Err(LruError::UnknownGroup));
    assert_eq!(lru.remove_group(unknown), Err(LruError::UnknownGroup));
    assert_eq!(lru.add(pfn(1), groups[0], Kind::Anon), Err(LruError::AlreadyAdded));
    assert_eq!(lru.add_reclaiming(pfn(1), groups[2], Kind::Anon), Err(LruError::AlreadyAdded));
    let below = Some(count(1));
    assert_eq!(lru.set_max(groups[1], below), Err(LruError::LimitBelowPinned));
    assert_eq!(lru.put(pfn(70)), Err(LruError::NotAdded));
    assert_eq!(books(&lru, &groups), books(&twin, &groups));
    let emptied = |lru: &Small| {
        let done = lru.reclaim(Scope::All, count(60)).expect("there is a root");
        let contents = lru.owner().contents();
        (done, contents.asked.clone(), contents.released.clone())
    };
    let (ours, theirs) = (emptied(&lru), emptied(&twin));
    assert!(ours.0.reclaimed > 50, "{ours:?}");
    assert_eq!(ours, theirs);
    assert_eq!(books(&lru, &groups), books(&twin, &groups));
}

#[test]
fn settings_and_metadata_are_checked() {
    let good = LruSettings::default();
    let config = Config::new(&RANGES, &CPUS);
    let layout = |settings: LruSettings| Lru::<TestPlatform, Shelf>::layout(&config, &settings);
    assert!(layout(good.lock(LruLock::Node)).is_ok());
    for bad in [
        good.groups(0),
        good.groups(65_536),
        good.batch(0),
        good.batch(BATCH_MAX as u32 + 1),
        good.swappiness(201),
    ] {
        assert_eq!(layout(bad).err(), Some(Error::BadSetting), "{bad:?}");
    }
    let far = [range(0, 10).on_node(NodeId::new(256))];
    let config = Config::new(&far, &CPUS);
    let too_far = Lru::<TestPlatform, Shelf>::layout(&config, &good);
    assert_eq!(too_far.err(), Some(Error::BadTopology));
    let small = vec![MaybeUninit::uninit(); 64].leak();
    let config = Config::new(&RANGES, &CPUS);
    let lru =
        Lru::new(TestPlatform, &config, &good, Metadata::from_static(small), Shelf::default());
    assert_eq!(lru.err(), Some(Error::MetadataTooSmall));
}

/// A slot that had more groups than 16 bits count.
#[test]
fn a_name_stays_unknown_however_many_groups_follow() {
    let lru = lru();
    let gone = lru.create_group(ROOT, None).unwrap();
    lru.remove_group(gone).unwrap();
    for _ in 0..70_000 {
        let next = lru.create_group(ROOT, None).unwrap();
        assert_eq!(lru.add(pfn(0), gone, Kind::File), Err(LruError::UnknownGroup));
        assert_eq!(lru.enter(gone).err(), Some(LruError::UnknownGroup));
        lru.remove_group(next).unwrap();
    }
}

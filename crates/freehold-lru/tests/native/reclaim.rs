//! Reclaim gets everything reclaimable, and a panic on the way loses nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::common::{TestPlatform, run_on};
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn, reclaim, room};
use crate::shelf::Shelf;
use freehold::{Config, MemoryRange, NodeId, Order, Pfn};
use freehold_lru::{
    Claim, GroupId, Kind, Lru, LruError, LruPolicy, LruSettings, Owner, Scope, Verdict,
};

/// 1000 frames and two CPUs.
fn build<O: Owner>(settings: &LruSettings, owner: O) -> Room<TestPlatform, O> {
    room(1000, 2, settings, owner)
}

fn lru() -> Room<TestPlatform, Shelf> {
    build(&LruSettings::default(), Shelf::default())
}

#[test]
fn a_group_over_its_new_limit_shrinks_to_it() {
    for limit in [0, 1, 10, 99] {
        let lru = lru();
        let group = lru.create_group(ROOT, None).unwrap();
        lru.fill(0..100, group, Kind::File);
        lru.set_max(group, Some(count(limit))).unwrap();
        let added = lru.add_reclaiming(pfn(500), group, Kind::File);
        assert_eq!(added.is_ok(), limit > 0, "{limit}: {added:?}");
        lru.drain_all();
        let charged = lru.group_stats(group).unwrap().charged.get();
        assert!((limit - limit / 16..=limit).contains(&charged), "{charged} of {limit}");
        lru.check();
    }
}

#[test]
fn frames_in_use_do_not_shield_active_ones() {
    let lru = lru();
    let group = lru.create_group(ROOT, Some(count(20))).unwrap();
    lru.fill(0..20, group, Kind::File);
    (0..10).for_each(|frame| lru.get(pfn(frame)).unwrap());
    (10..20).for_each(|frame| lru.activate(pfn(frame)).unwrap());
    lru.drain_all();
    assert_eq!(reclaim(&lru, Scope::Group(group), 10).reclaimed, 10);
    assert_eq!(lru.owner().take_released(), Vec::from_iter(10..20));
}

#[test]
fn all_frames_can_be_had_however_active() {
    for used in [false, true] {
        for frames in (1..80).chain([200, 999]) {
            let lru = lru();
            lru.fill(0..frames, ROOT, Kind::File);
            (0..frames).for_each(|frame| lru.activate(pfn(frame)).unwrap());
            lru.drain_all();
            if used {
                (0..frames).for_each(|frame| lru.mark_accessed(pfn(frame)).unwrap());
            }
            let done = reclaim(&lru, Scope::All, frames);
            assert_eq!(done.reclaimed, frames, "{done:?}");
        }
    }
}

#[test]
fn a_frame_in_use_again_and_again_can_be_had_from_the_batch_of_another_cpu() {
    let lru = lru();
    run_on(1);
    lru.add(pfn(0), ROOT, Kind::File).unwrap();
    lru.owner().contents().index.insert(pfn(0), 0);
    (0..3).for_each(|_| lru.mark_accessed(pfn(0)).unwrap());
    run_on(0);
    assert_eq!(reclaim(&lru, Scope::All, 1).reclaimed, 1);
}

#[test]
fn no_swappiness_but_none_keeps_a_kind_out_of_reach() {
    for swappiness in [0, 1, 100, 199, 200] {
        let lru = build(&LruSettings::default().swappiness(swappiness), Shelf::default());
        lru.fill(0..40, ROOT, Kind::Anon);
        lru.fill(40..80, ROOT, Kind::File);
        // One of each that cannot be reclaimed.
        lru.get(pfn(0)).unwrap();
        lru.get(pfn(40)).unwrap();
        let spare = if swappiness == 0 { 39 } else { 78 };
        assert_eq!(reclaim(&lru, Scope::All, 100).reclaimed, spare, "{swappiness}");
    }
}

/// As many groups as there are priorities too, or a part of them.
#[test]
fn groups_take_turns() {
    for slots in [7, 12, 13, 14, 26, 39] {
        let settings = LruSettings::default().groups(slots);
        let lru = build(&settings, Shelf::default());
        let groups: Vec<_> = (1..slots).map(|_| lru.create_group(ROOT, None).unwrap()).collect();
        let home = |frame: u64| groups[frame as usize % groups.len()];
        (0..groups.len() as u64).for_each(|frame| lru.fill([frame], home(frame), Kind::File));
        let mut turns = vec![0; groups.len()];
        for _ in 0..2 * slots {
            assert_eq!(reclaim(&lru, Scope::All, 1).reclaimed, 1);
            let frame = lru.owner().take_released()[0];
            turns[frame as usize] += 1;
            lru.fill([frame], home(frame), Kind::File);
        }
        // The turn of the root, which has none, goes to the next group.
        assert!(turns.iter().all(|turns| (2..=4).contains(turns)), "{slots}: {turns:?}");
    }
}

/// An owner that drops references from within `reclaim`, and panics when the first frame is
/// released to it.
struct Nervous {
    cache: OnceLock<&'static Lru<TestPlatform, Nervous>>,
    panics: AtomicBool,
    released: Mutex<Vec<Pfn>>,
}

impl Owner for Nervous {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        match frame.get() {
            8 => {
                self.cache.get().unwrap().put(frame).unwrap();
                Verdict::Keep
            }
            4..8 => Verdict::Activate,
            _ => Verdict::Drop,
        }
    }

    fn forget(&self, _frame: Pfn, claim: Claim<'_>) {
        claim.take().expect("the frames have no other references").commit();
    }

    fn release(&self, frames: &[Pfn], _order: Order) {
        self.released.lock().unwrap().extend(frames);
        if self.panics.swap(false, Relaxed) {
            panic!("the owner panics, as it is meant to");
        }
    }
}

/// Calls `step` on an LRU of 40 frames whose owner panics when frames are released to it, and
/// checks that all frames are where they belong: on a list, or with the owner.
fn panics_in(step: impl Fn(&Room<TestPlatform, Nervous>)) {
    let (cache, panics, released) = (OnceLock::new(), AtomicBool::new(true), Mutex::default());
    let owner = Nervous { cache, panics, released };
    let lru: &'static _ = Box::leak(Box::new(build(&LruSettings::default(), owner)));
    assert!(lru.owner().cache.set(lru).is_ok(), "it is set once");
    (0..40).for_each(|frame| lru.add(pfn(frame), ROOT, Kind::File).unwrap());
    lru.drain_all();
    assert!(catch_unwind(AssertUnwindSafe(|| step(lru))).is_err(), "the owner panics");
    lru.drain_all();
    let census = lru.check();
    let released = lru.owner().released.lock().unwrap().len() as u64;
    assert_eq!((census.used.get() + released, census.unlisted.get()), (40, 0));
}

#[test]
fn an_owner_that_panics_when_handed_frames_loses_none() {
    panics_in(|lru| _ = reclaim(lru, Scope::All, 10));
    panics_in(|lru| {
        let frames: Vec<_> = (0..40).map(pfn).collect();
        _ = lru.put_bulk(&frames);
    });
    // The last references are those of a batch.
    panics_in(|lru| {
        (0..20).for_each(|frame| lru.activate(pfn(frame)).unwrap());
        (0..10).for_each(|frame| lru.put(pfn(frame)).unwrap());
        let _isolated = lru.isolate(pfn(15)).unwrap();
        lru.drain_all();
    });
}

/// An owner that keeps all content but that of one frame, and counts the questions.
#[derive(Default)]
struct Keeper {
    gives: Mutex<Option<Pfn>>,
    asked: AtomicU64,
}

impl Owner for Keeper {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        self.asked.fetch_add(1, Relaxed);
        let gives = *self.gives.lock().unwrap() == Some(frame);
        if gives { Verdict::Drop } else { Verdict::Keep }
    }

    fn forget(&self, _: Pfn, claim: Claim<'_>) {
        claim.take().expect("no other call uses it").commit();
    }

    fn release(&self, _: &[Pfn], _: Order) {}
}

/// So many inactive frames in a group at its limit.
fn refused(policy: LruPolicy, frames: u64) -> (Room<TestPlatform, Keeper>, GroupId) {
    let ranges = [MemoryRange::new(pfn(0), count(frames + 1))];
    let cpus = [NodeId::new(0); 2];
    run_on(0);
    let settings = LruSettings::default().policy(policy);
    let lru = Room::new(TestPlatform, &Config::new(&ranges, &cpus), &settings, Keeper::default());
    let group = lru.create_group(ROOT, Some(count(frames))).unwrap();
    (0..frames).for_each(|frame| lru.add(pfn(frame), group, Kind::File).unwrap());
    (lru, group)
}

/// How often the owner is asked by a call.
fn asked(lru: &Room<TestPlatform, Keeper>, call: impl FnOnce()) -> u64 {
    let before = lru.owner().asked.load(Relaxed);
    call();
    lru.owner().asked.load(Relaxed) - before
}

#[test]
fn an_owner_that_keeps_all_is_asked_once_for_each_frame_and_then_for_few() {
    const FRAMES: u64 = 100_000;
    for policy in [LruPolicy::TwoLists, LruPolicy::ScanResistant] {
        let (lru, group) = refused(policy, FRAMES);
        let hopeless = || assert_eq!(reclaim(&lru, Scope::All, 32).reclaimed, 0);
        let first = asked(&lru, hopeless);
        assert!((FRAMES..=FRAMES + 100).contains(&first), "{policy:?}: {first}");
        for _ in 0..3 {
            let later = asked(&lru, hopeless);
            assert!((256..=1024).contains(&later), "{policy:?}: {later}");
        }
        let full = asked(&lru, || {
            let added = lru.add_reclaiming(pfn(FRAMES), group, Kind::File);
            assert_eq!(added, Err(LruError::GroupLimit(group)));
        });
        assert!(full <= 1024, "{policy:?}: {full}");
        // One more frame at the front: as before.
        lru.set_max(group, None).unwrap();
        lru.add(pfn(FRAMES), group, Kind::File).unwrap();
        let again = asked(&lru, hopeless);
        assert!((FRAMES + 1..=FRAMES + 100).contains(&again), "{policy:?}: {again}");
    }
}

#[test]
fn what_an_owner_gives_after_all_is_found() {
    const FRAMES: u64 = 100_000;
    for policy in [LruPolicy::TwoLists, LruPolicy::ScanResistant] {
        let (lru, _) = refused(policy, FRAMES);
        let find = |most: u64| {
            let found = (1..=most).find(|_| reclaim(&lru, Scope::All, 1).reclaimed == 1);
            found.unwrap_or_else(|| panic!("{policy:?}: not within {most} calls"))
        };
        reclaim(&lru, Scope::All, 1);
        for given in [0, FRAMES / 2, FRAMES - 1] {
            *lru.owner().gives.lock().unwrap() = Some(pfn(given));
            find(512);
            reclaim(&lru, Scope::All, 1);
        }
        // It is asked first for what was moved to the back.
        let given = pfn(FRAMES / 4);
        *lru.owner().gives.lock().unwrap() = Some(given);
        lru.rotate(given).unwrap();
        assert_eq!(asked(&lru, || _ = find(1)), 1, "{policy:?}");
        // Once it has given one, for all others as well.
        let given = pfn(FRAMES / 4 + 1);
        *lru.owner().gives.lock().unwrap() = Some(given);
        lru.rotate(given).unwrap();
        let all = asked(&lru, || assert_eq!(reclaim(&lru, Scope::All, 2).reclaimed, 1));
        assert!(all > FRAMES - 100, "{policy:?}: {all}");
        // All frames of a short list are asked for by each call.
        let (lru, _) = refused(policy, 256);
        reclaim(&lru, Scope::All, 1);
        *lru.owner().gives.lock().unwrap() = Some(pfn(200));
        assert_eq!(reclaim(&lru, Scope::All, 1).reclaimed, 1, "{policy:?}");
    }
}

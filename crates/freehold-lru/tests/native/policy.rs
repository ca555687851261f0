//! What is evicted first, by policy, and what comes back.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::common::TestPlatform;
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn, room};
use freehold::{Order, Pfn};
use freehold_lru::{
    Claim, GroupId, Kind, List, LruError, LruPolicy, LruSettings, Owner, Scope, Shadow, Verdict,
};

/// Drops all that it is asked for, and keeps the shadows, by frame.
#[derive(Default)]
struct Shadows(Mutex<BTreeMap<u64, Shadow>>);

impl Owner for Shadows {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        if let Some(claimed) = claim.take() {
            self.0.lock().unwrap().insert(frame.get(), claimed.commit());
        }
    }

    fn release(&self, _frames: &[Pfn], _order: Order) {}
}

type Lru = Room<TestPlatform, Shadows>;

fn lru(policy: LruPolicy) -> Lru {
    room(10_000, 1, &LruSettings::default().policy(policy), Shadows::default())
}

fn fill(lru: &Lru, frames: std::ops::Range<u64>, group: GroupId) {
    frames.for_each(|frame| lru.add(pfn(frame), group, Kind::File).expect("it is new"));
    lru.drain_all();
}

fn use_all(lru: &Lru, frames: std::ops::Range<u64>, times: usize) {
    for _ in 0..times {
        frames.clone().for_each(|frame| lru.mark_accessed(pfn(frame)).expect("it is cached"));
    }
}

fn evict(lru: &Lru, group: GroupId, frames: u64) {
    let done = lru.reclaim(Scope::Group(group), count(frames)).expect("it is there");
    assert_eq!(done.reclaimed, frames);
}

fn is_cached(lru: &Lru, frame: u64) -> bool {
    lru.frame_stats(pfn(frame)).is_ok()
}

fn shadow(lru: &Lru, frame: u64) -> Shadow {
    lru.owner().0.lock().unwrap()[&frame]
}

/// Adds a frame again; returns whether its content should have stayed.
fn read_again(lru: &Lru, frame: u64, group: GroupId) -> bool {
    lru.add(pfn(frame), group, Kind::File).expect("it was evicted");
    lru.refault(pfn(frame), shadow(lru, frame)).expect("it was added")
}

fn list_of(lru: &Lru, frame: u64) -> Option<List> {
    lru.drain_all();
    lru.frame_stats(pfn(frame)).expect("it is cached").list
}

#[test]
fn content_that_comes_back_soon_is_active() {
    for policy in [LruPolicy::TwoLists, LruPolicy::ScanResistant] {
        let lru = lru(policy);
        let group = lru.create_group(ROOT, None).unwrap();
        fill(&lru, 0..1000, group);
        for frame in 500..600 {
            lru.activate(pfn(frame)).unwrap();
        }
        lru.drain_all();
        evict(&lru, group, 50);
        assert!(!is_cached(&lru, 0) && is_cached(&lru, 50), "the oldest went, {policy:?}");
        assert!(read_again(&lru, 10, group));
        assert_eq!(list_of(&lru, 10), Some(List::ActiveFile));
        // Once as much was evicted as would fit, it is too late.
        fill(&lru, 1000..3000, group);
        evict(&lru, group, 2000);
        assert!(!read_again(&lru, 20, group), "{policy:?}");
        assert_eq!(list_of(&lru, 20), Some(List::InactiveFile));
        let stats = lru.group_stats(group).unwrap();
        assert_eq!((stats.refaulted, stats.restored), (2, 1));
        lru.check();
    }
}

#[test]
fn a_shadow_of_another_group_says_nothing() {
    let lru = lru(LruPolicy::TwoLists);
    let [one, two] = [0, 1].map(|_| lru.create_group(ROOT, None).unwrap());
    fill(&lru, 0..100, one);
    fill(&lru, 100..200, two);
    (50..100).for_each(|frame| lru.activate(pfn(frame)).unwrap());
    lru.drain_all();
    evict(&lru, one, 5);
    assert_eq!(lru.refault(pfn(150), shadow(&lru, 1)), Ok(false));
    assert_eq!(lru.refault(pfn(2), shadow(&lru, 2)), Err(LruError::NotAdded));
    assert_eq!(lru.refault(pfn(20_000), shadow(&lru, 2)), Err(LruError::ForeignFrame));
    lru.add(pfn(1), one, Kind::Anon).unwrap();
    assert_eq!(lru.refault(pfn(1), shadow(&lru, 1)), Ok(false), "it is of another kind");
    lru.add(pfn(2), one, Kind::File).unwrap();
    for bits in [0, u64::MAX, 1 << 61] {
        assert_eq!(lru.refault(pfn(2), Shadow::from_bits(bits)), Ok(false));
    }
    assert_eq!(lru.refault(pfn(2), shadow(&lru, 2)), Ok(true));
    // A later group in the same slot begins anew.
    lru.remove_group(two).unwrap();
    let (old, mut next) = (shadow(&lru, 3), two);
    evict(&lru, one, 97);
    lru.remove_group(one).unwrap();
    for nth in 0..200 {
        next = lru.create_group(ROOT, None).unwrap();
        lru.add(pfn(1000 + nth), next, Kind::File).unwrap();
        assert_eq!(lru.refault(pfn(1000 + nth), old), Ok(false));
        assert_eq!(lru.group_stats(next).unwrap().refaulted, 0);
        lru.remove_group(next).unwrap();
    }
    assert_ne!(next, two);
    lru.check();
}

/// Active content that is not used gives way to what comes back, however long the inactive list is.
#[test]
fn content_that_comes_back_challenges_what_is_active() {
    let lru = lru(LruPolicy::TwoLists);
    let group = lru.create_group(ROOT, None).unwrap();
    fill(&lru, 0..1000, group);
    (0..400).for_each(|frame| lru.activate(pfn(frame)).unwrap());
    lru.drain_all();
    evict(&lru, group, 100);
    let deactivated = |lru: &Lru| lru.reclaim(Scope::Group(group), count(20)).unwrap().deactivated;
    assert_eq!(deactivated(&lru), 0);
    assert!(read_again(&lru, 450, group));
    assert!(deactivated(&lru) > 0);
    assert_eq!(deactivated(&lru), 0, "until something comes back again");
}

#[test]
fn with_the_scan_resistant_policy_two_uses_keep_a_frame() {
    let lru = lru(LruPolicy::ScanResistant);
    let group = lru.create_group(ROOT, None).unwrap();
    fill(&lru, 0..1000, group);
    use_all(&lru, 0..100, 2);
    use_all(&lru, 100..200, 1);
    assert_eq!(list_of(&lru, 0), Some(List::InactiveFile), "a use moves nothing");
    evict(&lru, group, 400);
    assert_eq!(list_of(&lru, 0), Some(List::ActiveFile));
    assert!((0..100).all(|frame| is_cached(&lru, frame)));
    assert!(!(100..500).any(|frame| is_cached(&lru, frame)));
    // A scan goes past them.
    fill(&lru, 1000..4000, group);
    evict(&lru, group, 3300);
    assert!((0..100).all(|frame| is_cached(&lru, frame)));
    // Once the inactive list is at its least, active frames go, unused ones first.
    use_all(&lru, 0..50, 1);
    let left = lru.group_stats(group).unwrap().charged.get();
    evict(&lru, group, left - 60);
    let [used, unused] = [0..50, 50..100].map(|frames| {
        frames.filter(|&frame| is_cached(&lru, frame)).count() //
    });
    assert!(used > 40 && unused < 20, "{used} and {unused}");
    lru.check();
}

/// A working set of most of the capacity, against scans: `ScanResistant` is for that.
#[test]
fn a_loop_over_more_than_there_is_room_for_hits() {
    let hits = |policy| {
        let lru = lru(policy);
        let group = lru.create_group(ROOT, Some(count(1000))).unwrap();
        let mut hits = 0;
        for at in 0..20_000 {
            let frame = at % 1100;
            if is_cached(&lru, frame) {
                hits += u64::from(at >= 10_000);
                use_all(&lru, frame..frame + 1, 1);
                continue;
            }
            lru.add_reclaiming(pfn(frame), group, Kind::File).unwrap();
            let known = lru.owner().0.lock().unwrap().get(&frame).copied();
            if let Some(shadow) = known {
                lru.refault(pfn(frame), shadow).unwrap();
            }
        }
        hits / 100
    };
    let [two_lists, resistant] = [LruPolicy::TwoLists, LruPolicy::ScanResistant].map(hits);
    assert!(two_lists < 5 && resistant > 70, "{two_lists} % and {resistant} %");
}

//! What groups are protected from, and what presses them: `min`, `low` and `high`.

use crate::common::{TestPlatform, run_on};
use crate::room::Room;
use crate::rooms::{ROOT, count, room};
use crate::shelf::Shelf;
use freehold::{FrameCount, Pfn};
use freehold_lru::{GroupId, Kind, LruError, LruSettings, Scope};

type Lru = Room<TestPlatform, Shelf>;

fn lru(cpus: usize) -> Lru {
    room(20_000, cpus, &LruSettings::default(), Shelf::default())
}

fn group(lru: &Lru, parent: GroupId) -> GroupId {
    lru.create_group(parent, None).expect("a slot is free")
}

fn charged(lru: &Lru, group: GroupId) -> u64 {
    lru.drain_all();
    lru.group_stats(group).expect("it is there").charged.get()
}

fn reclaim(lru: &Lru, frames: u64) -> u64 {
    lru.reclaim(Scope::All, count(frames)).expect("it is the whole machine").reclaimed
}

#[test]
fn min_is_left_alone_whatever_is_asked_for() {
    let lru = lru(1);
    let [one, two] = [group(&lru, ROOT), group(&lru, ROOT)];
    lru.fill(0..1000, one, Kind::File);
    lru.fill(1000..2000, two, Kind::File);
    lru.set_min(one, count(600)).unwrap();
    assert_eq!(reclaim(&lru, 1900), 1400);
    assert_eq!((charged(&lru, one), charged(&lru, two)), (600, 0));
    assert_eq!(reclaim(&lru, 1), 0);
    // It is no limit, and no protection from the group itself.
    lru.fill(5000..5050, one, Kind::File);
    assert_eq!(reclaim(&lru, 100), 50);
    let own = lru.reclaim(Scope::Group(one), count(100)).unwrap();
    assert_eq!(own.reclaimed, 100);
    lru.set_min(one, FrameCount::ZERO).unwrap();
    assert_eq!(reclaim(&lru, 1000), 500);
    lru.check();
}

#[test]
fn low_is_left_alone_while_there_is_something_else() {
    let lru = lru(1);
    let [one, two] = [group(&lru, ROOT), group(&lru, ROOT)];
    lru.fill(0..1000, one, Kind::File);
    lru.fill(1000..2000, two, Kind::File);
    lru.set_low(one, count(600)).unwrap();
    lru.set_min(one, count(100)).unwrap();
    assert_eq!(reclaim(&lru, 1900), 1400);
    assert_eq!((charged(&lru, one), charged(&lru, two)), (600, 0));
    assert_eq!(reclaim(&lru, 31), 31, "rather than nothing");
    assert_eq!(reclaim(&lru, 1000), 469);
    assert_eq!((charged(&lru, one), reclaim(&lru, 1000)), (100, 0));
    lru.check();
}

#[test]
fn what_is_beyond_the_protection_bears_in_proportion() {
    let lru = lru(1);
    let [one, two] = [group(&lru, ROOT), group(&lru, ROOT)];
    lru.fill(0..6000, one, Kind::File);
    lru.fill(6000..9000, two, Kind::File);
    lru.set_low(one, count(3000)).unwrap();
    for _ in 0..32 {
        assert_eq!(reclaim(&lru, 31), 31);
    }
    let paid = [6000 - charged(&lru, one), 3000 - charged(&lru, two)];
    assert!(paid[0].abs_diff(paid[1]) < 60, "{paid:?} of 3000 each");
}

#[test]
fn groups_share_what_the_one_above_them_has() {
    let lru = lru(1);
    let parent = group(&lru, ROOT);
    let [one, two] = [group(&lru, parent), group(&lru, parent)];
    lru.fill(0..1000, one, Kind::File);
    lru.fill(1000..2000, two, Kind::File);
    lru.set_min(one, count(600)).unwrap();
    lru.set_min(two, count(300)).unwrap();
    lru.set_min(parent, count(450)).unwrap();
    reclaim(&lru, 2000);
    let left = [charged(&lru, one), charged(&lru, two)];
    // Half of what each asks for; as long as one has more than that, the other's part is smaller.
    assert!(left[0].abs_diff(300) < 60 && left[1].abs_diff(150) < 60, "{left:?}");
    assert_eq!(charged(&lru, parent), left[0] + left[1]);
    // For reclaim within the parent, each has what it asks for.
    lru.fill(2000..3000, one, Kind::File);
    lru.fill(3000..4000, two, Kind::File);
    lru.reclaim(Scope::Group(parent), count(5000)).unwrap();
    assert_eq!([charged(&lru, one), charged(&lru, two)], [600, 300]);
    // Without protection of the parent's they have none.
    lru.set_min(parent, FrameCount::ZERO).unwrap();
    reclaim(&lru, 5000);
    assert_eq!(charged(&lru, parent), 0);
    lru.check();
}

#[test]
fn a_group_with_a_high_reclaims_from_itself_and_is_refused_nothing() {
    for cpus in [1, 64] {
        let lru = lru(cpus);
        let [one, other] = [group(&lru, ROOT), group(&lru, ROOT)];
        let below = group(&lru, one);
        lru.fill(10_000..10_100, other, Kind::File);
        lru.set_high(one, Some(count(200))).unwrap();
        for frame in 0..2000 {
            run_on((frame % cpus as u64) as u32);
            let pfn = Pfn::new(frame);
            lru.add_reclaiming(pfn, below, Kind::File).expect("it is never refused");
            lru.owner().contents().index.insert(pfn, frame);
        }
        run_on(0);
        let left = charged(&lru, one);
        assert!((150..=210).contains(&left), "{left} with {cpus} CPUs");
        // What does not reclaim leaves that to others.
        lru.fill(5000..5500, below, Kind::File);
        assert_eq!(charged(&lru, one), left + 500);
        assert_eq!(lru.balance_groups().reclaimed, left + 300);
        assert_eq!((charged(&lru, one), charged(&lru, other)), (200, 100));
        assert_eq!(lru.balance_groups(), Default::default());
        lru.set_high(one, None).unwrap();
        lru.fill(6000..6500, below, Kind::File);
        assert_eq!(lru.balance_groups(), Default::default());
        lru.check();
    }
}

/// A group without groups below it, and one whose own frames are within its bound.
#[test]
fn each_group_is_balanced_by_its_own_bound() {
    let lru = lru(1);
    let [one, other] = [group(&lru, ROOT), group(&lru, ROOT)];
    let below = group(&lru, other);
    lru.set_high(one, Some(count(100))).unwrap();
    lru.set_high(other, Some(count(500))).unwrap();
    lru.set_high(below, Some(count(200))).unwrap();
    lru.fill(0..300, one, Kind::File);
    lru.fill(1000..1150, other, Kind::File);
    lru.fill(2000..2300, below, Kind::File);
    assert_eq!(lru.balance_groups().reclaimed, 300);
    assert_eq!((charged(&lru, one), charged(&lru, other), charged(&lru, below)), (100, 350, 200));
    lru.check();
}

#[test]
fn a_group_takes_its_bounds_along() {
    let lru = lru(1);
    let one = group(&lru, ROOT);
    lru.set_min(one, count(10)).unwrap();
    lru.set_low(one, count(20)).unwrap();
    lru.set_high(one, Some(count(30))).unwrap();
    let stats = lru.group_stats(one).unwrap();
    assert_eq!((stats.min, stats.low, stats.high), (count(10), count(20), Some(count(30))));
    lru.remove_group(one).unwrap();
    let unknown = Err(LruError::UnknownGroup);
    assert_eq!(lru.set_min(one, count(1)), unknown);
    assert_eq!((lru.set_low(one, count(1)), lru.set_high(one, None)), (unknown, unknown));
    for _ in 0..64 {
        // Each slot in turn.
        let next = group(&lru, ROOT);
        let stats = lru.group_stats(next).unwrap();
        assert_eq!((stats.min, stats.low, stats.high), (count(0), count(0), None));
        lru.remove_group(next).unwrap();
    }
    let root = Err(LruError::GroupInUse);
    assert_eq!((lru.set_min(ROOT, count(1)), lru.set_low(ROOT, count(1))), (root, root));
    assert_eq!(lru.set_high(ROOT, Some(count(1))), root);
}

//! The protocols of the LRU's groups between CPUs under loom: charges, limits, readers, removal,
//! and slots that get another group.

use crate::loom_platform::run_on;
use crate::loom_runs::explore;
use crate::loom_threads::race;
use crate::sound::{FRAME, OTHER, ROOT, Sound, build, with_frame};
use freehold::FrameCount;
use freehold_lru::{GroupId, Kind, LruError, LruLock, Scope};
use loom::sync::Arc;

fn create(lru: &Sound, parent: GroupId, limit: Option<u64>) -> GroupId {
    lru.create_group(parent, limit.map(FrameCount::new)).expect("a slot is free")
}

fn listed(lru: &Sound) -> u64 {
    lru.check().listed.iter().map(|count| count.get()).sum()
}

fn charged(lru: &Sound, group: GroupId) -> u64 {
    lru.group_stats(group).expect("it is there").charged.get()
}

/// A group is removed while one of its frames is isolated and put back.
///
/// The lists are joined under both locks, and a mark says so. A thread that takes an lruvec's lock
/// re-checks the mark once it has the lock, so it links and unlinks where the frame is.
#[test]
fn isolation_races_with_the_removal_of_the_group() {
    for lock in [LruLock::Node, LruLock::Group] {
        explore(2, move || {
            let lru: Arc<Sound> = with_frame(lock, |lru| create(lru, ROOT, None));
            // The only other group.
            let group = create(&lru, ROOT, None);
            lru.isolate(FRAME).expect("it is listed").move_to(group).expect("there is no limit");
            let (isolated, removed) =
                race(&lru, |lru| lru.isolate(FRAME).map(drop), move |lru| lru.remove_group(group));
            assert_eq!((isolated, removed), (Ok(()), Ok(())));
            lru.drain_all();
            assert_eq!(lru.check().used.get(), 1);
            // The frame is the parent's, so that the slot can be had.
            create(&lru, ROOT, None);
        });
    }
}

/// A group is removed while a frame is added to it: the add comes first, or fails.
#[test]
fn an_add_races_with_the_removal_of_the_group() {
    explore(2, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let group = create(&lru, ROOT, None);
        let (removed, added) = race(
            &lru,
            move |lru| lru.remove_group(group),
            move |lru| lru.add(FRAME, group, Kind::File),
        );
        assert_eq!(removed, Ok(()));
        assert!(matches!(added, Ok(()) | Err(LruError::UnknownGroup)), "{added:?}");
        assert_eq!(lru.check().used.get(), u64::from(added.is_ok()));
        assert_eq!(listed(&lru), u64::from(added.is_ok()));
        assert_eq!(lru.check().stocked, FrameCount::ZERO, "charged ahead for none");
    });
}

#[test]
fn a_group_at_its_limit_waits_for_an_eviction() {
    explore(2, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let group = create(&lru, ROOT, Some(1));
        lru.add(FRAME, group, Kind::File).expect("it is new");
        lru.owner().index().push(FRAME);
        let (reclaimed, added) = race(
            &lru,
            |lru| lru.reclaim(Scope::All, FrameCount::new(1)).expect("everywhere").reclaimed,
            move |lru| lru.add_reclaiming(OTHER, group, Kind::File),
        );
        assert_eq!(added, Ok(()), "the other thread reclaimed {reclaimed}");
        lru.check();
    });
}

/// A group is removed while a frame of its parent is isolated and put back: the lists are joined
/// under the lock of the parent's, too.
#[test]
fn isolation_races_with_the_removal_of_a_group_below() {
    for lock in [LruLock::Node, LruLock::Group] {
        explore(2, move || {
            let lru: Arc<Sound> = with_frame(lock, |_| ROOT);
            let group = create(&lru, ROOT, None);
            lru.add(OTHER, group, Kind::File).expect("it is new");
            let (isolated, removed) =
                race(&lru, |lru| lru.isolate(FRAME).map(drop), move |lru| lru.remove_group(group));
            assert_eq!((isolated, removed), (Ok(()), Ok(())));
            assert_eq!((lru.check().used.get(), listed(&lru)), (2, 2));
        });
    }
}

/// Of two adds, to these groups, one reaches the limit of a group first: the other one is refused,
/// and charges nothing. Returns whether the first one is added.
fn two_adds_meet(lru: &Arc<Sound>, limited: GroupId, [first, second]: [GroupId; 2]) -> bool {
    let (mine, theirs) = race(
        lru,
        |lru| lru.add(FRAME, first, Kind::File),
        move |lru| lru.add(OTHER, second, Kind::File),
    );
    let refused = Err(LruError::GroupLimit(limited));
    assert!([(Ok(()), refused), (refused, Ok(()))].contains(&(mine, theirs)), "{mine:?}");
    assert_eq!((lru.check().used.get(), charged(lru, limited)), (1, 1));
    mine.is_ok()
}

#[test]
fn two_adds_meet_the_limit_of_their_group() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let group = create(&lru, ROOT, Some(1));
        two_adds_meet(&lru, group, [group, group]);
    });
}

/// The limit is that of a group above: what was charged below it is given back.
#[test]
fn two_adds_meet_a_limit_above() {
    explore(2, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let above = create(&lru, ROOT, Some(1));
        let below = create(&lru, above, None);
        let is_added = two_adds_meet(&lru, above, [below, above]);
        assert_eq!(charged(&lru, below), u64::from(is_added));
    });
}

/// A limit is set while a CPU charges ahead, which it does under its lock: either the call finds
/// what it charged, or the CPU finds the limit. So it has nothing left beyond it.
#[test]
fn a_limit_is_set_while_a_cpu_charges_ahead() {
    explore(2, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let group = create(&lru, ROOT, None);
        let (set, added) = race(
            &lru,
            |lru| lru.set_max(group, Some(FrameCount::new(1))),
            move |lru| lru.add(FRAME, group, Kind::File),
        );
        assert_eq!((set, added), (Ok(()), Ok(())));
        run_on(1);
        assert_eq!(lru.add(OTHER, group, Kind::File), Err(LruError::GroupLimit(group)));
        assert_eq!((lru.check().used.get(), charged(&lru, group)), (1, 1));
    });
}

/// A reader enters a group while that is removed and its slot gets another group: it is a reader of
/// its group, which stays then, or of none.
#[test]
fn a_reader_enters_while_the_group_is_replaced() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let group = create(&lru, ROOT, None);
        // So that there is no other free slot.
        create(&lru, ROOT, None);
        let ((), next) = race(
            &lru,
            |lru| match lru.enter(group) {
                Ok(visit) => {
                    assert!(lru.group_stats(group).is_ok(), "removed while it has a reader");
                    drop(visit);
                }
                Err(error) => assert_eq!(error, LruError::UnknownGroup),
            },
            move |lru| {
                let removed = lru.remove_group(group);
                assert!(matches!(removed, Ok(()) | Err(LruError::GroupInUse)), "{removed:?}");
                removed.ok().map(|()| create(lru, ROOT, None))
            },
        );
        let last = next.unwrap_or(group);
        assert_eq!(lru.remove_group(last), Ok(()), "no reader is left");
        lru.check();
    });
}

/// A frame is added to a group while that is removed and its slot gets another group, which must
/// not bear it: the charge comes before, or to a slot whose group is not the one that was meant.
#[test]
fn a_late_charge_meets_the_next_group_of_the_slot() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let gone = create(&lru, ROOT, None);
        create(&lru, ROOT, None);
        let (added, next) = race(
            &lru,
            move |lru| lru.add(FRAME, gone, Kind::File),
            move |lru| {
                assert_eq!(lru.remove_group(gone), Ok(()));
                lru.create_group(ROOT, None)
            },
        );
        assert!(matches!(added, Ok(()) | Err(LruError::UnknownGroup)), "{added:?}");
        match next {
            Ok(next) => {
                assert_eq!(charged(&lru, next), 0);
                // It has lists of its own.
                lru.add(OTHER, next, Kind::File).expect("no other call has it");
                lru.drain_all();
                assert_eq!(charged(&lru, next), 1);
                lru.put(OTHER).expect("it was added");
            }
            // The charge counts for a moment.
            Err(error) => assert_eq!(error, LruError::TooManyGroups),
        }
        assert_eq!(lru.check().used.get(), u64::from(added.is_ok()));
    });
}

/// The last frame of a removed group is released while its slot gets another group below another
/// parent: the groups above are uncharged before the slot is.
#[test]
fn the_last_put_meets_the_next_group_of_the_slot() {
    explore(2, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let above = create(&lru, ROOT, None);
        let group = create(&lru, above, None);
        lru.add(FRAME, group, Kind::File).expect("it is new");
        assert_eq!(lru.remove_group(group), Ok(()));
        let (put, next) = race(&lru, |lru| lru.put(FRAME), |lru| lru.create_group(ROOT, None));
        assert_eq!((put, lru.owner().released()), (Ok(()), 1));
        assert!(matches!(next, Ok(_) | Err(LruError::TooManyGroups)), "{next:?}");
        assert_eq!((lru.check().used.get(), charged(&lru, above)), (0, 0));
    });
}

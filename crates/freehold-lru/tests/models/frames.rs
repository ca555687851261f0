//! The LRU's protocols between CPUs under loom: all interleavings with up to three preemptions, and
//! all values that the memory orderings allow a load to see. `groups` has those of groups.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further.

use std::sync::atomic::Ordering::Relaxed;

use crate::loom_runs::explore;
use crate::loom_threads::race;
use crate::sound::{FRAME, Lru, OTHER, ROOT, Sound, build, read, with_frame};
use freehold::{FrameCount, Migrate, MigrateError, Order};
use freehold_lru::{Kind, LruError, LruLock, Scope};
use loom::sync::Arc;

/// The frame has been released, and none is left.
fn check_released<const O: bool, const A: bool, const Q: bool>(lru: &Lru<O, A, Q>) {
    assert_eq!(lru.owner().released(), 1);
    lru.drain_all();
    assert_eq!(lru.check().used, FrameCount::ZERO);
}

/// Removes the frame from the index.
fn remove_entry(lru: &Sound) {
    let frame = lru.owner().index().pop().expect("it is in the index");
    lru.put(frame).expect("the index had a reference");
}

fn isolate_against_release<const O: bool, const A: bool, const Q: bool>() {
    explore(3, || {
        let lru = with_frame::<O, A, Q>(LruLock::Group, |_| ROOT);
        race(
            &lru,
            |lru| match lru.isolate(FRAME) {
                Ok(isolated) => {
                    assert_ne!(read(lru, FRAME), u32::MAX, "the frame was freed meanwhile");
                    drop(isolated);
                }
                Err(error) => assert_eq!(error, LruError::NotAdded),
            },
            |lru| {
                read(lru, FRAME);
                lru.put(FRAME).expect("the index has a reference");
            },
        );
        check_released(&lru);
    });
}

/// A frame is isolated while its last reference is dropped.
///
/// Both are one compare-exchange on the word of the frame, so one comes first. If it is the put, it
/// leaves no reference, and the isolation fails. The put saw the LRU mark in the word that it
/// replaced; the mark cannot be cleared without a reference, so only the put unlinks. If it is the
/// isolation, the put is not the last, and the isolating thread puts the frame back in one step
/// that either lists it with a reference left or drops the last: a mark set after the reference was
/// dropped would leave a listed frame that is released. The put releases and the last one acquires:
/// so what other holders did with the content comes before the frame is freed.
#[test]
fn isolation_races_with_release() {
    isolate_against_release::<true, true, true>();
}

/// The check above would notice a reference and a mark that change in two steps.
#[test]
#[should_panic]
fn a_word_that_changes_in_two_steps_is_caught() {
    isolate_against_release::<true, false, true>();
}

/// The check above would notice a last put that does not see what others did before.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_put_that_acquires_nothing_is_caught() {
    isolate_against_release::<true, true, false>();
}

/// And an lruvec lock that orders nothing.
#[test]
#[should_panic(expected = "Causality violation")]
fn an_lruvec_lock_that_orders_nothing_is_caught() {
    isolate_against_release::<false, true, true>();
}

/// A frame is moved to another group while another thread isolates it.
///
/// The group changes only between the step that clears the LRU mark and the one that sets it, and
/// the two isolations exclude each other by that mark. The put-back that sets it releases, and the
/// next isolation acquires: so the thread that succeeds reads the group that the frame is in, locks
/// that group's lruvec, and finds the frame linked there.
#[test]
fn isolation_races_with_a_move() {
    for lock in [LruLock::Node, LruLock::Group] {
        explore(3, move || {
            let lru: Arc<Sound> =
                with_frame(lock, |lru| lru.create_group(ROOT, None).expect("a slot is free"));
            let to = lru.create_group(ROOT, None).expect("a slot is free");
            let (isolated, moved) = race(
                &lru,
                |lru| lru.isolate(FRAME).map(drop),
                move |lru| lru.isolate(FRAME).map(|mut frame| frame.move_to(to)),
            );
            assert!(matches!(isolated, Ok(()) | Err(LruError::FrameBusy)), "{isolated:?}");
            let has_moved = moved == Ok(Ok(()));
            assert!(has_moved || moved == Err(LruError::FrameBusy), "{moved:?}");
            lru.drain_all();
            let census = lru.check();
            let there = lru.group_stats(to).expect("it is there").charged.get();
            assert_eq!((census.used.get(), there), (1, u64::from(has_moved)));
        });
    }
}

/// A frame goes from the batch of one CPU to a list while its only user drops its reference.
///
/// The batch has a reference of its own, so either the put is not the last, or the batch's is: then
/// it lists nothing. The batch sets the mark and drops its reference in one step.
#[test]
fn a_batch_races_with_release() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 2);
        lru.add(FRAME, ROOT, Kind::Anon).expect("it is new");
        race(
            &lru,
            |lru| lru.drain_all(),
            |lru| lru.put(FRAME).expect("the caller has a reference"),
        );
        check_released(&lru);
    });
}

/// A frame is pinned while it is put back.
///
/// Pins and the LRU mark are in one word. Either the pin comes first, and the put-back sees it; or
/// the mark comes first, and the pin's batch sees that and moves the frame.
#[test]
fn a_pin_races_with_a_put_back() {
    explore(3, || {
        let lru: Arc<Sound> = with_frame(LruLock::Group, |_| ROOT);
        let isolated = lru.isolate(FRAME).expect("it is listed");
        race(&lru, |_| drop(isolated), |lru| lru.pin(FRAME).expect("the index has a reference"));
        lru.drain_all();
        assert_eq!(lru.check().listed.map(FrameCount::get), [0, 0, 0, 0, 1]);
    });
}

/// A frame is reclaimed while it is looked up.
///
/// The claim and the lookup are both made under the lock of the owner's index: so the lookup finds
/// no entry, or its reference keeps the claim from being granted.
#[test]
fn reclaim_races_with_a_lookup() {
    explore(2, || {
        let lru: Arc<Sound> = with_frame(LruLock::Group, |_| ROOT);
        let (reclaimed, found) = race(
            &lru,
            |lru| lru.reclaim(Scope::All, FrameCount::new(1)).expect("there is a root").reclaimed,
            |lru| {
                let index = lru.owner().index();
                let found = index.contains(&FRAME);
                if found {
                    lru.get(FRAME).expect("it is in the index");
                    drop(index);
                    assert_ne!(read(lru, FRAME), u32::MAX, "the frame was freed meanwhile");
                    lru.put(FRAME).expect("we have a reference");
                }
                found
            },
        );
        assert!(found || reclaimed == 1);
        assert_eq!(lru.owner().released() as u64, reclaimed);
        lru.drain_all();
        assert_eq!(lru.check().used.get(), 1 - reclaimed);
    });
}

/// Content is migrated while it is removed from the index.
#[test]
fn migration_races_with_a_removal() {
    explore(2, || {
        let lru: Arc<Sound> = with_frame(LruLock::Group, |_| ROOT);
        let (moved, ()) = race(&lru, |lru| lru.migrate(FRAME, OTHER, Order::ZERO), remove_entry);
        assert!(matches!(moved, Ok(()) | Err(MigrateError::Busy)), "{moved:?}");
        check_released(&lru);
    });
}

/// A claim is given back while another thread removes the entry.
///
/// The claim ends before the lock of the index does, under which the entry is removed too. So the
/// owner finds no entry and takes no claim, or the other thread finds the index's reference as it
/// was, and its put succeeds. The thaw is one exchange that releases, and the put acquires; of it
/// and the put-back by the thread that asked, the later one drops the last reference.
#[test]
fn a_claim_given_back_races_with_a_removal() {
    type Ask = fn(&Sound);
    let asks: [Ask; 2] = [
        |lru| {
            let done = lru.reclaim(Scope::All, FrameCount::new(1)).expect("there is a root");
            assert_eq!(done.reclaimed, 0);
        },
        |lru| assert_eq!(lru.migrate(FRAME, OTHER, Order::ZERO), Err(MigrateError::Busy)),
    ];
    for ask in asks {
        explore(2, move || {
            let lru: Arc<Sound> = with_frame(LruLock::Group, |_| ROOT);
            lru.owner().wavers.store(true, Relaxed);
            race(&lru, ask, remove_entry);
            check_released(&lru);
        });
    }
}

/// Two threads add the same frame: one gets the error that it was added already, and charges
/// nothing.
#[test]
fn a_frame_is_added_twice_at_once() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let add = |lru: &Sound| lru.add(FRAME, ROOT, Kind::File);
        let (mine, theirs) = race(&lru, add, add);
        assert_eq!(mine.is_ok(), theirs == Err(LruError::AlreadyAdded), "{mine:?} {theirs:?}");
        lru.drain_all();
        let charged = lru.group_stats(ROOT).expect("the root is there").charged;
        assert_eq!((lru.check().used, charged), (FrameCount::new(1), FrameCount::new(1)));
    });
}

#[test]
fn a_block_is_added_while_a_part_of_it_is() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let (block, part) = race(
            &lru,
            |lru| lru.add_block(FRAME, Order::new(1), ROOT, Kind::File),
            |lru| lru.add(OTHER, ROOT, Kind::Anon),
        );
        let taken = Err(LruError::AlreadyAdded);
        assert!([(Ok(()), taken), (taken, Ok(()))].contains(&(block, part)), "{block:?} {part:?}");
        let used = if block.is_ok() { 2 } else { 1 };
        assert_eq!(lru.check().used, FrameCount::new(used));
    });
}

/// Two users of a frame drop the last references to it. The put of the first one releases, and that
/// of the last one acquires: what the first one read, it has read before the frame is freed.
#[test]
fn of_two_puts_the_last_one_releases() {
    explore(3, || {
        let lru: Arc<Sound> = with_frame(LruLock::Group, |_| ROOT);
        lru.get(FRAME).expect("the index has a reference");
        let put = |lru: &Sound| {
            read(lru, FRAME);
            lru.put(FRAME).expect("it has a reference");
        };
        race(&lru, put, put);
        assert_eq!(lru.owner().released(), 1);
        assert_eq!(lru.check().used, FrameCount::ZERO);
    });
}

/// A frame is reclaimed while it is looked up without the lock of the index, as under RCU: a
/// reference that was taken before the claim is granted keeps it from being granted.
#[test]
fn reclaim_races_with_a_lookup_without_the_lock() {
    explore(2, || {
        let lru: Arc<Sound> = with_frame(LruLock::Group, |_| ROOT);
        let (reclaimed, ()) = race(
            &lru,
            |lru| lru.reclaim(Scope::All, FrameCount::new(1)).expect("there is a root").reclaimed,
            |lru| {
                if lru.get(FRAME).is_ok() {
                    if lru.owner().index().contains(&FRAME) {
                        assert_ne!(read(lru, FRAME), u32::MAX, "the frame was freed meanwhile");
                    }
                    lru.put(FRAME).expect("we have a reference");
                }
            },
        );
        lru.drain_all();
        assert_eq!(lru.owner().released() as u64, reclaimed);
        assert_eq!(lru.check().used.get(), 1 - reclaimed);
    });
}

/// A frame is added while its memory is removed: one of the calls is refused.
#[test]
fn a_frame_is_added_while_its_memory_is_removed() {
    explore(3, || {
        let lru: Arc<Sound> = build(LruLock::Group, 1);
        let (added, removed) = race(
            &lru,
            |lru| lru.add(FRAME, ROOT, Kind::File),
            |lru| lru.remove_memory(FRAME, FrameCount::new(1)),
        );
        let (gone, busy) = (Err(LruError::ForeignFrame), Err(LruError::FrameBusy));
        assert!([(Ok(()), busy), (gone, Ok(()))].contains(&(added, removed)), "{added:?}");
        assert_eq!(lru.check().used.get(), u64::from(added.is_ok()));
    });
}

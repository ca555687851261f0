//! Claims that owners take and then do not use: the frame is as before by the time that the owner's
//! lock is free, so whoever removes the entry next has a reference to drop.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crate::common::TestPlatform;
use crate::rooms::room;
use freehold::{FrameCount, Migrate, MigrateError, Order, Pfn};
use freehold_lru::{Claim, Claimed, GroupId, Kind, Lru, LruError, LruSettings};
use freehold_lru::{Owner, Scope, Verdict};

const FRAME: Pfn = Pfn::new(3);
const OTHER: Pfn = Pfn::new(9);

type Cache = Lru<TestPlatform, Rash>;

/// What the owner does with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Drop,
    Leak,
    Panic,
    Commit,
    CommitAndPanic,
}

/// An owner that takes claims, and returns or panics with or without having used them. The next
/// moment, another thread removes the entry.
struct Rash {
    deed: Deed,
    /// What migrations return.
    answer: Result<(), MigrateError>,
    removes: bool,
    cache: OnceLock<&'static Cache>,
    index: Mutex<BTreeSet<Pfn>>,
    released: Mutex<Vec<Pfn>>,
    /// What the put of the other thread returned.
    put: Mutex<Option<Result<(), LruError>>>,
}

impl Rash {
    fn index(&self) -> MutexGuard<'_, BTreeSet<Pfn>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does with the claim what it is told to; `change` makes the change to the index.
    fn act(&self, claimed: Claimed<'_>, change: impl FnOnce()) {
        match self.deed {
            Deed::Drop => {}
            Deed::Leak => std::mem::forget(claimed),
            Deed::Panic => resume_unwind(Box::new("before the commit")),
            Deed::Commit | Deed::CommitAndPanic => {
                change();
                claimed.commit();
                if self.deed == Deed::CommitAndPanic {
                    resume_unwind(Box::new("after the commit"));
                }
            }
        }
    }
}

/// Lets another thread remove the entry of the frame when this is dropped.
struct RemoveNext<'a>(&'a Rash);

impl Drop for RemoveNext<'_> {
    fn drop(&mut self) {
        if self.0.removes {
            let remove = || {
                if self.0.index().remove(&FRAME) {
                    let put = self.0.cache.get().expect("it is set").put(FRAME);
                    *self.0.put.lock().unwrap() = Some(put);
                }
            };
            thread::scope(|scope| scope.spawn(remove).join().expect("it does not panic"));
        }
    }
}

impl Owner for Rash {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        // Dropped after the guard of the lock.
        let _next = RemoveNext(self);
        let mut index = self.index();
        if index.contains(&frame)
            && let Some(claimed) = claim.take()
        {
            self.act(claimed, || _ = index.remove(&frame));
        }
    }

    fn release(&self, frames: &[Pfn], _order: Order) {
        self.released.lock().unwrap().extend(frames);
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let _next = RemoveNext(self);
        let mut index = self.index();
        let claimed = claim.take().ok_or(MigrateError::Busy)?;
        self.act(claimed, || {
            index.remove(&from);
            index.insert(to);
        });
        self.answer
    }
}

/// A cache with one frame, in a group of its own.
fn cache(deed: Deed, answer: Result<(), MigrateError>, removes: bool) -> (&'static Cache, GroupId) {
    let (index, released, put) = (Mutex::default(), Mutex::default(), Mutex::default());
    let owner = Rash { deed, answer, removes, cache: OnceLock::new(), index, released, put };
    let cache: &'static Cache = Box::leak(Box::new(room(64, 1, &LruSettings::default(), owner)));
    assert!(cache.owner().cache.set(cache).is_ok(), "it is set once");
    let group = cache.create_group(GroupId::ROOT, None).expect("a slot is free");
    cache.add(FRAME, group, Kind::File).expect("it is new");
    cache.owner().index().insert(FRAME);
    cache.drain_all();
    (cache, group)
}

/// The frames that are in the LRU, in the index, and charged.
fn counts(cache: &Cache, group: GroupId) -> [u64; 3] {
    cache.drain_all();
    let census = cache.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.unlisted.get(), 0);
    let charged = cache.group_stats(group).expect("it is there").charged.get();
    [census.used.get(), cache.owner().index().len() as u64, charged]
}

fn reclaim(cache: &Cache) -> Option<u64> {
    let reclaim = || cache.reclaim(Scope::All, FrameCount::new(1)).expect("there is a root");
    catch_unwind(AssertUnwindSafe(reclaim)).ok().map(|done| done.reclaimed)
}

fn migrate(cache: &Cache) -> Option<Result<(), MigrateError>> {
    catch_unwind(AssertUnwindSafe(|| cache.migrate(FRAME, OTHER, Order::ZERO))).ok()
}

#[test]
fn who_removes_the_entry_after_an_unused_claim_to_reclaim_drops_a_reference() {
    for (deed, expected) in [(Deed::Drop, Some(0)), (Deed::Panic, None)] {
        let (cache, group) = cache(deed, Ok(()), true);
        assert_eq!(reclaim(cache), expected, "{deed:?}");
        assert_eq!(*cache.owner().put.lock().unwrap(), Some(Ok(())), "{deed:?}");
        assert_eq!(counts(cache, group), [0; 3], "{deed:?}");
        assert_eq!(*cache.owner().released.lock().unwrap(), [FRAME], "{deed:?}");
    }
}

#[test]
fn who_removes_the_entry_after_an_unused_claim_to_migrate_drops_a_reference() {
    let (failed, busy) = (Err(MigrateError::Failed), Err(MigrateError::Busy));
    let cases = [
        (Deed::Drop, busy, Some(busy)),
        (Deed::Drop, Ok(()), Some(failed)),
        (Deed::Panic, busy, None),
    ];
    for (deed, answer, expected) in cases {
        let (cache, group) = cache(deed, answer, true);
        assert_eq!(migrate(cache), expected, "{deed:?}");
        assert_eq!(*cache.owner().put.lock().unwrap(), Some(Ok(())), "{deed:?}");
        assert_eq!(counts(cache, group), [0; 3], "{deed:?}");
        assert_eq!(*cache.owner().released.lock().unwrap(), [FRAME], "{deed:?}");
        assert_eq!(cache.frame_stats(OTHER), Err(LruError::NotAdded));
    }
}

#[test]
fn an_unused_claim_leaves_the_frame_as_it_was() {
    for deed in [Deed::Drop, Deed::Leak, Deed::Panic] {
        let (cache, group) = cache(deed, Ok(()), false);
        let before = cache.frame_stats(FRAME);
        assert_eq!(reclaim(cache).unwrap_or(0), 0, "{deed:?}");
        let moved = migrate(cache);
        assert!(matches!(moved, None | Some(Err(MigrateError::Failed))), "{deed:?}: {moved:?}");
        assert_eq!((counts(cache, group), cache.frame_stats(FRAME)), ([1; 3], before), "{deed:?}");
        cache.put(FRAME).expect("the index has a reference");
        assert_eq!(*cache.owner().released.lock().unwrap(), [FRAME], "{deed:?}");
    }
}

#[test]
fn a_committed_claim_counts_whatever_comes_after() {
    for deed in [Deed::Commit, Deed::CommitAndPanic] {
        let (gone, group) = cache(deed, Ok(()), true);
        assert_eq!(reclaim(gone), (deed == Deed::Commit).then_some(1));
        assert_eq!(counts(gone, group), [0; 3], "{deed:?}");
        assert_eq!(*gone.owner().released.lock().unwrap(), [FRAME], "{deed:?}");
        for answer in [Ok(()), Err(MigrateError::Failed)] {
            let (moved, group) = cache(deed, answer, true);
            // An error would have compaction free the new place.
            assert_eq!(migrate(moved), (deed == Deed::Commit).then_some(Ok(())), "{answer:?}");
            assert_eq!(counts(moved, group), [1; 3], "{deed:?}");
            assert!(moved.owner().index().contains(&OTHER) && moved.frame_stats(OTHER).is_ok());
            assert_eq!(moved.frame_stats(FRAME), Err(LruError::NotAdded));
            assert_eq!(*moved.owner().released.lock().unwrap(), []);
        }
    }
}

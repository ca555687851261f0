//! What the LRU asks its owner: many frames at a time, from within other calls, and panics; and
//! references that drop themselves.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, OnceLock};

use crate::common::{TestPlatform, run_on};
use crate::fixed;
use crate::machine::Machine;
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn, room};
use crate::shelf::{Shelf, forget};
use freehold::{Config, Error, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_linux::ZoneLock;
use freehold_lru::{BATCH_MAX, Claim, FrameRef, Kind, LruError, LruSettings, Owner};
use freehold_lru::{List, Reclaimed, Scope, Verdict};

const FRAMES: u64 = 2048;

type Cache<O> = Room<TestPlatform, O>;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// An LRU for frames on two CPUs.
fn build<O: Owner>(settings: &LruSettings, owner: O) -> Cache<O> {
    room(FRAMES, 2, settings, owner)
}

type Answer = dyn Fn(&Cache<Told>, &[Pfn], &mut [Verdict]);

/// An owner that answers as `answer` does, which is told the LRU.
struct Told {
    answer: Box<Answer>,
    cache: OnceLock<&'static Cache<Told>>,
    index: Mutex<BTreeSet<Pfn>>,
    released: Mutex<Vec<Pfn>>,
}

impl Owner for Told {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        unreachable!("it is asked for many frames at a time")
    }

    fn reclaim_bulk(&self, frames: &[Pfn], verdicts: &mut [Verdict]) {
        (self.answer)(self.cache.get().expect("it is set"), frames, verdicts);
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        forget(&self.index, frame, claim);
    }

    fn release(&self, frames: &[Pfn], _order: Order) {
        self.released.lock().unwrap().extend(frames);
    }
}

/// A cache of frames that are in its index.
fn told(
    frames: u64,
    answer: impl Fn(&Cache<Told>, &[Pfn], &mut [Verdict]) + 'static,
) -> &'static Cache<Told> {
    let answer = Box::new(answer);
    ASKED.set(0);
    DEPTH.set(0);
    let (index, released) = (Mutex::default(), Mutex::default());
    let owner = Told { answer, cache: OnceLock::new(), index, released };
    let cache: &'static _ = Box::leak(Box::new(build(&LruSettings::default(), owner)));
    assert!(cache.owner().cache.set(cache).is_ok(), "it is set once");
    for frame in (0..frames).map(pfn) {
        cache.add(frame, ROOT, Kind::File).expect("it is new");
        cache.owner().index.lock().unwrap().insert(frame);
    }
    cache.drain_all();
    cache
}

/// Checks that each of so many frames is on a list, or was released.
fn none_is_lost(cache: &Cache<Told>, frames: u64) {
    cache.drain_all();
    let (census, released) = (cache.check(), cache.owner().released.lock().unwrap().len() as u64);
    assert_eq!((census.used.get() + released, census.unlisted.get()), (frames, 0));
    assert_eq!(cache.owner().index.lock().unwrap().len() as u64, census.used.get());
}

#[test]
fn an_owner_is_asked_for_unused_frames_by_the_batch() {
    let cache = told(100, |cache, frames, verdicts| {
        assert_eq!(frames.len(), verdicts.len());
        assert!(frames.len() <= BATCH_MAX && verdicts.iter().all(|of| *of == Verdict::Keep));
        let unused = |frame: &Pfn| cache.frame_stats(*frame).unwrap().references.unwrap().get();
        assert!(frames.iter().all(|frame| unused(frame) == 2), "the index's and that of the LRU");
        ASKED.set(ASKED.get() + 1);
        for (frame, verdict) in frames.iter().zip(verdicts) {
            match frame.get() % 4 {
                1 => *verdict = Verdict::Written,
                2 => *verdict = Verdict::Failed,
                3 => *verdict = Verdict::Drop,
                _ => {}
            }
        }
    });
    // Some are in use, so that verdicts and frames of a batch are at different places.
    let held: Vec<_> = (0..30).map(|nth| cache.hold(pfn(nth * 3)).expect("it is there")).collect();
    let done = cache.reclaim(Scope::All, count(100)).expect("there is a root");
    let goes = |frame: &u64| frame % 2 == 1 && (*frame >= 90 || !frame.is_multiple_of(3));
    let expected: Vec<_> = (0..100).filter(goes).map(pfn).collect();
    let mut released = cache.owner().released.lock().unwrap().clone();
    released.sort();
    assert_eq!(released, expected);
    assert_eq!(done.reclaimed, expected.len() as u64);
    assert_eq!(done.written, expected.iter().filter(|frame| frame.get() % 4 == 1).count() as u64);
    assert!(ASKED.get() < 40, "{} calls for {done:?}", ASKED.get());
    drop(held);
    none_is_lost(cache, 100);
}

#[test]
fn a_panic_in_the_middle_of_a_batch_keeps_all_of_it() {
    let cache = told(100, |_, frames, verdicts| {
        ASKED.set(ASKED.get() + 1);
        verdicts[..frames.len() / 2].fill(Verdict::Drop);
        if ASKED.get() == 2 {
            resume_unwind(Box::new("as it is meant to"));
        }
        verdicts.fill(Verdict::Drop);
    });
    let reclaim = || cache.reclaim(Scope::All, count(100)).expect("there is a root");
    assert!(catch_unwind(AssertUnwindSafe(reclaim)).is_err());
    assert_eq!(cache.owner().released.lock().unwrap().len(), BATCH_MAX, "the batch before");
    none_is_lost(cache, 100);
    assert_eq!(reclaim().reclaimed, 100 - BATCH_MAX as u64);
    none_is_lost(cache, 100);
}

#[test]
fn an_owner_that_reclaims_when_asked_is_refused_at_some_depth() {
    let cache = told(FRAMES, |cache, _, verdicts| {
        DEPTH.set(DEPTH.get() + 1);
        match cache.reclaim(Scope::All, count(1)) {
            Ok(_) => {}
            Err(error) => assert_eq!((error, DEPTH.get()), (LruError::TooManyReclaims, 32)),
        }
        DEPTH.set(DEPTH.get() - 1);
        verdicts.fill(Verdict::Written);
    });
    for _ in 0..2 {
        let done = cache.reclaim(Scope::All, count(1)).expect("none is under way");
        assert_eq!(done.reclaimed, 1);
    }
    assert_eq!(cache.owner().released.lock().unwrap().len(), 64, "one at each level");
    none_is_lost(cache, FRAMES);
}

#[test]
fn a_panic_ends_all_reclaims_that_were_under_way() {
    let cache = told(FRAMES, |cache, _, verdicts| {
        if cache.reclaim(Scope::All, count(1)).is_err() {
            ASKED.set(ASKED.get() + 1);
            if ASKED.get() == 1 {
                resume_unwind(Box::new("at the innermost level"));
            }
        }
        verdicts.fill(Verdict::Drop);
    });
    let reclaim = || cache.reclaim(Scope::All, count(1));
    assert!(catch_unwind(AssertUnwindSafe(reclaim)).is_err());
    none_is_lost(cache, FRAMES);
    assert_eq!(reclaim().map(|done| done.reclaimed), Ok(1));
    assert_eq!(cache.owner().released.lock().unwrap().len(), 32, "all levels are free again");
}

/// The caller is on another CPU when it ends than when it began.
#[test]
fn a_reclaim_ends_on_the_cpu_that_it_began_on() {
    let cache = told(100, |_, _, verdicts| {
        run_on(1);
        verdicts.fill(Verdict::Drop);
    });
    for left in (0..100).rev() {
        run_on(0);
        assert_eq!(cache.reclaim(Scope::All, count(1)).map(|done| done.reclaimed), Ok(1));
        assert_eq!(cache.check().used, count(left));
    }
}

#[test]
fn calls_that_reclaim_give_up_when_too_many_do() {
    let ranges = [MemoryRange::new(pfn(0), count(FRAMES))];
    let cpus = [NodeId::new(0); 2];
    let frames =
        Machine::<_, ZoneLock<_>>::new(TestPlatform, &Config::new(&ranges, &cpus), &fixed(4, 8));
    run_on(0);
    while frames.alloc(Request::default()).is_ok() {}
    let frames: &'static _ = Box::leak(Box::new(frames));
    let cache = told(FRAMES - 1, move |cache, _, _| {
        if cache.reclaim(Scope::All, count(1)) == Err(LruError::TooManyReclaims) {
            ASKED.set(ASKED.get() + 1);
            let group = cache.create_group(ROOT, Some(count(0))).expect("a slot is free");
            let added = cache.add_reclaiming(pfn(FRAMES - 1), group, Kind::File);
            assert_eq!(added, Err(LruError::TooManyReclaims));
            assert_eq!(cache.remove_group(group), Ok(()));
            for order in [Order::ZERO, Order::new(3)] {
                let allocated = cache.alloc_reclaiming(frames, Request::new(order));
                assert!(matches!(allocated, Err(Error::OutOfMemory | Error::BelowWatermark)));
            }
            assert_eq!(cache.balance(frames), Reclaimed::default());
            // Once is enough, and ends all levels.
            resume_unwind(Box::new("done"));
        }
    });
    assert!(catch_unwind(AssertUnwindSafe(|| cache.reclaim(Scope::All, count(1)))).is_err());
    assert_eq!(ASKED.get(), 1);
    none_is_lost(cache, FRAMES - 1);
}

/// An owner that panics when blocks of this order are released to it, and what was.
pub(crate) struct Nervous(pub(crate) Order, pub(crate) Mutex<Vec<(Pfn, Order)>>);

impl Owner for Nervous {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Keep
    }

    fn forget(&self, _frame: Pfn, _claim: Claim<'_>) {}

    fn release(&self, blocks: &[Pfn], order: Order) {
        self.1.lock().unwrap().extend(blocks.iter().map(|&block| (block, order)));
        if order == self.0 {
            resume_unwind(Box::new("as it is meant to"));
        }
    }
}

/// A batch is full, and another frame in it has no other reference left.
#[test]
fn a_frame_is_added_although_the_owner_panics() {
    type Call = fn(&Cache<Nervous>) -> Result<(), LruError>;
    let calls: [Call; 2] = [
        |cache| cache.add(pfn(1), ROOT, Kind::File),
        |cache| cache.add_reclaiming(pfn(1), ROOT, Kind::File),
    ];
    for call in calls {
        let owner = Nervous(Order::ZERO, Mutex::default());
        let cache = build(&LruSettings::default().batch(2), owner);
        cache.add(pfn(0), ROOT, Kind::File).expect("it is new");
        cache.put(pfn(0)).expect("the caller has a reference");
        assert!(catch_unwind(AssertUnwindSafe(|| call(&cache))).is_err(), "it is handed frame 0");
        assert_eq!(*cache.owner().1.lock().unwrap(), [(pfn(0), Order::ZERO)]);
        let stats = cache.frame_stats(pfn(1)).expect("it was added");
        assert_eq!(stats.references.map(|count| count.get()), Some(1));
        assert!(stats.list.is_some());
        cache.drain_all();
        assert_eq!(cache.check().used, count(1));
        assert_eq!(cache.group_stats(ROOT).expect("the root is there").charged, count(1));
    }
}

#[test]
fn references_drop_themselves() {
    let cache = build(&LruSettings::default(), Shelf::default());
    let references =
        || cache.frame_stats(pfn(5)).ok().and_then(|stats| stats.references).map(|of| of.get());
    assert_eq!(cache.hold(pfn(5)).err(), Some(LruError::NotAdded));
    assert_eq!(cache.hold(pfn(1 << 40)).err(), Some(LruError::ForeignFrame));
    cache.add(pfn(5), ROOT, Kind::File).expect("it is new");
    cache.drain_all();
    let added = FrameRef::from_raw(&cache, pfn(5));
    assert_eq!(references(), Some(1), "it took over the one that there was");
    {
        let held = cache.hold(added.pfn()).expect("there is a reference");
        assert_eq!(
            (references(), format!("{held:?}")),
            (Some(2), format!("FrameRef({:?})", pfn(5)))
        );
        held.mark_accessed();
        held.mark_accessed();
    }
    cache.drain_all();
    assert_eq!(references(), Some(1));
    assert_eq!(cache.frame_stats(pfn(5)).unwrap().list, Some(List::ActiveFile));
    let raw = added.into_raw();
    assert_eq!((raw, references()), (pfn(5), Some(1)));
    drop(FrameRef::from_raw(&cache, raw));
    assert_eq!((references(), cache.owner().take_released()), (None, vec![5]));
    // One that should not be: nothing is there to be dropped.
    drop(FrameRef::from_raw(&cache, raw));
    assert_eq!(cache.check().used, count(0));
}

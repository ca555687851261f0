//! Every pair of calls of the LRU: one is stopped before each of its steps, and the other one runs
//! there, on another CPU, to its end.
//!
//! What they do is right if the books are in order afterwards, no frame is released that has a
//! user, and each comes back once when the index gives up what is left. A pair of which the second
//! call would wait for the first one is no such case: it is counted, and that is all.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::thread::panicking;

use crate::room::Room;
use crate::steps::{Kind as Stop, StepLock, StepPlatform, run_on, stop_at, unless_it_waits};
use freehold::platform::{LockClass, RawLock};
use freehold::{Config, FrameCount, MemoryRange, Migrate, MigrateError, NodeId, Order, Pfn};
use freehold_lru::{
    Claim, GroupId, Kind, LruError, LruLock, LruPolicy, LruSettings, Owner, Scope, Verdict,
};

/// Of the group below another one; of that other one; not in the LRU; where content moves to; the
/// first frame of a block of four, and another one of it.
const FRAME: Pfn = Pfn::new(0);
const BESIDE: Pfn = Pfn::new(1);
const ABOVE: Pfn = Pfn::new(2);
const SPARE: Pfn = Pfn::new(3);
const TARGET: Pfn = Pfn::new(4);
const BLOCK: Pfn = Pfn::new(8);
const PART: Pfn = Pfn::new(10);
const FRAMES: u64 = 12;

/// An owner whose index has a lock that is made of steps, like those of the LRU.
struct Shelf {
    lock: StepLock,
    /// Guarded by the lock.
    index: RefCell<BTreeSet<Pfn>>,
    /// What the LRU has and has not released.
    held: RefCell<BTreeSet<Pfn>>,
    /// Whether it gives back every claim that it is granted.
    wavers: bool,
}

impl Shelf {
    fn with_index<R>(&self, act: impl FnOnce(&mut BTreeSet<Pfn>) -> R) -> R {
        struct Unlock<'a>(&'a StepLock);
        impl Drop for Unlock<'_> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        self.lock.lock();
        let _unlock = Unlock(&self.lock);
        act(&mut self.index.borrow_mut())
    }

    fn has(&self, frame: Pfn) -> bool {
        self.held.borrow().contains(&frame)
    }
}

impl Owner for Shelf {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        // Perhaps of one that is not in the index yet.
        Verdict::Drop
    }

    fn wait(&self, _waits: u32) -> bool {
        // What it waits for is stopped.
        false
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        self.with_index(|index| {
            if index.contains(&frame)
                && let Some(claimed) = claim.take()
                && !self.wavers
            {
                index.remove(&frame);
                claimed.commit();
            }
        });
    }

    fn release(&self, frames: &[Pfn], _order: Order) {
        for frame in frames {
            assert!(self.held.borrow_mut().remove(frame), "{frame:?} is released twice");
            assert!(!self.index.try_borrow().is_ok_and(|index| index.contains(frame)));
        }
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        self.with_index(|index| {
            if !index.contains(&from) {
                return Err(MigrateError::Busy);
            }
            let Some(claimed) = claim.take() else { return Err(MigrateError::Busy) };
            if self.wavers {
                return Err(MigrateError::Busy);
            }
            index.remove(&from);
            index.insert(to);
            self.held.borrow_mut().remove(&from);
            self.held.borrow_mut().insert(to);
            claimed.commit();
            Ok(())
        })
    }
}

type Lru = Room<StepPlatform, Shelf>;

/// The LRU, and the groups of its frames.
struct Library {
    lru: Lru,
    /// Below the root, with a limit; and below that.
    above: GroupId,
    below: GroupId,
}

impl Library {
    fn new(settings: &LruSettings, wavers: bool) -> Self {
        run_on(0);
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(FRAMES))];
        // Two of them run, each with a shard of its own.
        let cpus = [NodeId::new(0); 3];
        let config = Config::new(&ranges, &cpus);
        let (index, held) = (RefCell::default(), RefCell::default());
        let shelf = Shelf { lock: StepLock::new(LockClass::Zone), index, held, wavers };
        // One more slot than there are groups.
        let lru = Room::new(StepPlatform, &config, &settings.groups(4), shelf);
        let above = lru.create_group(GroupId::ROOT, Some(FrameCount::new(8))).expect("a slot");
        let below = lru.create_group(above, None).expect("a slot is free");
        let library = Library { lru, above, below };
        library.add(FRAME, Order::ZERO, below, false);
        library.add(BESIDE, Order::ZERO, below, false);
        library.add(ABOVE, Order::ZERO, above, false);
        library.lru.drain_all();
        library
    }

    fn add(&self, frame: Pfn, order: Order, group: GroupId, may_reclaim: bool) {
        let lru = &self.lru;
        let added = match may_reclaim {
            true => lru.add_block_reclaiming(frame, order, group, Kind::Anon),
            false => lru.add_block(frame, order, group, Kind::File),
        };
        match added {
            Ok(()) => {
                assert!(lru.owner().held.borrow_mut().insert(frame), "{frame:?} is added twice");
                lru.owner().with_index(|index| index.insert(frame));
            }
            Err(
                LruError::GroupLimit(_)
                | LruError::UnknownGroup
                | LruError::AlreadyAdded
                | LruError::ForeignFrame,
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Acts on a frame, if the index has it, with a reference.
    fn with_frame(&self, frame: Pfn, act: impl FnOnce(&Lru)) {
        let lru = &self.lru;
        let found = lru.owner().with_index(|index| {
            let found = index.contains(&frame);
            if found {
                lru.get(frame).expect("the index has a reference");
            }
            found
        });
        if found {
            act(lru);
            assert!(lru.owner().has(frame), "{frame:?} was released with a user");
            lru.put(frame).expect("it was taken above");
        }
    }

    /// The index gives a frame up.
    fn erase(&self, frame: Pfn) {
        if self.lru.owner().with_index(|index| index.remove(&frame)) {
            self.lru.put(frame).expect("the index had a reference");
        }
    }

    fn isolate(&self, to: Option<GroupId>) {
        match self.lru.isolate(FRAME) {
            Ok(mut isolated) => {
                assert!(self.lru.owner().has(FRAME), "released while it is isolated");
                let moved = to.map_or(Ok(()), |group| isolated.move_to(group));
                assert!(matches!(moved, Ok(()) | Err(LruError::GroupLimit(_))), "{moved:?}");
            }
            Err(LruError::FrameBusy | LruError::NotAdded) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove_below(&self) -> bool {
        match self.lru.remove_group(self.below) {
            Ok(()) => true,
            Err(LruError::GroupInUse | LruError::UnknownGroup) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn create(&self) {
        match self.lru.create_group(GroupId::ROOT, None) {
            Ok(group) => {
                let stats = self.lru.group_stats(group).expect("it was created just now");
                assert_eq!((stats.charged, stats.max), (FrameCount::ZERO, None));
            }
            Err(error) => assert_eq!(error, LruError::TooManyGroups),
        }
    }

    fn reclaim(&self, scope: Scope, frames: u64) {
        match self.lru.reclaim(scope, FrameCount::new(frames)) {
            Ok(done) => assert!(!self.lru.owner().wavers || done.reclaimed == 0),
            Err(error) => assert_eq!(error, LruError::UnknownGroup),
        }
    }

    /// Gives everything up, and checks that all of it came back.
    fn close(&self) {
        run_on(0);
        let (lru, shelf) = (&self.lru, self.lru.owner());
        lru.check();
        // Batches have references.
        lru.drain_all();
        lru.check();
        let left = shelf.index.take();
        assert!(shelf.held.borrow().iter().all(|frame| left.contains(frame)), "held by none");
        for frame in left {
            let pins = lru.frame_stats(frame).expect("the index has a reference").pins;
            (0..pins).for_each(|_| lru.unpin(frame).expect("it is pinned"));
            lru.put(frame).expect("the index has a reference");
        }
        lru.drain_all();
        assert!(shelf.held.borrow().is_empty(), "not released: {:?}", shelf.held.borrow());
        let census = lru.check();
        assert_eq!((census.used, census.stocked), (FrameCount::ZERO, FrameCount::ZERO));
        for group in [GroupId::ROOT, self.above, self.below] {
            if let Ok(stats) = lru.group_stats(group) {
                assert_eq!((stats.charged, stats.pinned), (FrameCount::ZERO, FrameCount::ZERO));
            }
        }
        // With no reader and no frame left, both groups can go.
        _ = self.remove_below();
        assert_eq!(lru.remove_group(self.above), Ok(()));
    }
}

type Call = (&'static str, fn(&Library));

const CALLS: &[Call] = &[
    ("lookup", |on| on.with_frame(FRAME, |lru| lru.mark_accessed(FRAME).expect("held"))),
    ("activate", |on| on.with_frame(FRAME, |lru| lru.activate(FRAME).expect("held"))),
    ("deactivate", |on| on.with_frame(FRAME, |lru| lru.deactivate(FRAME).expect("held"))),
    ("pin", |on| on.with_frame(FRAME, |lru| lru.pin(FRAME).expect("held"))),
    ("pin and unpin", |on| {
        on.with_frame(FRAME, |lru| {
            lru.pin(FRAME).expect("held");
            lru.unpin(FRAME).expect("it was pinned");
        });
    }),
    ("erase", |on| on.erase(FRAME)),
    ("erase all", |on| {
        let all = on.lru.owner().with_index(std::mem::take);
        on.lru.put_bulk(&Vec::from_iter(all)).expect("the index had references");
    }),
    ("isolate", |on| on.isolate(None)),
    ("move", |on| on.isolate(Some(GroupId::ROOT))),
    ("add", |on| on.add(SPARE, Order::ZERO, on.below, false)),
    ("add a block", |on| on.add(BLOCK, Order::new(2), on.below, false)),
    ("add its first frame", |on| on.add(BLOCK, Order::ZERO, on.above, false)),
    ("add a part of it", |on| on.add(PART, Order::ZERO, on.above, false)),
    ("add, reclaiming", |on| {
        on.lru.set_max(on.above, Some(FrameCount::new(4))).expect("two frames are pinned at most");
        on.add(BLOCK, Order::new(2), on.above, true);
    }),
    ("reclaim one", |on| on.reclaim(Scope::All, 1)),
    ("reclaim in a group", |on| on.reclaim(Scope::Group(on.below), 2)),
    ("migrate", |on| {
        let moved = on.lru.migrate(FRAME, TARGET, Order::ZERO);
        assert!(matches!(moved, Ok(()) | Err(MigrateError::Busy)), "{moved:?}");
    }),
    ("remove a group", |on| _ = on.remove_below()),
    ("replace a group", |on| {
        if on.remove_below() {
            on.create();
            // The slot that is left is that of the removed group, if it has no frames.
            on.create();
        }
    }),
    ("create a group", |on| on.create()),
    ("set a limit", |on| {
        let set = on.lru.set_max(on.above, Some(FrameCount::new(3)));
        assert_eq!(set, Ok(()));
    }),
    ("protect", |on| {
        let set = on.lru.set_low(on.below, FrameCount::new(1));
        assert!(matches!(set, Ok(()) | Err(LruError::UnknownGroup)), "{set:?}");
    }),
    ("enter", |on| match on.lru.enter(on.below) {
        Ok(_visit) => {
            assert!(on.lru.group_stats(on.below).is_ok(), "removed while it has a reader");
        }
        Err(error) => assert_eq!(error, LruError::UnknownGroup),
    }),
    ("drain", |on| on.lru.drain_all()),
    ("remove memory", |on| {
        let removed = on.lru.remove_memory(SPARE, FrameCount::new(1));
        let refused = [LruError::FrameBusy, LruError::ForeignFrame];
        assert!(removed.is_ok() || refused.map(Err).contains(&removed), "{removed:?}");
    }),
];

/// One case, which is printed if it fails.
struct Case {
    call: &'static str,
    meanwhile: &'static str,
    step: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("{}, stopped before step {}, and {}", self.call, self.step, self.meanwhile);
        }
    }
}

/// Runs all pairs, and prints how many cases had no wait, and how many had one.
fn run(settings: LruSettings, wavers: bool) {
    let (mut ran, mut waited) = (0_u64, 0_u64);
    for &(call, act) in CALLS {
        for &(meanwhile, other) in CALLS {
            let mut has_run = false;
            for step in 0.. {
                let _case = Case { call, meanwhile, step };
                let library = Rc::new(Library::new(&settings, wavers));
                let ended = Rc::new(Cell::new(true));
                let (theirs, has_ended) = (Rc::clone(&library), Rc::clone(&ended));
                let between = move || {
                    run_on(1);
                    has_ended.set(unless_it_waits(|| other(&theirs)).is_some());
                };
                run_on(0);
                let (result, was_stopped) = stop_at(step, Stop::Stop, between, || act(&library));
                if result.is_some() && ended.get() {
                    library.close();
                    has_run |= was_stopped;
                    ran += 1;
                } else {
                    waited += 1;
                }
                if !was_stopped {
                    break;
                }
            }
            assert!(has_run, "{meanwhile} has not run beside {call}");
        }
    }
    println!("{ran} cases, and {waited} that waited");
    assert!(ran > 2 * waited, "{ran} cases, and {waited} that waited");
}

#[test]
fn with_batches_of_one_frame() {
    run(LruSettings::default().batch(1), false);
}

#[test]
fn with_larger_batches_and_the_scan_resistant_policy() {
    run(LruSettings::default().batch(3).policy(LruPolicy::ScanResistant), false);
}

#[test]
fn with_a_shard_for_each_cpu() {
    run(LruSettings::default().batch(1).shard_waits(0).shard_frames(0), false);
}

#[test]
fn with_one_lock_a_node_and_claims_that_are_given_back() {
    run(LruSettings::default().batch(1).lock(LruLock::Node), true);
}

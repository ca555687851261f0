//! Calls that need frames while other calls have all of them isolated, to be written back.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{TestPlatform, run_on};
use crate::fixed;
use crate::machine::Machine;
use crate::room::Room;
use crate::shelf::forget;
use freehold::{
    Config, Error, FrameCount, MemoryRange, NodeId, Order, PageAllocator, Pfn, Request,
};
use freehold_linux::ZoneLock;
use freehold_lru::{Claim, GroupId, Kind, LruError, LruSettings, Owner, Scope, Verdict};

type Frames = PageAllocator<TestPlatform, ZoneLock<TestPlatform>>;
type Cache<'a> = Room<TestPlatform, Slow<'a>>;

const FRAMES: u64 = 512;

/// How long the test waits for the write-back, and the write-back for the test: then it goes on, so
/// that a call that does not wait as it should fails the test and does not hang it.
const LIMIT: Duration = Duration::from_secs(10);

/// How far the write-back has come that the test waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// The next write-back stops.
    Closed,
    /// One has stopped.
    Reached,
    Open,
}

/// An owner that writes back slowly, or until it is told to go on.
struct Slow<'a> {
    frames: &'a Frames,
    index: Mutex<BTreeSet<Pfn>>,
    gate: Mutex<Gate>,
    turned: Condvar,
    write_back: Duration,
    /// How often calls may wait.
    waits_max: u32,
    waited: AtomicUsize,
}

impl Slow<'_> {
    fn turn(&self, from: Gate, to: Gate) {
        let mut gate = self.gate.lock().unwrap();
        if *gate == from {
            *gate = to;
        }
        self.turned.notify_all();
    }

    fn wait_until(&self, wanted: Gate) {
        let gate = self.gate.lock().unwrap();
        drop(self.turned.wait_timeout_while(gate, LIMIT, |gate| *gate != wanted).unwrap());
    }
}

/// Opens the gate when it is dropped, also if the test has failed: the thread of the write-back
/// waits for that, and the test for that thread.
struct Opens<'a>(&'a Slow<'a>);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        *self.0.gate.lock().unwrap() = Gate::Open;
        self.0.turned.notify_all();
    }
}

impl Owner for Slow<'_> {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        unreachable!("it is asked for many frames at a time")
    }

    fn reclaim_bulk(&self, _frames: &[Pfn], verdicts: &mut [Verdict]) {
        self.turn(Gate::Closed, Gate::Reached);
        self.wait_until(Gate::Open);
        thread::sleep(self.write_back);
        verdicts.fill(Verdict::Written);
    }

    fn wait(&self, waits: u32) -> bool {
        self.waited.fetch_add(1, SeqCst);
        if waits >= self.waits_max {
            return false;
        }
        self.turn(Gate::Reached, Gate::Open);
        thread::sleep(Duration::from_micros(20));
        true
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        forget(&self.index, frame, claim);
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        self.frames.free_bulk(frames, order).expect("the frames were ours");
    }
}

fn with_cache(gate: Gate, write_back_us: u64, waits_max: u32, test: impl FnOnce(&Frames, &Cache)) {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(FRAMES))];
    let cpus = [NodeId::new(0); 4];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    let frames = Machine::<_, ZoneLock<_>>::new(TestPlatform, &config, &fixed(4, 8));
    let owner = Slow {
        frames: &frames,
        index: Mutex::default(),
        gate: Mutex::new(gate),
        turned: Condvar::new(),
        write_back: Duration::from_micros(write_back_us),
        waits_max,
        waited: AtomicUsize::new(0),
    };
    run_on(0);
    let cache = Room::new(TestPlatform, &config, &LruSettings::default(), owner);
    test(&frames, &cache);
    cache.drain_all();
    let cached = cache.owner().index.lock().unwrap().len() as u64;
    assert_eq!(cache.check().used.get(), cached, "every frame is in the index");
    frames.validate().expect("the allocator's books are right");
}

fn enter(cache: &Cache, frame: Pfn, group: GroupId) -> Result<(), LruError> {
    // Before it can be reclaimed, the frame is in the index.
    cache.owner().index.lock().unwrap().insert(frame);
    cache.add_reclaiming(frame, group, Kind::File).inspect_err(|_| {
        cache.owner().index.lock().unwrap().remove(&frame);
    })
}

/// Adds as many frames as it may have to a group, which is below another one that may not have more
/// either, and calls `test` with both while another thread has them all isolated.
fn while_isolated(waits_max: u32, test: impl FnOnce(&Frames, &Cache, [GroupId; 2])) {
    with_cache(Gate::Closed, 0, waits_max, |frames, cache| {
        let limit = FrameCount::new(20);
        let parent = cache.create_group(GroupId::ROOT, Some(limit)).unwrap();
        let group = cache.create_group(parent, Some(limit)).unwrap();
        for _ in 0..limit.get() {
            enter(cache, frames.alloc(Request::default()).unwrap(), group).unwrap();
        }
        cache.drain_all();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                run_on(1);
                cache.reclaim(Scope::Group(group), limit)
            });
            cache.owner().wait_until(Gate::Reached);
            let opens = Opens(cache.owner());
            test(frames, cache, [parent, group]);
            drop(opens);
            let done = other.join().expect("it does not panic").expect("the group exists");
            assert_eq!((done.reclaimed, done.written), (20, 20));
        });
    });
}

#[test]
fn a_group_at_its_limit_waits_for_what_others_write_back() {
    while_isolated(u32::MAX, |frames, cache, [_, group]| {
        let frame = frames.alloc(Request::default()).unwrap();
        assert_eq!(enter(cache, frame, group), Ok(()));
        assert!(cache.owner().waited.load(SeqCst) > 0, "it waited");
    });
}

/// The frames of a group that is removed meanwhile count in its parent.
#[test]
fn a_limit_waits_for_what_was_isolated_in_a_removed_group() {
    while_isolated(u32::MAX, |frames, cache, [parent, group]| {
        assert_eq!(cache.remove_group(group), Ok(()));
        let frame = frames.alloc(Request::default()).unwrap();
        assert_eq!(enter(cache, frame, parent), Ok(()));
        assert!(cache.owner().waited.load(SeqCst) > 0, "it waited");
    });
}

#[test]
fn an_allocation_waits_for_what_others_write_back() {
    while_isolated(u32::MAX, |frames, cache, _| {
        frames.drain_all();
        while let Ok(frame) = frames.alloc(Request::default()) {
            // Held by this thread, and so of no use to reclaim.
            cache.owner().index.lock().unwrap().insert(frame);
            cache.add(frame, GroupId::ROOT, Kind::File).unwrap();
            cache.get(frame).unwrap();
        }
        let frame = cache.alloc_reclaiming(frames, Request::default());
        assert!(cache.owner().waited.load(SeqCst) > 0, "it waited");
        frames.free(frame.expect("the other thread frees 20"), Order::ZERO).unwrap();
    });
}

#[test]
fn an_owner_that_does_not_wait_fails_the_call() {
    while_isolated(3, |frames, cache, [_, group]| {
        // The gate stays closed: what the owner waits for may never come.
        *cache.owner().gate.lock().unwrap() = Gate::Closed;
        let frame = frames.alloc(Request::default()).unwrap();
        assert_eq!(enter(cache, frame, group), Err(LruError::GroupLimit(group)));
        assert_eq!(cache.owner().waited.load(SeqCst), 4);
        frames.free(frame, Order::ZERO).unwrap();
    });
}

/// More threads than their group may have frames, so that each finds it empty now and then.
#[test]
fn no_call_is_refused_while_others_write_back() {
    with_cache(Gate::Open, 50, u32::MAX, |frames, cache| {
        let group = cache.create_group(GroupId::ROOT, Some(FrameCount::new(3))).unwrap();
        thread::scope(|scope| {
            for cpu in 0..4 {
                scope.spawn(move || {
                    run_on(cpu);
                    for _ in 0..500 {
                        let frame = match cache.alloc_reclaiming(frames, Request::default()) {
                            Err(error @ Error::OutOfMemory) => panic!("{error}"),
                            frame => frame.unwrap(),
                        };
                        assert_eq!(enter(cache, frame, group), Ok(()));
                    }
                });
            }
        });
        assert!(cache.owner().waited.load(SeqCst) > 0, "one of them waited");
    });
}

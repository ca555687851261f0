//! How often locks over lists are taken: once for a batch, however it is collected, and once more
//! for each frame under another lock than the one before it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::room::Room;
use crate::shelf::Shelf;
use freehold::platform::native::{NativeCell, SpinLock};
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar};
use freehold::{Config, CpuId, FrameCount, MemoryRange, NodeId, Pfn};
use freehold_lru::{GroupId, Kind, LruLock, LruSettings};

std::thread_local! {
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// A lock that counts how often those over lists are taken.
struct CountingLock {
    lock: SpinLock,
    counts: bool,
}

impl RawLock for CountingLock {
    fn new(class: LockClass) -> Self {
        CountingLock { lock: SpinLock::new(class), counts: class == LockClass::Lru }
    }

    fn lock(&self) {
        self.lock.lock();
        TAKEN.set(TAKEN.get() + u32::from(self.counts));
    }

    fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    fn unlock(&self) {
        self.lock.unlock();
    }
}

/// One CPU.
struct Counting;

impl Platform for Counting {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = CountingLock;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {}

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

type Lru = Room<Counting, Shelf>;

/// Frames in a batch, fewer than the maximum.
const BATCH: u64 = 8;

/// Two nodes of 100 frames, and two groups.
fn build(lock: LruLock) -> (Lru, [GroupId; 2]) {
    let range = |start, node| {
        MemoryRange::new(Pfn::new(start), FrameCount::new(100)).on_node(NodeId::new(node))
    };
    let (ranges, cpus) = ([range(0, 0), range(512, 1)], [NodeId::new(0), NodeId::new(1)]);
    let settings = LruSettings::default().lock(lock).groups(3).batch(BATCH as u32);
    let lru = Lru::new(Counting, &Config::new(&ranges, &cpus), &settings, Shelf::default());
    let group = || lru.create_group(GroupId::ROOT, None).expect("a slot is free");
    let groups = [group(), group()];
    (lru, groups)
}

/// How often a lock over lists is taken in `work`.
fn taken(work: impl FnOnce()) -> u32 {
    let before = TAKEN.get();
    work();
    TAKEN.get() - before
}

fn add(lru: &Lru, frame: u64, group: GroupId) {
    lru.add(Pfn::new(frame), group, Kind::File).expect("it is new");
    lru.owner().contents().index.insert(Pfn::new(frame), frame);
}

#[test]
fn a_batch_of_one_group_takes_one_lock_whatever_is_done_with_it() {
    let (lru, [group, _]) = build(LruLock::Group);
    let frames = || (0..BATCH).map(Pfn::new);
    assert_eq!(taken(|| (0..BATCH - 1).for_each(|frame| add(&lru, frame, group))), 0, "added");
    assert_eq!(taken(|| add(&lru, BATCH - 1, group)), 1, "the batch is full");
    type Call = fn(&Lru, Pfn) -> Result<(), freehold_lru::LruError>;
    let calls: [(&str, Call); 5] = [
        ("activated", |lru, frame| lru.activate(frame)),
        ("deactivated", |lru, frame| lru.deactivate(frame)),
        ("rotated", |lru, frame| lru.rotate(frame)),
        ("locked in memory", |lru, frame| lru.pin(frame)),
        ("unlocked", |lru, frame| lru.unpin(frame)),
    ];
    for (what, call) in calls {
        let all = taken(|| frames().for_each(|frame| call(&lru, frame).expect("it is in use")));
        assert_eq!(all, 1, "{what}");
    }
    let all: Vec<_> = frames().collect();
    assert_eq!(taken(|| lru.put_bulk(&all).expect("the index has a reference")), 1, "removed");
    assert_eq!(lru.owner().take_released().len() as u64, BATCH);
    lru.drain_all();
    lru.check();
}

#[test]
fn a_lock_is_traded_only_for_another() {
    // Frames of the one group and the other in turns, all on one node.
    let in_turns = |lock| {
        let (lru, groups) = build(lock);
        let add = || (0..BATCH).for_each(|frame| add(&lru, frame, groups[frame as usize % 2]));
        let added = taken(add);
        let all: Vec<_> = (0..BATCH).map(Pfn::new).collect();
        let removed = taken(|| lru.put_bulk(&all).expect("the index has a reference"));
        [added, removed]
    };
    assert_eq!(in_turns(LruLock::Node), [1; 2], "one lock is over all of them");
    assert_eq!(in_turns(LruLock::Group), [BATCH as u32; 2], "each needs another than the last");
    // Frames of one group on the one node and the other in turns.
    for lock in [LruLock::Node, LruLock::Group] {
        let (lru, [group, _]) = build(lock);
        let add = || (0..BATCH).for_each(|frame| add(&lru, frame / 2 + frame % 2 * 512, group));
        assert_eq!(taken(add), BATCH as u32, "{lock:?}");
    }
}

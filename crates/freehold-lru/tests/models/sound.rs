//! What the models of the LRU share: two frames, whose contents loom watches, and CPUs.
//!
//! Each frame has a content, a cell without a lock: loom panics if two unordered threads access it.
//! A holder of a reference reads it; the owner that gets the frame back writes it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::loom_platform::{LoomCell, LoomPlatform};
use crate::room::Room;
use freehold::platform::SharedCell;
use freehold::{Config, FrameCount, MemoryRange, MigrateError, NodeId, Order, Pfn};
use freehold_lru::{Claim, GroupId, Kind, LruLock, LruSettings, Owner, Verdict};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The first two run; with the third, each of these has a shard of its own.
const CPUS: [NodeId; 3] = [NodeId::new(0); 3];
pub(crate) const ROOT: GroupId = GroupId::ROOT;
pub(crate) const FRAME: Pfn = Pfn::new(0);
pub(crate) const OTHER: Pfn = Pfn::new(1);

/// An index of two frames, and their contents.
pub(crate) struct Shelf {
    /// Whether it gives back every claim that it is granted. Set before threads start.
    pub(crate) wavers: AtomicBool,
    index: Mutex<Vec<Pfn>>,
    released: Mutex<Vec<Pfn>>,
    contents: [LoomCell<u32>; 2],
}

impl Shelf {
    fn new() -> Self {
        let contents = [LoomCell::new(0), LoomCell::new(0)];
        let (index, released) = (Mutex::new(vec![]), Mutex::new(vec![]));
        Shelf { wavers: AtomicBool::new(false), index, released, contents }
    }

    fn content(&self, frame: Pfn) -> &LoomCell<u32> {
        &self.contents[usize::from(frame != FRAME)]
    }

    pub(crate) fn index(&self) -> loom::sync::MutexGuard<'_, Vec<Pfn>> {
        self.index.lock().expect("no thread panics")
    }

    pub(crate) fn released(&self) -> usize {
        self.released.lock().expect("no thread panics").len()
    }
}

impl Owner for Shelf {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn wait(&self, _waits: u32) -> bool {
        thread::yield_now();
        true
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let mut index = self.index();
        if index.contains(&frame)
            && let Some(claimed) = claim.take()
            && !self.wavers.load(Relaxed)
        {
            index.retain(|&other| other != frame);
            claimed.commit();
        }
    }

    fn release(&self, frames: &[Pfn], _order: Order) {
        // The thread that frees a frame may clear it: no former holder of a reference reads any
        // more.
        frames.iter().for_each(|&frame| self.content(frame).set(u32::MAX));
        self.released.lock().expect("no thread panics").extend(frames);
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let mut index = self.index();
        if !index.contains(&from) {
            return Err(MigrateError::Busy);
        }
        let Some(claimed) = claim.take() else { return Err(MigrateError::Busy) };
        if self.wavers.load(Relaxed) {
            return Err(MigrateError::Busy);
        }
        self.content(to).set(self.content(from).get());
        index.retain(|&other| other != from);
        index.push(to);
        claimed.commit();
        Ok(())
    }
}

pub(crate) type Lru<const O: bool, const A: bool, const Q: bool> =
    Room<LoomPlatform<O, A, Q>, Shelf>;
pub(crate) type Sound = Lru<true, true, true>;

/// Frames of two shards, of which each is for one of the two CPUs that run. Lists are divided once
/// they have so many frames for each shard, the first time that their lock is taken.
pub(crate) fn build_shards<const O: bool, const A: bool, const Q: bool>(
    shard_frames: u32,
) -> Arc<Lru<O, A, Q>> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(32))];
    let settings = LruSettings::default().shard_waits(0).shard_frames(shard_frames);
    let settings = settings.batch(1).groups(3);
    Arc::new(Room::new(LoomPlatform, &Config::new(&ranges, &CPUS), &settings, Shelf::new()))
}

/// Two frames and two CPUs, whose batches hold `batch` frames.
pub(crate) fn build<const O: bool, const A: bool, const Q: bool>(
    lock: LruLock,
    batch: u32,
) -> Arc<Lru<O, A, Q>> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(2))];
    let settings = LruSettings::default().lock(lock).batch(batch).groups(3);
    Arc::new(Room::new(LoomPlatform, &Config::new(&ranges, &CPUS), &settings, Shelf::new()))
}

/// The same with a frame on a list, to which the index has the only reference.
pub(crate) fn with_frame<const O: bool, const A: bool, const Q: bool>(
    lock: LruLock,
    group: impl FnOnce(&Lru<O, A, Q>) -> GroupId,
) -> Arc<Lru<O, A, Q>> {
    let lru = build::<O, A, Q>(lock, 1);
    let group = group(&lru);
    lru.add(FRAME, group, Kind::File).expect("it is new");
    lru.owner().index().push(FRAME);
    lru
}

/// Reads the content of a frame to which the caller has a reference.
pub(crate) fn read<const O: bool, const A: bool, const Q: bool>(
    lru: &Lru<O, A, Q>,
    frame: Pfn,
) -> u32 {
    lru.owner().content(frame).get()
}

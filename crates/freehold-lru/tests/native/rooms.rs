//! LRUs of one node, and short words for what tests do with them.

use crate::common::{TestPlatform, run_on};
use crate::room::Room;
use crate::shelf::Shelf;
use freehold::{Config, FrameCount, MemoryRange, NodeId, Pfn};
use freehold_lru::{GroupId, Kind, LruSettings, Owner, Reclaimed, Scope};

pub(crate) const ROOT: GroupId = GroupId::ROOT;

pub(crate) fn pfn(number: u64) -> Pfn {
    Pfn::new(number)
}

pub(crate) fn count(frames: u64) -> FrameCount {
    FrameCount::new(frames)
}

/// An LRU for so many frames, on so many CPUs, of which this thread is the first.
pub(crate) fn room<O: Owner>(
    frames: u64,
    cpus: usize,
    settings: &LruSettings,
    owner: O,
) -> Room<TestPlatform, O> {
    run_on(0);
    let ranges = [MemoryRange::new(pfn(0), count(frames))];
    let cpus = vec![NodeId::new(0); cpus];
    Room::new(TestPlatform, &Config::new(&ranges, &cpus), settings, owner)
}

pub(crate) fn reclaim<O: Owner>(
    lru: &Room<TestPlatform, O>,
    scope: Scope,
    frames: u64,
) -> Reclaimed {
    lru.reclaim(scope, count(frames)).expect("the scope exists")
}

impl Room<TestPlatform, Shelf> {
    /// Adds frames to a group, puts them into the owner's index, and drains.
    pub(crate) fn fill(&self, frames: impl IntoIterator<Item = u64>, group: GroupId, kind: Kind) {
        for frame in frames {
            self.add(pfn(frame), group, kind).expect("the frame can be added");
            self.owner().contents().index.insert(pfn(frame), frame);
        }
        self.drain_all();
    }
}

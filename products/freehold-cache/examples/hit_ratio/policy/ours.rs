//! The LRU of this crate itself: one group with a limit, on one CPU or on one after the other of
//! many, with its usual batches.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;

use freehold::platform::{Machine, Native};
use freehold::{Config, CpuId, FrameCount, MemoryRange, Metadata, NodeId, Order, Pfn};
use freehold_lru::{
    Claim, GroupId, Kind, Lru, LruLock, LruPolicy, LruSettings, Owner, Shadow, Verdict,
};

use super::Policy;
use crate::lists::Marks;
use crate::rng::Rng;

/// What there is of a key.
#[derive(Clone, Copy, Default)]
enum Content {
    #[default]
    Nothing,
    Cached(Pfn),
    Evicted(Shadow),
}

struct Index {
    contents: Marks<Content>,
    /// The keys in frames.
    keys: Vec<u64>,
    free: Vec<Pfn>,
}

struct Cache(RefCell<Index>);

impl Owner for Cache {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        if let Some(claimed) = claim.take() {
            let mut index = self.0.borrow_mut();
            let key = index.keys[frame.get() as usize];
            index.contents.set(key, Content::Evicted(claimed.commit()));
        }
    }

    fn release(&self, frames: &[Pfn], _order: Order) {
        self.0.borrow_mut().free.extend(frames);
    }
}

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// CPUs of one node, of which one runs at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Cpus;

impl Machine for Cpus {
    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }
}

pub(crate) struct Ours {
    lru: Lru<Native<Cpus>, Cache>,
    group: GroupId,
    policy: LruPolicy,
    cpus: u32,
    rng: Rng,
}

impl Ours {
    /// On one CPU.
    pub(crate) fn new(capacity: usize, policy: LruPolicy) -> Self {
        Self::on(1, LruLock::Group, capacity, policy)
    }

    /// On a CPU drawn anew for each access. With shards, lists are divided from the beginning.
    pub(crate) fn on(cpus: u32, lock: LruLock, capacity: usize, policy: LruPolicy) -> Self {
        // A few frames more: some wait in batches to be released.
        let frames = FrameCount::new(capacity as u64 + 1000);
        let memory = [MemoryRange::new(Pfn::new(0), frames)];
        let nodes = vec![NodeId::new(0); cpus as usize];
        let config = Config::new(&memory, &nodes);
        let settings = LruSettings::default().lock(lock).shard_waits(0).shard_frames(0);
        let settings = settings.groups(2).policy(policy);
        let layout = Lru::<Native<Cpus>, Cache>::layout(&config, &settings).expect("it is small");
        let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()];
        let metadata = Metadata::from_static(buffer.leak());
        let free = (0..frames.get()).map(Pfn::new).collect();
        let keys = vec![0; frames.get() as usize];
        let cache = Cache(RefCell::new(Index { contents: Marks::new(), keys, free }));
        let lru =
            Lru::new(Native(Cpus), &config, &settings, metadata, cache).expect("it is in order");
        let limit = Some(FrameCount::new(capacity as u64));
        let group = lru.create_group(GroupId::ROOT, limit).expect("a slot is free");
        Ours { lru, group, policy, cpus, rng: Rng(1) }
    }
}

impl Policy for Ours {
    fn access(&mut self, key: u64) -> bool {
        CPU.set(self.rng.below(self.cpus.into()) as u32);
        let (lru, index) = (&self.lru, &self.lru.owner().0);
        let content = index.borrow().contents.get(key);
        if let Content::Cached(frame) = content {
            lru.mark_accessed(frame).expect("it is cached");
            return true;
        }
        let frame = index.borrow_mut().free.pop().expect("there are more than can be cached");
        lru.add_reclaiming(frame, self.group, Kind::File).expect("all can be reclaimed");
        if let Content::Evicted(shadow) = content {
            lru.refault(frame, shadow).expect("it was added");
        }
        // As in Linux, where the first use counts.
        if self.policy == LruPolicy::TwoLists {
            lru.mark_accessed(frame).expect("it was added");
        }
        let mut index = index.borrow_mut();
        index.contents.set(key, Content::Cached(frame));
        index.keys[frame.get() as usize] = key;
        false
    }
}

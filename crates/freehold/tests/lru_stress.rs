//! Many threads on few CPUs, all calls of the LRU at once, with a page allocator beneath: no frame
//! is lost, none is reclaimed while somebody refers to it, and in the end everything is back.
//!
//! The seed of a run is printed when it fails; `FREEHOLD_SEED` makes the threads take the same
//! decisions again, though the scheduler may not.

mod common;
#[path = "common/machine.rs"]
mod machine;
#[path = "common/lru.rs"]
mod room;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use common::{TestPlatform, run_on};
use freehold::designs::Freehold;
use freehold::lru::{Claim, GroupId, Kind, Lru, LruLock, LruSettings, Owner, Scope, Verdict};
use freehold::{
    Config, Error, FrameCount, MemoryRange, MigrateError, NodeId, Order, PageAllocator, Pfn,
    Request,
};
use machine::Machine;
use room::Room;

const FRAMES: u64 = 1024;
const CPUS: [NodeId; 3] = [NodeId::new(0), NodeId::new(1), NodeId::new(0)];

type Frames = PageAllocator<TestPlatform, Freehold<TestPlatform>>;

/// SplitMix64: small, and good enough to make decisions with.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// A cache of numbered blocks. A frame's stamp is the number of its block and one more while it is
/// in the index, and 0 when it was handed back.
struct Blocks<'a> {
    frames: &'a Frames,
    index: Mutex<Index>,
    stamps: Vec<AtomicU64>,
}

#[derive(Default)]
struct Index {
    frames: BTreeMap<u64, Pfn>,
    blocks: BTreeMap<Pfn, u64>,
}

impl Blocks<'_> {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn stamp(&self, frame: Pfn) -> &AtomicU64 {
        &self.stamps[frame.get() as usize]
    }
}

impl Owner for Blocks<'_> {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        assert_ne!(self.stamp(frame).load(SeqCst), 0, "{frame} is asked for, and free");
        match frame.get() % 11 {
            0 => Verdict::Keep,
            1 => Verdict::Activate,
            2 => Verdict::Failed,
            3 => Verdict::Written,
            _ => Verdict::Drop,
        }
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let mut index = self.index();
        if let Some(&block) = index.blocks.get(&frame)
            && claim.take()
        {
            index.blocks.remove(&frame);
            index.frames.remove(&block);
        }
    }

    fn release(&self, frames: &[Pfn]) {
        for &frame in frames {
            assert!(!self.index().blocks.contains_key(&frame), "{frame} is in the index, and free");
            assert_ne!(self.stamp(frame).swap(0, SeqCst), 0, "{frame} is released twice");
        }
        self.frames.free_bulk(frames, Order::ZERO).expect("the frames were ours");
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let mut index = self.index();
        let Some(&block) = index.blocks.get(&from) else { return Err(MigrateError::Busy) };
        if !claim.take() {
            return Err(MigrateError::Busy);
        }
        let stamp = self.stamp(from).swap(0, SeqCst);
        assert_eq!(self.stamp(to).swap(stamp, SeqCst), 0, "{to} is moved to, and in use");
        index.blocks.remove(&from);
        index.blocks.insert(to, block);
        index.frames.insert(block, to);
        Ok(())
    }
}

/// One thread's decisions.
struct Actor<'a> {
    cache: &'a Lru<TestPlatform, Blocks<'a>>,
    groups: &'a Mutex<Vec<GroupId>>,
    random: Random,
}

impl Actor<'_> {
    fn step(&mut self) {
        let cache = self.cache;
        match self.random.below(100) {
            0..60 => self.read(),
            60..70 => self.remove(),
            70..78 => self.move_frame(),
            78..83 => self.pin(),
            83..86 => _ = cache.reclaim(Scope::All, FrameCount::new(self.random.below(40))),
            86..89 => _ = cache.reclaim(Scope::Group(self.group()), FrameCount::new(5)),
            89..91 => cache.drain_all(),
            91..93 => _ = cache.owner().frames.compact(cache),
            93..96 => self.regroup(),
            _ => self.visit(),
        }
    }

    fn group(&mut self) -> GroupId {
        let groups = self.groups.lock().expect("no thread panics");
        let nth = self.random.below(groups.len() as u64 + 1) as usize;
        groups.get(nth).copied().unwrap_or(GroupId::ROOT)
    }

    /// Looks a block up and takes a reference.
    fn find(&self, block: u64) -> Option<Pfn> {
        let index = self.cache.owner().index();
        let frame = *index.frames.get(&block)?;
        self.cache.get(frame).expect("under the lock of the index there is a reference");
        Some(frame)
    }

    fn read(&mut self) {
        let (cache, blocks) = (self.cache, self.cache.owner());
        let block = self.random.below(2 * FRAMES);
        let Some(frame) = self.find(block).or_else(|| self.fill(block)) else { return };
        cache.mark_accessed(frame).expect("we have a reference");
        thread::yield_now();
        let stamp = blocks.stamp(frame).load(SeqCst);
        assert_eq!(stamp, block + 1, "{frame} was given away while we refer to it");
        cache.put(frame).expect("we have a reference");
    }

    fn fill(&mut self, block: u64) -> Option<Pfn> {
        let (cache, blocks) = (self.cache, self.cache.owner());
        let frame = cache.alloc_reclaiming(blocks.frames, Request::default()).ok()?;
        assert_eq!(blocks.stamp(frame).swap(block + 1, SeqCst), 0, "{frame} was in use");
        let kind = if block.is_multiple_of(3) { Kind::Anon } else { Kind::File };
        match cache.add_reclaiming(frame, self.group(), kind) {
            Ok(()) => {}
            Err(Error::GroupLimit | Error::UnknownGroup) => {
                blocks.stamp(frame).store(0, SeqCst);
                blocks.frames.free(frame, Order::ZERO).expect("it is ours");
                return None;
            }
            Err(error) => panic!("{frame}: {error}"),
        }
        let mut index = blocks.index();
        if index.frames.contains_key(&block) {
            drop(index);
            // Somebody else read it first: this one never was in the index.
            cache.put(frame).expect("we have the first reference");
            return self.find(block);
        }
        cache.get(frame).expect("we have the first reference");
        index.frames.insert(block, frame);
        index.blocks.insert(frame, block);
        Some(frame)
    }

    fn remove(&mut self) {
        let block = self.random.below(2 * FRAMES);
        let removed = {
            let mut index = self.cache.owner().index();
            let removed = index.frames.remove(&block);
            if let Some(frame) = removed {
                index.blocks.remove(&frame);
            }
            removed
        };
        if let Some(frame) = removed {
            self.cache.put_bulk(&[frame]).expect("the index had a reference");
        }
    }

    fn move_frame(&mut self) {
        let Ok(mut isolated) = self.cache.isolate(Pfn::new(self.random.below(FRAMES))) else {
            return;
        };
        let moved = isolated.move_to(self.group());
        assert!(matches!(moved, Ok(()) | Err(Error::GroupLimit | Error::UnknownGroup)));
        assert_ne!(self.cache.owner().stamp(isolated.pfn()).load(SeqCst), 0, "it is isolated");
    }

    fn pin(&mut self) {
        let block = self.random.below(2 * FRAMES);
        let Some(frame) = self.find(block) else { return };
        self.cache.pin(frame).expect("we have a reference");
        thread::yield_now();
        self.cache.unpin(frame).expect("we pinned it");
        self.cache.put(frame).expect("we have a reference");
    }

    /// Removes a group, or makes one.
    fn regroup(&mut self) {
        let group = self.group();
        if self.random.below(2) == 0 {
            let limit = FrameCount::new(50 + self.random.below(200));
            if let Ok(made) = self.cache.create_group(group, Some(limit)) {
                self.groups.lock().expect("no thread panics").push(made);
            }
        } else if self.cache.remove_group(group).is_ok() {
            self.groups.lock().expect("no thread panics").retain(|&other| other != group);
        }
    }

    fn visit(&mut self) {
        let Ok(visit) = self.cache.enter(self.group()) else { return };
        assert_eq!(self.cache.remove_group(visit.group()), Err(Error::GroupInUse));
        thread::yield_now();
    }
}

fn run(lock: LruLock, threads: u64, steps: usize) {
    let given = std::env::var("FREEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("FREEHOLD_SEED={seed}");
    let range = |start, node| {
        MemoryRange::new(Pfn::new(start), FrameCount::new(FRAMES / 2)).on_node(NodeId::new(node))
    };
    let ranges = [range(0, 0), range(FRAMES / 2, 1)];
    let config = Config { min_free: Some(FrameCount::ZERO), ..Config::new(&ranges, &CPUS) };
    let frames = Machine::<TestPlatform, Freehold<TestPlatform>>::new(
        TestPlatform,
        &config,
        &Default::default(),
    );
    let stamps = (0..FRAMES).map(|_| AtomicU64::new(0)).collect();
    let blocks = Blocks { frames: &frames, index: Mutex::default(), stamps };
    let settings = LruSettings { lock, groups: 8, ..LruSettings::default() };
    let cache = Room::new(TestPlatform, &config, &settings, blocks);
    let groups = Mutex::new(vec![]);
    thread::scope(|scope| {
        for number in 0..threads {
            let (cache, groups) = (&cache, &groups);
            scope.spawn(move || {
                run_on(number as u32);
                let random = Random(seed.wrapping_add(number << 32));
                let mut actor = Actor { cache, groups, random };
                (0..steps).for_each(|_| actor.step());
            });
        }
    });
    cache.drain_all();
    let census = cache.check();
    let index = std::mem::take(&mut *cache.owner().index());
    assert_eq!(census.used.get(), index.frames.len() as u64, "only the index holds frames");
    let left: Vec<_> = index.frames.into_values().collect();
    cache.put_bulk(&left).expect("the index had a reference to each");
    cache.drain_all();
    let census = cache.check();
    assert_eq!((census.used.get(), census.stocked.get(), census.batched.get()), (0, 0, 0));
    frames.drain_all();
    let census = frames.validate().expect("the allocator's books are right");
    assert_eq!(census.allocated, FrameCount::ZERO);
}

#[test]
fn everything_at_once_with_a_lock_a_group() {
    run(LruLock::Group, 6, 30_000);
}

#[test]
fn everything_at_once_with_a_lock_a_node() {
    run(LruLock::Node, 6, 30_000);
}

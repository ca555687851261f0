//! Many threads on few CPUs that share a cache, with all calls of the LRU at once and a page
//! allocator beneath: no frame is lost, none is on two lists, none is reclaimed while it has a
//! user's reference, and in the end all frames are free.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{MutexGuard, PoisonError};
use std::thread::{scope, yield_now};

use freehold::designs::Freehold;
use freehold::platform::Platform;
use freehold::{
    Config, FrameCount, MemoryRange, Migrate, MigrateError, NodeId, Order, PageAllocator, Pfn,
    Request,
};
use freehold_lru::{
    Claim, GroupId, Kind, Lru, LruError, LruLock, LruPolicy, LruSettings, Owner, Scope, Shadow,
    Verdict,
};

use crate::common::run_on;
use crate::machine::Machine;
use crate::random::Random;
use crate::room::Room;
use crate::seen_mutex::SeenMutex as Mutex;

const CPUS: [NodeId; 4] = [NodeId::new(0), NodeId::new(1), NodeId::new(0), NodeId::new(0)];

/// Where the second node's memory begins: in a separate pageblock.
const FAR: u64 = 512;

/// What was done to frames, counted without a trace in the schedule.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) reclaimed: AtomicU64,
    pub(crate) migrated: AtomicU64,
    /// Between groups.
    pub(crate) moved: AtomicU64,
    /// By the removal of their group.
    pub(crate) inherited: AtomicU64,
    /// Read again after they were reclaimed.
    pub(crate) refaulted: AtomicU64,
    /// Blocks of more than one frame, added.
    pub(crate) large: AtomicU64,
    /// How often a group's charge was compared with its limit while others worked.
    pub(crate) looks: AtomicU64,
    /// How often its lists were divided then.
    pub(crate) divided: AtomicU64,
}

impl Done {
    /// Checks that each of them happened.
    pub(crate) fn check(&self) {
        let content = [&self.reclaimed, &self.migrated, &self.refaulted, &self.large];
        for count in content.into_iter().chain([&self.moved, &self.inherited, &self.looks]) {
            assert_ne!(count.load(SeqCst), 0, "{self:?}");
        }
    }
}

type Frames<P> = PageAllocator<P, Freehold<P>>;

/// How large a run is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Frames on each of the two nodes, up to a pageblock.
    pub(crate) node_frames: u64,
    pub(crate) threads: u64,
    /// The number of steps of each thread.
    pub(crate) steps: usize,
    pub(crate) batch: u32,
}

/// A cache of numbered blocks. A frame's stamp is the number of its block plus one while it is in
/// the index, and 0 once it was returned.
pub(crate) struct Blocks<'a, P: Platform> {
    frames: &'a Frames<P>,
    index: Mutex<Index>,
    stamps: Vec<AtomicU64>,
    done: &'a Done,
}

#[derive(Default)]
struct Index {
    frames: BTreeMap<u64, Pfn>,
    blocks: BTreeMap<Pfn, u64>,
    shadows: BTreeMap<u64, Shadow>,
}

impl<P: Platform> Blocks<'_, P> {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamp(&self, frame: Pfn) -> &AtomicU64 {
        &self.stamps[frame.get() as usize]
    }
}

impl<P: Platform> Owner for Blocks<'_, P> {
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
            && let Some(claimed) = claim.take()
        {
            index.blocks.remove(&frame);
            index.frames.remove(&block);
            index.shadows.insert(block, claimed.commit());
            self.done.reclaimed.fetch_add(1, SeqCst);
        }
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        for &frame in frames {
            assert!(!self.index().blocks.contains_key(&frame), "{frame} is in the index, and free");
            assert_ne!(self.stamp(frame).swap(0, SeqCst), 0, "{frame} is released twice");
        }
        self.frames.free_bulk(frames, order).expect("the frames were ours");
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        let mut index = self.index();
        let Some(&block) = index.blocks.get(&from) else { return Err(MigrateError::Busy) };
        let Some(claimed) = claim.take() else { return Err(MigrateError::Busy) };
        let stamp = self.stamp(from).swap(0, SeqCst);
        assert_eq!(self.stamp(to).swap(stamp, SeqCst), 0, "{to} is moved to, and in use");
        index.blocks.remove(&from);
        index.blocks.insert(to, block);
        index.frames.insert(block, to);
        claimed.commit();
        self.done.migrated.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// The order of the frames that a block needs: most of them one frame.
fn order_of(block: u64) -> Order {
    if block.is_multiple_of(8) { Order::new(1 + (block / 8 % 2) as u8) } else { Order::ZERO }
}

/// One thread's decisions.
struct Actor<'a, P: Platform> {
    cache: &'a Lru<P, Blocks<'a, P>>,
    groups: &'a Mutex<Vec<GroupId>>,
    node_frames: u64,
    random: Random,
}

impl<P: Platform> Actor<'_, P> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound as usize) as u64
    }

    fn step(&mut self) {
        let cache = self.cache;
        match self.below(100) {
            0..60 => self.read(),
            60..68 => self.remove(),
            68..76 => self.move_frame(),
            76..82 => self.pin(),
            82..85 => _ = cache.reclaim(Scope::All, FrameCount::new(self.below(40))),
            85..88 => _ = cache.reclaim(Scope::Group(self.group()), FrameCount::new(5)),
            88 => cache.drain_all(),
            89 => _ = cache.balance_groups(),
            90 => _ = cache.owner().frames.compact(cache),
            91..94 => self.migrate(),
            94..97 => self.regroup(),
            97 => self.check_limits(),
            _ => self.visit(),
        }
    }

    fn group(&mut self) -> GroupId {
        let groups = self.groups.lock().expect("no thread panics");
        let nth = self.below(groups.len() as u64 + 1) as usize;
        groups.get(nth).copied().unwrap_or(GroupId::ROOT)
    }

    /// A block: there are twice as many as frames.
    fn block(&mut self) -> u64 {
        self.below(4 * self.node_frames)
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
        let block = self.block();
        let Some(frame) = self.find(block).or_else(|| self.fill(block)) else { return };
        cache.mark_accessed(frame).expect("we have a reference");
        yield_now();
        let stamp = blocks.stamp(frame).load(SeqCst);
        assert_eq!(stamp, block + 1, "{frame} was given away while we refer to it");
        cache.put(frame).expect("we have a reference");
    }

    fn fill(&mut self, block: u64) -> Option<Pfn> {
        let (cache, blocks) = (self.cache, self.cache.owner());
        let order = order_of(block);
        let frame = cache.alloc_reclaiming(blocks.frames, Request::new(order)).ok()?;
        assert_eq!(blocks.stamp(frame).swap(block + 1, SeqCst), 0, "{frame} was in use");
        let kind = if block.is_multiple_of(3) { Kind::Anon } else { Kind::File };
        match cache.add_block_reclaiming(frame, order, self.group(), kind) {
            Ok(()) => _ = blocks.done.large.fetch_add((order > Order::ZERO).into(), SeqCst),
            Err(LruError::GroupLimit(_) | LruError::UnknownGroup) => {
                blocks.stamp(frame).store(0, SeqCst);
                blocks.frames.free(frame, order).expect("it is ours");
                return None;
            }
            Err(error) => panic!("{frame}: {error}"),
        }
        let shadow = blocks.index().shadows.remove(&block);
        if let Some(shadow) = shadow {
            cache.refault(frame, shadow).expect("we have the first reference");
            blocks.done.refaulted.fetch_add(1, SeqCst);
        }
        let mut index = blocks.index();
        if index.frames.contains_key(&block) {
            drop(index);
            // Another thread read it first: this one never was in the index.
            cache.put(frame).expect("we have the first reference");
            return self.find(block);
        }
        cache.get(frame).expect("we have the first reference");
        index.frames.insert(block, frame);
        index.blocks.insert(frame, block);
        Some(frame)
    }

    fn remove(&mut self) {
        let block = self.block();
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

    /// A frame, in use or not.
    fn frame(&mut self) -> Pfn {
        let near = self.below(self.node_frames);
        Pfn::new(near + FAR * self.below(2))
    }

    fn move_frame(&mut self) {
        let frame = self.frame();
        let Ok(mut isolated) = self.cache.isolate(frame) else { return };
        let moved = isolated.move_to(self.group());
        assert!(matches!(moved, Ok(()) | Err(LruError::GroupLimit(_) | LruError::UnknownGroup)));
        self.cache.owner().done.moved.fetch_add(u64::from(moved.is_ok()), SeqCst);
        assert_ne!(self.cache.owner().stamp(isolated.pfn()).load(SeqCst), 0, "it is isolated");
    }

    /// Moves content to a free frame: compaction's step, between any two frames.
    fn migrate(&mut self) {
        let (cache, frames, from) = (self.cache, self.cache.owner().frames, self.frame());
        let order = cache.frame_stats(from).map_or(Order::ZERO, |stats| stats.order);
        let Ok(to) = frames.alloc(Request::new(order)) else { return };
        let moved = cache.migrate(from, to, order);
        let free = if moved.is_ok() { from } else { to };
        frames.free(free, order).expect("nothing is in it");
    }

    fn pin(&mut self) {
        let block = self.block();
        let Some(frame) = self.find(block) else { return };
        self.cache.pin(frame).expect("we have a reference");
        yield_now();
        self.cache.unpin(frame).expect("we pinned it");
        self.cache.put(frame).expect("we have a reference");
    }

    /// Removes a group, or creates one.
    fn regroup(&mut self) {
        let group = self.group();
        if self.below(2) == 0 {
            let few = self.node_frames / 10;
            let limit = FrameCount::new(few + self.below(4 * few.max(1)));
            if let Ok(made) = self.cache.create_group(group, Some(limit)) {
                let frames = FrameCount::new(self.below(1 + few));
                // Another thread may have removed it already, or a group above it.
                let _result = match self.below(4) {
                    0 => self.cache.set_min(made, frames),
                    1 => self.cache.set_low(made, frames),
                    2 => self.cache.set_high(made, Some(frames)),
                    _ => Ok(()),
                };
                self.groups.lock().expect("no thread panics").push(made);
            }
            return;
        }
        let held = self.cache.group_stats(group).map_or(0, |stats| stats.charged.get());
        if self.cache.remove_group(group).is_ok() {
            self.cache.owner().done.inherited.fetch_add(held, SeqCst);
            self.groups.lock().expect("no thread panics").retain(|&other| other != group);
        }
    }

    /// No group has more than its limit. Charges of others that are about to be undone count for a
    /// moment, so one look of many must find it so.
    fn check_limits(&self) {
        let groups = self.groups.lock().expect("no thread panics").clone();
        for group in groups {
            let done = self.cache.owner().done;
            let is_within = |_| {
                yield_now();
                let Ok(stats) = self.cache.group_stats(group) else { return true };
                done.divided.fetch_add(u64::from(stats.shards > 2), SeqCst);
                stats.max.is_none_or(|max| stats.charged <= max)
            };
            assert!((0..1000).any(is_within), "{:?}", self.cache.group_stats(group));
            done.looks.fetch_add(1, SeqCst);
        }
    }

    fn visit(&mut self) {
        let Ok(visit) = self.cache.enter(self.group()) else { return };
        assert_eq!(self.cache.remove_group(visit.group()), Err(LruError::GroupInUse));
        yield_now();
    }
}

/// Lets so many threads work, and checks the result.
pub(crate) fn play<P: Platform + Sync + 'static>(
    platform: fn() -> P,
    lock: LruLock,
    size: Size,
    seed: u64,
    done: &Done,
) where
    Frames<P>: Sync,
    for<'a> Lru<P, Blocks<'a, P>>: Sync,
{
    let range = |start, node| {
        MemoryRange::new(Pfn::new(start), FrameCount::new(size.node_frames))
            .on_node(NodeId::new(node))
    };
    let ranges = [range(0, 0), range(FAR, 1)];
    let config = Config::new(&ranges, &CPUS).min_free(FrameCount::ZERO);
    let frames = Machine::<P, Freehold<P>>::new(platform(), &config, &Default::default());
    let stamps = (0..FAR + size.node_frames).map(|_| AtomicU64::new(0)).collect();
    let blocks = Blocks { frames: &frames, index: Mutex::default(), stamps, done };
    let policy = [LruPolicy::TwoLists, LruPolicy::ScanResistant][(seed % 2) as usize];
    let settings = LruSettings::default().lock(lock).shard_waits(0).shard_frames(8);
    let settings = settings.groups(8).batch(size.batch).policy(policy);
    let cache = Room::new(platform(), &config, &settings, blocks);
    let groups = Mutex::new(vec![]);
    scope(|scope| {
        let thread = |number: u64| {
            let (cache, groups) = (&cache, &groups);
            scope.spawn(move || {
                run_on(number as u32);
                let random = Random(seed.wrapping_add(number << 32));
                let node_frames = size.node_frames;
                let mut actor = Actor { cache, groups, node_frames, random };
                (0..size.steps).for_each(|_| actor.step());
            })
        };
        let threads: Vec<_> = (0..size.threads).map(thread).collect();
        // ThreadSanitizer does not see that the end of a scope waits for them.
        threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    });
    cache.drain_all();
    let census = cache.check();
    let index = std::mem::take(&mut *cache.owner().index());
    let indexed: FrameCount = index.frames.keys().map(|&block| order_of(block).frames()).sum();
    assert_eq!(census.used, indexed, "only the index holds frames");
    let left: Vec<_> = index.frames.into_values().collect();
    cache.put_bulk(&left).expect("the index had a reference to each");
    cache.drain_all();
    let census = cache.check();
    assert_eq!((census.used.get(), census.stocked.get(), census.batched.get()), (0, 0, 0));
    frames.drain_all();
    let census = frames.validate().expect("the allocator's books are right");
    assert_eq!(census.allocated, FrameCount::ZERO);
}

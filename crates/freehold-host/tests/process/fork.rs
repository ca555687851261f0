//! Children of processes whose threads allocate all the time: they work, whatever the other threads
//! were doing when the process forked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use freehold::designs::Freehold;
use freehold::{Design, FrameCount, Order, Pfn, Request};
use freehold_host::{ArenaBuilder, FrameArena, Host, HostLru};
use freehold_linux::{BlockOwner, Cluster, LazyMerge, MergeAhead, ZoneLock};
use freehold_llfree::Llfree;
use freehold_lru::{Claim, GroupId, Kind, LruError, LruSettings, Owner, Scope, Verdict};

use crate::calls::{next_random, request, take_all};
use crate::common::in_child;

const MIB: usize = 1 << 20;

/// Forks of each test.
const FORKS: usize = 30;

/// Threads that allocate meanwhile.
const THREADS: u64 = 3;

/// The maximum number of frames that one of these holds.
const HELD_MAX: u64 = 600;

/// How many frames a child may lose: each thread was allocating or freeing one block.
const LOST_MAX: u64 = THREADS * 512;

/// Mostly single frames, some small blocks, and now and then a pageblock.
fn random_order(random: u64) -> Order {
    match random % 64 {
        0 => Order::PAGEBLOCK,
        1..16 => Order::new((random >> 8) as u8 % 7),
        _ => Order::ZERO,
    }
}

/// A block that threads pass on, so that others free it.
type Block = (Pfn, Order);

/// The state that the threads share.
#[derive(Default)]
struct Shared {
    blocks: Mutex<Vec<Block>>,
    /// The frames of all blocks, including those just being allocated or freed.
    frames: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn free<D: Design<Host>>(&self, arena: &FrameArena<D>, (pfn, order): Block) {
        arena.free(pfn, order).expect("it was ours");
        self.frames.fetch_sub(order.frames().get(), Relaxed);
    }

    /// Puts a block where others find it, if there is room, or exchanges it for one of theirs.
    fn pass_on(&self, block: Block, random: u64) -> Option<Block> {
        let Ok(mut blocks) = self.blocks.try_lock() else { return Some(block) };
        if blocks.len() < 8 {
            blocks.push(block);
            return None;
        }
        let at = random as usize % blocks.len();
        Some(std::mem::replace(&mut blocks[at], block))
    }

    /// Allocates and frees at random until it is told to stop.
    fn work<D: Design<Host>>(&self, arena: &FrameArena<D>, seed: u64) {
        let (mut random, mut own, mut held) = (seed, Vec::<Block>::new(), 0);
        while !self.stop.load(Relaxed) {
            let choice = next_random(&mut random);
            let order = random_order(choice >> 32);
            let frames = order.frames().get();
            if choice & 1 == 0 && held + frames <= HELD_MAX {
                self.frames.fetch_add(frames, Relaxed);
                match arena.alloc(Request::new(order)) {
                    Ok(pfn) => {
                        own.push((pfn, order));
                        held += frames;
                    }
                    Err(_) => {
                        self.frames.fetch_sub(frames, Relaxed);
                    }
                }
            } else if !own.is_empty() {
                let block = own.swap_remove((choice >> 8) as usize % own.len());
                held -= block.1.frames().get();
                let other = self.pass_on(block, choice >> 16);
                other.into_iter().for_each(|block| self.free(arena, block));
            }
        }
        own.drain(..).for_each(|block| self.free(arena, block));
    }
}

/// What children do: allocate everything. Their parent's threads had so many frames.
fn use_up<D: Design<Host>>(arena: &FrameArena<D>, in_use: u64) {
    for _ in 0..2 {
        let frames = take_all(arena);
        let least = arena.total_frames().get().saturating_sub(in_use + LOST_MAX);
        assert!(frames.len() as u64 >= least, "{} of {least} frames", frames.len());
        frames.iter().for_each(|&pfn| arena.free(pfn, Order::ZERO).expect("it is ours"));
        arena.allocator().drain_all();
        let census = arena.allocator().validate().expect("the books are in order");
        assert!(census.free.get() >= frames.len() as u64, "{census:?}");
        assert_eq!(census.isolated, FrameCount::ZERO);
        assert_eq!(census.managed, arena.total_frames());
    }
    arena.grow(2 * MIB).expect("there is capacity");
}

fn arena<D: Design<Host>>(bytes: usize, settings: &[(&str, &str)]) -> FrameArena<D> {
    let mut of_design = D::Settings::default();
    for (name, value) in settings {
        freehold::designs::Settings::set(&mut of_design, name, value).expect("there is such");
    }
    let builder = ArenaBuilder::<D>::new().bytes(bytes).capacity_bytes(64 * MIB);
    let builder = builder.cpus(2).nodes(1).settings(of_design);
    builder.build_frames().expect("a few MiB")
}

/// Forks again and again while threads allocate; each child runs `child`, which gets how many
/// frames the threads had.
fn fork_beside_work<D: Design<Host>>(
    arena: FrameArena<D>,
    meanwhile: impl Fn(&FrameArena<D>) + Sync,
    child: impl Fn(&FrameArena<D>, u64),
) where
    FrameArena<D>: Sync,
{
    let _one = crate::ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (arena, shared) = (Box::new(arena), Shared::default());
    let failure = thread::scope(|scope| {
        let (arena, shared, meanwhile) = (&*arena, &shared, &meanwhile);
        for thread in 0..THREADS {
            scope.spawn(move || shared.work(arena, thread + 1));
        }
        scope.spawn(move || {
            while !shared.stop.load(Relaxed) {
                meanwhile(arena);
            }
        });
        // Each child that hangs costs time, and one suffices.
        let failure = (0..FORKS).find_map(|fork| {
            thread::sleep(Duration::from_micros(500 + 37 * fork as u64));
            let ended = in_child(|| {
                child(arena, shared.frames.load(Relaxed));
                // SAFETY: In the child no other thread is left that could use the arena, and the
                // child ends before the box would be dropped.
                unsafe { std::ptr::drop_in_place(std::ptr::from_ref(arena).cast_mut()) };
            });
            ended.err().map(|error| format!("fork {fork}: {error}"))
        });
        shared.stop.store(true, Relaxed);
        failure
    });
    assert_eq!(failure, None);
    let left = shared.blocks.into_inner().expect("no thread panicked");
    left.iter().for_each(|&(pfn, order)| arena.free(pfn, order).expect("it was ours"));
    arena.allocator().drain_all();
    let census = arena.allocator().validate().expect("the books are in order");
    assert_eq!(census.allocated, FrameCount::ZERO, "nothing is lost in the parent");
}

fn children_of<D: Design<Host>>(bytes: usize, settings: &[(&str, &str)])
where
    FrameArena<D>: Sync,
{
    let meanwhile = |arena: &FrameArena<D>| {
        arena.allocator().drain_all();
        let _frames = arena.total_frames();
        thread::sleep(Duration::from_micros(200));
    };
    fork_beside_work(arena::<D>(bytes, settings), meanwhile, use_up);
}

#[test]
fn children_work_with_freehold() {
    children_of::<Freehold<Host>>(16 * MIB, &[]);
    children_of::<Freehold<Host>>(16 * MIB, &[("double_free", "exact")]);
}

/// What slots cannot cache is allocated and freed without a lock.
#[test]
fn children_work_when_memory_is_short() {
    children_of::<Freehold<Host>>(4 * MIB, &[]);
    children_of::<BlockOwner<Host>>(4 * MIB, &[]);
}

#[test]
fn children_work_with_zone_lock() {
    children_of::<ZoneLock<Host>>(16 * MIB, &[]);
}

#[test]
fn children_work_with_lazy_merge() {
    children_of::<LazyMerge<Host>>(16 * MIB, &[]);
}

#[test]
fn children_work_with_cluster() {
    children_of::<Cluster<Host>>(16 * MIB, &[]);
}

#[test]
fn children_work_with_merge_ahead() {
    children_of::<MergeAhead<Host>>(16 * MIB, &[]);
}

#[test]
fn children_work_with_block_owner() {
    children_of::<BlockOwner<Host>>(16 * MIB, &[]);
}

#[test]
fn children_work_with_llfree() {
    children_of::<Llfree<Host>>(16 * MIB, &[]);
}

/// An owner whose content can always be dropped.
struct Dropped<'a>(&'a FrameArena);

impl Owner for Dropped<'_> {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }
    fn forget(&self, _frame: Pfn, claim: Claim<'_>) {
        if let Some(claimed) = claim.take() {
            claimed.commit();
        }
    }
    fn release(&self, frames: &[Pfn], order: Order) {
        self.0.allocator().free_bulk(frames, order).expect("the frames were ours");
    }
}

/// Adds a frame, to which only the index then refers.
fn add(arena: &FrameArena, lru: &HostLru<Dropped<'_>>) -> Result<Pfn, LruError> {
    let pfn = arena.alloc(Request::default()).expect("there is memory");
    lru.add(pfn, GroupId::ROOT, Kind::File).map(|()| pfn).inspect_err(|_| {
        arena.free(pfn, Order::ZERO).expect("it was allocated just now");
    })
}

#[test]
fn an_lru_is_empty_in_children_and_can_be_made_anew() {
    let _one = crate::ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let arena = arena::<Freehold<Host>>(16 * MIB, &[]);
    let lru = arena.lru(&LruSettings::default(), Dropped(&arena)).expect("room for it");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let frames: Vec<_> = (0..100).map_while(|_| add(&arena, &lru).ok()).collect();
                frames.iter().for_each(|&pfn| lru.mark_accessed(pfn).unwrap_or(()));
                lru.reclaim(Scope::All, FrameCount::new(200)).expect("the root is there");
            }
        });
        for _ in 0..FORKS {
            thread::sleep(Duration::from_millis(1));
            let ended = in_child(|| {
                assert_eq!(lru.get(Pfn::new(0)), Err(LruError::ForeignFrame));
                assert_eq!(add(&arena, &lru), Err(LruError::ForeignFrame));
                assert_eq!(lru.create_group(GroupId::ROOT, None), Err(LruError::UnknownGroup));
                lru.drain_all();
                let found = lru.reclaim(Scope::All, FrameCount::new(1));
                assert_eq!(found.map_or(0, |found| found.reclaimed), 0);
                let anew = arena.lru(&LruSettings::default(), Dropped(&arena)).expect("room");
                let pfn = add(&arena, &anew).expect("memory is free");
                anew.put(pfn).expect("it was added");
                anew.validate().expect("the new one is in order");
            });
            if ended.is_err() {
                stop.store(true, Relaxed);
            }
            assert_eq!(ended, Ok(()));
        }
        stop.store(true, Relaxed);
    });
}

/// A child that calls nothing costs no repair, and one that does makes it up, whichever of its
/// threads comes first; so does a child of one that has not.
#[test]
fn children_repair_at_their_first_call() {
    let builder = ArenaBuilder::<Freehold<Host>>::new().bytes(16 * MIB).capacity_bytes(64 * MIB);
    let builder = builder.cpus(2).nodes(1).map_as_it_grows(true).late_repair(true);
    let arena = builder.build_frames().expect("a few MiB");
    fork_beside_work(
        arena,
        |arena| assert!(arena.total_frames() > FrameCount::ZERO),
        |arena, in_use| {
            assert_eq!(in_child(|| ()), Ok(()), "nothing is called");
            let call = || {
                arena.ensure_repaired();
                use_up(arena, in_use);
            };
            assert_eq!(in_child(call), Ok(()), "a child of a child");
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        arena.ensure_repaired();
                        let pfn = arena.alloc(request()).expect("there is some");
                        arena.free(pfn, Order::ZERO).expect("it is ours");
                    });
                }
            });
            call();
        },
    );
}

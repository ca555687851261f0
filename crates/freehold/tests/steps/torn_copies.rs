//! Copies of the memory of the design `freehold` that are made a piece at a time, as `fork` makes
//! them, while a call of another thread goes on: what the one thread of the copy finds.
//!
//! A call is stopped before each of its steps, and all others are stopped by a freeze. Some pieces
//! of memory are copied there and the rest some steps later, drawn by seed. A piece is a cache
//! line, which is less than the page that a kernel copies at a time, so that words which lie in one
//! page here and in two elsewhere are torn as well. Then the copy takes the place of the original,
//! and is thawed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;

use freehold::designs::{Freehold, FreeholdSettings};
use freehold::{
    Config, FrameCount, FrameStatus, Immovable, MemoryRange, Metadata, NodeId, Order,
    PageAllocator, Pfn, RangeRequest, Request,
};

use crate::random::Random;
use crate::steps::{Kind, StepPlatform, run_on, stop_again, stop_at, unless_it_waits};

const PAGEBLOCK: u64 = 512;
const ALL: u64 = 10 * PAGEBLOCK;
/// The thread that forks is on the first of these CPUs, the one whose call goes on on the other.
const CPUS: usize = 2;
/// How many copies are made of a call that is stopped before one of its steps.
const COPIES: u64 = 16;
/// So many of all copies of a call were made in two parts, with steps of the call between.
const TORN_MIN: u64 = 10;

type Frames = PageAllocator<StepPlatform, Freehold<StepPlatform>>;
type Line = [MaybeUninit<u64>; 8];

/// An allocator and all memory that is its own.
struct Process {
    frames: Box<Frames>,
    metadata: *mut [Line],
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: it was a box, and the allocator, which has no destructor, is not used any more.
        drop(unsafe { Box::from_raw(self.metadata) });
    }
}

/// The memory of a process, as far as it has been copied.
struct Copy {
    pieces: Vec<(*mut Line, Option<Line>)>,
}

impl Process {
    fn new() -> Rc<Self> {
        run_on(0);
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(ALL))];
        let cpus = [NodeId::new(0); CPUS];
        let config = Config::new(&ranges, &cpus).min_free(Some(FrameCount::ZERO));
        let settings = FreeholdSettings::default();
        let layout = Frames::layout(&config, &settings).expect("it is right");
        let lines = layout.size_unaligned().div_ceil(size_of::<Line>());
        let metadata = Box::into_raw(vec![[MaybeUninit::uninit(); 8]; lines].into_boxed_slice());
        let base = NonNull::new(metadata).expect("a box is somewhere").cast();
        // SAFETY: it is as large as the layout says, stays where it is until the process is
        // dropped, and is accessed by the allocator alone until then, but for copies.
        let of_allocator = unsafe { Metadata::from_raw_parts(base, lines * size_of::<Line>()) };
        let frames = Frames::new(StepPlatform, &config, &settings, of_allocator);
        Rc::new(Process { frames: Box::new(frames.expect("it is right")), metadata })
    }

    /// Where all of its memory lies.
    fn lines(&self) -> Vec<*mut Line> {
        let of = |start: *mut Line, size: usize| {
            (0..size / size_of::<Line>()).map(move |nth| start.wrapping_add(nth))
        };
        let allocator = (&raw const *self.frames).cast_mut();
        assert_eq!(size_of::<Frames>() % size_of::<Line>(), 0, "it is aligned for its locks");
        let metadata = self.metadata.len() * size_of::<Line>();
        of(allocator.cast(), size_of::<Frames>())
            .chain(of(self.metadata.cast(), metadata))
            .collect()
    }
}

impl Copy {
    fn new(process: &Process) -> Self {
        Copy { pieces: process.lines().into_iter().map(|line| (line, None)).collect() }
    }

    /// Copies what these say, and is not copied yet.
    fn make(&mut self, mut is_wanted: impl FnMut() -> bool) {
        for (line, copy) in &mut self.pieces {
            if copy.is_none() && is_wanted() {
                // SAFETY: the process has this memory, and no other thread is there to change it.
                *copy = Some(unsafe { line.read() });
            }
        }
    }

    /// Makes the copy what the process has.
    fn replace(&self) {
        for (line, copy) in &self.pieces {
            // SAFETY: the process has this memory, whose content is that which it had a while ago;
            // no call is under way and no other thread is there to use it.
            unsafe { line.write(copy.expect("all of it is copied")) };
        }
    }
}

/// A block that a thread holds.
type Block = (Pfn, Order);

/// What the threads hold when the call begins.
struct Held {
    /// Blocks of the thread that forks.
    own: Vec<Block>,
    /// Blocks of the other thread that the call does not free.
    others: Vec<Block>,
}

fn frames_of(blocks: &[Block]) -> impl Iterator<Item = u64> {
    blocks.iter().flat_map(|(pfn, order)| pfn.get()..pfn.get() + order.frames().get())
}

fn alloc(process: &Process, order: u8) -> Block {
    let order = Order::new(order);
    (process.frames.alloc(Request::new(order)).expect("memory is free"), order)
}

/// What the one thread of a copy finds: all invariants hold, its blocks are its own, and no block
/// of the other thread is handed out. `moving` frames may have been in the hands of the call.
fn check_copy(process: &Process, held: &Held, moving: u64) {
    let frames = &process.frames;
    frames.validate().expect("the accounting is right");
    for &(first, _) in &held.own {
        // The order is that of the whole block, if the rest of it was about to be freed.
        let found = frames.status(first);
        assert!(
            matches!(found, FrameStatus::Allocated { first: at, .. } if at == first),
            "{found:?}"
        );
    }
    frames.drain_all();
    let census = frames.validate().expect("the accounting is right");
    let in_use = (frames_of(&held.own).chain(frames_of(&held.others))).count() as u64;
    let (free, least) = (census.free.get(), ALL - in_use - moving);
    assert!((least..=ALL - in_use).contains(&free), "{free} frames are free, {least} at least");
    let all: Vec<_> = std::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
    assert_eq!(all.len() as u64, free, "what is free is found");
    let mut seen: BTreeSet<_> = frames_of(&held.own).chain(frames_of(&held.others)).collect();
    assert!(all.iter().all(|pfn| seen.insert(pfn.get())), "a frame has two users");
    all.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).expect("it is held"));
    held.own.iter().for_each(|&(pfn, order)| frames.free(pfn, order).expect("it is held"));
    frames.drain_all();
    let after = frames.validate().expect("the accounting is right").free.get();
    assert_eq!(after - free, frames_of(&held.own).count() as u64);
}

/// Both threads hold frames, small blocks and pageblocks, and have freed some of each.
fn build(process: &Process) -> Held {
    let [own, others] = [0, 1].map(|cpu| {
        run_on(cpu);
        let kept = [0, 0, 3, 9].map(|order| alloc(process, order));
        let freed = [0, 3].map(|order| alloc(process, order));
        freed.iter().for_each(|&(pfn, order)| process.frames.free(pfn, order).expect("it is held"));
        kept.to_vec()
    });
    Held { own, others }
}

/// Makes copies while `call` runs on the other CPU, from each of its steps on, with what is
/// prepared for it.
fn each_torn_copy<T>(
    moving: u64,
    prepare: impl Fn(&Process, &mut Held) -> T,
    call: impl Fn(&Frames, &T),
) {
    let mut torn = 0;
    for step in 0.. {
        let mut had_steps = false;
        for seed in 0..COPIES {
            let mut random = Random(step << 8 | seed);
            let process = Process::new();
            let mut held = build(&process);
            let given = prepare(&process, &mut held);
            let copy = Rc::new(RefCell::new(Copy::new(&process)));
            let frozen = Rc::new(Cell::new(None));
            let was_torn = Rc::new(Cell::new(false));
            let fork = {
                let (process, copy) = (Rc::clone(&process), Rc::clone(&copy));
                let (frozen, was_torn) = (Rc::clone(&frozen), Rc::clone(&was_torn));
                move || {
                    run_on(0);
                    // It waits if the call holds a lock.
                    let Some(freeze) = unless_it_waits(|| process.frames.freeze()) else { return };
                    frozen.set(Some(freeze));
                    let share = random.below(9);
                    copy.borrow_mut().make(|| random.below(8) < share);
                    let later = [1, 3, 10, 40][random.below(4)];
                    stop_again(random.below(later) as u64, Kind::Stop, move || {
                        copy.borrow_mut().make(|| true);
                        was_torn.set(true);
                        // The freeze itself ends in the copy. With this platform, that of another
                        // allocator is the same.
                        process.frames.thaw(Process::new().frames.freeze());
                    });
                }
            };
            run_on(1);
            had_steps |= stop_at(step, Kind::Stop, fork, || call(&process.frames, &given)).1;
            let Some(frozen) = frozen.take() else { continue };
            copy.borrow_mut().make(|| true);
            copy.borrow().replace();
            run_on(0);
            process.frames.thaw_copy(frozen);
            check_copy(&process, &held, moving);
            torn += u64::from(was_torn.get());
        }
        if !had_steps {
            break;
        }
    }
    assert!(torn >= TORN_MIN, "{torn} copies were torn");
}

fn free(frames: &Frames, &(pfn, order): &Block) {
    frames.free(pfn, order).expect("it is held");
}

/// A call frees a block of this order that its own CPU has allocated, or the other one.
fn each_copy_of_a_free(order: u8, is_own: bool) {
    let prepare = |process: &Process, _: &mut Held| {
        run_on(u32::from(is_own));
        alloc(process, order)
    };
    each_torn_copy(1 << order, prepare, free);
}

#[test]
fn a_copy_is_made_while_a_frame_is_freed() {
    each_copy_of_a_free(0, true);
    each_copy_of_a_free(0, false);
}

#[test]
fn a_copy_is_made_while_a_block_is_freed() {
    each_copy_of_a_free(3, true);
    each_copy_of_a_free(3, false);
}

#[test]
fn a_copy_is_made_while_pageblocks_are_freed() {
    each_copy_of_a_free(9, false);
    each_copy_of_a_free(10, false);
}

/// The rest of the block stays with the thread that forks.
#[test]
fn a_copy_is_made_while_a_part_of_a_block_is_freed() {
    let prepare = |process: &Process, held: &mut Held| {
        run_on(0);
        let (first, order) = alloc(process, 3);
        let half = Order::new(order.get() - 1);
        held.own.push((first, half));
        (Pfn::new(first.get() + half.frames().get()), half)
    };
    each_torn_copy(4, prepare, free);
}

#[test]
fn a_copy_is_made_while_blocks_are_allocated() {
    for order in [0, 3, 9, 10] {
        each_torn_copy(
            1 << order,
            |_, _| (),
            |frames, ()| {
                frames.alloc(Request::new(Order::new(order))).expect("memory is free");
            },
        );
    }
}

#[test]
fn a_copy_is_made_while_frames_are_allocated_and_freed_in_bulk() {
    each_torn_copy(
        100,
        |_, _| (),
        |frames, ()| {
            let mut all = [Pfn::default(); 100];
            assert_eq!(frames.alloc_bulk(Request::default(), &mut all), Ok(100));
            frames.free_bulk(&all, Order::ZERO).expect("they are held");
        },
    );
}

/// Pageblocks that are out of circulation come back.
#[test]
fn a_copy_is_made_while_a_range_is_taken_and_freed() {
    each_torn_copy(
        PAGEBLOCK,
        |_, _| (),
        |frames, ()| {
            let frames_wanted = FrameCount::new(PAGEBLOCK);
            if let Ok(first) = frames.alloc_range(RangeRequest::new(frames_wanted), &Immovable) {
                frames.free_range(first, frames_wanted).expect("it is held");
            }
        },
    );
}

#[test]
fn a_copy_is_made_while_caches_are_drained() {
    each_torn_copy(0, |_, _| (), |frames, ()| frames.drain_all());
}

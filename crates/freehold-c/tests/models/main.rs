//! The bytes that say which allocations there are, under loom: all interleavings with a bounded
//! number of preemptions, and all values that the memory orderings allow a load to see.
//!
//! The models run the bytes of the C interface and the real allocator. What a block contains is a
//! cell for each frame, so that loom panics if two of its users are not ordered.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further. Each model prints how many executions it took
//! (`cargo test -- --nocapture`).

use freehold::designs::Freehold;
use freehold::platform::{Platform, SharedCell, Word};
use freehold::{Config, Error, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU8;

use heads::{Head, Heads, Unfreed};
use loom_platform::{LoomCell, LoomPlatform, LoomWord};
use loom_runs::explore;
use loom_threads::race;
use machine::Machine;

#[path = "../../src/heads.rs"]
mod heads;
#[path = "../../../freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../freehold/tests/common/loom_runs.rs"]
mod loom_runs;
#[path = "../../../freehold/tests/common/loom_threads.rs"]
mod loom_threads;
#[path = "../../../freehold/tests/common/machine.rs"]
mod machine;

/// The machine as it is, and one on which the allocator orders nothing.
type Sound = LoomPlatform;
type Unordered = LoomPlatform<true, true, false>;

/// A byte as it is, one that orders nothing, and one that is taken in two steps.
type Byte = LoomWord<AtomicU8, true, true>;
type Relaxed = LoomWord<AtomicU8, true, false>;
type InTwoSteps = LoomWord<AtomicU8, false, true>;

const PAIR: Order = Order::new(1);

/// An arena as C sees it: frames by their first one.
struct Arena<P: Platform, B: Word<u8>> {
    frames: Machine<P, Freehold<P>>,
    heads: Heads<B>,
    contents: Vec<LoomCell<u32>>,
}

impl<P: Platform + Default + Send + Sync, B: Word<u8>> Arena<P, B> {
    /// So many frames, all of them free, and two CPUs.
    fn new(frames: u64) -> Arc<Self> {
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
        let nodes = [NodeId::new(0); 2];
        let config = Config::new(&ranges, &nodes).min_free(FrameCount::ZERO);
        Arc::new(Arena {
            frames: Machine::new(P::default(), &config, &Default::default()),
            heads: Heads::new(frames as usize),
            contents: (0..frames).map(|_| LoomCell::new(0)).collect(),
        })
    }

    fn try_alloc(&self, order: Order) -> Result<Pfn, Error> {
        let first = self.frames.alloc(Request::new(order))?;
        self.heads.put(first, Head::block(order));
        Ok(first)
    }

    fn alloc(&self, order: Order) -> Pfn {
        self.try_alloc(order).expect("some are free")
    }

    /// Frees the allocation that begins at a frame; returns whether there was one.
    fn free(&self, first: Pfn) -> bool {
        let Some(head) = self.heads.first(first) else { return false };
        match self.heads.free(first, head, |pfn, order| self.frames.free(pfn, order)) {
            Ok(()) => true,
            Err(Unfreed::Taken) => false,
            Err(why) => panic!("{why:?}"),
        }
    }

    /// Makes a range of a pair and the frame behind it; or, where that is not free, of the pair.
    fn alloc_range(&self) -> Pfn {
        let [first, second] = [PAIR, Order::ZERO].map(|order| {
            self.frames.alloc(Request::new(order)).expect("some are free") //
        });
        let frames = match second == first.offset(PAIR.frames()) {
            true => FrameCount::new(3),
            false => {
                self.frames.free(second, Order::ZERO).expect("it is held");
                PAIR.frames()
            }
        };
        let order_at = |pfn| if pfn == first { PAIR } else { Order::ZERO };
        self.heads.put_range(first, frames, order_at);
        first
    }

    /// Uses a frame, as its owner does.
    fn write(&self, frame: Pfn) {
        self.contents[frame.get() as usize].set(1);
    }

    /// All is free in the end.
    fn check_free(&self) {
        self.frames.drain_all();
        let census = self.frames.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(census.free, census.managed);
        let frames = (0..self.contents.len() as u64).map(Pfn::new);
        assert!(frames.into_iter().all(|frame| self.heads.part(frame).is_none()));
    }
}

/// Frees an allocation. Allocates anew if it was there, and frees that; returns how many it freed.
fn free_and_renew<P: Platform + Default + Send + Sync, B: Word<u8>>(
    arena: &Arena<P, B>,
    first: Pfn,
    order: Order,
) -> u32 {
    if !arena.free(first) {
        return 0;
    }
    let renewed = arena.alloc(order);
    1 + u32::from(arena.free(renewed))
}

/// Two threads free one frame. The first hands it out again, as a block of this order, and frees
/// that. The other may come so late that it takes the new block. Each allocation is freed once.
fn free_twice<B: Word<u8> + Send + Sync + 'static>(renewed: Order) {
    explore(2, move || {
        let arena = Arena::<Sound, B>::new(2);
        let first = arena.alloc(Order::ZERO);
        let work = move |arena: &Arena<Sound, B>| free_and_renew(arena, first, renewed);
        let (mine, theirs) = race(&arena, work, work);
        let freed = mine + theirs;
        // Three, if the other came late: then it has allocated, too.
        assert!(freed == 2 || freed == 3, "{freed} were freed");
        arena.check_free();
    });
}

/// The head that a late free finds is the same one.
#[test]
fn of_two_frees_of_a_frame_one_takes_it() {
    free_twice::<Byte>(Order::ZERO);
}

/// Another block begins there by then.
#[test]
fn of_two_frees_one_takes_a_frame_that_begins_a_block_by_then() {
    free_twice::<Byte>(PAIR);
}

/// The model would notice a byte that two calls may take.
#[test]
#[should_panic]
fn a_byte_that_is_taken_in_two_steps_is_caught() {
    free_twice::<InTwoSteps>(Order::ZERO);
}

/// The model would notice bytes that order nothing: a late free, of a block that was allocated by
/// another thread since, need not see that.
#[test]
#[should_panic]
fn bytes_that_order_nothing_are_caught() {
    free_twice::<Relaxed>(Order::ZERO);
}

/// A frame is freed by a thread that has used it, on another CPU, and is wanted again.
fn hand_over<P: Platform + Default + Send + Sync>() {
    explore(2, || {
        let arena = Arena::<P, Relaxed>::new(1);
        let first = arena.alloc(Order::ZERO);
        let use_up = |arena: &Arena<P, Relaxed>, frame| {
            arena.write(frame);
            assert!(arena.free(frame), "its head is there");
        };
        let next = move |arena: &Arena<P, Relaxed>| {
            if let Ok(next) = arena.try_alloc(Order::ZERO) {
                use_up(arena, next);
            }
        };
        race(&arena, next, move |arena| use_up(arena, first));
        arena.check_free();
    });
}

/// The bytes order nothing here: the allocator does.
#[test]
fn the_next_user_comes_after_the_last_one() {
    hand_over::<Sound>();
}

#[test]
#[should_panic]
fn an_allocator_that_orders_nothing_is_caught() {
    hand_over::<Unordered>();
}

/// A range of a pair and a frame is freed twice. The call that has it finds all its blocks, makes a
/// range of them again and frees that, in which the other call may take part.
fn free_range_twice<B: Word<u8> + Send + Sync + 'static>() {
    explore(2, || {
        let arena = Arena::<Sound, B>::new(8);
        let first = arena.alloc_range();
        let work = move |arena: &Arena<Sound, B>| {
            if !arena.free(first) {
                return 0;
            }
            let next = arena.alloc_range();
            1 + u32::from(arena.free(next))
        };
        let (mine, theirs) = race(&arena, work, work);
        let freed = mine + theirs;
        assert!(freed == 2 || freed == 3, "{freed} were freed");
        arena.check_free();
    });
}

#[test]
fn of_two_frees_of_a_range_one_takes_all_its_blocks() {
    free_range_twice::<Byte>();
}

#[test]
#[should_panic]
fn a_range_that_is_taken_in_two_steps_is_caught() {
    free_range_twice::<InTwoSteps>();
}

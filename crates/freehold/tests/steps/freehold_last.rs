//! An allocation in the design `freehold` while others move the last free frames about: at every
//! moment one is free, so it must not fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::freehold_queued;
use crate::random::Random;
use crate::steps::{Kind, StepPlatform, run_on, stop_again, stop_at, unless_it_waits};
use freehold::{CpuId, Error, Order, Pfn, Request, Watermark};

type Frames = freehold_queued::Frames<StepPlatform>;

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

/// Two blocks that are freed and allocated, one in each pageblock, of different size, which tells
/// which one is taken.
const BLOCKS: [(Pfn, Order); 2] =
    [(Pfn::new(0), Order::new(1)), (Pfn::new(PAGEBLOCK), Order::new(2))];

/// No call takes so many.
const MOVES_MAX: u64 = 100_000;

/// Memory of which all else is allocated, and the calls that free and allocate these blocks.
struct State {
    frames: Frames,
    /// Which of them are free: at least one, at any moment.
    free: Cell<[bool; 2]>,
    random: RefCell<Random>,
    moves: Cell<u64>,
}

impl State {
    /// Memory so low that caches hold nothing, or in which they may.
    fn new(is_low: bool, seed: u64) -> Rc<Self> {
        let frames: Frames = freehold_queued::machine(2, 3, if is_low { 2 * PAGEBLOCK } else { 0 });
        run_on(0);
        for _ in 0..2 {
            frames.alloc(request(Order::PAGEBLOCK)).expect("memory is free");
        }
        let (random, free) = (RefCell::new(Random(seed)), Cell::new([false; 2]));
        let state = State { frames, free, random, moves: Cell::new(0) };
        state.give(0);
        Rc::new(state)
    }

    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound)
    }

    fn set_free(&self, block: usize, is_free: bool) {
        let mut free = self.free.get();
        free[block] = is_free;
        self.free.set(free);
    }

    fn give(&self, block: usize) {
        let (pfn, order) = BLOCKS[block];
        self.frames.free(pfn, order).expect("it is held");
        self.set_free(block, true);
    }

    /// Takes a block, unless that would take part of the other one, or wait for the stopped call.
    fn take(&self, block: usize) {
        let (pfn, order) = BLOCKS[block];
        match self.frames.alloc(request(order).nowait()) {
            Ok(taken) if taken == pfn => self.set_free(block, false),
            Ok(other) => self.frames.free(other, order).expect("it is held"),
            Err(_) => {}
        }
    }

    /// Frees the block that is held and takes the other one; or releases what a cache holds.
    fn move_on(&self) {
        self.moves.set(self.moves.get() + 1);
        assert!(self.moves.get() < MOVES_MAX, "the call does not end");
        run_on([0, 2][self.below(2)]);
        match self.below(16) {
            0 => {
                let cpu = CpuId::new(self.below(3) as u32);
                return self.frames.tick(cpu).expect("the CPU exists");
            }
            // It drains all caches, or waits for the one that the stopped call uses: then that
            // drain never ends, and the other caches have had to release nothing yet.
            1..4 => {
                let too_much = || self.frames.alloc(request(Order::new(8)));
                let result = unless_it_waits(too_much);
                return assert!(!matches!(result, Some(Ok(_))), "not so much is free");
            }
            _ => {}
        }
        match self.free.get() {
            [true, true] => self.take(self.below(2)),
            [lower, _] => {
                let (held, free) = if lower { (1, 0) } else { (0, 1) };
                self.give(held);
                self.take(free);
            }
        }
    }
}

fn request(order: Order) -> Request {
    Request::new(order).watermark(Watermark::Ignore)
}

/// Moves on, and makes the call stop again a few steps later.
fn keep_moving(state: &Rc<State>, stride: usize) {
    state.move_on();
    let (state, step) = (Rc::clone(state), state.below(stride) as u64);
    stop_again(step, Kind::Stop, move || keep_moving(&state, stride));
}

/// An allocation of more than there is ends, though others move what there is for ever.
#[test]
fn an_allocation_of_too_much_ends_while_frames_move() {
    for (seed, order) in (0..400).zip([3, 5, 9].into_iter().cycle()) {
        let state = State::new(seed % 2 == 0, seed);
        let first = state.below(100) as u64;
        let others = Rc::clone(&state);
        run_on(1);
        let call = || state.frames.alloc(request(Order::new(order)));
        let (taken, _) = stop_at(first, Kind::Stop, move || keep_moving(&others, 2), call);
        assert_eq!(taken, Some(Err(Error::OutOfMemory)), "seed {seed}");
        state.frames.validate().expect("the accounting is right");
    }
}

/// The allocation is stopped at random, again and again, and each time the frames move. It looks in
/// one place after the other, so a frame may always move to a place that it has passed.
#[test]
fn an_allocation_does_not_fail_while_a_frame_is_free() {
    let mut moves = 0;
    for seed in 0..2000 {
        let (is_low, may_wait) = (seed % 2 == 0, seed % 8 < 6);
        let state = State::new(is_low, seed);
        let (first, stride) = (state.below(100) as u64, 2 + state.below(30));
        let others = Rc::clone(&state);
        let wanted = if may_wait { request(Order::ZERO) } else { request(Order::ZERO).nowait() };
        run_on(1);
        let call = || state.frames.alloc(wanted);
        let (frame, _) = stop_at(first, Kind::Stop, move || keep_moving(&others, stride), call);
        let may = matches!(frame, Some(Ok(_)) | Some(Err(Error::WouldWait)));
        assert!(may, "seed {seed}: {frame:?}, though a block is free");
        state.frames.validate().expect("the accounting is right");
        moves += state.moves.get();
    }
    assert!(moves > 10_000, "{moves} moves");
}

//! The work of each thread in a bench, and what the clock and the referee see of it.
//!
//! Everything here is generic over the contestant, so that the clock runs for the contestant's own
//! code, inlined into a loop.

use std::fmt;
use std::hint::black_box;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::peers::{Peer, Seat};
use fastrand::Rng;
use freehold::{MigrateType, Order};

use super::crew::Meeting;
use super::manner::{Bulk, Manner, Mixed, Singles};
use super::referee::{Block, Book, Failure};
use super::wipe::Wipe;
use crate::catalog::{BenchName, name_of};
use crate::report::document::threads_in_words;

/// How full `churn` keeps memory, in percent of what a contestant can allocate.
const CHURN_PERCENT: u64 = 95;

/// How many frames `cold` allocates in a pass. Wiping caches takes a thousand times as long as a
/// call.
const COLD_FRAMES: usize = 32;

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) bench: BenchName,
    /// How many threads are measured.
    pub(super) threads: usize,
    /// Frames that each of them allocates in a pass.
    pub(super) frames: usize,
    /// How many times as much memory there is as all threads hold.
    pub(super) memory: f64,
}

impl Course {
    /// How many threads take part: the frames that a thread frees must come from another one.
    pub(super) fn parties(&self) -> usize {
        match self.bench {
            BenchName::Remote => self.threads.max(2),
            _ => self.threads,
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Course { bench, threads, memory, .. } = self;
        let (bench, threads) = (name_of(bench), threads_in_words(*threads));
        write!(f, "{bench}, {threads}, memory {memory}x")
    }
}

/// The time of each pass of each thread, in ns a block. An entry of `get_ns` and the entry of
/// `put_ns` at the same index belong to the same pass.
///
/// Other load on the machine interrupts a pass now and then, for longer than the pass takes. A
/// median hides that, where a sum would not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) get_ns: Vec<f64>,
    pub(super) put_ns: Vec<f64>,
    /// Allocated and freed at once, so that only both together have a time.
    pub(super) pair_ns: Vec<f64>,
}

impl Times {
    pub(super) fn extend(&mut self, other: Times) {
        self.get_ns.extend(other.get_ns);
        self.put_ns.extend(other.put_ns);
        self.pair_ns.extend(other.pair_ns);
    }
}

/// The state that the threads of one measurement share.
pub(super) struct Field<'a, P: Peer> {
    peer: &'a P,
    course: Course,
    passes: usize,
    book: &'a Book,
    pub(super) meeting: Meeting,
    /// How many frames can be allocated in all.
    had_frames: u64,
    /// The cost of reading the clock, in ns.
    clock_ns: f64,
    /// Where threads leave the blocks that others are to free.
    handed: Vec<Mutex<Vec<P::Block>>>,
}

impl<'a, P: Peer> Field<'a, P> {
    pub(super) fn new(
        (peer, book): (&'a P, &'a Book),
        course: Course,
        passes: usize,
        had_frames: u64,
        clock_ns: f64,
    ) -> Self {
        let meeting = Meeting::new(course.parties());
        let handed = (0..course.parties()).map(|_| Mutex::default()).collect();
        Field { peer, course, passes, book, meeting, had_frames, clock_ns, handed }
    }

    /// Runs the part of one thread.
    pub(super) fn run(&self, thread: usize) -> Result<Times, Failure> {
        let Course { bench, threads, frames, .. } = self.course;
        let frames = frames.min(P::HELD_FRAMES_MAX);
        let seat = self.peer.sit(thread);
        let mut runner = Runner { field: self, seat, thread, times: Times::default() };
        match bench {
            BenchName::Pair => runner.pairs(frames),
            BenchName::Cold => runner.cold(frames.min(COLD_FRAMES)),
            BenchName::Fill => runner.sets(&mut Singles::<0>(frames), Between::Nothing),
            BenchName::Random => runner.sets(&mut Singles::<0>(frames), Between::Shuffle),
            BenchName::Remote => {
                // If only one is measured, it frees what the other one allocates.
                let takes = threads > 1 || thread > 0;
                let frames = if takes { frames } else { 0 };
                runner.sets(&mut Singles::<0>(frames), Between::HandOver)
            }
            BenchName::Bulk => runner.sets(&mut Bulk(frames), Between::Nothing),
            BenchName::Order3 => runner.blocks::<3>(frames),
            BenchName::Huge => runner.blocks::<{ Order::PAGEBLOCK.get() }>(frames),
            BenchName::Mixed => {
                runner.sets(&mut Mixed::new(frames, thread as u64), Between::Shuffle)
            }
            BenchName::Churn => runner.churn(frames),
        }?;
        Ok(runner.times)
    }
}

/// What happens to a set between allocating and freeing it.
#[derive(Clone, Copy)]
enum Between {
    Nothing,
    /// It is shuffled.
    Shuffle,
    /// It goes to another thread.
    HandOver,
}

struct Runner<'a, P: Peer> {
    field: &'a Field<'a, P>,
    seat: P::Seat<'a>,
    thread: usize,
    times: Times,
}

impl<P: Peer> Runner<'_, P> {
    /// Allocates sets of blocks, which are held all at once, and frees them. The clock runs while
    /// they are allocated and while they are freed, and so for one indirect call a set: all but
    /// the manners' own loops is compiled once for each contestant.
    fn sets(&mut self, manner: &mut dyn Manner<P>, between: Between) -> Result<(), Failure> {
        let mut blocks = Vec::new();
        let count = manner.count();
        for pass in 0..self.field.passes {
            blocks.clear();
            blocks.resize_with(count, P::Block::default);
            manner.begin();
            self.meet()?;
            let start = Instant::now();
            let got = manner.take(&mut self.seat, &mut blocks);
            let taken_ns = self.since(start);
            if got < count {
                return Err(Failure::OutOfMemory { held: got, order: manner.order(got) });
            }
            enter(&mut self.times.get_ns, taken_ns, count);

            self.field.book.claim(shown(&blocks, manner))?;
            self.meet()?;
            self.field.book.release(shown(&blocks, manner))?;
            match between {
                Between::Nothing => (),
                Between::Shuffle => {
                    let rng = Rng::with_seed((pass * 1009 + self.thread) as u64);
                    rng.clone().shuffle(&mut blocks);
                    manner.shuffled(rng);
                }
                Between::HandOver => blocks = self.hand_over(blocks)?,
            }

            let put = blocks.len();
            self.meet()?;
            let start = Instant::now();
            manner.give(&mut self.seat, &mut blocks)?;
            let given_ns = self.since(start);
            enter(&mut self.times.put_ns, given_ns, put);
        }
        Ok(())
    }

    /// Sets of blocks of one order that hold so many frames together: one block at least.
    fn blocks<const ORDER: u8>(&mut self, frames: usize) -> Result<(), Failure> {
        let count = (frames >> ORDER).max(1);
        self.sets(&mut Singles::<ORDER>(count), Between::Nothing)
    }

    /// Allocates frames and frees them, with the caches wiped before each call. Only the calls are
    /// timed.
    fn cold(&mut self, count: usize) -> Result<(), Failure> {
        let mut wipe = Wipe::new();
        let mut begin = || {
            wipe.wipe();
            // What the clock itself needs is warm again.
            black_box(Instant::now());
            Instant::now()
        };
        let mut frames = Vec::with_capacity(count);
        for _ in 0..self.field.passes {
            let (mut taken_ns, mut given_ns) = (0.0, 0.0);
            self.meet()?;
            for _ in 0..count {
                let start = begin();
                let frame = black_box(self.frame()?);
                taken_ns += self.since(start);
                frames.push(frame);
            }
            self.show(&frames)?;
            for frame in frames.drain(..) {
                let start = begin();
                self.seat.free(frame, Order::ZERO)?;
                given_ns += self.since(start);
            }
            enter(&mut self.times.get_ns, taken_ns, count);
            enter(&mut self.times.put_ns, given_ns, count);
        }
        Ok(())
    }

    /// Leaves blocks for the next thread and takes those of the previous one.
    fn hand_over(&self, blocks: Vec<P::Block>) -> Result<Vec<P::Block>, Failure> {
        let handed = &self.field.handed;
        let at = |thread: usize| {
            let slot = &handed[thread % handed.len()];
            slot.lock().unwrap_or_else(PoisonError::into_inner)
        };
        *at(self.thread) = blocks;
        self.meet()?;
        Ok(mem::take(&mut *at(self.thread + 1)))
    }

    /// Allocates a frame and frees it at once, many times. The clock cannot stop between the two,
    /// so a first pass shows each frame to the referee and is not timed.
    fn pairs(&mut self, count: usize) -> Result<(), Failure> {
        let book = self.field.book;
        self.meet()?;
        for _ in 0..count {
            let frame = self.frame()?;
            let shown = [(P::first_frame(&frame), Order::ZERO)].into_iter();
            book.claim(shown.clone())?;
            book.release(shown)?;
            self.seat.free(frame, Order::ZERO)?;
        }
        for _ in 0..self.field.passes {
            self.meet()?;
            let start = Instant::now();
            for _ in 0..count {
                let frame = self.frame()?;
                self.seat.free(black_box(frame), Order::ZERO)?;
            }
            let pairs_ns = self.since(start);
            enter(&mut self.times.pair_ns, pairs_ns, count);
        }
        Ok(())
    }

    /// Fills the memory, then frees a random frame and allocates another, many times. The referee
    /// sees what is held before and after that.
    fn churn(&mut self, count: usize) -> Result<(), Failure> {
        let share = self.field.had_frames * CHURN_PERCENT / 100 / self.field.course.threads as u64;
        let mut held = Vec::new();
        for _ in 0..share.max(1) {
            held.push(self.frame()?);
        }
        self.show(&held)?;
        let mut rng = Rng::with_seed(self.thread as u64);
        let places: Vec<_> = (0..count).map(|_| rng.usize(..held.len())).collect();
        for _ in 0..self.field.passes {
            self.meet()?;
            let start = Instant::now();
            for &place in &places {
                self.seat.free(mem::take(&mut held[place]), Order::ZERO)?;
                held[place] = self.frame()?;
            }
            let pairs_ns = self.since(start);
            enter(&mut self.times.pair_ns, pairs_ns, count);
        }
        self.show(&held)?;
        held.into_iter().try_for_each(|frame| self.seat.free(frame, Order::ZERO))?;
        Ok(())
    }

    #[inline(always)]
    fn frame(&mut self) -> Result<P::Block, Failure> {
        let frame = self.seat.alloc(Order::ZERO, MigrateType::Movable);
        frame.ok_or(Failure::OutOfMemory { held: 0, order: Order::ZERO })
    }

    /// Shows the referee single frames, while the other threads show theirs.
    fn show(&self, frames: &[P::Block]) -> Result<(), Failure> {
        let shown = frames.iter().map(|frame| (P::first_frame(frame), Order::ZERO));
        self.field.book.claim(shown.clone())?;
        self.meet()?;
        self.field.book.release(shown)?;
        self.meet()
    }

    fn meet(&self) -> Result<(), Failure> {
        self.field.meeting.wait()
    }

    fn since(&self, start: Instant) -> f64 {
        (start.elapsed().as_nanos() as f64 - self.field.clock_ns).max(0.0)
    }
}

/// Records the time of so many blocks, if there were any.
fn enter(times_ns: &mut Vec<f64>, ns: f64, blocks: usize) {
    if blocks > 0 {
        times_ns.push(ns / blocks as f64);
    }
}

/// The blocks in the referee's format.
fn shown<P: Peer>(blocks: &[P::Block], manner: &dyn Manner<P>) -> impl Iterator<Item = Block> {
    blocks.iter().enumerate().map(|(at, block)| (P::first_frame(block), manner.order(at)))
}

//! Contestants that cheat, each in one way, to check that the referee notices.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::peers::{Peer, Refused, Seat};
use freehold::{MigrateType, Order};
use freehold_host::allowed_cpus;

use super::course::Course;
use super::crew::Crew;
use super::entrant::{Entered, Entrant};
use super::referee::Failure;
use crate::catalog::BenchName;

const FRAMES: u64 = 8192;

/// How many calls a cheat behaves before it cheats.
const PATIENCE: u64 = 3 * FRAMES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cheat {
    /// None: an honest stack of frames.
    Honest,
    /// Allocates a frame that is in use.
    Twice,
    /// Has a stack for each thread, all with the same frames.
    SameForAll,
    /// Invents a frame.
    Outside,
    /// Loses a freed frame.
    Loses,
    /// Pretends to have none left.
    Stingy,
    /// Refuses all frees.
    Refuses,
    Panics,
    BreaksItsBooks,
}

struct Stack {
    cheat: Cheat,
    /// A stack for each thread, of which an honest one uses the first.
    stacks: [Mutex<Vec<u64>>; 2],
    calls: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stack {
    fn new(cheat: Cheat) -> Self {
        let full = || Mutex::new((0..FRAMES).collect());
        Stack { cheat, stacks: [full(), full()], calls: Mutex::new(0) }
    }

    /// Whether it is time to cheat in this way.
    fn cheats(&self, cheat: Cheat) -> bool {
        self.cheat == cheat && {
            let mut calls = lock(&self.calls);
            *calls += 1;
            *calls == PATIENCE
        }
    }
}

impl Peer for Stack {
    type Block = u64;
    type Seat<'a> = StackSeat<'a>;

    fn sit(&self, thread: usize) -> StackSeat<'_> {
        let own = self.cheat == Cheat::SameForAll;
        StackSeat { of: self, stack: &self.stacks[if own { thread % 2 } else { 0 }] }
    }

    fn first_frame(block: &u64) -> u64 {
        *block
    }

    fn managed_frames(&self) -> Option<u64> {
        Some(FRAMES)
    }

    fn serves(&self, order: Order) -> bool {
        order == Order::ZERO
    }

    fn audit(&self) -> Result<(), String> {
        match self.cheat {
            Cheat::BreaksItsBooks => Err("a frame is free twice".to_owned()),
            _ => Ok(()),
        }
    }
}

struct StackSeat<'a> {
    of: &'a Stack,
    stack: &'a Mutex<Vec<u64>>,
}

impl Seat for StackSeat<'_> {
    type Block = u64;

    fn alloc(&mut self, _: Order, _: MigrateType) -> Option<u64> {
        let mut stack = lock(self.stack);
        if self.of.cheats(Cheat::Stingy) {
            return None;
        }
        assert!(!self.of.cheats(Cheat::Panics), "as planned");
        let frame = stack.pop()?;
        if self.of.cheats(Cheat::Twice) {
            stack.push(frame);
        }
        Some(if self.of.cheats(Cheat::Outside) { FRAMES } else { frame })
    }

    fn free(&mut self, block: u64, _: Order) -> Result<(), Refused> {
        if self.of.cheats(Cheat::Refuses) {
            return Err(Refused);
        }
        if !self.of.cheats(Cheat::Loses) {
            lock(self.stack).push(block);
        }
        Ok(())
    }
}

/// Races a contestant alone and returns the referee's verdict. `threads` are as many CPUs.
fn raced(cheat: Cheat, bench: BenchName, threads: usize) -> Result<(), Failure> {
    let cpus = allowed_cpus().unwrap();
    let crew = Crew::new(&cpus[..threads]).unwrap();
    // Starts as one thread, so that this does not reveal a separate stack for each thread.
    let entered = Entered::new(Stack::new(cheat), 1, &crew)?;
    entered.run(&crew, Course { bench, threads, frames: 1024, memory: 1.5 }, 20, 0.0)?;
    entered.check_all_back(&crew)
}

const SETS: [BenchName; 3] = [BenchName::Fill, BenchName::Random, BenchName::Bulk];

#[test]
fn an_honest_contestant_passes_every_bench() {
    for bench in SETS.into_iter().chain([BenchName::Pair, BenchName::Cold, BenchName::Churn]) {
        assert_eq!(raced(Cheat::Honest, bench, 1), Ok(()), "{bench:?}");
    }
}

#[test]
fn each_cheat_is_found_in_every_bench() {
    for bench in SETS.into_iter().chain([BenchName::Churn]) {
        let failure = |cheat| raced(cheat, bench, 1).expect_err("a cheat is found");
        assert!(matches!(failure(Cheat::Twice), Failure::Twice { .. }), "{bench:?}");
        let outside = Failure::Outside { frame: FRAMES, managed: FRAMES };
        assert_eq!(failure(Cheat::Outside), outside, "{bench:?}");
        let lost = Failure::Lost { frames: 1, managed: FRAMES };
        assert_eq!(failure(Cheat::Loses), lost, "{bench:?}");
        assert!(matches!(failure(Cheat::Stingy), Failure::OutOfMemory { .. }), "{bench:?}");
        assert_eq!(failure(Cheat::Refuses), Failure::Refused, "{bench:?}");
        assert_eq!(failure(Cheat::Panics), Failure::Panicked("as planned".to_owned()));
    }
}

#[test]
fn books_that_a_contestant_keeps_are_believed() {
    let failure = raced(Cheat::BreaksItsBooks, BenchName::Fill, 1).unwrap_err();
    assert_eq!(failure, Failure::Books("a frame is free twice".to_owned()));
}

#[test]
fn frames_that_two_threads_hold_are_found() {
    if allowed_cpus().unwrap().len() < 2 {
        eprintln!("skipped: two threads need two CPUs");
        return;
    }
    for bench in SETS.into_iter().chain([BenchName::Cold, BenchName::Remote, BenchName::Churn]) {
        assert_eq!(raced(Cheat::Honest, bench, 2), Ok(()), "{bench:?}");
        let failure = raced(Cheat::SameForAll, bench, 2).unwrap_err();
        assert!(matches!(failure, Failure::Twice { .. }), "{bench:?}: {failure}");
    }
    // One of the threads fails while the other waits for it.
    let failure = raced(Cheat::Panics, BenchName::Remote, 2).unwrap_err();
    assert_eq!(failure, Failure::Panicked("as planned".to_owned()));
}

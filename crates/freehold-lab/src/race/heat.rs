//! A heat: one bench with so many threads and so much memory, round by round, in which all
//! contestants take turns.

use anyhow::Result;
use freehold::Order;

use super::contestant::{Contestant, Stake, Start};
use super::course::{Course, Times};
use super::crew::Crew;
use super::entrant::{Entrant, Metadata};
use super::referee::Failure;
use crate::catalog::BenchName;
use crate::host::yardstick::{lock_pair_ns, vec_pair_ns};

/// A contestant in a heat.
pub(super) struct Runner<'p> {
    pub(super) contestant: Contestant<'p>,
    pub(super) notes: Vec<&'static str>,
    pub(super) metadata: Option<Metadata>,
    state: State<'p>,
    /// How many passes fill the time of one measurement.
    passes: usize,
    /// One per round, as long as the referee found no fault.
    pub(super) rounds: Vec<Times>,
}

enum State<'p> {
    Runs(Box<dyn Entrant + 'p>),
    Fails(Failure),
    /// It has finished, and its memory is freed.
    Finished,
}

/// A contestant that a heat does not apply to.
pub(super) struct Skip {
    pub(super) contestant: String,
    pub(super) reason: String,
}

/// The times of the yardsticks in one round of a heat, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yards {
    pub(super) lock_pair_ns: f64,
    pub(super) vec_pair_ns: f64,
}

/// One bench with so many threads and so much memory.
pub(super) struct Heat<'p> {
    pub(super) course: Course,
    pub(super) runners: Vec<Runner<'p>>,
    pub(super) skips: Vec<Skip>,
    pub(super) yards: Vec<Yards>,
}

impl Runner<'_> {
    /// Why it is out, if it is.
    pub(super) fn failure(&self) -> Option<&Failure> {
        match &self.state {
            State::Runs(_) | State::Finished => None,
            State::Fails(failure) => Some(failure),
        }
    }
}

impl<'p> Heat<'p> {
    /// Prepares all contestants.
    ///
    /// # Errors
    ///
    /// The machine cannot provide what one of them needs.
    pub(super) fn new(course: Course, contestants: &[Contestant<'p>], crew: &Crew) -> Result<Self> {
        let Course { bench, .. } = course;
        let threads = course.parties();
        let stake = Stake { bench, threads, frames: managed_frames(course), crew };
        let mut heat = Heat { course, runners: Vec::new(), skips: Vec::new(), yards: Vec::new() };
        for &contestant in contestants {
            let (state, notes, metadata) = match contestant.start(stake)? {
                Start::Runs(entrant) => {
                    let notes = contestant.notes(bench, &*entrant);
                    let metadata = entrant.metadata();
                    (State::Runs(entrant), notes, metadata)
                }
                Start::Fails(failure) => (State::Fails(failure), Vec::new(), None),
                Start::Skips(reason) => {
                    heat.skips.push(Skip { contestant: contestant.name(), reason });
                    continue;
                }
            };
            let (passes, rounds) = (1, Vec::new());
            heat.runners.push(Runner { contestant, notes, metadata, state, passes, rounds });
        }
        Ok(heat)
    }

    /// Warms all contestants up, determines how many passes fill `sample_ns`, and lets the referee
    /// check whether all frames return.
    pub(super) fn warm_up(&mut self, crew: &Crew, sample_ns: f64, clock_ns: f64) {
        /// The first pass makes memory present, the second is like the measured ones.
        const PASSES: usize = 2;
        let course = self.course;
        for runner in &mut self.runners {
            let passes = &mut runner.passes;
            runner.state.then(|entrant| {
                let start = std::time::Instant::now();
                entrant.run(crew, course, PASSES, clock_ns)?;
                let pass_ns = start.elapsed().as_nanos() as f64 / PASSES as f64;
                *passes = (sample_ns / pass_ns).ceil().max(1.0) as usize;
                entrant.check_all_back(crew)
            });
        }
    }

    /// One round: every contestant once.
    pub(super) fn round(&mut self, crew: &Crew, clock_ns: f64, mut each: impl FnMut(&str)) {
        self.yards.push(
            crew.alone(|| Yards { lock_pair_ns: lock_pair_ns(), vec_pair_ns: vec_pair_ns() }),
        );
        let course = self.course;
        for runner in &mut self.runners {
            each(&runner.contestant.name());
            let (passes, rounds) = (runner.passes, &mut runner.rounds);
            runner.state.then(|entrant| {
                rounds.push(entrant.run(crew, course, passes, clock_ns)?);
                Ok(())
            });
        }
    }

    /// Checks once more whether all frames return, and frees the contestants' memory.
    pub(super) fn finish(&mut self, crew: &Crew) {
        for runner in &mut self.runners {
            runner.state.then(|entrant| entrant.check_all_back(crew));
            if let State::Runs(_) = runner.state {
                runner.state = State::Finished;
            }
        }
    }
}

impl State<'_> {
    /// Continues with a contestant unless it is out already; one that fails is out.
    fn then(&mut self, work: impl FnOnce(&dyn Entrant) -> Result<(), Failure>) {
        if let State::Runs(entrant) = self
            && let Err(failure) = work(&**entrant)
        {
            *self = State::Fails(failure);
        }
    }
}

/// How many frames the contestants manage: the multiple that the course specifies of what all
/// threads hold, in whole pageblocks.
pub(super) fn managed_frames(course: Course) -> u64 {
    const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
    /// Memory for what designs keep back and cache per CPU.
    const FRAMES_MIN: u64 = 16 * PAGEBLOCK;
    let held = (course.frames * course.parties()) as f64;
    let frames = ((held * course.memory).ceil() as u64).max(FRAMES_MIN);
    match course.bench {
        // Each thread takes one block at least, and others may be broken up.
        BenchName::Huge => frames.max(4 * PAGEBLOCK * course.parties() as u64),
        _ => frames,
    }
    .next_multiple_of(PAGEBLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_multiple_of_what_all_threads_hold() {
        let course = Course { bench: BenchName::Fill, threads: 2, frames: 32768, memory: 1.5 };
        assert_eq!(managed_frames(course), 98304);
        assert_eq!(managed_frames(Course { memory: 16.0, ..course }), 1 << 20);
        let single = Course { bench: BenchName::Remote, threads: 1, ..course };
        assert_eq!(managed_frames(single), 98304, "another thread takes part");
        assert_eq!(managed_frames(Course { frames: 64, ..course }), 8192);
        let (bench, threads) = (BenchName::Huge, 8);
        assert_eq!(managed_frames(Course { bench, threads, frames: 64, ..course }), 16384);
    }
}

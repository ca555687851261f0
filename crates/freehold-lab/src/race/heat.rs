//! A heat: one bench with so many threads, round by round, in which all contestants take turns.

use anyhow::Result;

use super::contestant::{Contestant, Stake, Start};
use super::course::{Course, Times};
use super::crew::Crew;
use super::entrant::Entrant;
use super::referee::Failure;
use crate::catalog::BenchName;
use crate::host::yardstick::{lock_pair_ns, vec_pair_ns};

/// A contestant in a heat.
pub(super) struct Runner<'p> {
    pub(super) contestant: Contestant<'p>,
    pub(super) note: Option<&'static str>,
    state: State<'p>,
    /// How many passes fill the time that one measurement may take.
    passes: usize,
    /// One a round, as long as the referee had nothing to object.
    pub(super) rounds: Vec<Times>,
}

enum State<'p> {
    Runs(Box<dyn Entrant + 'p>),
    Fails(Failure),
}

/// A contestant that a heat is not for.
pub(super) struct Skip {
    pub(super) contestant: String,
    pub(super) reason: String,
}

/// What the yardsticks took in one round of a heat, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yards {
    pub(super) lock_pair_ns: f64,
    pub(super) vec_pair_ns: f64,
}

/// One bench with so many threads.
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
            State::Runs(_) => None,
            State::Fails(failure) => Some(failure),
        }
    }
}

impl<'p> Heat<'p> {
    /// Makes all contestants ready.
    ///
    /// # Errors
    ///
    /// The machine cannot give what one of them needs.
    pub(super) fn new(course: Course, contestants: &[Contestant<'p>], crew: &Crew) -> Result<Self> {
        let Course { bench, .. } = course;
        let threads = course.parties();
        let stake = Stake { bench, threads, frames: managed_frames(course), crew };
        let mut heat = Heat { course, runners: Vec::new(), skips: Vec::new(), yards: Vec::new() };
        for &contestant in contestants {
            let (state, note) = match contestant.start(stake)? {
                Start::Runs(entrant) => {
                    let note = contestant.note(bench, &*entrant);
                    (State::Runs(entrant), note)
                }
                Start::Fails(failure) => (State::Fails(failure), None),
                Start::Skips(reason) => {
                    heat.skips.push(Skip { contestant: contestant.name(), reason });
                    continue;
                }
            };
            heat.runners.push(Runner { contestant, note, state, passes: 1, rounds: Vec::new() });
        }
        Ok(heat)
    }

    /// Warms everybody up, finds out how many passes fill `sample_ns`, and has the referee look
    /// whether all frames come back.
    pub(super) fn warm_up(&mut self, crew: &Crew, sample_ns: f64, clock_ns: f64) {
        /// The first pass makes memory present, the second is like those that are measured.
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

    /// One round: everybody once.
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

    /// Looks once more whether all frames come back.
    pub(super) fn finish(&mut self, crew: &Crew) {
        for runner in &mut self.runners {
            runner.state.then(|entrant| entrant.check_all_back(crew));
        }
    }
}

impl State<'_> {
    /// Goes on with a contestant unless it is out already; who fails is out.
    fn then(&mut self, work: impl FnOnce(&dyn Entrant) -> Result<(), Failure>) {
        if let State::Runs(entrant) = self
            && let Err(failure) = work(&**entrant)
        {
            *self = State::Fails(failure);
        }
    }
}

/// How many frames the contestants manage: half as much again as all threads hold, so that none
/// runs out, and whole pageblocks.
fn managed_frames(course: Course) -> u64 {
    /// Memory for what designs keep back and on per-CPU lists: 32 MiB.
    const FRAMES_MIN: u64 = 8192;
    let held = (course.frames * course.parties()) as u64;
    let frames = (held + held / 2).max(FRAMES_MIN);
    match course.bench {
        // Each thread takes one block at least, and others may be broken up.
        BenchName::Huge => frames.max(2048 * course.parties() as u64),
        _ => frames,
    }
    .next_multiple_of(512)
}

//! The page allocator among threads of this machine, by the seed: they hand stamped blocks to each
//! other, while other threads compact, take ranges, take memory away and add it again.
//!
//! The seed draws the ground, the settings and what each thread does. When each thread does it is
//! the machine's affair: a seed that failed once may pass the next time.

use anyhow::Result;

use super::case::Case;
use super::tally::ThreadsTally;
use crate::cli::Subject;
use crew::Crew;
use disturb::steps_on;

mod chaos;
mod crew;
mod disturb;
mod ground;
mod host;
mod rounds;

/// The scenario of a case, in words.
pub(super) fn describe(case: &Case) -> String {
    match case.subject {
        Subject::Chaos => chaos::describe(case),
        _ => format!("host: {}", host::Plan::of(case)),
    }
}

/// The rounds, steps and threads that a case has, of which shrinking may leave out some.
pub(super) fn parts(case: &Case) -> (usize, usize, usize) {
    let Crew { rounds, operations, workers, .. } = match case.subject {
        Subject::Chaos => chaos::Plan::of(case).crew,
        _ => host::Plan::of(case).crew,
    };
    (rounds, operations, workers)
}

/// The names of steps that shrinking may leave out.
pub(super) fn steps(subject: Subject) -> Vec<&'static str> {
    match subject {
        Subject::Chaos => [&steps_on(&chaos::STEPS)[..], &[chaos::FIGHT]].concat(),
        _ => steps_on(&host::STEPS),
    }
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Result<ThreadsTally> {
    match case.subject {
        Subject::Chaos => chaos::play(case),
        _ => host::play(case),
    }
}

//! Makes a case that fails smaller, as long as it fails.
//!
//! What is left out changes the schedule of the rest, so each attempt is played with a few
//! schedules. Any failure counts, not only the one that was found first: each is a defect.

use std::fmt;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::case::{Case, Cuts};
use super::{lru, threads, work};
use crate::catalog::name_of;
use crate::cli::{Failure, Subject};

/// How long shrinking goes on.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Schedules that are tried for each attempt.
const SCHEDULES: u64 = 4;

/// Returns the smallest case found that fails: `found` is how it fails as it is.
pub(super) fn shrink(case: &Case, found: &str, fails: impl Fn(&Case) -> Option<String>) -> Case {
    let began = Instant::now();
    let mut smallest = Case { found: Some(found.to_owned()), ..case.clone() };
    let attempt = |smallest: &mut Case, cuts: Cuts| {
        for schedule in 0..SCHEDULES {
            if began.elapsed() > TIME_MAX {
                return false;
            }
            let schedule = smallest.cuts.schedule.wrapping_add(schedule);
            let cuts = Cuts { schedule, ..cuts.clone() };
            let smaller = Case { cuts, ..smallest.clone() };
            if let Some(found) = fails(&smaller) {
                *smallest = Case { found: Some(found), ..smaller };
                return true;
            }
        }
        false
    };
    loop {
        let mut has_shrunk = false;
        for cuts in further(&smallest) {
            // What an attempt before this one has left out stays out.
            let cuts = merged(&smallest.cuts, cuts);
            has_shrunk |= cuts != smallest.cuts && attempt(&mut smallest, cuts);
        }
        if !has_shrunk {
            return smallest;
        }
    }
}

/// What else can be left out of a case, the largest parts first.
fn further(case: &Case) -> Vec<Cuts> {
    let (rounds, operations, cpus) = match case.subject {
        Subject::Host | Subject::Chaos => threads::parts(case),
        Subject::Allocator | Subject::Lru => {
            let scenario = super::scenario(case);
            (scenario.rounds, scenario.operations, scenario.spec.cpus())
        }
    };
    let (steps, has_failures) = match case.subject {
        Subject::Allocator => (work::steps(), true),
        Subject::Lru => (lru::steps(), true),
        Subject::Host | Subject::Chaos => (threads::steps(case.subject), false),
    };
    let cuts = &case.cuts;
    let mut further = Vec::new();
    if rounds > 1 {
        further.push(Cuts { rounds: Some(rounds / 2), ..Cuts::default() });
    }
    for fewer in [operations / 2, operations * 3 / 4, operations.saturating_sub(1)] {
        if (1..operations).contains(&fewer) {
            further.push(Cuts { operations: Some(fewer), ..Cuts::default() });
        }
    }
    let idle = (0..cpus).filter(|cpu| !cuts.idle_cpus.contains(cpu));
    further.extend(idle.map(|cpu| Cuts { idle_cpus: vec![cpu], ..Cuts::default() }));
    if has_failures && case.failures.is_empty() {
        let failures = Failure::value_variants().iter().filter(|it| !cuts.failures.contains(it));
        further.extend(failures.map(|&it| Cuts { failures: vec![it], ..Cuts::default() }));
    }
    let steps = steps.into_iter().filter(|name| !cuts.steps.iter().any(|step| step == name));
    further.extend(steps.map(|name| Cuts { steps: vec![name.to_owned()], ..Cuts::default() }));
    further
}

/// What is left out by either.
fn merged(one: &Cuts, other: Cuts) -> Cuts {
    let mut merged = one.clone();
    let fewer = |one: Option<usize>, other: Option<usize>| one.into_iter().chain(other).min();
    merged.rounds = fewer(one.rounds, other.rounds);
    merged.operations = fewer(one.operations, other.operations);
    merged.idle_cpus.extend(other.idle_cpus);
    merged.failures.extend(other.failures);
    merged.steps.extend(other.steps);
    merged
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.rounds.map(|most| format!("at most {most} rounds")));
        parts.extend(self.operations.map(|most| format!("at most {most} steps of a CPU")));
        if !self.idle_cpus.is_empty() {
            let cpus: Vec<_> = self.idle_cpus.iter().map(usize::to_string).collect();
            parts.push(format!("nothing on CPU {}", cpus.join(",")));
        }
        if !self.failures.is_empty() {
            let names: Vec<_> = self.failures.iter().map(name_of).collect();
            parts.push(format!("no failures of {}", names.join(",")));
        }
        if !self.steps.is_empty() {
            parts.push(format!("no {}", self.steps.join(", ")));
        }
        if self.schedule != 0 {
            parts.push(format!("schedule {}", self.schedule));
        }
        match parts.is_empty() {
            true => f.write_str("it gets no smaller"),
            false => f.write_str(&parts.join("; ")),
        }
    }
}

//! The fate of the mutants: each test runs without one first, and then with each of those that name
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use crate::mutants::program::{End, Programs};
use crate::mutants::table::{Fate, Place};

/// The time limit of a test without a mutant.
pub(crate) const SOUND_LIMIT: Duration = Duration::from_secs(300);

/// A test hangs if it takes longer than this, and than so many times its time without a mutant.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_TIMES: u32 = 4;

/// How long a test may take with a mutant, if it takes so long without.
pub(crate) fn limit(took: Duration) -> Duration {
    PATIENCE.max(PATIENCE_TIMES * took)
}

/// All results.
#[derive(Debug)]
pub(crate) struct Verdicts {
    pub(crate) mutants: Vec<Verdict>,
    pub(crate) tests: usize,
    pub(crate) points: usize,
    /// Deviations from the tables.
    pub(crate) problems: Vec<String>,
}

/// The fate of one mutant.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) test: String,
    pub(crate) end: End,
    pub(crate) seconds: f64,
    /// Why it lives, if the table says that it does.
    pub(crate) lives: Option<String>,
}

/// The result of a test without a mutant.
pub(crate) struct Sound {
    pub(crate) end: End,
    pub(crate) took: Duration,
    /// The places that it passes.
    pub(crate) reached: BTreeSet<usize>,
}

/// Processes each item, a few at a time, with a progress bar on the terminal.
pub(crate) fn each<T: Sync, R: Send>(
    what: &'static str,
    items: &[T],
    act: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let style = ProgressStyle::with_template("{prefix} {bar:40} {pos}/{len} {elapsed}")?;
    let bar = ProgressBar::new(items.len() as u64).with_style(style).with_prefix(what);
    // One by one: they take from milliseconds to seconds.
    let act = |item| act(item).inspect(|_| bar.inc(1));
    let results = items.par_iter().with_max_len(1).map(act).collect();
    bar.finish_and_clear();
    results
}

/// Runs the tests with the mutants of these places, each of which keeps its number among all.
pub(crate) fn judge(programs: &Programs, places: &[(usize, &Place)]) -> Result<Verdicts> {
    let wanted: BTreeSet<&str> = places.iter().map(|(_, place)| place.test.as_str()).collect();
    let wanted: Vec<_> = wanted.into_iter().collect();
    let mut problems = Vec::new();
    let all = programs.names();
    for test in &wanted {
        ensure!(
            all.contains(test),
            "there is no test {test}: correct `killed_by` or `reached_by` in the table"
        );
    }
    let runs = each("tests without a mutant", &wanted, |test| {
        let (end, took, reached) = programs.run_sound(test, SOUND_LIMIT)?;
        Ok(Sound { end, took, reached })
    })?;
    let sound: BTreeMap<_, _> = wanted.into_iter().zip(runs).collect();
    for (test, run) in &sound {
        if run.end != End::Passed {
            problems.push(format!("{test} fails without a mutant"));
        }
    }
    for (number, place) in places {
        let test = place.test.as_str();
        if !sound[test].reached.contains(number) {
            problems.push(format!("{test} does not reach {place}"));
        }
    }
    let is_mutant = |(_, place): &&(usize, &Place)| place.fate != Fate::Reached;
    let mutants: Vec<_> = places.iter().filter(is_mutant).collect();
    let ends = each("mutants", &mutants, |(number, place)| {
        programs.run(&place.test, *number, limit(sound[place.test.as_str()].took))
    })?;
    let mutants: Vec<_> = mutants
        .into_iter()
        .zip(ends)
        .map(|((_, place), (end, took))| Verdict::new(place, end, took))
        .collect();
    problems.extend(mutants.iter().filter_map(Verdict::problem));
    let points = places.len() - mutants.len();
    Ok(Verdicts { mutants, tests: sound.len(), points, problems })
}

impl Verdict {
    fn new(place: &Place, end: End, took: Duration) -> Self {
        Verdict {
            name: place.name.clone(),
            test: place.test.clone(),
            end,
            seconds: took.as_secs_f64(),
            lives: match &place.fate {
                Fate::Lives(reason) => Some(reason.clone()),
                Fate::Killed | Fate::Reached => None,
            },
        }
    }

    /// How the verdict deviates from the table.
    fn problem(&self) -> Option<String> {
        let Verdict { name, test, .. } = self;
        match (&self.lives, self.end == End::Passed) {
            (None, true) => Some(format!("{name:?} lives: {test} does not notice it")),
            (Some(_), false) => Some(format!("{name:?} is killed by {test}: say so in the table")),
            _ => None,
        }
    }
}

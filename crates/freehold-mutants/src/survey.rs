//! The fate of generated mutants: each is tried with the tests that reach it, the quickest first,
//! until one notices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::copy;
use crate::generated::Generated;
use crate::program::{self, End, ErrorAt, Programs};
use crate::verdict::{SOUND_LIMIT, Sound, each, limit};

/// How much is tried.
pub(crate) struct Effort {
    /// Tests that take longer without a mutant are left out.
    pub(crate) test: Duration,
    /// No more tests are tried with a mutant after this time.
    pub(crate) mutant: Duration,
}

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Survey {
    pub(crate) mutants: Vec<Trial>,
    /// Mutants of the list that cannot be chosen at run time, or do not compile.
    pub(crate) left_out: usize,
    pub(crate) tests: usize,
    /// Tests that take too long, or need what the copy does not have.
    pub(crate) tests_left_out: usize,
}

/// What was tried with one mutant.
#[derive(Debug, Serialize)]
pub(crate) struct Trial {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) fate: Fate,
    /// Tests that it was tried with.
    pub(crate) tries: usize,
    /// The last of these, which noticed it unless it lives.
    pub(crate) test: Option<String>,
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// A test failed.
    Killed,
    /// A test did not end.
    Hung,
    /// All tests that reach it passed.
    Alive,
    /// All that were tried passed, and there are more that reach it.
    AliveSoFar,
    /// No test reaches it.
    Unreached,
}

/// Writes and builds a copy in `folder/source` with as many of the mutants as compile together.
/// Returns the programs, and the numbers of the mutants that they have.
pub(crate) fn build(
    root: &Path,
    folder: &Path,
    mutants: &[Generated],
) -> Result<(Programs, BTreeSet<usize>)> {
    let mut without = BTreeSet::new();
    loop {
        let built = copy::write_generated(root, &folder.join("source"), mutants, &without)?;
        let errors = program::errors(folder)?;
        if errors.is_empty() {
            return Ok((Programs::build(folder, false)?, built));
        }
        let before = without.len();
        for error in &errors {
            without.extend(mutants_at(&folder.join("source"), error)?);
        }
        eprintln!("{} mutants do not compile", without.len());
        ensure!(
            without.len() > before,
            "the copy in {} does not compile, and no mutant is where the errors are: {errors:?}",
            folder.display()
        );
    }
}

/// The mutants that an error of the compiler is about: the last one that begins before the error,
/// or all in its lines.
fn mutants_at(source: &Path, error: &ErrorAt) -> Result<BTreeSet<usize>> {
    let text = std::fs::read_to_string(source.join(&error.file_name))?;
    let lines: Vec<_> = text.lines().collect();
    let numbers = |text: &str| -> Vec<usize> {
        let calls = text.split("mutants::is_active(").skip(1);
        calls.filter_map(|call| call.split(')').next()?.parse().ok()).collect()
    };
    let first = lines.get(error.line_start - 1).copied().unwrap_or_default();
    let before: String = first.chars().take(error.column_start - 1).collect();
    if let Some(last) = numbers(&before).last() {
        return Ok([*last].into());
    }
    let within = &lines[error.line_start - 1..error.line_end.min(lines.len())];
    let within: BTreeSet<_> = within.iter().flat_map(|line| numbers(line)).collect();
    if !within.is_empty() {
        return Ok(within);
    }
    let above = lines[..error.line_start - 1].iter().rev().map(|line| numbers(line));
    Ok(above.filter_map(|numbers| numbers.last().copied()).take(1).collect())
}

/// Tries each of these mutants, and writes each result to the file `log` at once, a line of JSON
/// each: a survey of all takes hours.
pub(crate) fn survey(
    programs: &Programs,
    mutants: &[Generated],
    built: &BTreeSet<usize>,
    effort: &Effort,
    log: &Path,
) -> Result<Survey> {
    let names: Vec<_> = programs.names().into_iter().collect();
    let runs = each("tests without a mutant", &names, |test| {
        let (end, took, reached) = programs.run_sound(test, SOUND_LIMIT)?;
        Ok(Sound { end, took, reached })
    })?;
    let mut sound: Vec<_> = names.iter().copied().zip(runs).collect();
    sound.retain(|(_, run)| run.end == End::Passed && run.took <= effort.test);
    sound.sort_by_key(|(_, run)| run.took);
    let mut reaching = BTreeMap::<usize, Vec<(&str, Duration)>>::new();
    for (test, run) in &sound {
        for &number in &run.reached {
            reaching.entry(number).or_default().push((test, run.took));
        }
    }
    let wanted: Vec<_> = built.iter().copied().collect();
    let log = Mutex::new(File::create(log)?);
    let trials = each("mutants", &wanted, |&number| {
        let tests = reaching.get(&number).map_or(&[][..], Vec::as_slice);
        let trial = attempt(programs, &mutants[number], number, tests, effort)?;
        let line = serde_json::to_string(&trial)?;
        writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{line}")?;
        Ok(trial)
    })?;
    Ok(Survey {
        mutants: trials,
        left_out: mutants.len() - built.len(),
        tests: sound.len(),
        tests_left_out: names.len() - sound.len(),
    })
}

fn attempt(
    programs: &Programs,
    mutant: &Generated,
    number: usize,
    tests: &[(&str, Duration)],
    effort: &Effort,
) -> Result<Trial> {
    let start = Instant::now();
    let trial = |fate, tries, test: Option<&str>| Trial {
        name: mutant.name.clone(),
        file: mutant.file.clone(),
        fate,
        tries,
        test: test.map(str::to_owned),
        seconds: start.elapsed().as_secs_f64(),
    };
    let mut last = None;
    for (tried, &(test, took)) in tests.iter().enumerate() {
        if start.elapsed() > effort.mutant {
            return Ok(trial(Fate::AliveSoFar, tried, last));
        }
        last = Some(test);
        match programs.run(test, number, limit(took))?.0 {
            End::Passed => {}
            End::Failed => return Ok(trial(Fate::Killed, tried + 1, last)),
            End::Hung => return Ok(trial(Fate::Hung, tried + 1, last)),
        }
    }
    let fate = if tests.is_empty() { Fate::Unreached } else { Fate::Alive };
    Ok(trial(fate, tests.len(), last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
fn f(a: u32) -> u32 {
    if crate::mutants::is_active(3) { return Default::default(); } let b =
        g(a);
    (if crate::mutants::is_active(5) { (a) - (b) } else { (if crate::mutants::is_active(4) { a }
        else { b }) })
}
";

    /// The mutants that an error in these lines is about, from this column on.
    fn at(lines: (usize, usize), column: usize) -> Vec<usize> {
        let folder = tempfile::tempdir().expect("there is room");
        std::fs::write(folder.path().join("a.rs"), SOURCE).expect("there is room");
        let error = serde_json::json!({
            "file_name": "a.rs",
            "line_start": lines.0,
            "line_end": lines.1,
            "column_start": column,
            "is_primary": true,
        });
        let error = serde_json::from_value(error).expect("it has all that is needed");
        mutants_at(folder.path(), &error).expect("the file is there").into_iter().collect()
    }

    #[test]
    fn an_error_is_about_the_mutant_before_it() {
        assert_eq!(at((2, 2), 48), [3], "in what it returns");
        assert_eq!(at((4, 4), 41), [5], "in what it has instead");
        assert_eq!(at((4, 4), 93), [4], "of two in a line the nearer one");
        assert_eq!(at((5, 5), 5), [4], "none begins in the line: the last one above it");
        assert_eq!(at((4, 5), 5), [4, 5], "the error is about all of the expression");
        assert!(at((1, 1), 4).is_empty(), "none is to blame");
    }

    #[test]
    fn an_error_beyond_the_end_is_no_reason_to_stop() {
        assert_eq!(at((6, 60), 1), [4]);
        assert_eq!(at((7, 7), 1), [4]);
    }
}

//! The fate of the mutants, as text.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::program::End;
use crate::survey::{Fate, Survey};
use crate::verdict::{Verdict, Verdicts};

/// Prints each mutant, the totals, and why some live.
pub(crate) fn print(verdicts: &Verdicts, built: Duration, ran: Duration) {
    let mutants = &verdicts.mutants;
    let width = mutants.iter().map(|mutant| mutant.name.len()).max().unwrap_or_default();
    println!("{:width$}  {:6}  {:>7}  test", "mutant", "", "seconds");
    for Verdict { name, end, seconds, test, .. } in mutants {
        let end = match end {
            End::Passed => "lives",
            End::Failed => "killed",
            End::Hung => "hangs",
        };
        println!("{name:width$}  {end:6}  {seconds:7.2}  {test}");
    }
    let living: Vec<_> = mutants.iter().filter(|mutant| mutant.end == End::Passed).collect();
    for mutant in &living {
        let reason = mutant.lives.as_deref().unwrap_or("no reason is known");
        println!("{:?} lives: {reason}", mutant.name);
    }
    println!(
        "{} mutants, {} killed, {} alive; {} points; {} tests; {:.0} s to build, {:.0} s to run",
        mutants.len(),
        mutants.len() - living.len(),
        living.len(),
        verdicts.points,
        verdicts.tests,
        built.as_secs_f64(),
        ran.as_secs_f64()
    );
}

/// Where all mutants are, which would make lines too long.
const SOURCES: &str = "crates/freehold/src/";

/// Prints the fates of generated mutants, a file a line, and those that live.
pub(crate) fn print_survey(survey: &Survey) {
    let mut files = BTreeMap::<&str, BTreeMap<Fate, usize>>::new();
    for trial in &survey.mutants {
        *files.entry(short(&trial.file)).or_default().entry(trial.fate).or_default() += 1;
    }
    let width = files.keys().map(|file| file.len()).max().unwrap_or_default();
    let row = |name: &str, fates: &BTreeMap<Fate, usize>| {
        let of = |fate| fates.get(&fate).copied().unwrap_or_default();
        let noticed = of(Fate::Killed) + of(Fate::Hung);
        let alive = of(Fate::Alive) + of(Fate::AliveSoFar);
        let all = noticed + alive + of(Fate::Unreached);
        println!(
            "{name:width$}  {all:>7}  {noticed:>7}  {alive:>5}  {:>9}  {:>5.1} %",
            of(Fate::Unreached),
            100.0 * noticed as f64 / all.max(1) as f64
        );
    };
    println!("{:width$}  mutants  noticed  alive  unreached    score", "file");
    let mut sums = BTreeMap::new();
    for (file, fates) in &files {
        row(file, fates);
        for (&fate, number) in fates {
            *sums.entry(fate).or_default() += number;
        }
    }
    row("all", &sums);
    for trial in survey.mutants.iter().filter(|of| of.fate >= Fate::Alive) {
        let fate = match trial.fate {
            Fate::Unreached => "unreached".to_owned(),
            Fate::AliveSoFar => format!("alive after {} tests, and there are more", trial.tries),
            _ => format!("alive after all {} tests that reach it", trial.tries),
        };
        println!("{}\n    {fate}", short(&trial.name));
    }
    println!(
        "{} mutants are left out, which do not compile or cannot be chosen at run time; \
         {} tests, {} left out",
        survey.left_out, survey.tests, survey.tests_left_out
    );
}

/// A name without the folder that all sources are in.
fn short(name: &str) -> &str {
    name.strip_prefix(SOURCES).unwrap_or(name)
}

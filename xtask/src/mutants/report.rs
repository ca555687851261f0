//! The fate of the mutants, as text.

use std::time::Duration;

use crate::mutants::program::End;
use crate::mutants::verdict::{Verdict, Verdicts};

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

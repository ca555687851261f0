//! What `freehold compare` says: the JSON document, the table, and the ranking.

use anyhow::Result;
use serde::Serialize;

use super::document::{RunResult, cpus_in_words};
use super::out;
use super::reasons::{lock_in_words, percent, reasons, wait_share, waits_by_class};
use super::table::{Table, WIDTH};

/// The version of the format.
const SCHEMA: &str = "freehold.compare/1";

/// One workload on several designs, on one machine or two.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    /// The design that the ratios refer to.
    baseline: String,
    results: Vec<RunResult>,
    /// Machine by machine, the fastest design first.
    ranking: Vec<Ranked>,
}

/// The place of one design on one machine.
#[derive(Debug, Serialize)]
struct Ranked {
    design: String,
    machine: String,
    per_second: f64,
    /// A multiple of the baseline's `per_second`.
    ratio: f64,
    reasons: Vec<String>,
}

impl Comparison {
    /// Compares results, of which each machine has one for each design.
    pub(crate) fn new(results: Vec<RunResult>, baseline: String) -> Self {
        let mut ranking = Vec::new();
        for machine in by_machine(&results) {
            let of_baseline = machine.iter().find(|result| result.design == baseline);
            let of_baseline = of_baseline.expect("the baseline is among the designs");
            let mut sorted = machine.to_vec();
            sorted.sort_by(|one, other| other.work.per_second.total_cmp(&one.work.per_second));
            ranking.extend(sorted.into_iter().map(|result| Ranked {
                design: result.design.clone(),
                machine: result.machine.clone(),
                per_second: result.work.per_second,
                ratio: result.work.per_second / of_baseline.work.per_second,
                reasons: reasons(result, Some(*of_baseline).filter(|_| result.design != baseline)),
            }));
        }
        Comparison { schema: SCHEMA, baseline, results, ranking }
    }

    /// Prints the table, `notes` below it, and the ranking.
    pub(crate) fn print(&self, notes: &[String]) -> Result<()> {
        out!("{}", self.table());
        let machines = by_machine(&self.results);
        let kinds =
            machines.iter().map(|results| format!("{}: {}.", results[0].machine, kind(results[0])));
        let mut legend = kinds.collect::<Vec<_>>().join(" ");
        legend += &format!(" ratio: to {}.", self.baseline);
        if machines.iter().any(|results| results[0].simulated.is_some()) {
            legend += " lock wait: share of all CPU time.";
        }
        for note in std::iter::once(&legend).chain(notes) {
            out!("{}", paragraph("", note));
        }
        for results in machines {
            let machine = &results[0].machine;
            out!("\nRanking on {machine}, {}:", kind(results[0]));
            let ranked = self.ranking.iter().filter(|ranked| ranked.machine == *machine);
            for (place, ranked) in ranked.enumerate() {
                self.print_ranked(place + 1, ranked)?;
            }
        }
        Ok(())
    }

    /// The place with the weightiest reason, then the other reasons.
    fn print_ranked(&self, place: usize, ranked: &Ranked) -> Result<()> {
        let mut text = ranked.design.clone();
        if ranked.design != self.baseline {
            text += &format!(", {:.2}x {}", ranked.ratio, self.baseline);
        }
        let mut reasons = ranked.reasons.iter();
        if let Some(first) = reasons.next() {
            text += &format!(": {first}");
        }
        out!("{}", paragraph(&format!("{place}. "), &text));
        for reason in reasons {
            out!("{}", paragraph("   - ", reason));
        }
        Ok(())
    }

    /// A row for each design, with columns for each machine.
    fn table(&self) -> Table {
        let machines = by_machine(&self.results);
        let mut headings = vec!["design".to_owned()];
        for machine in &machines {
            headings.push(format!("{} {}/s", machine[0].machine, machine[0].work.unit));
            headings.push("ratio".to_owned());
            if machine[0].simulated.is_some() {
                headings.extend(["lock wait", "most of it"].map(str::to_owned));
            }
        }
        let mut table = Table::new(headings).numbers_from(1);
        for first in &machines[0] {
            let mut row = vec![first.design.clone()];
            for result in machines.iter().flatten().filter(|result| result.design == first.design) {
                let of = |ranked: &&Ranked| {
                    ranked.design == result.design && ranked.machine == result.machine
                };
                let ratio = self.ranking.iter().find(of).map_or(f64::NAN, |ranked| ranked.ratio);
                row.push(format!("{:.0}", result.work.per_second));
                row.push(format!("{ratio:.2}x"));
                if let Some(simulated) = &result.simulated {
                    row.push(percent(wait_share(simulated)));
                    let top = waits_by_class(simulated).into_iter().next();
                    let top = top.filter(|(_, share)| *share > 0.0);
                    row.push(top.map_or("-".to_owned(), |(class, share)| {
                        format!("{} {}", lock_in_words(class), percent(share))
                    }));
                }
            }
            table.row(row);
        }
        table
    }
}

/// The results of each machine, in their order.
fn by_machine(results: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let mut machines: Vec<Vec<&RunResult>> = Vec::new();
    for result in results {
        match machines.iter_mut().find(|machine| machine[0].machine == result.machine) {
            Some(machine) => machine.push(result),
            None => machines.push(vec![result]),
        }
    }
    machines
}

/// What kind of figures a machine's are.
fn kind(result: &RunResult) -> String {
    let cpus = cpus_in_words(result.cpus as usize);
    match result.simulated {
        Some(_) => format!("simulated with {cpus}, a prediction"),
        None => format!("measured on this host with {cpus}"),
    }
}

/// Text that fits the width, indented below its bullet.
fn paragraph(bullet: &str, text: &str) -> String {
    let indent = " ".repeat(bullet.len());
    let options = textwrap::Options::new(usize::from(WIDTH))
        .initial_indent(bullet)
        .subsequent_indent(&indent)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    // A number stays with its unit: lines are broken at blanks only.
    let units = [" %", " ns", " µs", " ms"];
    let glued = units
        .iter()
        .fold(text.to_owned(), |text, unit| text.replace(unit, &unit.replace(' ', "\u{a0}")));
    textwrap::fill(&glued, options).replace('\u{a0}', " ")
}

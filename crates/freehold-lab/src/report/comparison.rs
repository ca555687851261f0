//! The output of `freehold compare`: the JSON document, the table, and the ranking.

use anyhow::Result;
use serde::Serialize;

use super::columns::Telling;
use super::csv::{Csv, or_empty};
use super::document::{RunResult, cpus_in_words};
use super::figure::Figures;
use super::profile::PROFILE;
use super::reasons::reasons;
use super::result_rows::{Further, result_rows};
use super::table::{Table, WIDTH};
use super::waits::{most_waited_for, percent, wait_share};

/// The version of the format.
pub(crate) const COMPARE_SCHEMA: &str = "freehold.compare/1";

/// One workload on several designs, on one machine or two.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    /// The contestant that the ratios refer to.
    baseline: String,
    /// The setting by which a design can be several contestants.
    #[serde(skip_serializing_if = "Option::is_none")]
    varied: Option<String>,
    results: Vec<RunResult>,
    /// Machine by machine, the fastest design first.
    ranking: Vec<Ranked>,
}

/// The place of one contestant on one machine.
#[derive(Debug, Serialize)]
struct Ranked {
    /// The design, and the setting that makes it another contestant.
    contestant: String,
    design: String,
    machine: String,
    per_second: f64,
    /// A multiple of the baseline's `per_second`.
    ratio: f64,
    reasons: Vec<String>,
}

impl Comparison {
    /// Compares results, of which each machine has one for each contestant: a design, with one
    /// value of the varied setting. Ratios refer to the first of design `baseline`, or to the first
    /// of all. `telling` are the workload's numbers to mention.
    pub(crate) fn new(
        results: Vec<RunResult>,
        baseline: String,
        varied: Option<String>,
        telling: &[Telling],
    ) -> Self {
        let name = |result: &RunResult| contestant(result, varied.as_deref());
        let first = results.iter().find(|result| result.design == baseline);
        let baseline = first.or(results.first()).map(name).unwrap_or_default();
        let mut ranking = Vec::new();
        for machine in by_machine(&results) {
            let of_baseline = machine.iter().find(|result| name(result) == baseline);
            let of_baseline =
                of_baseline.expect("what runs on the host runs on simulated machines");
            let mut sorted = machine.to_vec();
            sorted.sort_by(|one, other| other.work.per_second.total_cmp(&one.work.per_second));
            ranking.extend(sorted.into_iter().map(|result| Ranked {
                contestant: name(result),
                design: result.design.clone(),
                machine: result.machine.clone(),
                per_second: result.work.per_second,
                ratio: result.work.per_second / of_baseline.work.per_second,
                reasons: reasons(
                    result,
                    Some(*of_baseline).filter(|_| name(result) != baseline),
                    telling,
                ),
            }));
        }
        Comparison { schema: COMPARE_SCHEMA, baseline, varied, results, ranking }
    }

    /// The table, `notes` below it, and the rankings.
    pub(crate) fn text(&self, notes: &[String]) -> String {
        let machines = by_machine(&self.results);
        let mut lines = vec![self.table(&machines).to_string()];
        let kinds: Vec<_> =
            machines.iter().map(|of| format!("{}: {}.", of[0].machine, kind(of[0]))).collect();
        let mut legend = format!("{} ratio: to {}.", kinds.join(" "), self.baseline);
        if machines.iter().any(|results| results[0].simulated.is_some()) {
            legend += " lock wait: share of CPU time outside barriers.";
        }
        lines.push(paragraph("", &legend));
        lines.extend(notes.iter().map(|note| paragraph("", note)));
        for results in machines {
            let machine = &results[0].machine;
            lines.push(format!("\nRanking on {machine}, {}:", kind(results[0])));
            let ranked = self.ranking.iter().filter(|ranked| ranked.machine == *machine);
            for (place, ranked) in ranked.enumerate() {
                let first = ranked.reasons.first().map_or("", String::as_str);
                let text = format!("{}: {first}", self.standing(ranked));
                lines.push(paragraph(&format!("{}. ", place + 1), &text));
                lines.extend(ranked.reasons.iter().skip(1).map(|text| paragraph("   - ", text)));
            }
        }
        lines.join("\n")
    }

    /// The results, in the order in which they ran.
    pub(super) fn results(&self) -> &[RunResult] {
        &self.results
    }

    /// For each machine, a heading, and its ranking with the reasons.
    pub(super) fn rankings(&self) -> Vec<(String, Vec<String>)> {
        let of_machine = |results: Vec<&RunResult>| {
            let machine = &results[0].machine;
            let ranked = self.ranking.iter().filter(|ranked| ranked.machine == *machine);
            let lines = ranked.enumerate().map(|(place, ranked)| {
                format!("{}. {}: {}.", place + 1, self.standing(ranked), ranked.reasons.join("; "))
            });
            (format!("Ranking on {machine}, {}", kind(results[0])), lines.collect())
        };
        by_machine(&self.results).into_iter().map(of_machine).collect()
    }

    /// The results with their ratios to the baseline.
    pub(crate) fn csv(&self, figures: Figures) -> Result<Csv> {
        let contestant = |result: &RunResult| self.contestant(result);
        let ratio = |result: &RunResult| or_empty(self.ranked(result).map(|ranked| ranked.ratio));
        let further = [
            Further { name: "contestant", of: &contestant },
            Further { name: "ratio_to_baseline", of: &ratio },
        ];
        result_rows(&self.results, figures, &further)
    }

    /// The place of a result.
    fn ranked(&self, result: &RunResult) -> Option<&Ranked> {
        let own = self.contestant(result);
        self.ranking.iter().find(|of| of.contestant == own && of.machine == result.machine)
    }

    /// A design compared with the baseline.
    fn standing(&self, ranked: &Ranked) -> String {
        match ranked.contestant == self.baseline {
            true => ranked.contestant.clone(),
            false => format!("{}, {:.2}x {}", ranked.contestant, ranked.ratio, self.baseline),
        }
    }

    fn contestant(&self, result: &RunResult) -> String {
        contestant(result, self.varied.as_deref())
    }

    /// A row for each design, with columns for each machine.
    fn table(&self, machines: &[Vec<&RunResult>]) -> Table {
        let mut headings = vec!["design".to_owned()];
        for machine in machines {
            headings.push(format!("{} {}/s", machine[0].machine, machine[0].work.unit));
            headings.push("ratio".to_owned());
            if machine[0].simulated.is_some() {
                headings.extend(["lock wait", "most of it"].map(str::to_owned));
            }
        }
        let mut table = Table::new(headings).numbers_from(1);
        // A contestant missing somewhere is on the machine with the most contestants.
        let all = machines.iter().max_by_key(|results| results.len());
        for own in all.into_iter().flatten().map(|result| self.contestant(result)) {
            let mut row = vec![own.clone()];
            for machine in machines {
                let Some(result) = machine.iter().find(|of| self.contestant(of) == own) else {
                    let columns = if machine[0].simulated.is_some() { 4 } else { 2 };
                    row.extend(std::iter::repeat_n("-".to_owned(), columns));
                    continue;
                };
                let ratio = self.ranked(result).map_or(f64::NAN, |ranked| ranked.ratio);
                row.push(format!("{:.0}", result.work.per_second));
                row.push(format!("{ratio:.2}x"));
                if let Some(simulated) = &result.simulated {
                    row.push(percent(wait_share(simulated)));
                    row.push(most_waited_for(simulated));
                }
            }
            table.row(row);
        }
        table
    }
}

/// The design of a result and the setting that makes it another contestant.
fn contestant(result: &RunResult, varied: Option<&str>) -> String {
    let value = varied.and_then(|name| Some((name, result.settings.get(name)?)));
    value.map_or_else(
        || result.design.clone(),
        |(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{} {name}={text}", result.design)
        },
    )
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

/// The kind of a machine's figures.
fn kind(result: &RunResult) -> String {
    let cpus = cpus_in_words(result.cpus as usize);
    let origin = result.origin();
    match result.simulated {
        Some(_) => format!("{origin} with {cpus}, a prediction"),
        None => format!("{origin} on this host with {cpus} and profile {PROFILE}"),
    }
}

/// Text that fits the width, indented below its bullet.
fn paragraph(bullet: &str, text: &str) -> String {
    let indent = " ".repeat(bullet.len());
    let options = textwrap::Options::new(usize::from(WIDTH))
        .initial_indent(bullet)
        .subsequent_indent(&indent)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    // A number stays with its unit: lines are broken only at spaces.
    let units = [" %", " ns", " µs", " ms"];
    let glued = units
        .iter()
        .fold(text.to_owned(), |text, unit| text.replace(unit, &unit.replace(' ', "\u{a0}")));
    textwrap::fill(&glued, options).replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::by_hand::{measured, simulated};

    /// Two machines that disagree on which design is faster.
    fn comparison() -> Comparison {
        let waits = [("hotplug_lock", 0.998), ("hotplug_lock.other", 0.998)];
        let results = vec![
            measured("zone-lock", 20_000_000.0, 0.01),
            measured("merge-ahead", 10_000_000.0, 0.01),
            simulated("zone-lock", 1_000_000_000.0, &waits),
            simulated("merge-ahead", 2_500_000_000.0, &waits),
        ];
        Comparison::new(results, "zone-lock".to_owned(), None, &[])
    }

    #[test]
    fn each_machine_ranks_its_own_results() {
        let places: Vec<_> = comparison()
            .ranking
            .into_iter()
            .map(|ranked| (ranked.machine, ranked.design, ranked.ratio))
            .collect();
        let place = |machine: &str, design: &str, ratio| (machine.into(), design.into(), ratio);
        assert_eq!(
            places,
            [
                place("host", "zone-lock", 1.0),
                place("host", "merge-ahead", 0.5),
                place("skylake-2s", "merge-ahead", 2.5),
                place("skylake-2s", "zone-lock", 1.0),
            ]
        );
    }

    #[test]
    fn the_text_has_a_row_and_two_places_for_each_design() {
        let text = comparison().text(&["Some note.".to_owned()]);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let lines: Vec<_> = text.lines().collect();
        let row = lines.iter().find(|line| line.starts_with(" merge-ahead")).unwrap();
        let row: Vec<_> = row.split_whitespace().collect();
        let cells = ["merge-ahead", "10000000", "0.50x", "2500000000", "2.50x", "99.8", "%"];
        assert_eq!(row[..7], cells, "{text}");
        let ranked: Vec<_> = lines.iter().filter(|line| line.contains(". merge-ahead, ")).collect();
        assert!(ranked[0].starts_with("2. merge-ahead, 0.50x zone-lock: each CPU does"), "{text}");
        assert!(ranked[1].starts_with("1. merge-ahead, 2.50x zone-lock: waits 99.8 %"), "{text}");
        assert!(text.contains("measured on this host") && text.contains("a prediction"), "{text}");
        assert!(lines.contains(&"Some note."), "{text}");
    }

    #[test]
    fn one_design_with_two_settings_is_two_contestants() {
        let with = |value: &str, per_second| {
            let mut result = measured("zone-lock", per_second, 0.01);
            result.settings.insert("pcp".to_owned(), value.into());
            result
        };
        let results = vec![with("auto", 2e6), with("fixed", 1e6)];
        let varied = Some("pcp".to_owned());
        let comparison = Comparison::new(results, "zone-lock".to_owned(), varied, &[]);
        let names = comparison.ranking.iter().map(|ranked| (&*ranked.contestant, ranked.ratio));
        assert!(names.eq([("zone-lock pcp=auto", 1.0), ("zone-lock pcp=fixed", 0.5)]));
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        // Room for the number, but not for its unit.
        let words = "word ".repeat(18);
        for unit in ["%", "ns", "µs", "ms"] {
            let text = paragraph("1. ", &format!("{words}12.567 {unit}"));
            let last = text.lines().last().unwrap();
            assert_eq!(last, format!("   12.567 {unit}"), "{text}");
        }
    }
}

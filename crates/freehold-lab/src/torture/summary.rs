//! What a run has done: by kind and design, as a table, a document, and a line of a record.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use super::batch::Batch;
use super::child::End;
use super::finding::Finding;
use crate::catalog::name_of;
use crate::cli::{TortureArgs, TortureKind, TortureProfile};
use crate::designs::DesignName;
use crate::report::out;
use crate::report::table::Table;

const SCHEMA: &str = "freehold.torture/1";

/// What was done of one kind on one design.
#[derive(Debug, Serialize)]
struct Line {
    kind: TortureKind,
    design: DesignName,
    seeds: u64,
    findings: u64,
    /// The sums of what `freehold check` counted.
    counts: Map<String, Value>,
}

/// What a run has done.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    schema: &'static str,
    version: &'static str,
    profile: TortureProfile,
    /// When it began, in seconds since 1970.
    began_unix_s: u64,
    /// How long it has taken.
    seconds: f64,
    jobs: usize,
    first_seed: u64,
    seeds: u64,
    /// Operations on allocators and LRUs.
    operations: u64,
    lines: Vec<Line>,
    findings: Vec<Finding>,
    #[serde(skip)]
    began: Instant,
}

impl Summary {
    pub(super) fn new(args: &TortureArgs, first_seed: u64, jobs: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Summary {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            profile: args.profile,
            began_unix_s: now.as_secs(),
            seconds: 0.0,
            jobs,
            first_seed,
            seeds: 0,
            operations: 0,
            lines: Vec::new(),
            findings: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Adds what became of a batch.
    pub(super) fn add(&mut self, batch: &Batch, end: &End, finding: Option<Finding>) {
        self.seconds = self.began.elapsed().as_secs_f64();
        let Batch { kind, design, .. } = *batch;
        let place = self.lines.iter().position(|line| (line.kind, line.design) == (kind, design));
        let place = place.unwrap_or_else(|| {
            let counts = Map::new();
            self.lines.push(Line { kind, design, seeds: 0, findings: 0, counts });
            self.lines.len() - 1
        });
        let line = &mut self.lines[place];
        if let End::Passed(document) = end {
            line.seeds += batch.seeds;
            add_counts(&mut line.counts, document);
        }
        if let Some(finding) = finding {
            line.findings += 1;
            self.findings.push(finding);
        }
        self.seeds = self.lines.iter().map(|line| line.seeds).sum();
        self.operations = self.lines.iter().map(Line::operations).sum();
    }

    /// How far it is, in a line.
    pub(super) fn line(&self) -> String {
        let Summary { seeds, operations, findings, .. } = self;
        format!("s: {seeds} seeds, {operations} operations, {} findings", findings.len())
    }

    pub(super) fn findings(&self) -> usize {
        self.findings.len()
    }

    /// Prints what was done, and what was found.
    pub(super) fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            out!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        let mut lines: Vec<_> = self.lines.iter().collect();
        lines.sort_by_key(|line| (line.kind as u8, line.design as u8));
        let mut table = Table::new(["kind", "design", "seeds", "operations", "findings"]);
        for line in lines {
            table.row([
                name_of(&line.kind),
                name_of(&line.design),
                line.seeds.to_string(),
                line.operations().to_string(),
                line.findings.to_string(),
            ]);
        }
        out!("{}", table.numbers_from(2));
        let Summary { seconds, jobs, first_seed, seeds, operations, findings, .. } = self;
        out!(
            "\n{seeds} seeds from {first_seed}, {operations} operations, {} findings, in \
             {seconds:.0} s, {jobs} at a time.",
            findings.len()
        );
        for Finding { kind, what, replay, case, .. } in findings {
            out!("\n{kind}: {what}");
            // What a check says of a seed that failed ends with the command.
            if !what.contains("replay: ") {
                out!("replay: {replay}");
            }
            if let Some(case) = case {
                out!("made small: freehold check --case {}", case.display());
            }
        }
        Ok(())
    }

    /// Appends it to a file as one line.
    pub(super) fn append_to(&self, path: &Path) -> Result<()> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        let append =
            || OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes());
        append().with_context(|| path.display().to_string())
    }
}

impl Line {
    /// Operations, or of runs in which a CPU stops the calls that came back.
    fn operations(&self) -> u64 {
        let count = |name: &str| self.counts.get(name).and_then(Value::as_u64);
        count("operations").or(count("served")).unwrap_or(0)
    }
}

/// Adds the counts of a document, by name.
fn add_counts(counts: &mut Map<String, Value>, document: &Value) {
    for (name, value) in document.as_object().into_iter().flatten() {
        let Some(count) = value.as_u64().filter(|_| name != "first_seed" && name != "seeds") else {
            continue;
        };
        let before = counts.get(name).and_then(Value::as_u64).unwrap_or(0);
        // The most of all, and not the sum.
        let sum = if name.ends_with("_max") { before.max(count) } else { before + count };
        counts.insert(name.clone(), sum.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_are_added_by_name_and_maxima_are_not() {
        let mut counts = Map::new();
        let documents = [
            json!({"schema": "freehold.check/1", "seeds": 3, "first_seed": 7, "moves": 2}),
            json!({"moves": 5, "threads_max": 4}),
            json!({"threads_max": 3}),
        ];
        documents.iter().for_each(|document| add_counts(&mut counts, document));
        assert_eq!(Value::Object(counts), json!({"moves": 7, "threads_max": 4}));
    }
}

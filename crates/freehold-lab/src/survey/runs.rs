//! Races and workloads on this machine, and the same on simulated ones: by commands of this
//! program, as anybody would type them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use freehold::CpuId;
use freehold_host::{allowed_cpus, bind_current_thread};
use serde::Serialize;
use serde_json::Value;

use super::places::Place;
use crate::child;
use crate::signals::Interrupted;

/// The designs whose figures are compared: the baseline, and the project's own.
pub(super) const BASELINE: &str = "zone-lock";
pub(super) const OWN: &str = "freehold";

/// What races and workloads there are, in the words of the commands.
const BENCHES: [&str; 6] = ["pair", "fill", "random", "remote", "bulk", "huge"];
const WORKLOADS: [&str; 2] = ["page-fault", "cross-cpu"];

/// No single command takes as long.
const TIME_MAX: Duration = Duration::from_secs(1800);

/// What one command found: of a race ns a pair, of a workload its rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) design: String,
    pub(super) cpus: u32,
    pub(super) figure: f64,
}

/// Runs the commands.
pub(super) struct Runner<'a> {
    pub(super) places: &'a [Place],
    pub(super) steps: &'a [u32],
    pub(super) is_quick: bool,
    pub(super) stop: &'a AtomicBool,
    pub(super) say: &'a dyn Fn(&str),
}

impl Runner<'_> {
    /// Races and workloads on this machine.
    pub(super) fn measured(&self) -> Result<Vec<Row>> {
        let (mut of_race, mut of_run) = (&[][..], &[][..]);
        if self.is_quick {
            of_race = &["--rounds", "1", "--sample-ms", "0"];
            // Longer than a turn of another process, or there may be nothing in a sample.
            of_run = &["--set", "samples=1", "--set", "sample_ms=50"];
        }
        let at = |&cpus: &u32| {
            let some: Vec<_> = self.places[..cpus as usize].iter().map(|of| of.cpu).collect();
            self.rows(cpus, of_race, |_| of_run.to_vec(), |words| self.on(&some, words))
        };
        self.steps.iter().map(at).collect::<Result<Vec<_>>>().map(|rows| rows.concat())
    }

    /// The same on a simulated machine: a preset, or the file of one.
    pub(super) fn simulated(&self, machine: &Path, cpus_max: u32) -> Result<Vec<Row>> {
        let machine = machine.display().to_string();
        let of_race = ["--machine", &machine];
        let of_run = |workload: &str| match workload {
            "page-fault" => {
                // On this machine, no trap is part of a fault, and pages are on no LRU list.
                let set = ["--set", "fault=touch", "--set", "lru=off", "--set", "node_memory=1/16"];
                [&of_race[..], &set].concat()
            }
            _ => of_race.to_vec(),
        };
        let at = |&cpus: &u32| self.rows(cpus, &of_race, of_run, |words| self.document(words));
        let steps = self.steps.iter().filter(|&&cpus| cpus <= cpus_max);
        steps.map(at).collect::<Result<Vec<_>>>().map(|rows| rows.concat())
    }

    /// Races and workloads on so many CPUs: by their commands, to which each machine adds words of
    /// its own.
    fn rows<'w>(
        &self,
        cpus: u32,
        of_race: &[&str],
        of_run: impl Fn(&str) -> Vec<&'w str>,
        document: impl Fn(&[String]) -> Result<Value>,
    ) -> Result<Vec<Row>> {
        let with = |mut words: Vec<String>, more: &[&str]| {
            words.extend(more.iter().map(|&word| word.to_owned()));
            document(&words)
        };
        let mut rows = raced(&with(self.race(cpus), of_race)?);
        for workload in self.workloads(cpus) {
            let document = with(self.run(workload, cpus), &of_run(workload))?;
            rows.extend(ran(workload, &document));
        }
        Ok(rows)
    }

    /// The command of a race, in words: the same sets in as much memory wherever it runs.
    fn race(&self, cpus: u32) -> Vec<String> {
        let frames = if self.is_quick { "1024" } else { "4096" };
        let (count, designs) = (cpus.to_string(), format!("{BASELINE},{OWN}"));
        let options = ["--contestants", &designs, "--frames", frames, "--memory", "2"];
        let benches = BENCHES.into_iter().take(if self.is_quick { 1 } else { BENCHES.len() });
        let benches = benches.filter(|bench| runs_on(bench, cpus));
        let words = ["race"].into_iter().chain(benches).chain(options).chain(["--cpus", &count]);
        words.map(str::to_owned).collect()
    }

    /// The workloads that can be run on so many CPUs.
    fn workloads(&self, cpus: u32) -> impl Iterator<Item = &'static str> {
        let some = WORKLOADS.into_iter().take(if self.is_quick { 1 } else { WORKLOADS.len() });
        some.filter(move |workload| runs_on(workload, cpus))
    }

    /// The command of a workload, in words.
    fn run(&self, workload: &str, cpus: u32) -> Vec<String> {
        let (cpus, designs) = (cpus.to_string(), format!("{BASELINE},{OWN}"));
        let size = match (workload, self.is_quick) {
            ("page-fault", false) => "task_bytes=16MiB",
            ("page-fault", true) => "task_bytes=1MiB",
            _ => "frames=100000",
        };
        let words = ["run", workload, "--cpus", &cpus, "--design", &designs, "--set", size];
        words.map(str::to_owned).to_vec()
    }

    /// The document of a command whose threads run on these CPUs alone.
    fn on(&self, cpus: &[CpuId], words: &[String]) -> Result<Value> {
        let all = allowed_cpus()?;
        bind_current_thread(cpus)?;
        let document = self.document(words);
        bind_current_thread(&all)?;
        document
    }

    /// The document that a command prints.
    fn document(&self, words: &[String]) -> Result<Value> {
        (self.say)(&words.join(" "));
        let typed = || format!("freehold {} --json", words.join(" "));
        let mut command = Command::new(std::env::current_exe().context("the program has no path")?);
        command.args(words).arg("--json");
        let Some(output) = child::output(&mut command, TIME_MAX, self.stop).with_context(typed)?
        else {
            return Err(Interrupted.into());
        };
        if !output.status.success() {
            bail!("{}: {}", typed(), String::from_utf8_lossy(&output.stderr).trim_end());
        }
        serde_json::from_slice(&output.stdout).with_context(typed)
    }
}

/// Whether a race or a workload can be run on so many CPUs: some hand frames to another one.
fn runs_on(name: &str, cpus: u32) -> bool {
    cpus > 1 || !matches!(name, "remote" | "cross-cpu")
}

/// The rows of a race's document, whether it was measured or simulated.
fn raced(document: &Value) -> Vec<Row> {
    let row = |result: &Value| {
        let own = &result["workload_specific"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Row {
            name: text(&result["bench"]).or_else(|| text(&own["options"]["bench"]))?,
            design: text(&result["contestant"]).or_else(|| text(&result["design"]))?,
            cpus: result["threads"].as_u64().or_else(|| result["cpus"].as_u64())? as u32,
            figure: result["pair_ns"].as_f64().or_else(|| own["pair_ns"].as_f64())?,
        })
    };
    results(document).filter_map(row).collect()
}

/// The rows of a workload's document.
fn ran(workload: &str, document: &Value) -> Vec<Row> {
    let row = |result: &Value| {
        Some(Row {
            name: workload.to_owned(),
            design: result["design"].as_str()?.to_owned(),
            cpus: result["cpus"].as_u64()? as u32,
            figure: result["work"]["per_second"].as_f64()?,
        })
    };
    results(document).filter_map(row).collect()
}

fn results(document: &Value) -> impl Iterator<Item = &Value> {
    document["results"].as_array().into_iter().flatten()
}

/// What was found of a race or a workload.
pub(super) fn figure(rows: &[Row], name: &str, design: &str, cpus: u32) -> Option<f64> {
    let mut all = rows.iter();
    all.find(|row| row.name == name && row.design == design && row.cpus == cpus)
        .map(|row| row.figure)
}

/// How many times as good `OWN` is as `BASELINE`: for times, by how much shorter.
pub(super) fn advantage(rows: &[Row], name: &str, cpus: u32) -> Option<f64> {
    let (baseline, own) = (figure(rows, name, BASELINE, cpus)?, figure(rows, name, OWN, cpus)?);
    let ratio = if BENCHES.contains(&name) { baseline / own } else { own / baseline };
    ratio.is_finite().then_some(ratio)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_of_both_kinds_of_races_become_the_same_rows() {
        let measured = json!({ "results": [
            { "bench": "fill", "contestant": "zone-lock", "threads": 2, "pair_ns": 50.0 },
            { "bench": "fill", "contestant": "freehold", "threads": 2, "pair_ns": 10.0 },
            { "bench": "fill", "contestant": "failed", "threads": 2 },
        ]});
        let of = |design, pair_ns| {
            let own = json!({ "pair_ns": pair_ns, "options": { "bench": "fill" } });
            json!({ "design": design, "cpus": 2, "workload_specific": own })
        };
        let simulated = json!({ "results": [of("zone-lock", 50.0), of("freehold", 10.0)] });
        assert_eq!(raced(&measured), raced(&simulated));
        assert_eq!(advantage(&raced(&measured), "fill", 2), Some(5.0));
        assert_eq!(advantage(&raced(&measured), "fill", 4), None);
    }

    #[test]
    fn a_rate_is_better_if_it_is_higher() {
        let of =
            |design, rate| json!({ "design": design, "cpus": 1, "work": { "per_second": rate } });
        let rows =
            ran("page-fault", &json!({ "results": [of("zone-lock", 2.0), of("freehold", 3.0)] }));
        assert_eq!(advantage(&rows, "page-fault", 1), Some(1.5));
    }
}

//! `freehold stat`: the statistics of an allocator, in the formats of `/proc`, from a workload that
//! it runs or from stored results.

use std::io::Read;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use freehold_host::Snapshot;
use serde::Deserialize;

use crate::catalog::{WorkloadName, name_of};
use crate::cli::{StatArgs, View};
use crate::error::{UsageError, refuse};
use crate::report::document::{RunResult, SCHEMA, cpus_in_words};
use crate::report::out;
use crate::run::results_of;

/// The start of a document.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// What is read of the document of `freehold run --json`.
#[derive(Deserialize)]
struct Kept {
    results: Vec<KeptResult>,
}

#[derive(Debug, Deserialize)]
struct KeptResult {
    workload: String,
    design: String,
    machine: String,
    cpus: u32,
    state: Snapshot,
}

impl From<RunResult> for KeptResult {
    fn from(result: RunResult) -> Self {
        let RunResult { workload, design, machine, cpus, state, .. } = result;
        let state = state.expect("what was run has the state of its allocator");
        KeptResult { workload, design, machine, cpus, state }
    }
}

impl KeptResult {
    /// Refuses names that contain terminal control sequences, or that Prometheus would not accept.
    fn check(&self) -> Result<()> {
        let zones = self.state.zones.iter().map(|zone| &zone.kind);
        let mut names = [&self.workload, &self.design, &self.machine].into_iter().chain(zones);
        if let Some(name) = names.find(|name| name.contains(char::is_control)) {
            bail!("the name {name:?} has control characters: run it again");
        }
        let is_plain = |name: &str| {
            let mut characters = name.chars();
            !name.is_empty() && characters.all(|of| of.is_ascii_alphanumeric() || "_:".contains(of))
        };
        if let Some(name) = self.state.events.keys().find(|name| !is_plain(name)) {
            bail!("the event {name:?} is not of letters, digits, `_` and `:`: run it again");
        }
        Ok(())
    }

    fn design_and_cpus(&self) -> String {
        format!("{} with {}", self.design, cpus_in_words(self.cpus as usize))
    }
}

/// Prints the state of the allocator of every result.
pub(crate) fn stat(args: &StatArgs) -> Result<()> {
    let prometheus = args.show.contains(&View::Prometheus);
    if prometheus && args.show.len() > 1 {
        return refuse("--show prometheus: choose nothing else to show with it");
    }
    let results: Vec<KeptResult> = match WorkloadName::from_str(&args.source, false) {
        Ok(workload) => {
            let results = results_of(workload, &args.cells)?;
            results.into_iter().map(KeptResult::from).collect()
        }
        Err(_) => kept(args)?,
    };
    if prometheus && results.len() > 1 {
        let there: Vec<_> = results.iter().map(KeptResult::design_and_cpus).collect();
        return refuse(format!(
            "--show prometheus: of several results ({}) choose one design with --design, which is \
             run with one number of CPUs",
            there.join(", "),
        ));
    }
    for result in results {
        let KeptResult { workload, design, machine, cpus, state } = result;
        if prometheus {
            print(&state.prometheus())?;
            continue;
        }
        let cpus = cpus_in_words(cpus as usize);
        out!("{design}, {workload} on {machine} with {cpus}, before its tasks freed everything:");
        for view in &args.show {
            out!("\n{}", name_of(view));
            print(&match view {
                View::Buddyinfo => state.buddyinfo(),
                View::Zoneinfo => state.zoneinfo(),
                View::Pagetypeinfo => state.pagetypeinfo(),
                View::Vmstat => state.vmstat(),
                View::Prometheus => state.prometheus(),
            })?;
        }
    }
    Ok(())
}

/// Prints text that ends with a line.
fn print(text: &str) -> Result<()> {
    out!("{}", text.trim_end_matches('\n'));
    Ok(())
}

/// The results of a document that `--design` selects.
fn kept(args: &StatArgs) -> Result<Vec<KeptResult>> {
    let source = &args.source;
    if let Some(name) = args.cells.given_for_a_run() {
        return refuse(format!("{source}: the results are in the document already: omit {name}"));
    }
    let text = match source.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("standard input")?;
            text
        }
        path => std::fs::read_to_string(path).map_err(|error| {
            UsageError(format!("{path} is no workload, and cannot be read as a file: {error}"))
        })?,
    };
    let results = read(&text).with_context(|| source.clone())?;
    if args.cells.design.is_empty() {
        return Ok(results);
    }
    let designs: Vec<_> = args.cells.designs().iter().map(name_of).collect();
    let (chosen, others): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|result| designs.contains(&result.design));
    if chosen.is_empty() {
        let mut there: Vec<_> = others.into_iter().map(|result| result.design).collect();
        there.dedup();
        let (designs, there) = (designs.join(", "), there.join(", "));
        let message = format!("--design: {source} has no result of {designs}; there are {there}");
        return refuse(message);
    }
    Ok(chosen)
}

/// The results of a document with this text.
fn read(text: &str) -> Result<Vec<KeptResult>> {
    let Head { schema } =
        serde_json::from_str(text).context("this is no document of freehold run --json")?;
    if schema != SCHEMA {
        bail!("its schema is {schema:?}: give a document of freehold run --json, {SCHEMA:?}");
    }
    let Kept { results } = serde_json::from_str(text)
        .context("results are not in the current format of freehold run --json: run it again")?;
    if results.is_empty() {
        bail!("the document has no results: run it again");
    }
    for (index, result) in results.iter().enumerate() {
        result.check().with_context(|| format!("results[{index}]"))?;
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn document() -> Value {
        let zone = json!({
            "node": 0, "kind": "Normal", "managed": 1, "free": 1, "per_cpu": 0, "isolated": 0,
            "marks": [0, 0, 0], "free_blocks": [1], "free_by_type": [[0], [1], [0]],
            "pageblocks": [0, 1, 0], "claims": 0, "steals": 0, "numa": {},
        });
        let state = json!({"zones": [zone], "events": {"pgalloc": 1}});
        let result = json!({
            "workload": "bulk", "design": "freehold", "machine": "host", "cpus": 1, "state": state,
        });
        json!({"schema": SCHEMA, "results": [result]})
    }

    /// The error for the document with `value` at `place`.
    fn refused(place: &str, value: Value) -> String {
        let mut document = document();
        *document.pointer_mut(place).expect("the document has the place") = value;
        format!("{:#}", read(&document.to_string()).expect_err(place))
    }

    #[test]
    fn a_document_is_read_if_it_is_one() {
        let results = read(&document().to_string()).unwrap();
        assert_eq!(results[0].design_and_cpus(), "freehold with 1 CPU");
        let other = refused("/schema", json!("freehold.race/1"));
        assert!(other.contains("its schema is \"freehold.race/1\": give a document of"), "{other}");
        let none = refused("/results", json!([]));
        assert_eq!(none, "the document has no results: run it again");
        let stateless = refused("/results/0", json!({"workload": "bulk"}));
        assert!(
            stateless.contains("run it again: missing field `design` at line 1"),
            "{stateless}"
        );
        for text in ["", "{}", "[1]"] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.starts_with("this is no document of freehold run --json: "), "{error}");
        }
    }

    #[test]
    fn names_that_would_do_harm_are_refused() {
        for place in ["workload", "design", "machine", "state/zones/0/kind"] {
            let error = refused(&format!("/results/0/{place}"), json!("a\u{1b}[2Jb"));
            let right =
                r#"results[0]: the name "a\u{1b}[2Jb" has control characters: run it again"#;
            assert_eq!(error, right, "{place}");
        }
        for name in ["", "a b", "a\nb", "a{b}", "\u{e4}"] {
            let error = refused("/results/0/state/events", json!({name: 1}));
            assert!(
                error.starts_with(&format!("results[0]: the event {name:?} is not")),
                "{error}"
            );
        }
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;

        /// What is read can be shown, in all formats.
        fn check(text: &str) {
            let read = read(text);
            if let Err(error) = &read {
                assert!(!format!("{error:#}").contains('\u{1b}'), "{error:?}");
            }
            for result in read.unwrap_or_default() {
                let state = &result.state;
                let proc = [state.buddyinfo(), state.zoneinfo(), state.pagetypeinfo()];
                let all = [proc.concat(), state.vmstat(), state.prometheus()].concat();
                assert!(!all.contains('\u{1b}'));
                let copy = serde_json::to_string(state).expect("it is JSON");
                assert_eq!(&serde_json::from_str::<Snapshot>(&copy).expect("it is its own"), state);
            }
        }

        #[test]
        fn any_document_is_shown_or_refused() {
            let check = |bytes: &[u8]| check(&String::from_utf8_lossy(bytes));
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(check);
        }

        /// A document whose zone is any.
        #[test]
        fn any_zone_is_shown_or_refused() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let mut document = document();
                    let Ok(zone) = serde_json::from_slice::<Value>(bytes) else { return };
                    document["results"][0]["state"]["zones"][0] = zone;
                    check(&document.to_string());
                },
            );
        }
    }
}

//! `freehold stat`: what an allocator knows of itself, in the manner of `/proc`, from a workload
//! that is run for it or from results that were kept.

use std::io::Read;

use anyhow::{Context, Result};
use clap::ValueEnum;
use freehold_host::Snapshot;
use serde::Deserialize;

use crate::UsageError;
use crate::catalog::{WorkloadName, name_of};
use crate::cli::{StatArgs, View};
use crate::report::document::{RunResult, cpus_in_words};
use crate::report::out;
use crate::run::results_of;

/// What is read of the document of `freehold run --json`.
#[derive(Deserialize)]
struct Kept {
    results: Vec<KeptResult>,
}

#[derive(Deserialize)]
struct KeptResult {
    workload: String,
    design: String,
    machine: String,
    cpus: u32,
    state: Option<Snapshot>,
}

impl From<RunResult> for KeptResult {
    fn from(result: RunResult) -> Self {
        let RunResult { workload, design, machine, cpus, state, .. } = result;
        KeptResult { workload, design, machine, cpus, state }
    }
}

/// Prints the state of the allocator of every result.
pub(crate) fn stat(args: &StatArgs) -> Result<()> {
    let results = match WorkloadName::from_str(&args.source, false) {
        Ok(workload) => {
            let results = results_of(workload, &args.cells)?;
            results.into_iter().map(KeptResult::from).collect()
        }
        Err(_) => kept(args)?,
    };
    let prometheus = args.show.contains(&View::Prometheus);
    if prometheus && (results.len() > 1 || args.show.len() > 1) {
        let message = "--show prometheus: choose one design, one number of CPUs and nothing else";
        return Err(UsageError(message.to_owned()).into());
    }
    for result in results {
        let KeptResult { workload, design, machine, cpus, state } = result;
        let state = state.context("the document has no state of an allocator: run it again")?;
        if prometheus {
            print(&state.prometheus())?;
            continue;
        }
        let cpus = cpus_in_words(cpus as usize);
        out!("{design}, {workload} on {machine} with {cpus}, before its tasks gave all back:");
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

/// The results of a document.
fn kept(args: &StatArgs) -> Result<Vec<KeptResult>> {
    let source = &args.source;
    if args.cells.are_given() {
        let message = format!("{source}: what was run is in the document already");
        return Err(UsageError(message).into());
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
    let kept: Kept = serde_json::from_str(&text)
        .with_context(|| format!("{source} is no document of freehold run --json"))?;
    Ok(kept.results)
}

//! `freehold predict`: what the simulated machines say of what others have measured and published.
//!
//! The table of published results, `published.toml`, names for each its source, machine and kernel,
//! and the run that predicts it. Nothing of the machines or designs follows from it.

mod item;
mod page;
mod verdict;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::catalog::sim_settings;
use crate::cli::{PredictArgs, RunArgs};
use crate::error::refuse;
use crate::machine::Machine;
use crate::matrix::{Matrix, SimCells, tables};
use crate::report::csv::{Csv, or_empty};
use crate::report::out;
use crate::report::progress::Progress;
use crate::settings::Assignments;
use crate::sim::parallel::run_all;
use item::{Item, Published, distinct};
use verdict::{Outcome, outcomes};

/// The published results.
const PUBLISHED: &str = include_str!("published.toml");

/// The version of the JSON document.
const SCHEMA: &str = "freehold.predict/1";

/// Runs what predicts the chosen results, and shows both.
pub(crate) fn predict(args: &PredictArgs) -> Result<()> {
    let published = Published::parse(PUBLISHED)?;
    let items = chosen(&published, &args.names)?;
    if args.list {
        for item in items {
            out!("{:24} {}", item.name, item.what);
        }
        return Ok(());
    }
    let runs = distinct(items.iter().flat_map(|item| item.all_runs()));
    let results = run_each(&runs)?;
    let of = |run: &str| {
        let nth = runs.iter().position(|known| *known == run).expect("each of them has run");
        &results[nth]
    };
    let outcomes = items.iter().map(|item| Ok((*item, outcomes(item, of)?)));
    let outcomes: Vec<_> = outcomes.collect::<Result<_>>()?;
    match () {
        () if args.markdown => out!("{}", page::markdown(&published, &outcomes)),
        () if args.json => out!("{}", serde_json::to_string_pretty(&document(&outcomes))?),
        () if args.csv => csv(&document(&outcomes)).print()?,
        () => page::print(&outcomes)?,
    }
    Ok(())
}

/// The results with these names; all if there are none.
fn chosen<'p>(published: &'p Published, names: &[String]) -> Result<Vec<&'p Item>> {
    for name in names {
        if !published.items.iter().any(|item| item.name == *name) {
            return refuse(format!(
                "{name}: there is no such result (see freehold predict --list)"
            ));
        }
    }
    let is_chosen = |item: &&Item| names.is_empty() || names.contains(&item.name);
    Ok(published.items.iter().filter(is_chosen).collect())
}

/// Runs commands side by side, as far as the host has CPUs and memory. Each has one result.
fn run_each(runs: &[String]) -> Result<Vec<Value>> {
    let parsed = runs.iter().map(|run| Ok((run, item::parsed(run)?)));
    let parsed: Vec<_> = parsed.collect::<Result<_>>()?;
    // All are prepared before any runs, so that mistakes show at once.
    let mut job_bytes = 0;
    for (run, args) in &parsed {
        let bytes = on_sim(args, |cells| Ok(cells.host_bytes()));
        job_bytes = job_bytes.max(bytes.with_context(|| (*run).clone())?);
    }
    let progress = Progress::new(parsed.len() as u64);
    progress.say("runs");
    let results = run_all(&parsed, job_bytes, None, |(run, args)| {
        let results = on_sim(args, |cells| cells.run_showing(&Progress::hidden()));
        let result = results.with_context(|| (*run).clone())?.swap_remove(0);
        progress.step();
        Ok(serde_json::to_value(result)?)
    })?;
    progress.finish();
    Ok(results)
}

/// The one cell of a run on a simulated machine, prepared.
fn on_sim<R>(args: &RunArgs, what: impl FnOnce(&SimCells<'_>) -> Result<R>) -> Result<R> {
    let (workload, cells) = (args.workload, &args.cells);
    let designs = cells.designs();
    let Machine::Sim(spec) = cells.machine() else {
        return refuse("predictions need --machine");
    };
    let of_workload = sim_settings(workload);
    let assignments = &Assignments::parse(&cells.settings, &tables(&designs, &of_workload))?;
    let (designs, cpus, seed) = (&designs[..], &cells.cpus[..], cells.seed.unwrap_or(1));
    if designs.len() * cpus.len().max(1) != 1 {
        return refuse("a prediction is one design on so many CPUs");
    }
    what(&Matrix { workload, designs, cpus, seed, assignments }.on_sim(spec)?)
}

fn document(outcomes: &[(&Item, Vec<Outcome<'_>>)]) -> Value {
    let figures = outcomes.iter().flat_map(|(item, of_item)| {
        of_item.iter().map(move |outcome| {
            json!({
                "name": item.name, "source": item.source, "machine": item.machine,
                "kernel": item.kernel, "figure": outcome.figure.what,
                "unit": outcome.figure.unit, "published": outcome.figure.published,
                "predicted": outcome.predicted, "ratio": outcome.ratio(),
                "linux": item.linux, "predicted_as_linux": outcome.as_linux,
                "run": outcome.figure.run(item), "calibrated": item.calibrated,
                "same_machine": item.other_machine.is_none(),
            })
        })
    });
    json!({"schema": SCHEMA, "figures": figures.collect::<Vec<_>>()})
}

/// The figures of the document, but for what is said of the items themselves.
fn csv(document: &Value) -> Csv {
    let columns = [
        "name",
        "source",
        "machine",
        "kernel",
        "figure",
        "unit",
        "published",
        "predicted",
        "ratio",
        "linux",
        "predicted_as_linux",
        "run",
    ];
    let mut table = Csv::new(columns);
    for figure in document["figures"].as_array().into_iter().flatten() {
        table.row(columns.map(|column| match &figure[column] {
            Value::Null => String::new(),
            Value::Number(number) => or_empty(number.as_f64()),
            value => value.as_str().expect("figures have words and numbers").to_owned(),
        }));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every run is one that a user could type: its arguments are checked as before a run.
    #[test]
    fn every_published_result_has_a_source_and_runs_that_could_start() {
        let published = Published::parse(PUBLISHED).unwrap();
        assert!(published.items.len() >= 10);
        for item in &published.items {
            for run in item.all_runs() {
                let args = item::parsed(&run).unwrap();
                on_sim(&args, |_| Ok(())).unwrap_or_else(|error| panic!("{run}: {error:#}"));
            }
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_refused() {
        let published = Published::parse(PUBLISHED).unwrap();
        let error = chosen(&published, &["nothing".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("predict --list"), "{error}");
        assert_eq!(chosen(&published, &[]).unwrap().len(), published.items.len());
    }
}

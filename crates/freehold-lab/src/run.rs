//! `freehold run`: one workload, design by design and CPU count by CPU count.

use anyhow::Result;

use crate::catalog::{WorkloadName, figures, host_settings, name_of, sim_settings, with_workload};
use crate::cli::{CellArgs, Format, RunArgs};
use crate::error::refuse;
use crate::machine::Machine;
use crate::matrix::{Matrix, tables};
use crate::report::document::{Document, RunResult, SCHEMA};
use crate::report::out;
use crate::report::result_rows::result_rows;
use crate::settings::Assignments;
use crate::workload::Workload;
use crate::workloads::page_fault::will_it_scale;

/// Runs all cells and prints the results.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    if args.as_will_it_scale() {
        check_will_it_scale(args)?;
    }
    let results = results_of(args.workload, &args.cells)?;
    let document = Document { schema: SCHEMA, results };
    let results = &document.results;
    let json = || serde_json::to_string_pretty(&document);
    match args.format() {
        Format::Json => out!("{}", json()?),
        Format::Csv if args.as_will_it_scale() => will_it_scale::table(results).print()?,
        Format::Csv => result_rows(results, figures(args.workload), &[])?.print()?,
        Format::Text => {
            with_workload!(args.workload, W => W::print(results, args.cells.machine()))?;
        }
    }
    args.report.of_runs(&name_of(&args.workload), results, json()?)
}

/// Refuses what will-it-scale's table has no place for, before anything runs.
fn check_will_it_scale(args: &RunArgs) -> Result<()> {
    let problem = match () {
        () if args.workload != WorkloadName::PageFault => "only page-fault has this table",
        () if args.cells.designs().len() > 1 => "the table has room for one --design",
        () if !args.cells.cpus.contains(&1) => {
            "the column linear takes a run on one CPU: give several counts, such as --cpus 1,2"
        }
        () => return Ok(()),
    };
    refuse(format!("--csv=will-it-scale: {problem}"))
}

/// Runs all cells.
pub(crate) fn results_of(workload: WorkloadName, args: &CellArgs) -> Result<Vec<RunResult>> {
    let (designs, machine) = (args.designs(), args.machine());
    let of_workload = match machine {
        Machine::Host => host_settings(workload),
        Machine::Sim(_) => sim_settings(workload),
    };
    let assignments = Assignments::parse(&args.settings, &tables(&designs, &of_workload))?;
    let (designs, cpus, assignments) = (&designs, &args.cpus, &assignments);
    let matrix = Matrix { workload, designs, cpus, seed: args.seed.unwrap_or(1), assignments };
    match machine {
        Machine::Host => matrix.on_host()?.run(),
        Machine::Sim(spec) => matrix.on_sim(spec)?.run(),
    }
}

//! `freehold run`: one workload, design by design and CPU count by CPU count.

use anyhow::Result;

use crate::catalog::{WorkloadName, figures, host_settings, name_of, sim_settings, with_workload};
use crate::cli::{CellArgs, Format, RunArgs};
use crate::machine::Machine;
use crate::matrix::{Matrix, tables};
use crate::report::document::{Document, RunResult, SCHEMA};
use crate::report::out;
use crate::report::result_rows::result_rows;
use crate::settings::Assignments;
use crate::workload::Workload;

/// Runs all cells and prints the results.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let results = results_of(args.workload, &args.cells)?;
    let document = Document { schema: SCHEMA, results };
    let results = &document.results;
    let json = || serde_json::to_string_pretty(&document);
    match args.format.format() {
        Format::Json => out!("{}", json()?),
        Format::Csv => result_rows(results, figures(args.workload), &[])?.print()?,
        Format::Text => {
            with_workload!(args.workload, W => W::print(results, args.cells.machine()))?;
        }
    }
    args.report.of_runs(&name_of(&args.workload), results, json()?)
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

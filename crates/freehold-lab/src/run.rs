//! `freehold run`: one workload, design by design and CPU count by CPU count.

use anyhow::Result;
use clap::ValueEnum;
use freehold::{CpuId, Design};
use freehold_host::Host;
use serde_json::{Map, Value};

use crate::catalog::{
    DesignName, MachineName, WorkloadName, design_settings, name_of, with_design, workload_settings,
};
use crate::cli::{DesignChoice, RunArgs};
use crate::host::tasks;
use crate::report::document::{Document, RunResult, SCHEMA, Work, cpus_in_words};
use crate::report::progress::Progress;
use crate::settings::{Assignments, shown};
use crate::workloads::{bulk, page_fault};

/// One run of a workload: on one design, with so many CPUs.
pub(crate) struct Cell<'a> {
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) assignments: &'a Assignments,
}

/// What a workload has measured.
pub(crate) struct Measured {
    pub(crate) work: Work,
    pub(crate) specific: Map<String, Value>,
}

/// Runs the cells one after the other, since they would disturb each other's times.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let designs = chosen_designs(&args.design);
    let mut tables: Vec<_> = designs.iter().map(|design| design_settings(*design)).collect();
    tables.push(workload_settings(args.workload));
    let assignments = Assignments::parse(&args.settings, &tables)?;

    let MachineName::Host = args.machine;
    let counts = if args.cpus.is_empty() { vec![tasks::cpus_max()?] } else { args.cpus.clone() };
    let mut cells = Vec::new();
    for &design in &designs {
        for &count in &counts {
            let cpus = tasks::cpus_for(count)?;
            cells.push((design, Cell { cpus, assignments: &assignments }));
        }
    }

    let progress = Progress::new(steps(args.workload, &assignments)? * cells.len() as u64);
    let mut results = Vec::new();
    for (design, cell) in &cells {
        progress.say(format!("{} on {}", name_of(design), cpus_in_words(cell.cpus.len())));
        results.push(run_cell(args, *design, cell, &progress)?);
    }
    progress.finish();
    if args.json {
        let document = Document { schema: SCHEMA, results };
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        print(args.workload, &results);
    }
    Ok(())
}

/// Every design once, in the order of the command line.
fn chosen_designs(choices: &[DesignChoice]) -> Vec<DesignName> {
    let mut designs = Vec::new();
    for choice in choices {
        let chosen = match choice {
            DesignChoice::All => DesignName::value_variants(),
            DesignChoice::One(design) => std::slice::from_ref(design),
        };
        for design in chosen {
            if !designs.contains(design) {
                designs.push(*design);
            }
        }
    }
    designs
}

fn steps(workload: WorkloadName, assignments: &Assignments) -> Result<u64> {
    match workload {
        WorkloadName::PageFault => page_fault::steps(assignments),
        WorkloadName::Bulk => bulk::steps(assignments),
    }
}

fn run_cell(
    args: &RunArgs,
    design: DesignName,
    cell: &Cell<'_>,
    progress: &Progress,
) -> Result<RunResult> {
    with_design!(design, Host, D => {
        let settings = cell.assignments.of_design::<<D as Design<Host>>::Settings>()?;
        let shown = shown(&settings);
        let measured = match args.workload {
            WorkloadName::PageFault => page_fault::run_on_host::<D>(cell, settings, progress)?,
            WorkloadName::Bulk => bulk::run_on_host::<D>(cell, settings, progress)?,
        };
        Ok(RunResult {
            workload: name_of(&args.workload),
            design: name_of(&design),
            machine: name_of(&args.machine),
            cpus: cell.cpus.len() as u32,
            settings: shown,
            work: measured.work,
            workload_specific: measured.specific,
        })
    })
}

fn print(workload: WorkloadName, results: &[RunResult]) {
    match workload {
        WorkloadName::PageFault => page_fault::print(results),
        WorkloadName::Bulk => bulk::print(results),
    }
}

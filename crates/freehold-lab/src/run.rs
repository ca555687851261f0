//! `freehold run`: one workload, design by design and CPU count by CPU count.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::ValueEnum;
use freehold::Design;
use freehold_host::Host;
use freehold_sim::{Sim, Spec};
use serde_json::Value;

use crate::UsageError;
use crate::catalog::{DesignName, design_settings, name_of, with_design, with_workload};
use crate::cell::{HostCell, Measured, SimCell};
use crate::cli::{DesignChoice, RunArgs};
use crate::host::tasks;
use crate::machine::Machine;
use crate::report::document::{Document, RunResult, SCHEMA, cpus_in_words};
use crate::report::out;
use crate::report::progress::Progress;
use crate::settings::{Assignments, shown};
use crate::sim::parallel::run_all;
use crate::sim::result::hash;
use crate::workload::{SettingTable, Workload};

/// Runs all cells and prints what they say.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    with_workload!(args.workload, W => run_workload::<W>(args))
}

fn run_workload<W: Workload>(args: &RunArgs) -> Result<()> {
    let designs = chosen_designs(&args.design);
    let results = match &args.machine {
        Machine::Host => run_on_host::<W>(args, &designs)?,
        Machine::Sim(spec) => run_on_sim::<W>(args, &designs, spec)?,
    };
    if args.json {
        let document = Document { schema: SCHEMA, results };
        out!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    W::print(&results, &args.machine)
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

/// The assignments of the command line, each of which the workload or a design has to know.
fn assignments(
    args: &RunArgs,
    designs: &[DesignName],
    of_workload: &[SettingTable],
) -> Result<Assignments> {
    let of_designs = designs.iter().map(|design| design_settings(*design));
    let of_workload = of_workload.iter().map(|(_, table)| *table);
    Assignments::parse(&args.settings, &of_designs.chain(of_workload).collect::<Vec<_>>())
}

/// One cell after the other, since they would disturb each other's times.
fn run_on_host<W: Workload>(args: &RunArgs, designs: &[DesignName]) -> Result<Vec<RunResult>> {
    let assignments = assignments(args, designs, W::HOST_SETTINGS)?;
    let counts = if args.cpus.is_empty() { vec![tasks::cpus_max()?] } else { args.cpus.clone() };
    let mut cells = Vec::new();
    for &design in designs {
        for &count in &counts {
            let cpus = tasks::cpus_for(count)?;
            cells.push((design, HostCell { cpus, seed: args.seed, assignments: &assignments }));
        }
    }
    let progress = Progress::new(W::steps(&assignments)? * cells.len() as u64);
    let mut results = Vec::new();
    for (design, cell) in &cells {
        progress.say(format!("{} on {}", name_of(design), cpus_in_words(cell.cpus.len())));
        results.push(run_host_cell::<W>(args, *design, cell, &progress)?);
    }
    progress.finish();
    Ok(results)
}

fn run_host_cell<W: Workload>(
    args: &RunArgs,
    design: DesignName,
    cell: &HostCell<'_>,
    progress: &Progress,
) -> Result<RunResult> {
    with_design!(design, Host, D => {
        let settings = cell.assignments.of_design::<<D as Design<Host>>::Settings>()?;
        let shown = shown(&settings);
        let measured = W::run_on_host::<D>(cell, settings, progress)?;
        Ok(result(args, design, cell.cpus.len(), shown, measured))
    })
}

/// All cells side by side, as far as the host has CPUs and memory.
fn run_on_sim<W: Workload>(
    args: &RunArgs,
    designs: &[DesignName],
    spec: &Spec,
) -> Result<Vec<RunResult>> {
    let Some(of_workload) = W::SIM_SETTINGS else {
        let workload = name_of(&args.workload);
        return Err(UsageError(format!("{workload} runs on the host only: omit --machine")).into());
    };
    let assignments = assignments(args, designs, of_workload)?;
    let there = spec.cpus();
    let counts = if args.cpus.is_empty() { vec![there as u32] } else { args.cpus.clone() };
    let mut cells = Vec::new();
    for &design in designs {
        for &count in &counts {
            if count as usize > there {
                let message = format!("--cpus {count}: {} has {there} CPUs", spec.name());
                return Err(UsageError(message).into());
            }
            let (cpus, seed) = (count as usize, args.seed);
            cells.push((design, SimCell { spec, cpus, seed, assignments: &assignments }));
        }
    }
    let progress = Progress::new(cells.len() as u64);
    progress.say(format!("on {}", spec.name()));
    let host_bytes = W::host_bytes(spec, &assignments)?;
    let results = run_all(&cells, host_bytes, |(design, cell)| {
        let result = run_sim_cell::<W>(args, *design, cell);
        progress.step();
        result
    })?;
    progress.finish();
    Ok(results)
}

fn run_sim_cell<W: Workload>(
    args: &RunArgs,
    design: DesignName,
    cell: &SimCell<'_>,
) -> Result<RunResult> {
    with_design!(design, Sim, D => {
        let settings = cell.assignments.of_design::<<D as Design<Sim>>::Settings>()?;
        let shown = shown(&settings);
        let measured = W::run_on_sim::<D>(cell, settings)?;
        let mut result = result(args, design, cell.cpus, shown, measured);
        result.seed = Some(cell.seed);
        let hash = hash(&result)?;
        if let Some(simulated) = &mut result.simulated {
            simulated.result_hash = hash;
        }
        Ok(result)
    })
}

fn result(
    args: &RunArgs,
    design: DesignName,
    cpus: usize,
    settings: BTreeMap<String, Value>,
    measured: Measured,
) -> RunResult {
    RunResult {
        workload: name_of(&args.workload),
        design: name_of(&design),
        machine: args.machine.name().to_owned(),
        cpus: cpus as u32,
        seed: None,
        settings,
        work: measured.work,
        simulated: measured.simulated,
        fragmentation: measured.fragmentation,
        workload_specific: measured.specific,
    }
}

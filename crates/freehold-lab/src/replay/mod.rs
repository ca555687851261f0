//! `freehold replay`: a recording on other allocators and other machines.

pub(crate) mod plan;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use freehold_sim::{preset, preset_names};

use crate::catalog::{
    WorkloadName, figures, goals, host_settings, name_of, sim_settings, telling, with_workload,
};
use crate::cli::{Format, ReplayArgs, chosen_designs};
use crate::designs::DesignName;
use crate::error::refuse;
use crate::host::tasks::cpus_max;
use crate::machine::Machine;
use crate::matrix::{Matrix, tables};
use crate::report::comparison::{Comparison, Terms};
use crate::report::out;
use crate::settings::Assignments;
use crate::trace::open;
use crate::workload::Workload;
use plan::{Plan, Planner, Tally};

/// Events that are replayed on simulated machines by default, of all copies together: a minute or
/// two for all designs.
const SIMULATED_EVENTS: u64 = 4_000_000;

/// What no replay knows, whatever the recording.
const UNKNOWN: &str = "A replay does not know what the recorded kernel's own calls took: times \
                       between calls include them, and the tracing. Interrupts are replayed as \
                       their task's calls. Frames are not touched: what clearing takes is part of \
                       the times between calls.";

/// Replays on all designs, and ranks them.
pub(crate) fn replay(args: &ReplayArgs) -> Result<()> {
    let workload = WorkloadName::Replay;
    let designs = chosen_designs(&args.design);
    let of_workload = match &args.machine {
        Machine::Host => host_settings(workload),
        Machine::Sim(_) => sim_settings(workload),
    };
    let given = Assignments::parse(&args.settings, &tables(&designs, &of_workload))?;
    let events = args.events.unwrap_or_else(|| events_max(&args.machine, args.scale));
    let plan = plan_of(&args.trace, events)?;
    let recorded = plan.cpus.len() as u32;
    let cpus = recorded.saturating_mul(args.scale);
    match &args.machine {
        Machine::Host => check_scale("this process", cpus_max()?, recorded, args.scale)?,
        Machine::Sim(spec) => check_scale(spec.name(), spec.cpus() as u32, recorded, args.scale)?,
    }
    let notes = notes(&plan, args.scale);
    let given = given.with_recording(Arc::new(plan));
    let matrix =
        Matrix { workload, designs: &designs, cpus: &[cpus], seed: args.seed, assignments: &given };
    let results = match &args.machine {
        Machine::Host => matrix.on_host()?.run()?,
        Machine::Sim(spec) => matrix.on_sim(spec)?.run()?,
    };
    let format = args.format.format();
    if format == Format::Text {
        with_workload!(workload, W => W::print(&results, &args.machine))?;
        out!("");
    }
    let baseline = name_of(&DesignName::ZoneLock);
    let (goals, telling) = (goals(workload), telling(workload));
    let comparison = Comparison::new(results, Terms { baseline, varied: None, goals, telling })?;
    let title = format!("Replay of {}", args.trace.display());
    args.report.of_comparison(&title, &comparison, &notes)?;
    match format {
        Format::Json => out!("{}", serde_json::to_string_pretty(&comparison)?),
        Format::Csv => comparison.csv(figures(workload))?.print()?,
        Format::Text => {
            out!("{}{}", comparison.answer(true), comparison.answer(false));
            out!("{}", comparison.legend(&notes));
            out!("\n{}", comparison.why());
        }
    }
    Ok(())
}

/// How many events are replayed by so many copies, unless a user says so.
pub(crate) fn events_max(machine: &Machine, scale: u32) -> u64 {
    match machine {
        Machine::Host => u64::MAX,
        Machine::Sim(_) => SIMULATED_EVENTS / u64::from(scale),
    }
}

/// Reads at most so many events of a recording.
pub(crate) fn plan_of(trace: &Path, events_max: u64) -> Result<Plan> {
    let mut reader = open(trace)?;
    let mut planner = Planner::new(&reader.header().machine.cpus, events_max);
    for event in reader.by_ref() {
        planner.add(&event.with_context(|| trace.display().to_string())?);
    }
    let plan = planner.finish();
    if plan.tally.allocations + plan.tally.frees == 0 {
        return refuse(format!("{}: there is nothing to replay in it", trace.display()));
    }
    Ok(plan)
}

/// Whether the copies of the recorded CPUs have CPUs on a machine that has so many.
fn check_scale(machine: &str, there: u32, recorded: u32, scale: u32) -> Result<()> {
    let wanted = u64::from(recorded) * u64::from(scale);
    if wanted <= there.into() {
        return Ok(());
    }
    let remedy = match there / recorded {
        0 => match smallest(recorded) {
            Some(name) => format!("name a larger machine, such as --machine {name}"),
            None => "describe a larger machine in a .toml file".to_owned(),
        },
        most => format!("--scale {most} at most"),
    };
    refuse(format!(
        "--scale {scale}: {wanted} CPUs for {scale} times the {recorded} recorded ones, but \
         {machine} has {there}: {remedy}"
    ))
}

/// The smallest simulated machine with so many CPUs.
fn smallest(cpus: u32) -> Option<&'static str> {
    let there = |name: &&'static str| preset(name).map_or(0, |spec| spec.cpus());
    let enough = preset_names().iter().filter(|name| there(name) >= cpus as usize);
    enough.min_by_key(|name| there(name)).copied()
}

/// What is replayed, and what is not as it was.
fn notes(plan: &Plan, scale: u32) -> Vec<String> {
    let Tally {
        allocations,
        frees,
        frees_in_bulk,
        frees_from_before,
        frees_supplied,
        allocations_refused,
        too_large,
        gaps,
        left_out,
    } = plan.tally;
    let (cpus, seconds) = (plan.cpus.len(), plan.elapsed_ns as f64 / 1e9);
    let mut text = format!(
        "Recorded: {allocations} allocations and {frees} frees ({frees_in_bulk} in groups) of \
         {cpus} CPUs in {seconds:.3} s; replayed by {scale} times as many."
    );
    for (count, what) in [
        (left_out, "later events are left out (--events)"),
        (frees_from_before, "blocks from before are allocated before it begins"),
        (frees_supplied, "blocks were allocated again without a free, and are freed just before"),
        (allocations_refused, "allocations that the kernel refused are left out"),
        (too_large, "events with larger blocks than any design has are left out"),
        (gaps, "gaps have lost events"),
    ] {
        if count > 0 {
            text += &format!(" {count} {what}.");
        }
    }
    vec![text, UNKNOWN.to_owned()]
}

//! `page-fault`: what will-it-scale's page_fault1 asks of a page allocator.
//!
//! The benchmark maps 128 MiB of anonymous memory, writes one byte to each page, unmaps it, and
//! begins again. So each task allocates order-0 frames one at a time and writes one byte into
//! each, then frees them in the same order. Source: antonblanchard/will-it-scale,
//! `tests/page_fault1.c`.

use anyhow::Result;
use bytesize::ByteSize;
use freehold::Setting;
use freehold_sim::Spec;

use crate::cell::{HostCell, Measured, SimCell};
use crate::machine::{FRAME_BYTES, Machine};
use crate::report::document::{RunResult, number};
use crate::report::out;
use crate::report::profile::MEASURED;
use crate::report::progress::Progress;
use crate::report::table::Table;
use crate::report::waits::{percent, wait_share};
use crate::settings::Assignments;
use crate::sim::memory::{self, MemoryPlan};
use crate::workload::{Brief, SettingTable, Workload};

mod host;
mod host_pages;
mod lists;
mod sim;
mod sim_pages;

/// The settings of the workload on every machine.
const SETTINGS: &[Setting] = &[Setting {
    name: "task_bytes",
    values: "a size of at least one frame, such as 128MiB",
    default: "128MiB",
    meaning: "memory that each task faults in before it gives all of it back",
}];

/// What `freehold compare` sets otherwise on the host, to be done in seconds.
const BRIEF_ON_HOST: &[(&str, &str)] = &[("samples", "3"), ("sample_ms", "300")];

/// What `freehold compare` sets otherwise on simulated machines. Tasks and memory shrink alike,
/// since designs size their per-CPU lists by the memory: with less memory for as large a task, the
/// lists of `pcp=auto` would not hold what they hold in a whole run.
const BRIEF_ON_SIM: &[(&str, &str)] = &[("task_bytes", "32MiB"), ("node_memory", "1/4")];

/// How many frames each task faults in.
fn task_frames(given: &Assignments) -> Result<usize> {
    let bytes = given.parsed(SETTINGS, "task_bytes", |value| {
        value.parse::<ByteSize>().ok().filter(|size| size.0 >= FRAME_BYTES)
    })?;
    Ok((bytes.0 / FRAME_BYTES) as usize)
}

/// The workload.
pub(crate) struct PageFault;

impl Workload for PageFault {
    const HOST_SETTINGS: &'static [SettingTable] = &[
        ("page-fault", SETTINGS),
        ("page-fault, host", host::SETTINGS),
        ("page-fault LRU, host", lists::ON_HOST),
    ];
    const SIM_SETTINGS: &'static [SettingTable] = &[
        ("page-fault", SETTINGS),
        ("page-fault, simulated", sim::SETTINGS),
        ("page-fault LRU, simulated", lists::ON_SIM),
        ("simulated machines", memory::FRAME_SETTINGS),
        ("simulated memory", memory::NODE_SETTINGS),
    ];

    const BRIEF: Brief = Brief { on_host: BRIEF_ON_HOST, on_sim: BRIEF_ON_SIM };

    fn steps(given: &Assignments) -> Result<u64> {
        host::steps(given)
    }

    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
        host::run(cell, progress)
    }

    fn host_bytes(spec: &Spec, given: &Assignments) -> Result<u64> {
        // The LRU's records of 16 bytes, and a directory entry of 24 for each line of them.
        let plan = MemoryPlan::new(spec, given)?;
        Ok(plan.host_bytes() + plan.frames().get() * (16 + 24 / 4))
    }

    fn run_on_sim(cell: &SimCell<'_>) -> Result<Measured> {
        sim::run(cell)
    }

    fn print(results: &[RunResult], machine: &Machine) -> Result<()> {
        match machine {
            Machine::Host => print_host(results),
            Machine::Sim(_) => print_sim(results),
        }
    }
}

/// Prints results of the host.
fn print_host(results: &[RunResult]) -> Result<()> {
    let headings = [
        "design",
        "cpus",
        "faults/s",
        "spread",
        "ns/fault",
        "LRU ns",
        "allocator ns",
        "lock pairs",
    ];
    let mut table = Table::new(headings).numbers_from(1);
    for result in results {
        let number = |name: &str| number(result.workload_specific.get(name));
        table.row([
            result.design.clone(),
            result.cpus.to_string(),
            format!("{:.0}", result.work.per_second),
            format!("{:.1} %", number("spread") * 100.0),
            format!("{:.1}", number("fault_ns")),
            match number("lru_ns") {
                0.0 => "-".to_owned(),
                lru_ns => format!("{lru_ns:.1}"),
            },
            format!("{:.1}", number("allocator_ns")),
            format!("{:.1}", number("allocator_lock_pairs")),
        ]);
    }
    out!("{table}");
    out!(
        "{MEASURED}. allocator ns: allocation and free of a frame\nwithout touching it, also in \
         uncontended lock pairs of this run. LRU ns: what the lists cost,\nwith lru=node|group. \
         spread: largest less smallest sample, of the median."
    );
    Ok(())
}

/// Prints results of a simulated machine.
fn print_sim(results: &[RunResult]) -> Result<()> {
    let headings = [
        "design",
        "cpus",
        "faults/s",
        "scaling",
        "lock wait",
        "zone lock",
        "alloc",
        "free",
        "LRU lock",
        "ns/fault",
    ];
    let mut table = Table::new(headings).numbers_from(1);
    for result in results {
        let share = |name: &str| {
            let shares = result.simulated.as_ref().map(|simulated| &simulated.time_share);
            let share = shares.and_then(|shares| shares.get(name)).copied().unwrap_or_default();
            percent(share)
        };
        let alike = results.iter().filter(|other| other.design == result.design);
        let fewest = alike.min_by_key(|other| other.cpus).unwrap_or(result);
        let scaling = result.work.per_second / fewest.work.per_second * f64::from(fewest.cpus);
        let scaling = match fewest.cpus == 1 {
            true => format!("{scaling:.1}x"),
            // Without a run on one CPU there is nothing to compare with.
            false => "-".to_owned(),
        };
        table.row([
            result.design.clone(),
            result.cpus.to_string(),
            format!("{:.0}", result.work.per_second),
            scaling,
            percent(result.simulated.as_ref().map(wait_share).unwrap_or_default()),
            share("zone_lock"),
            share("zone_lock.alloc"),
            share("zone_lock.free"),
            share("lru_lock"),
            format!("{:.0}", number(result.workload_specific.get("fault_ns"))),
        ]);
    }
    out!("{table}");
    let mut table = Table::new(["design", "cpus", "interrupts off", "longest ns"]).numbers_from(1);
    for result in results {
        let Some(simulated) = &result.simulated else { continue };
        table.row([
            result.design.clone(),
            result.cpus.to_string(),
            percent(simulated.irq_off.share),
            format!("{:.0}", simulated.irq_off.ns_max),
        ]);
    }
    out!("{table}");
    let machine = results.first().map_or("", |result| result.machine.as_str());
    out!(
        "Simulated on {machine}: a prediction. lock wait: share of all CPU time; zone lock, LRU \
         lock: for these,\nthe former also by path. scaling: faults/s as a multiple of those of \
         one CPU, if that was run.\ninterrupts off: share of all CPU time, waiting for locks \
         included."
    );
    Ok(())
}

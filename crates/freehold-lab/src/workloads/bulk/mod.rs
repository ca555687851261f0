//! `bulk`: allocation and free in bulk against one at a time.
//!
//! After the kernel benchmark page_bench04_bulk (netoptimizer/prototype-kernel,
//! `kernel/mm/bench/page_bench04_bulk.c`), which allocates arrays of 1 to 128 pages in bulk and
//! frees them one at a time. That is the column `array`; `single` does both one at a time, and
//! `bulk` both in bulk.
//!
//! The series that this benchmark accompanied changed what protects per-CPU lists and counters, so
//! designs that leave the choice are run with interrupts off over lists and counters (`before`) and
//! on (`after`), and with the two changes by themselves. The series itself left them off over the
//! lists unless the kernel is PREEMPT_RT.
//!
//! It is not a [task workload](crate::task::workload::TaskWorkload), since a task has one
//! allocator. Here tasks on the host use the allocators of all choices in turns, round by round, so
//! that what disturbs one disturbs all, and on simulated machines each choice has its own machine.

use anyhow::Result;
use serde_json::Value;

use crate::cell::{HostCell, Measured, SimCell};
use crate::designs::{DesignName, design_settings, with_design};
use crate::machine::Machine;
use crate::report::document::{RunResult, cpus_in_words, number};
use crate::report::figure::{Figure, LOCK_PAIR_NS, Level, PAIR_NS, Parts};
use crate::report::out;
use crate::report::profile::MEASURED;
use crate::report::progress::Progress;
use crate::report::table::Table;
use crate::report::waits::percent;
use crate::settings::Assignments;
use crate::sim::memory;
use crate::workload::{Brief, SettingTable, Workload};
use ways::{SETTINGS, variants};

mod host;
mod sim;
mod ways;

/// What `freehold compare` sets otherwise.
const BRIEF: &[(&str, &str)] = &[("books", "as-set")];

/// The figures of each step.
const STEPS_OF_VARIANTS: Parts = Parts {
    levels: &[
        Level { list: "/workload_specific/variants", key: "name", name: "variant" },
        Level { list: "/steps", key: "step", name: "step" },
    ],
    figures: &[
        Figure::cost("single_ns", "/single_ns/median").of_samples("/samples_single_ns"),
        Figure::cost("array_ns", "/array_ns/median").of_samples("/samples_array_ns"),
        Figure::cost("bulk_ns", "/bulk_ns/median").of_samples("/samples_bulk_ns"),
        Figure::aside("gain_ratio", "/gain/median"),
    ],
};

/// The workload.
pub(crate) struct Bulk;

impl Workload for Bulk {
    const BRIEF: Brief = Brief { on_host: BRIEF, on_sim: BRIEF };
    const FIGURES: &'static [Figure] = &[PAIR_NS, LOCK_PAIR_NS];
    const PARTS: Option<&'static Parts> = Some(&STEPS_OF_VARIANTS);

    fn host_settings() -> Vec<SettingTable> {
        vec![("bulk", SETTINGS), ("bulk, host", host::SETTINGS)]
    }

    fn sim_settings() -> Vec<SettingTable> {
        let of_machine = ("simulated machines", memory::FRAME_SETTINGS);
        vec![("bulk", SETTINGS), ("bulk, simulated", sim::SETTINGS), of_machine]
    }

    fn check_on_host(design: DesignName, _tasks: usize, given: &Assignments) -> Result<()> {
        host::steps(given)?;
        variants(given, design_settings(design)).map(drop)
    }

    fn steps(given: &Assignments) -> Result<u64> {
        host::steps(given)
    }

    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
        with_design!(cell.design, freehold_host::Host, D => host::run::<D>(cell, progress))
    }

    fn check_on_sim(cell: &SimCell<'_>) -> Result<u64> {
        let given = cell.assignments;
        sim::step_frames(given)?;
        variants(given, cell.design.settings())?;
        Ok(sim::memory(cell.spec, given)?.host_bytes())
    }

    fn run_on_sim(cell: &SimCell<'_>) -> Result<Measured> {
        sim::run(cell)
    }

    fn print(results: &[RunResult], machine: &Machine) -> Result<()> {
        print(results, machine)
    }
}

/// The median of one number of one step.
fn median(step: &Value, name: &str) -> f64 {
    number(step[name].get("median"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Prints the results of all cells.
fn print(results: &[RunResult], machine: &Machine) -> Result<()> {
    for result in results {
        let specific = &result.workload_specific;
        let cpus = cpus_in_words(result.cpus as usize);
        let variants = specific.get("variants").map_or(&[][..], list);
        for variant in variants {
            let name = variant["name"].as_str().filter(|name| !name.is_empty());
            let name = name.map_or(String::new(), |name| format!(", {name}"));
            out!("{}{name}, on {cpus}, ns to allocate and free a frame:", result.design);
            out!("{}", ways(variant));
            if let Some(irq_off) = variant.get("irq_off") {
                let (share, ns) = (number(irq_off.get("share")), number(irq_off.get("ns_max")));
                out!("Interrupts off: {} of the time, {ns:.0} ns at most.\n", percent(share));
            }
        }
        if let [before, .., after] = variants {
            out!("{} on {cpus}: ns a frame, and by how much less it is in the end.", result.design);
            let name = |variant: &Value| variant["name"].as_str().unwrap_or_default().to_owned();
            out!("before: {}. after: {}.", name(before), name(after));
            out!("{}", before_and_after(before, after));
        }
        if let Some(pair) = specific.get("pair_ns") {
            let median = |name: &str| number(specific.get(name).and_then(|of| of.get("median")));
            out!(
                "An allocation and free of one frame took {:.1} ns, an uncontended lock pair {:.2} \
                 ns: {:.1} lock pairs.",
                number(pair.get("median")),
                median("lock_pair_ns"),
                median("pair_lock_pairs"),
            );
        }
    }
    match machine {
        Machine::Host => out!(
            "{MEASURED}. A process there has no interrupts to disable.\nsingle: one at a time. \
             array: allocated in bulk, freed one at a time. bulk: both in bulk."
        ),
        Machine::Sim(spec) => out!(
            "Simulated on {}: a prediction. single: one at a time. array: allocated in bulk, \
             freed one at\na time. bulk: both in bulk.",
            spec.name()
        ),
    }
    Ok(())
}

/// All ways, step by step.
fn ways(variant: &Value) -> Table {
    let headings = ["step", "single", "array", "bulk", "single/bulk", "min..max"];
    let mut table = Table::new(headings).numbers_from(0);
    for step in list(&variant["steps"]) {
        let gain = &step["gain"];
        table.row([
            step["step"].to_string(),
            format!("{:.1}", median(step, "single_ns")),
            format!("{:.1}", median(step, "array_ns")),
            format!("{:.1}", median(step, "bulk_ns")),
            format!("{:.2}", median(step, "gain")),
            format!("{:.2}..{:.2}", number(gain.get("min")), number(gain.get("max"))),
        ]);
    }
    table
}

/// Two choices beside each other, with the relative gain of the second.
fn before_and_after(before: &Value, after: &Value) -> Table {
    let headings = ["step", "single before", "after", "less", "array before", "after", "less"];
    let mut table = Table::new(headings).numbers_from(0);
    for (before, after) in list(&before["steps"]).iter().zip(list(&after["steps"])) {
        let mut row = vec![before["step"].to_string()];
        for way in ["single_ns", "array_ns"] {
            let (before, after) = (median(before, way), median(after, way));
            row.extend([
                format!("{before:.1}"),
                format!("{after:.1}"),
                percent((before - after) / before),
            ]);
        }
        table.row(row);
    }
    table
}

//! `bulk`: allocation and free in bulk against one at a time.
//!
//! After the kernel benchmark page_bench04_bulk (netoptimizer/prototype-kernel,
//! `kernel/mm/bench/page_bench04_bulk.c`), which allocates arrays of 1 to 128 pages in bulk and
//! frees them one at a time. That is the column `array`; `single` does both one at a time, and
//! `bulk` both in bulk.
//!
//! The series that this benchmark accompanied changed what protects per-CPU lists and counters, so
//! designs that leave the choice are run with interrupts off over lists and counters (`before`) and
//! as the series left them (`after`), and with the two changes by themselves.
//!
//! It is not a [task workload](crate::task::workload::TaskWorkload), since a task has one
//! allocator. Here tasks on the host use the allocators of all choices in turns, round by round, so
//! that what disturbs one disturbs all, and on simulated machines each choice has its own machine.

use anyhow::Result;
use freehold::{Error, Order, Pfn, Request, Setting};
use serde::Serialize;
use serde_json::Value;

use crate::cell::{HostCell, Measured, SimCell};
use crate::designs::{DesignName, design_settings, with_design};
use crate::frames::Frames;
use crate::machine::Machine;
use crate::report::document::{RunResult, cpus_in_words, number};
use crate::report::figure::{Figure, LOCK_PAIR_NS, Level, PAIR_NS, Parts};
use crate::report::out;
use crate::report::profile::MEASURED;
use crate::report::progress::Progress;
use crate::report::summary::Summary;
use crate::report::table::Table;
use crate::report::waits::percent;
use crate::settings::Assignments;
use crate::sim::memory;
use crate::workload::{Brief, SettingTable, Workload};

mod host;
mod sim;

/// The settings of the workload on every machine.
const SETTINGS: &[Setting] = &[Setting {
    name: "books",
    values: "all|as-set",
    default: "all",
    meaning: "run with each of locking=irq|local and counters=exact|relaxed, or as they are set",
}];

/// What `freehold compare` sets otherwise.
const BRIEF: &[(&str, &str)] = &[("books", "as-set")];

/// The sizes of the kernel benchmark.
const STEPS: [usize; 9] = [1, 2, 3, 4, 8, 16, 32, 64, 128];

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

/// One way of allocating and freeing frames.
#[derive(Clone, Copy)]
enum Way {
    Single,
    Array,
    Bulk,
}

impl Way {
    /// Allocates as many frames as there is room for.
    #[inline]
    fn alloc<F: Frames + ?Sized>(self, allocator: &F, frames: &mut [Pfn]) -> Result<(), Error> {
        match self {
            Way::Single => frames.iter_mut().try_for_each(|frame| {
                *frame = allocator.alloc(Request::default())?;
                Ok(())
            }),
            Way::Array | Way::Bulk => match allocator.alloc_bulk(Request::default(), frames)? {
                count if count == frames.len() => Ok(()),
                _ => Err(Error::OutOfMemory),
            },
        }
    }

    /// Frees the frames.
    #[inline]
    fn free<F: Frames + ?Sized>(self, allocator: &F, frames: &[Pfn]) -> Result<(), Error> {
        match self {
            Way::Single | Way::Array => {
                frames.iter().try_for_each(|&frame| allocator.free(frame, Order::ZERO))
            }
            Way::Bulk => allocator.free_bulk(frames, Order::ZERO).map_err(|stopped| stopped.error),
        }
    }
}

const WAYS: [Way; 3] = [Way::Single, Way::Array, Way::Bulk];

/// The times of one task: by step and way, in ns a frame.
type Times = [[f64; WAYS.len()]; STEPS.len()];

/// One choice of what protects lists and counters.
struct Variant {
    /// As on the command line; empty if the design leaves no choice.
    name: String,
    assignments: Assignments,
}

/// The choices that a design of these settings is run with, the one before the series first and
/// the one after it last.
fn variants(given: &Assignments, table: &[Setting]) -> Result<Vec<Variant>> {
    let all = given.word(SETTINGS, "books", &[("all", true), ("as-set", false)])?;
    let has = |name| table.iter().any(|setting| setting.name == name);
    if !all || !has("locking") || !has("counters") {
        return Ok(vec![Variant { name: String::new(), assignments: given.clone() }]);
    }
    let choices = |name, values: [&'static str; 2]| match given.last(name) {
        Some(value) => vec![value.to_owned()],
        None => values.map(str::to_owned).to_vec(),
    };
    let mut variants = Vec::new();
    for locking in choices("locking", ["irq", "local"]) {
        for counters in choices("counters", ["exact", "relaxed"]) {
            // Counters are exact where interrupts can be disabled.
            if locking == "rt" && counters == "exact" && !given.has("counters") {
                continue;
            }
            variants.push(Variant {
                name: format!("locking={locking} counters={counters}"),
                assignments: given.with("locking", &locking).with("counters", &counters),
            });
        }
    }
    Ok(variants)
}

/// The times of one step, in ns for the allocation and free of one frame.
#[derive(Serialize)]
struct StepResult {
    step: usize,
    single_ns: Summary,
    array_ns: Summary,
    bulk_ns: Summary,
    /// How many times cheaper bulk is than one at a time, sample by sample.
    gain: Summary,
    /// What the medians are of, round by round and task by task.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    rounds: Option<Rounds>,
}

/// The times of one step in all rounds, each with those of its tasks.
#[derive(Serialize)]
struct Rounds {
    samples_single_ns: Vec<Vec<f64>>,
    samples_array_ns: Vec<Vec<f64>>,
    samples_bulk_ns: Vec<Vec<f64>>,
}

/// Sums up all steps over some samples.
fn sum_up(samples: &[Times]) -> Vec<StepResult> {
    let of_step = |(at, &step): (usize, &usize)| {
        let all = |number: &dyn Fn(&[f64; 3]) -> f64| {
            Summary::of(&samples.iter().map(|times| number(&times[at])).collect::<Vec<_>>())
        };
        let of = |way: Way| all(&|times| times[way as usize]);
        StepResult {
            step,
            single_ns: of(Way::Single),
            array_ns: of(Way::Array),
            bulk_ns: of(Way::Bulk),
            gain: all(&|times| times[Way::Single as usize] / times[Way::Bulk as usize]),
            rounds: None,
        }
    };
    STEPS.iter().enumerate().map(of_step).collect()
}

/// Sums up all steps over rounds, each with the times of its tasks, and keeps these times.
fn sum_up_rounds(rounds: &[Vec<Times>]) -> Vec<StepResult> {
    let mut steps = sum_up(&rounds.concat());
    for (at, step) in steps.iter_mut().enumerate() {
        let of = |way: Way| {
            let round =
                |tasks: &Vec<Times>| tasks.iter().map(|task| task[at][way as usize]).collect();
            rounds.iter().map(round).collect()
        };
        step.rounds = Some(Rounds {
            samples_single_ns: of(Way::Single),
            samples_array_ns: of(Way::Array),
            samples_bulk_ns: of(Way::Bulk),
        });
    }
    steps
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

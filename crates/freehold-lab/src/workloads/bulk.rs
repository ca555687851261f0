//! `bulk`: allocation and free in bulk against one at a time.
//!
//! After the kernel benchmark page_bench04_bulk (netoptimizer/prototype-kernel,
//! `kernel/mm/bench/page_bench04_bulk.c`), which allocates arrays of 1 to 128 pages in bulk and
//! frees them one at a time. That is the column `array`; `single` does both one at a time, and
//! `bulk` both in bulk. All three alternate, round by round, on every task at once.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use freehold::{CpuId, Order, PageAllocator, Pfn, Request, Setting};
use freehold_host::{ArenaBuilder, FrameArena, Host};
use freehold_sim::Spec;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::books::check_all_back;
use crate::catalog::with_design;
use crate::cell::{HostCell, Measured, SimCell};
use crate::host::HostDesign;
use crate::host::tasks::bind;
use crate::host::yardstick::Yardstick;
use crate::machine::Machine;
use crate::report::document::{RunResult, Work, cpus_in_words, number};
use crate::report::out;
use crate::report::progress::Progress;
use crate::report::summary::Summary;
use crate::report::table::Table;
use crate::settings::Assignments;
use crate::workload::{SettingTable, Workload};

/// The settings of the workload.
const SETTINGS: &[Setting] = &[
    Setting {
        name: "rounds",
        values: "1..=1000",
        default: "15",
        meaning: "how often each step is measured in each way",
    },
    Setting {
        name: "round_frames",
        values: "128..=100000000",
        default: "200000",
        meaning: "frames that each task allocates and frees in one round of a step",
    },
];

/// The sizes of the kernel benchmark.
const STEPS: [usize; 9] = [1, 2, 3, 4, 8, 16, 32, 64, 128];

/// Memory for the largest step and for the per-CPU lists.
const TASK_BYTES: usize = 64 << 20;

struct Options {
    rounds: usize,
    round_frames: usize,
}

impl Options {
    fn parse(given: &Assignments) -> Result<Self> {
        Ok(Options {
            rounds: given.number(SETTINGS, "rounds", 1..=1000)?,
            round_frames: given.number(SETTINGS, "round_frames", 128..=100_000_000)?,
        })
    }
}

/// The workload.
pub(crate) struct Bulk;

impl Workload for Bulk {
    const HOST_SETTINGS: &'static [SettingTable] = &[("bulk", SETTINGS)];
    const SIM_SETTINGS: Option<&'static [SettingTable]> = None;

    fn steps(given: &Assignments) -> Result<u64> {
        Ok(Options::parse(given)?.rounds as u64)
    }

    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
        with_design!(cell.design, Host, D => run_on_host::<D>(cell, progress))
    }

    fn host_bytes(_: &Spec, _: &Assignments) -> Result<u64> {
        unreachable!("the workload has no settings for simulated machines")
    }

    fn run_on_sim(_: &SimCell<'_>) -> Result<Measured> {
        unreachable!("the workload has no settings for simulated machines")
    }

    fn print(results: &[RunResult], _: &Machine) -> Result<()> {
        print(results)
    }
}

/// One way of allocating and freeing `step` frames.
#[derive(Clone, Copy)]
enum Way {
    Single,
    Array,
    Bulk,
}

const WAYS: [Way; 3] = [Way::Single, Way::Array, Way::Bulk];

impl Way {
    fn go<D: HostDesign>(
        self,
        allocator: &PageAllocator<Host, D>,
        frames: &mut [Pfn],
    ) -> Result<()> {
        match self {
            Way::Single => {
                for frame in frames.iter_mut() {
                    *frame = allocator.alloc(Request::default())?;
                }
            }
            Way::Array | Way::Bulk => {
                let count = allocator.alloc_bulk(Request::default(), frames)?;
                ensure!(count == frames.len(), "the allocator ran out of memory");
            }
        }
        match self {
            Way::Single | Way::Array => {
                for &frame in black_box(&*frames) {
                    allocator.free(frame, Order::ZERO)?;
                }
            }
            Way::Bulk => allocator.free_bulk(black_box(frames), Order::ZERO)?,
        }
        Ok(())
    }
}

/// The times of one step, in ns for the allocation and free of one frame.
#[derive(Serialize)]
struct StepResult {
    step: usize,
    single_ns: Summary,
    array_ns: Summary,
    bulk_ns: Summary,
    /// How many times cheaper bulk is than one at a time, round by round.
    gain: Summary,
}

/// Runs one cell on the real machine.
fn run_on_host<D: HostDesign>(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
    let options = Options::parse(cell.assignments)?;
    let arena = ArenaBuilder::<D>::new()
        .bytes(TASK_BYTES * cell.cpus.len())
        .settings(cell.assignments.of_design()?)
        .build_frames()?;
    let yardstick = Yardstick::measure(&arena, cell.cpus[0])?;
    let start = Instant::now();
    let tasks = run_tasks(&arena, &cell.cpus, &options, progress)?;
    let seconds = start.elapsed().as_secs_f64();

    check_all_back(&arena.allocator(), arena.total_frames())?;

    let per_round = STEPS.iter().map(|step| (options.round_frames / step * step) as u64);
    let per_way = per_round.sum::<u64>() * (options.rounds * cell.cpus.len()) as u64;
    let count = per_way * WAYS.len() as u64;
    let work = Work { unit: "frames", count, seconds, per_second: count as f64 / seconds };
    let steps: Vec<_> =
        STEPS.iter().enumerate().map(|(at, &step)| sum_up(&tasks, at, step)).collect();
    let mut specific = Map::from_iter([("steps".to_owned(), serde_json::to_value(steps)?)]);
    specific.insert("round_frames".to_owned(), json!(options.round_frames));
    specific.extend(yardstick.fields());
    Ok(Measured { work, simulated: None, fragmentation: None, specific })
}

/// The times of one task: by round, step and way, in ns a frame.
type Times = Vec<[[f64; WAYS.len()]; STEPS.len()]>;

fn run_tasks<D: HostDesign>(
    arena: &FrameArena<D>,
    cpus: &[CpuId],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Times>> {
    let barrier = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let tasks: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(task, &cpu)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let bound = bind(cpu);
                    run_task(arena, barrier, options, || {
                        if task == 0 {
                            progress.step();
                        }
                    })
                    .and_then(|times| bound.map(|()| times))
                })
            })
            .collect();
        tasks.into_iter().map(|task| task.join().expect("no task panics")).collect()
    })
}

fn run_task<D: HostDesign>(
    arena: &FrameArena<D>,
    barrier: &Barrier,
    options: &Options,
    mut each_round: impl FnMut(),
) -> Result<Times> {
    let mut times = Times::with_capacity(options.rounds);
    let mut failure = None;
    // One round more, which is not counted, warms up.
    for round in 0..=options.rounds {
        let mut round_times = [[0.0; WAYS.len()]; STEPS.len()];
        for (step_times, step) in round_times.iter_mut().zip(STEPS) {
            for (time, way) in step_times.iter_mut().zip(WAYS) {
                // Every task keeps step even if it has failed, so that none waits for ever.
                barrier.wait();
                match time_way(arena, way, step, options.round_frames) {
                    Ok(ns) => *time = ns,
                    Err(error) => failure = Some(error),
                }
            }
        }
        if round > 0 {
            times.push(round_times);
            each_round();
        }
    }
    failure.map_or(Ok(times), Err)
}

fn time_way<D: HostDesign>(
    arena: &FrameArena<D>,
    way: Way,
    step: usize,
    round_frames: usize,
) -> Result<f64> {
    let mut frames = vec![Pfn::default(); step];
    let loops = round_frames / step;
    let start = Instant::now();
    for _ in 0..loops {
        way.go(arena.allocator(), &mut frames)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / (loops * step) as f64)
}

/// Sums up one step over all tasks and rounds.
fn sum_up(tasks: &[Times], at: usize, step: usize) -> StepResult {
    let rounds = || tasks.iter().flatten().map(|round| round[at]);
    let of = |way: Way| Summary::of(&rounds().map(|times| times[way as usize]).collect::<Vec<_>>());
    let gain = |times: [f64; 3]| times[Way::Single as usize] / times[Way::Bulk as usize];
    StepResult {
        step,
        single_ns: of(Way::Single),
        array_ns: of(Way::Array),
        bulk_ns: of(Way::Bulk),
        gain: Summary::of(&rounds().map(gain).collect::<Vec<_>>()),
    }
}

/// Prints the results of all cells.
fn print(results: &[RunResult]) -> Result<()> {
    for result in results {
        let specific = &result.workload_specific;
        let median = |fields: &Value, name: &str| number(fields[name].get("median"));
        let cpus = cpus_in_words(result.cpus as usize);
        out!("{} on {cpus}, ns to allocate and free a frame:", result.design);
        let headings = ["step", "single", "array", "bulk", "single/bulk", "min..max"];
        let mut table = Table::new(headings).numbers_from(0);
        for step in specific["steps"].as_array().into_iter().flatten() {
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
        out!("{table}");
        let all = Value::Object(specific.clone());
        out!(
            "An allocation and free of one frame took {:.1} ns, an uncontended lock pair {:.2} ns: \
             {:.1} lock pairs.",
            median(&all, "pair_ns"),
            median(&all, "lock_pair_ns"),
            median(&all, "pair_lock_pairs"),
        );
    }
    out!(
        "Measured on this host. single: one at a time. array: allocated in bulk, freed one at a \
         time.\nbulk: both in bulk."
    );
    Ok(())
}

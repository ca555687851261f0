//! On the real machine: all choices and all ways alternate, round by round, on every task at once.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use freehold::{CpuId, Pfn, Setting, Settings};
use freehold_host::{FrameArena, Snapshot};
use serde_json::{Map, json};

use super::ways::{STEPS, Times, WAYS, Way, sum_up_rounds, variants};
use crate::books::check_all_back;
use crate::cell::{HostCell, Measured};
use crate::host::tasks::{bind, start};
use crate::host::yardstick::Yardstick;
use crate::host::{HostDesign, arena};
use crate::report::document::Work;
use crate::report::progress::Progress;
use crate::settings::{Assignments, setting};

/// The settings of the workload on the host.
pub(super) const SETTINGS: &[Setting] = &[
    setting("rounds", "1..=1000", "15").means("how often each step is measured in each way"),
    setting("round_frames", "128..=100000000", "100000")
        .means("frames that each task allocates and frees in one round of a step"),
];

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

/// How many steps of progress a cell has.
pub(super) fn steps(given: &Assignments) -> Result<u64> {
    Ok(Options::parse(given)?.rounds as u64)
}

/// Runs one cell on the real machine.
pub(super) fn run<D: HostDesign>(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
    let options = Options::parse(cell.assignments)?;
    let variants = variants(cell.assignments, D::Settings::TABLE)?;
    let arenas = variants.iter().map(|variant| {
        let builder = arena::<D>().bytes(TASK_BYTES * cell.cpus.len());
        Ok(builder.settings(variant.assignments.of_design()?).build_frames()?)
    });
    let arenas: Vec<FrameArena<D>> = arenas.collect::<Result<_>>()?;
    // The last choice is the design as it is by default.
    let yardstick = Yardstick::measure(&arenas[arenas.len() - 1], cell.cpus[0])?;
    let start = Instant::now();
    let tasks = run_tasks(&arenas, &cell.cpus, &options, progress)?;
    let seconds = start.elapsed().as_secs_f64();
    let state = Snapshot::of(arenas[arenas.len() - 1].allocator());
    for arena in &arenas {
        check_all_back(&arena.allocator(), arena.total_frames())?;
    }

    let per_round = STEPS.iter().map(|step| (options.round_frames / step * step) as u64);
    let rounds = (options.rounds * cell.cpus.len() * arenas.len()) as u64;
    let count = per_round.sum::<u64>() * rounds * WAYS.len() as u64;
    let of_variants = variants.iter().enumerate().map(|(nth, variant)| {
        let of_tasks = |round: usize| tasks.iter().map(|task| task[round][nth]).collect();
        let rounds: Vec<Vec<Times>> = (0..options.rounds).map(of_tasks).collect();
        let steps = serde_json::to_value(sum_up_rounds(&rounds))?;
        Ok(json!({"name": variant.name, "steps": steps}))
    });
    let of_variants: Vec<_> = of_variants.collect::<Result<_>>()?;
    let mut specific = Map::from_iter([("variants".to_owned(), json!(of_variants))]);
    specific.insert("round_frames".to_owned(), json!(options.round_frames));
    specific.extend(yardstick.fields());
    let work = Work::of("frames", count, seconds);
    Ok(Measured { work, simulated: None, fragmentation: None, state, specific })
}

/// The times of all choices, round by round, for each task.
fn run_tasks<D: HostDesign>(
    arenas: &[FrameArena<D>],
    cpus: &[CpuId],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Vec<Vec<Times>>>> {
    let barrier = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let tasks: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(task, &cpu)| {
                let barrier = &barrier;
                start(scope, move || {
                    let bound = bind(cpu);
                    run_task(arenas, barrier, options, || {
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
    arenas: &[FrameArena<D>],
    barrier: &Barrier,
    options: &Options,
    mut each_round: impl FnMut(),
) -> Result<Vec<Vec<Times>>> {
    let mut rounds = Vec::with_capacity(options.rounds);
    let mut failure = None;
    // One round more, which is not counted, warms up.
    for round in 0..=options.rounds {
        let mut of_round = vec![Times::default(); arenas.len()];
        for (at, step) in STEPS.into_iter().enumerate() {
            for (times, arena) in of_round.iter_mut().zip(arenas) {
                for way in WAYS {
                    // Every task keeps step even if it has failed, so that none waits for ever.
                    barrier.wait();
                    match time_way(arena, way, step, options.round_frames) {
                        Ok(ns) => times[at][way as usize] = ns,
                        Err(error) => failure = Some(error),
                    }
                }
            }
        }
        if round > 0 {
            rounds.push(of_round);
            each_round();
        }
    }
    failure.map_or(Ok(rounds), Err)
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
        way.alloc(&arena.allocator(), &mut frames)?;
        way.free(&arena.allocator(), black_box(&frames))?;
    }
    Ok(start.elapsed().as_nanos() as f64 / (loops * step) as f64)
}

//! On the real machine: tasks bound to CPUs, sampled as the benchmark does.
//!
//! The first passes touch memory that the operating system has not backed yet; the warm-up takes
//! that cost out of the samples.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use freehold::{CpuId, Order, Pfn, Request, Setting};
use freehold_host::{FrameArena, Host, Snapshot};
use serde_json::{Map, json};

use super::host_pages::Pages;
use super::lists::{self, PageLists};
use super::task_frames;
use crate::books::check_all_back;
use crate::cell::{HostCell, Measured};
use crate::designs::with_design;
use crate::host::tasks::bind;
use crate::host::yardstick::Yardstick;
use crate::host::{HostDesign, arena, check_memory};
use crate::machine::FRAME_BYTES;
use crate::report::document::Work;
use crate::report::progress::Progress;
use crate::report::summary::Summary;
use crate::settings::Assignments;

/// The settings of the workload on the host.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "samples",
        values: "1..=1000",
        default: "5",
        meaning: "samples taken of whole faults, and as many of each part that is left out",
    },
    Setting {
        name: "sample_ms",
        values: "1..=60000",
        default: "500",
        meaning: "length of a sample, in milliseconds",
    },
    Setting {
        name: "huge_pages",
        values: "on|off",
        default: "off",
        meaning: "ask the operating system to back the memory with huge pages",
    },
];

struct Options {
    task_frames: usize,
    samples: usize,
    sample: Duration,
    huge_pages: bool,
    lists: Option<PageLists>,
}

impl Options {
    fn parse(given: &Assignments) -> Result<Self> {
        Ok(Options {
            task_frames: task_frames(given)?,
            samples: given.number(SETTINGS, "samples", 1..=1000)?,
            sample: Duration::from_millis(given.number(SETTINGS, "sample_ms", 1..=60_000)? as u64),
            huge_pages: given.word(SETTINGS, "huge_pages", &[("on", true), ("off", false)])?,
            lists: PageLists::parse(given, lists::ON_HOST)?,
        })
    }

    /// What samples are taken of, in turn.
    fn parts(&self) -> &'static [Part] {
        match self.lists {
            Some(_) => &[Part::Whole, Part::Unlisted, Part::Untouched],
            None => &[Part::Whole, Part::Untouched],
        }
    }
}

/// What of a fault is done in a sample.
#[derive(Clone, Copy)]
enum Part {
    /// All of it.
    Whole,
    /// The memory is allocated and written to.
    Unlisted,
    /// The memory is allocated.
    Untouched,
}

/// How many steps of progress a cell has.
pub(super) fn steps(given: &Assignments) -> Result<u64> {
    let options = Options::parse(given)?;
    Ok((options.parts().len() * options.samples) as u64 + 2)
}

/// Runs one cell on the real machine.
pub(super) fn run(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
    with_design!(cell.design, Host, D => run_on::<D>(cell, progress))
}

fn run_on<D: HostDesign>(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
    let options = Options::parse(cell.assignments)?;
    let arena = arena_for::<D>(cell, &options)?;
    let yardstick = Yardstick::measure(&arena, cell.cpus[0])?;
    progress.step();
    let (samples, state) = sample(&arena, &cell.cpus, &options, progress)?;
    check_all_back(&arena.allocator(), arena.total_frames())?;

    let cpus = cell.cpus.len() as f64;
    let whole = Summary::of(&samples.whole);
    // Every CPU does one thing after the other, so a CPU second divided by the faults of a CPU is
    // the time of a fault.
    let ns = |samples: &[f64]| cpus * 1e9 / Summary::of(samples).median;
    let (fault_ns, allocator_ns) = (ns(&samples.whole), ns(&samples.untouched));
    let unlisted_ns = options.lists.map_or(fault_ns, |_| ns(&samples.unlisted));
    let mut specific = Map::from_iter([
        ("fault_ns".to_owned(), json!(fault_ns)),
        ("allocator_ns".to_owned(), json!(allocator_ns)),
        ("allocator_lock_pairs".to_owned(), json!(allocator_ns / yardstick.lock_pair_ns.median)),
        ("touch_ns".to_owned(), json!(unlisted_ns - allocator_ns)),
        ("lru_ns".to_owned(), json!(fault_ns - unlisted_ns)),
        ("samples_per_second".to_owned(), json!(samples.whole)),
        ("spread".to_owned(), json!(whole.spread())),
        ("task_bytes".to_owned(), json!(options.task_frames as u64 * FRAME_BYTES)),
    ]);
    specific.extend(yardstick.fields());
    let work = Work {
        unit: "faults",
        count: samples.faults,
        seconds: samples.seconds,
        per_second: whole.median,
    };
    Ok(Measured { work, simulated: None, fragmentation: None, state, specific })
}

fn arena_for<D: HostDesign>(cell: &HostCell<'_>, options: &Options) -> Result<FrameArena<D>> {
    let frames = options.task_frames as u64 * cell.cpus.len() as u64;
    // A quarter more, so that watermarks and the frames on per-CPU lists leave enough.
    let bytes = (frames + frames / 4) * FRAME_BYTES + (64 << 20);
    check_memory(cell.cpus.len(), bytes, "--cpus or --set task_bytes")?;
    let arena = arena::<D>()
        .bytes(usize::try_from(bytes)?)
        .huge_pages(options.huge_pages)
        .settings(cell.assignments.of_design()?)
        .build_frames()?;
    Ok(arena)
}

/// What the tasks share.
struct Shared<'a, D: HostDesign> {
    arena: &'a FrameArena<D>,
    pages: Option<Pages<'a, D>>,
    task_frames: usize,
    start: Barrier,
    stop: AtomicBool,
    /// The [`Part`] that is done at the moment.
    part: AtomicU8,
    counters: Vec<Counter>,
    error: Mutex<Option<anyhow::Error>>,
}

/// What one task has done, on a cache line of its own. Written by the task, read by the sampler.
#[repr(align(128))]
#[derive(Default)]
struct Counter {
    faults: AtomicU64,
    passes: AtomicU64,
}

#[derive(Default)]
struct Samples {
    whole: Vec<f64>,
    unlisted: Vec<f64>,
    untouched: Vec<f64>,
    faults: u64,
    seconds: f64,
}

fn sample<D: HostDesign>(
    arena: &FrameArena<D>,
    cpus: &[CpuId],
    options: &Options,
    progress: &Progress,
) -> Result<(Samples, Snapshot)> {
    let shared = Shared {
        arena,
        pages: options.lists.map(|lists| Pages::new(arena, lists, cpus.len())).transpose()?,
        task_frames: options.task_frames,
        start: Barrier::new(cpus.len()),
        stop: AtomicBool::new(false),
        part: AtomicU8::new(Part::Whole as u8),
        counters: cpus.iter().map(|_| Counter::default()).collect(),
        error: Mutex::new(None),
    };
    let samples = thread::scope(|scope| {
        for (task, &cpu) in cpus.iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || {
                if let Err(error) = run_task(shared, task, cpu) {
                    shared.stop.store(true, Relaxed);
                    shared.error.lock().expect("no task panics").get_or_insert(error);
                }
            });
        }
        let samples = take_samples(&shared, options, progress);
        // While the tasks go on.
        let state = Snapshot::of(arena.allocator());
        shared.stop.store(true, Relaxed);
        (samples, state)
    });
    if let Some(error) = shared.error.into_inner().expect("no task panics") {
        return Err(error);
    }
    shared.pages.map_or(Ok(()), Pages::finish)?;
    Ok(samples)
}

fn run_task<D: HostDesign>(shared: &Shared<'_, D>, task: usize, cpu: CpuId) -> Result<()> {
    // Every task reaches the barrier, so that none waits for one that has failed.
    let bound = bind(cpu);
    shared.start.wait();
    bound?;
    let allocator = shared.arena.allocator();
    let mut held = Vec::with_capacity(shared.task_frames);
    while !shared.stop.load(Relaxed) {
        let part = shared.part.load(Relaxed);
        let touch = part != Part::Untouched as u8;
        let pages = shared.pages.as_ref().filter(|_| part == Part::Whole as u8);
        let outcome = pass(shared, task, touch, pages, &mut held);
        match pages {
            Some(pages) => pages.unmap(&held)?,
            None => held.iter().try_for_each(|&pfn| allocator.free(pfn, Order::ZERO))?,
        }
        held.clear();
        outcome?;
    }
    Ok(())
}

/// Faults in a task's memory once.
fn pass<D: HostDesign>(
    shared: &Shared<'_, D>,
    task: usize,
    touch: bool,
    pages: Option<&Pages<'_, D>>,
    held: &mut Vec<Pfn>,
) -> Result<()> {
    /// A fault is counted with the others of its batch, so that counting costs next to nothing.
    const BATCH: usize = 64;
    let counter = &shared.counters[task];
    counter.passes.fetch_add(1, Relaxed);
    while held.len() < shared.task_frames {
        let batch = BATCH.min(shared.task_frames - held.len());
        for _ in 0..batch {
            let pfn = shared.arena.allocator().alloc(Request::default())?;
            if touch {
                shared.arena.store_byte(pfn, 1);
            }
            if let Some(pages) = pages {
                pages.map(pfn, task)?;
            }
            held.push(pfn);
        }
        // Only this task writes the counter.
        counter.faults.store(counter.faults.load(Relaxed) + batch as u64, Relaxed);
    }
    Ok(())
}

/// Takes samples of all parts, in turn.
fn take_samples<D: HostDesign>(
    shared: &Shared<'_, D>,
    options: &Options,
    progress: &Progress,
) -> Samples {
    let mut samples = Samples::default();
    settle(shared, Part::Whole);
    thread::sleep(options.sample);
    progress.step();
    for _ in 0..options.samples {
        for &part in options.parts() {
            settle(shared, part);
            let (start, before) = (Instant::now(), faults(shared));
            thread::sleep(options.sample);
            let (seconds, count) = (start.elapsed().as_secs_f64(), faults(shared) - before);
            progress.step();
            let per_second = count as f64 / seconds;
            match part {
                Part::Whole => {
                    samples.whole.push(per_second);
                    samples.faults += count;
                    samples.seconds += seconds;
                }
                Part::Unlisted => samples.unlisted.push(per_second),
                Part::Untouched => samples.untouched.push(per_second),
            }
        }
    }
    samples
}

/// Says what is to be done, and waits until every task has begun a pass that knows it.
fn settle<D: HostDesign>(shared: &Shared<'_, D>, part: Part) {
    let passes = || shared.counters.iter().map(|counter| counter.passes.load(Relaxed));
    shared.part.store(part as u8, Relaxed);
    let before: Vec<_> = passes().collect();
    let settled = || passes().zip(&before).all(|(now, before)| now >= before + 2);
    while !shared.stop.load(Relaxed) && !settled() {
        thread::sleep(Duration::from_micros(100));
    }
}

fn faults<D: HostDesign>(shared: &Shared<'_, D>) -> u64 {
    shared.counters.iter().map(|counter| counter.faults.load(Relaxed)).sum()
}

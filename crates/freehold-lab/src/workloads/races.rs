//! `races`: what contestants of a race do, on simulated machines: `freehold race --machine`.
//!
//! Every task holds a set of blocks at a time: it allocates them, and then frees them, in the same
//! order or another one, or a neighbour's. With half of the memory in a set, these are the
//! benchmarks of LLFree's paper: `pair` is its "Repeat", `fill` its "Bulk", `random` its "Random"
//! (Wrenger, Rommel, Halbuer, Dietrich, Lohmann: *LLFree: Scalable and Optionally-Persistent
//! Page-Frame Allocation*, USENIX ATC 2023).

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use freehold::{FrameCount, Order, Pfn, Request, Setting};

use crate::error::refuse;
use crate::report::columns::{Column, number};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::settings::setting;
use crate::task::workload::{Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::SettingTable;

pub(crate) const SETTINGS: &[Setting] = &[
    setting("bench", "pair|fill|random|remote|bulk|huge", "pair")
        .means("the bench of a race (see freehold list benches)"),
    setting("frames", "64..=16777216", "4096").means("frames of a task's set"),
    setting("memory_percent", "150..=100000", "200")
        .means("memory of the machine, in percent of all sets; watermarks and caches come on top"),
    setting("passes", "1..=1000", "2")
        .means("how often each task allocates and frees its set, after a pass to warm up"),
];

/// Frames that a bulk call allocates or frees.
const BULK: usize = 64;

/// What is done with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bench {
    Pair,
    Fill,
    Random,
    Remote,
    Bulk,
    Huge,
}

const BENCHES: [(&str, Bench); 6] = [
    ("pair", Bench::Pair),
    ("fill", Bench::Fill),
    ("random", Bench::Random),
    ("remote", Bench::Remote),
    ("bulk", Bench::Bulk),
    ("huge", Bench::Huge),
];

/// The workload.
pub(crate) struct Races {
    bench: Bench,
    tasks: usize,
    frames: usize,
    percent: u64,
    passes: usize,
    /// What each task leaves for the next one.
    handed: Vec<Mutex<Vec<Pfn>>>,
}

/// What a task took for its blocks.
#[derive(Default)]
pub(crate) struct Times {
    blocks: u64,
    alloc_ns: u64,
    free_ns: u64,
}

impl TaskWorkload for Races {
    const SETTINGS: SettingTable = ("races", SETTINGS);
    const SETS_MEMORY: bool = true;
    const FRAGMENTS: bool = false;
    const SIZE: &'static str = "frames";
    const FIGURES: &'static [Figure] = &[
        Figure::cost("pair_ns", "/workload_specific/pair_ns"),
        Figure::aside("get_ns", "/workload_specific/get_ns"),
        Figure::aside("put_ns", "/workload_specific/put_ns"),
    ];
    const COLUMNS: &'static [Column] = &[
        Column("get ns", |r| number(r, "get_ns", 1)),
        Column("put ns", |r| number(r, "put_ns", 1)),
        Column("pair ns", |r| number(r, "pair_ns", 1)),
        Column("pairs/s", |r| format!("{:.0}", r.work.per_second)),
    ];
    const LEGEND: &'static [&'static str] =
        &["get, put: a block's allocation and free on a task, of all its time between meetings."];
    type Outcome = Times;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        if !setup.simulated {
            return refuse("races runs on simulated machines: on the host, use freehold race");
        }
        let (given, tasks) = (setup.given, setup.tasks);
        let bench = given.word(SETTINGS, "bench", &BENCHES)?;
        if bench == Bench::Remote && tasks == 1 {
            return refuse(
                "remote needs another task to free what one allocates: --cpus 2 or more",
            );
        }
        Ok(Races {
            bench,
            tasks,
            frames: given.number(SETTINGS, "frames", 64..=1 << 24)?,
            percent: given.number(SETTINGS, "memory_percent", 150..=100_000)? as u64,
            passes: given.number(SETTINGS, "passes", 1..=1000)?,
            handed: (0..tasks).map(|_| Mutex::default()).collect(),
        })
    }

    fn memory(&self) -> Memory {
        let held = (self.blocks() as u64 * self.order().frames().get()) * self.tasks as u64;
        Memory::Exactly(FrameCount::new(held * self.percent / 100))
    }

    fn run<T: Task>(&self, task: &T, _held: &mut Vec<Block>) -> Result<Times> {
        self.pass(task, 0)?;
        task.start_measuring()?;
        let mut times = Times::default();
        for pass in 1..=self.passes {
            let Times { blocks, alloc_ns, free_ns } = self.pass(task, pass)?;
            times.blocks += blocks;
            times.alloc_ns += alloc_ns;
            times.free_ns += free_ns;
        }
        Ok(times)
    }

    fn sum_up(&self, outcomes: &[Times], _: &Besides) -> Findings {
        let count: u64 = outcomes.iter().map(|times| times.blocks).sum();
        let each = |of: fn(&Times) -> u64| {
            outcomes.iter().map(of).sum::<u64>() as f64 / count.max(1) as f64
        };
        let (get_ns, put_ns) = (each(|times| times.alloc_ns), each(|times| times.free_ns));
        let fields = [
            ("get_ns", get_ns.into()),
            ("put_ns", put_ns.into()),
            ("pair_ns", (get_ns + put_ns).into()),
        ];
        // The time of a task that is always at work.
        let seconds = (get_ns + put_ns) * count as f64 / 1e9 / self.tasks as f64;
        Findings::new(Work::of("pairs", count, seconds), fields)
    }
}

impl Races {
    fn order(&self) -> Order {
        if self.bench == Bench::Huge { Order::PAGEBLOCK } else { Order::ZERO }
    }

    /// Blocks of a task's set.
    fn blocks(&self) -> usize {
        match self.bench {
            Bench::Huge => (self.frames >> Order::PAGEBLOCK.get()).max(1),
            Bench::Bulk => self.frames.next_multiple_of(BULK),
            _ => self.frames,
        }
    }

    /// Allocates a set and frees it.
    fn pass<T: Task>(&self, task: &T, pass: usize) -> Result<Times> {
        task.meet()?;
        let began_ns = task.now_ns();
        if self.bench == Bench::Pair {
            // The latter half of a pair is not told apart from the former.
            for _ in 0..self.blocks() {
                task.free(self.alloc(task)?)?;
            }
            let alloc_ns = task.now_ns() - began_ns;
            return Ok(Times { blocks: self.blocks() as u64, alloc_ns, free_ns: 0 });
        }
        let mut set = self.take(task)?;
        let alloc_ns = task.now_ns() - began_ns;
        match self.bench {
            Bench::Random => {
                // The same for the same seed, and another one in each pass.
                let mut rng = task.place().rng();
                (0..=pass).for_each(|_| rng.shuffle(&mut set));
            }
            Bench::Remote => set = self.hand_over(task, set)?,
            _ => {}
        }
        task.meet()?;
        let began_ns = task.now_ns();
        let blocks = set.len() as u64;
        self.give(task, set)?;
        Ok(Times { blocks, alloc_ns, free_ns: task.now_ns() - began_ns })
    }

    fn alloc<T: Task>(&self, task: &T) -> Result<Block> {
        let order = self.order();
        let pfn = task.alloc(Request::new(order)).context(FULL)?;
        Ok(Block { pfn, order })
    }

    /// Allocates a set.
    fn take<T: Task>(&self, task: &T) -> Result<Vec<Pfn>> {
        if self.bench != Bench::Bulk {
            return (0..self.blocks()).map(|_| Ok(self.alloc(task)?.pfn)).collect();
        }
        let mut set = vec![Pfn::default(); self.blocks()];
        for frames in set.chunks_mut(BULK) {
            let mut had = 0;
            while had < frames.len() {
                had += task.alloc_bulk(Request::default(), &mut frames[had..]).context(FULL)?;
            }
        }
        Ok(set)
    }

    /// Frees a set.
    fn give<T: Task>(&self, task: &T, set: Vec<Pfn>) -> Result<()> {
        if self.bench == Bench::Bulk {
            return set.chunks(BULK).try_for_each(|frames| task.free_bulk(frames));
        }
        let order = self.order();
        set.into_iter().try_for_each(|pfn| Ok(task.free(Block { pfn, order })?))
    }

    /// Leaves a set for the next task and takes that of the previous one.
    fn hand_over<T: Task>(&self, task: &T, set: Vec<Pfn>) -> Result<Vec<Pfn>> {
        let of = |index: usize| {
            self.handed[index % self.tasks].lock().unwrap_or_else(PoisonError::into_inner)
        };
        let index = task.place().index;
        *of(index) = set;
        task.meet()?;
        Ok(std::mem::take(&mut *of(index + 1)))
    }
}

const FULL: &str = "the memory does not hold all sets: raise --memory";

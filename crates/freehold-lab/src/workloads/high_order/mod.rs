//! `high-order`: how many huge pages used memory still yields.
//!
//! After stress-highalloc of mmtests (`vmr/bin/bench-stresshighalloc.sh` and
//! `stap-scripts/highalloc.stp` before commit 361ce3ce; configuration
//! `global-dhp__stress-highalloc-performance`). Source trees are copied, one for each 400 MiB of
//! the memory and one more, and each is compiled by `make -j1`, for five minutes. Then blocks of
//! order 9 are attempted one after the other, for 95 % of the memory, one each 125 ms (16 MB/s),
//! while the builds continue, and are held to the end of the pass. A second pass follows when the
//! builds have taken the memory into use again.
//!
//! What is in the way is what builds leave behind ([`trees`], [`builds`]): slabs of inodes,
//! directory entries and nodes of the index, page tables, stacks and dirty blocks, strewn among the
//! page cache. What an attempt may do is in [`attempts`]. Left out: the third pass, at rest, after
//! trees are deleted and caches dropped; disks, so copying takes no time but the kernel's; memory
//! that a kernel and its daemons have besides; directory entries of cached files that are
//! reclaimed before these are.

mod attempts;
mod builds;
mod slab;
mod trees;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Result;
use freehold::{FrameCount, Setting};
use serde_json::{Map, Value, json};

use attempts::{HUGE, Pass};
use builds::{Builder, FAULTS, Pace};
use trees::Trees;

use crate::fragmentation::free_memory;
use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, Telling, number, percent, scaled};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::report::goal::Goal;
use crate::report::summary::Quantiles;
use crate::settings::setting;
use crate::task::workload::{Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("memory_mib", "64..=1048576", "1024").means("memory of the machine, in MiB"),
    setting("tree_mib", "16..=4096", "400")
        .means("size of a source tree, and memory for which there is one, in MiB"),
    setting("attempts", "1..=100", "95")
        .means("percent of the memory that is asked for in blocks of order 9"),
    setting("delay_ms", "1..=10000", "125")
        .means("from one attempt to the next; the host waits a hundredth of it"),
    setting("build_s", "0..=600", "300")
        .means("how long trees are built before the first attempt, in s; the host: a hundredth"),
    setting("pace", "1..=100", "10")
        .means("percent of the processes of the builds that are run, so that it takes less time"),
];

/// How many times shorter than the settings the host's times are.
const HOST_HASTE: u64 = 100;

/// The workload.
pub(crate) struct HighOrder {
    frames: u64,
    attempts: u64,
    delay_ns: u64,
    build_ns: u64,
    pace: Pace,
    tasks: usize,
    trees: Trees,
    /// Whether the attempts of each pass are over.
    over: [AtomicBool; 2],
    /// The memory when the attempts begin.
    before: Mutex<Value>,
}

impl TaskWorkload for HighOrder {
    const SETTINGS: SettingTable = ("high-order", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "memory_mib";
    const FIGURES: &'static [Figure] = &[
        Figure::gain("success_share", "/workload_specific/first/success"),
        Figure::cost("p50_ns", "/workload_specific/first/latency/p50_ns"),
        Figure::cost("p99_ns", "/workload_specific/first/latency/p99_ns"),
        Figure::cost("max_ns", "/workload_specific/first/latency/max_ns"),
        Figure::cost("failure_p99_ns", "/workload_specific/first/failure_latency/p99_ns"),
        Figure::gain("second_success_share", "/workload_specific/second/success"),
        Figure::cost("second_p99_ns", "/workload_specific/second/latency/p99_ns"),
        Figure::cost("second_failure_p99_ns", "/workload_specific/second/failure_latency/p99_ns"),
    ];
    const GOALS: &'static [Goal] =
        &[Goal::share("had", Self::FIGURES[0]), Goal::share("again", Self::FIGURES[5])];
    const COLUMNS: &'static [Column] = &[
        Column("got", |r| number(r, "first.got", 0)),
        Column("of all", |r| percent(r, "first.success")),
        Column("p50 us", |r| scaled(r, "first.latency.p50_ns", 1e3, 0)),
        Column("p99 us", |r| scaled(r, "first.latency.p99_ns", 1e3, 0)),
        Column("failed", |r| scaled(r, "first.failure_latency.p99_ns", 1e3, 0)),
        Column("again", |r| number(r, "second.got", 0)),
        Column("p99 us", |r| scaled(r, "second.latency.p99_ns", 1e3, 0)),
    ];
    const LEGEND: &'static [&'static str] = &[
        "got: attempts that got a block of 2 MiB, and their share of all; again: those of the",
        "second pass. us: time of an attempt that got one, reclaim included; failed: that which",
        "99 % of those that got none do not exceed.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("{} attempts get a block", |r| number(r, "first.got", 0)),
        Telling("{} of all", |r| percent(r, "first.success")),
        Telling("{} in the second pass", |r| percent(r, "second.success")),
        Telling("99 % of them within {} µs", |r| scaled(r, "second.latency.p99_ns", 1e3, 1)),
    ];
    /// Only the attempting task has passes to report.
    type Outcome = Vec<Pass>;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let Setup { given, tasks, simulated } = *setup;
        let number =
            |name, range| Ok::<_, anyhow::Error>(given.number(SETTINGS, name, range)? as u64);
        let mib = number("memory_mib", 64..=1_048_576)?;
        let frames = (mib << 20) / FRAME_BYTES;
        let haste = if simulated { 1 } else { HOST_HASTE };
        let tree_mib = number("tree_mib", 16..=4096)?;
        let trees = ((mib / tree_mib) as usize + 1, tree_mib);
        Ok(HighOrder {
            frames,
            attempts: frames * number("attempts", 1..=100)? / 100 / HUGE.frames().get(),
            delay_ns: number("delay_ms", 1..=10_000)? * 1_000_000 / haste,
            build_ns: number("build_s", 0..=600)? * 1_000_000_000 / haste,
            pace: Pace { percent: number("pace", 1..=100)?, haste },
            tasks,
            trees: Trees::new(trees, (tasks, FAULTS), FrameCount::new(frames)),
            over: [const { AtomicBool::new(false) }; 2],
            before: Mutex::default(),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Vec<Pass>> {
        let index = task.place().index;
        let mut builder = Builder::new(task, &self.trees, self.tasks, self.pace);
        builder.copy()?;
        task.meet()?;
        let end_ns = task.now_ns() + self.build_ns;
        builder.build(|| task.now_ns() >= end_ns)?;
        task.meet()?;
        if index == 0 {
            self.examine(task);
        }
        task.start_measuring()?;
        let mut passes = Vec::new();
        for (number, over) in self.over.iter().enumerate() {
            if index == 0 {
                passes.push(Pass::run(task, &self.trees, self.attempts, self.delay_ns)?);
                over.store(true, Relaxed);
            } else {
                builder.build(|| {
                    task.in_order();
                    over.load(Relaxed)
                })?;
            }
            task.meet()?;
            let got = passes.last_mut().map(|pass| std::mem::take(&mut pass.got));
            let got = got.unwrap_or_default();
            match number {
                0 => got.into_iter().try_for_each(|block| task.free(block))?,
                _ => held.extend(got),
            }
            task.meet()?;
            if number == 0 {
                builder.refill()?;
            }
            task.meet()?;
        }
        held.extend(builder.end());
        if index == 0 {
            held.extend(self.trees.take_all());
        }
        Ok(passes)
    }

    fn sum_up(&self, outcomes: &[Vec<Pass>], _: &Besides) -> Findings {
        let mut specific = Map::new();
        let (mut count, mut seconds) = (0, 0.0);
        for (pass, name) in outcomes.iter().flatten().zip(["first", "second"]) {
            let (got, failed) = (pass.successes_ns.len(), pass.failures_ns.len());
            let attempts = got + failed;
            let quantiles =
                |ns: &[u64]| (!ns.is_empty()).then(|| Quantiles::of(ns.iter().copied()));
            let fields = json!({
                "delay_ns": self.delay_ns,
                "attempts": attempts,
                "got": got,
                "failed": failed,
                "success": got as f64 / attempts.max(1) as f64,
                "reclaimed": pass.reclaimed,
                "reclaimed_between": pass.reclaimed_between,
                "latency": quantiles(&pass.successes_ns),
                "failure_latency": quantiles(&pass.failures_ns),
            });
            specific.insert(name.to_owned(), fields);
            count += got as u64;
            seconds += pass.ns as f64 / 1e9;
        }
        let before = &*self.before.lock().unwrap_or_else(PoisonError::into_inner);
        specific.insert("before".to_owned(), before.clone());
        Findings { work: Work::of("blocks", count, seconds), specific }
    }
}

impl HighOrder {
    /// Notes what is in memory when the attempts begin.
    fn examine<T: Task>(&self, task: &T) {
        let before = json!({
            "trees": self.trees.size().0,
            "file_frames": self.trees.file_frames(),
            "slab_frames": self.trees.slab_frames(),
            "free": free_memory(task.allocator()),
        });
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }
}

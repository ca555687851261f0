//! Workloads whose tasks are the same on the host and on simulated machines.

use std::ops::RangeInclusive;

use anyhow::Result;
use bytesize::ByteSize;
use freehold::{Events, FrameCount, Setting};
use freehold_host::{FrameArena, Snapshot};
use serde_json::{Map, Value};

use super::calls::AllCalls;
use super::lru::LruPlan;
use super::meeting::Watch;
use super::ring::RingPlan;
use super::{Block, Task};
use crate::books::check_all_back;
use crate::fragmentation::{Fragmentation, free_memory};
use crate::frames::Frames;
use crate::host::HostDesign;
use crate::host::yardstick::Yardstick;
use crate::machine::{FRAME_BYTES, Machine};
use crate::report::columns::{Column, Telling, print_columns};
use crate::report::document::{RunResult, Work};
use crate::report::figure::{Figure, Parts};
use crate::report::goal::{Goal, RATE};
use crate::settings::Assignments;
use crate::workload::{Brief, SettingTable};

/// The parameters of the cell that a workload runs in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) given: &'a Assignments,
    pub(crate) tasks: usize,
    /// Whether the machine is simulated.
    pub(crate) simulated: bool,
}

impl Setup<'_> {
    /// The value of a setting that is a number within a range or `auto`: what takes a minute to
    /// simulate, or what a clock measures well.
    ///
    /// # Errors
    ///
    /// A usage error if the value is neither.
    pub(crate) fn number_or_auto(
        &self,
        table: &'static [Setting],
        name: &str,
        range: RangeInclusive<usize>,
        auto: Auto,
    ) -> Result<usize> {
        self.given.parsed(table, name, |value| match value {
            "auto" => Some(if self.simulated { auto.simulated } else { auto.host }),
            number => number.parse().ok().filter(|number| range.contains(number)),
        })
    }
}

/// The values that `auto` stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Auto {
    pub(crate) simulated: usize,
    pub(crate) host: usize,
}

/// How much memory a workload runs in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// The memory of the machine, of which it uses so much.
    AtLeast(FrameCount),
    /// As [`Memory::AtLeast`], so much for each task, on its own node.
    Near(FrameCount),
    /// So much: it is about memory that runs short.
    Exactly(FrameCount),
}

/// The results of a workload.
pub(crate) struct Findings {
    pub(crate) work: Work,
    pub(crate) specific: Map<String, Value>,
}

impl Findings {
    /// Work, and the workload's own fields.
    pub(crate) fn new<const N: usize>(work: Work, fields: [(&str, Value); N]) -> Self {
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        Findings { work, specific: Map::from_iter(fields) }
    }
}

/// When a task began and ended, and how long it waited for others meanwhile, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) waited_ns: u64,
}

impl Span {
    /// From the first beginning to the last end.
    pub(crate) fn seconds(spans: impl Iterator<Item = Span> + Clone) -> f64 {
        let began_ns = spans.clone().map(|span| span.began_ns).min().unwrap_or(0);
        let ended_ns = spans.map(|span| span.ended_ns).max().unwrap_or(0);
        (ended_ns - began_ns).max(1) as f64 / 1e9
    }

    /// The share of their time that tasks waited.
    pub(crate) fn waited_share(spans: impl Iterator<Item = Span> + Clone) -> f64 {
        let all_ns: u64 = spans.clone().map(|span| span.ended_ns - span.began_ns).sum();
        spans.map(|span| span.waited_ns).sum::<u64>() as f64 / all_ns.max(1) as f64
    }
}

/// What a run shows besides the results of its tasks.
pub(crate) struct Besides {
    /// What the allocator has counted, when all is free again.
    pub(crate) events: Events,
    /// How long a simulated machine was measured, in virtual time.
    pub(crate) elapsed_ns: Option<f64>,
    /// On the host, if single calls are measured: see [`TaskWorkload::run_on_host`].
    pub(crate) yardstick: Option<Yardstick>,
}

/// A workload, as each task sees it. The value is shared by all tasks: the settings, and all shared
/// state.
pub(crate) trait TaskWorkload: Sized + Send + Sync + 'static {
    /// The settings on every machine, and the name under which they are listed.
    const SETTINGS: SettingTable;
    /// Further settings on the host, and on simulated machines.
    const ON_HOST: &'static [SettingTable] = &[];
    const ON_SIM: &'static [SettingTable] = &[];
    /// Whether [`TaskWorkload::memory`] determines exactly how much memory there is.
    const SETS_MEMORY: bool = false;
    /// Whether there may be an LRU, whose records take memory as well.
    const USES_LRU: bool = false;
    /// Whether the fragmentation of free memory at its end is of interest: not if all it allocates
    /// is single frames.
    const FRAGMENTS: bool = true;
    /// The setting that a user lowers for a smaller workload.
    const SIZE: &'static str;
    /// The columns of a cell's results in a table, and the meaning of the headings.
    const COLUMNS: &'static [Column] = &[];
    const LEGEND: &'static [&'static str] = &[];
    /// The figures of its results that not every workload has: those of its columns, in full.
    const FIGURES: &'static [Figure];
    /// The parts of its results, if these have figures of their own.
    const PARTS: Option<&'static Parts> = None;
    /// What users want of it: see [`Workload::GOALS`].
    ///
    /// [`Workload::GOALS`]: crate::workload::Workload::GOALS
    const GOALS: &'static [Goal] = &[RATE];
    /// Its own numbers that a comparison mentions.
    const TELLING: &'static [Telling] = &[];
    /// How it is reduced so that comparing all designs is quick, if that does not change which one
    /// is ahead (`tools/check-briefs`).
    const BRIEF: Brief = Brief { on_host: &[], on_sim: &[] };
    /// The result of one task.
    type Outcome: Send + 'static;

    /// Parses the settings.
    ///
    /// # Errors
    ///
    /// A usage error names the setting and the remedy.
    fn new(setup: &Setup<'_>) -> Result<Self>;

    /// How much memory the tasks need.
    fn memory(&self) -> Memory;

    /// The rings between the tasks.
    fn rings(&self) -> Vec<RingPlan> {
        Vec::new()
    }

    /// The LRU on which tasks keep frames, if they do.
    fn lru(&self) -> Option<LruPlan> {
        None
    }

    /// Whether the operating system is asked to back the memory of the host with huge pages.
    fn huge_pages(&self) -> bool {
        false
    }

    /// How many steps of progress a cell on the host has; the last is its end.
    fn steps(_given: &Assignments) -> Result<u64> {
        Ok(1)
    }

    /// Runs the tasks on the host. A workload that measures single calls runs them
    /// [directly](HostRun::directly).
    fn run_on_host<D: HostDesign>(run: &impl HostRun, arena: &FrameArena<D>) -> Result<Finished> {
        run.indirectly(arena)
    }

    /// What is to be done on the host beside the tasks, while they run.
    fn watch(&self, _watch: &Watch<'_>) {}

    /// Runs the work of one task, from start to end. What it puts into `held` stays allocated until
    /// the free memory has been examined.
    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Self::Outcome>;

    /// Sums up the results of the tasks, in their order.
    fn sum_up(&self, outcomes: &[Self::Outcome], besides: &Besides) -> Findings;

    /// Prints the results of all cells, which ran on `machine`: the columns, unless the workload
    /// has a table of its own.
    fn show(results: &[RunResult], machine: &Machine) -> Result<()> {
        print_columns(results, machine, Self::COLUMNS, Self::LEGEND)
    }
}

/// A cell on the host, whose arena is built.
pub(crate) trait HostRun {
    /// Lets tasks call the allocator through a trait object, so that they are compiled once. Some
    /// calls are timed.
    fn indirectly<D: HostDesign>(&self, arena: &FrameArena<D>) -> Result<Finished>;

    /// Lets tasks call the allocator itself, without a clock around calls: for workloads whose
    /// figures are the time of single calls. They get a yardstick, which is one more step of
    /// progress.
    fn directly<D: HostDesign>(&self, arena: &FrameArena<D>) -> Result<Finished>;
}

/// What one task returns; no outcome if it has failed.
pub(super) struct Returned<O> {
    pub(super) outcome: Option<O>,
    pub(super) held: Vec<Block>,
    /// Absent if single calls are measured, which a clock around them would lengthen.
    pub(super) calls: Option<AllCalls>,
}

/// The results of the tasks of a cell.
pub(crate) struct Finished {
    /// Set by the machine that the tasks ran on.
    pub(super) metadata_bytes: u64,
    pub(super) findings: Findings,
    pub(super) calls: Option<AllCalls>,
    pub(super) fragmentation: Option<Fragmentation>,
    pub(super) state: Snapshot,
}

/// What a run in which no task has failed leaves behind.
pub(super) struct Ended<'a, O> {
    pub(super) allocator: &'a dyn Frames,
    pub(super) managed: FrameCount,
    /// How long a simulated machine was measured.
    pub(super) elapsed_ns: Option<f64>,
    pub(super) yardstick: Option<Yardstick>,
    pub(super) returned: Vec<Returned<O>>,
}

impl<O> Ended<'_, O> {
    /// Examines the free memory if that is of interest, empties the LRU, frees what the tasks hold,
    /// checks the invariants, and sums up.
    pub(super) fn finish<W: TaskWorkload<Outcome = O>>(
        self,
        work: &W,
        empty_lru: impl FnOnce() -> Result<()>,
    ) -> Result<Finished> {
        let Ended { allocator, managed, elapsed_ns, yardstick, returned } = self;
        let state = allocator.snapshot();
        let fragmentation = W::FRAGMENTS.then(|| {
            let before_drain = free_memory(allocator);
            allocator.drain_all();
            Fragmentation { before_drain, after_drain: free_memory(allocator) }
        });
        let calls: Option<Vec<_>> = returned.iter().map(|task| task.calls).collect();
        let calls = calls.map(|calls| AllCalls::sum(calls.into_iter()));
        empty_lru()?;
        let mut outcomes = Vec::new();
        for task in returned {
            for Block { pfn, order } in task.held {
                allocator.free(pfn, order)?;
            }
            outcomes.extend(task.outcome);
        }
        check_all_back(allocator, managed)?;
        let besides = Besides { events: allocator.events(), elapsed_ns, yardstick };
        Ok(Finished {
            metadata_bytes: 0,
            findings: work.sum_up(&outcomes, &besides),
            calls,
            fragmentation,
            state,
        })
    }
}

/// A number of frames that a setting gives as a size in bytes.
pub(crate) fn frames_of(given: &Assignments, table: &'static [Setting], name: &str) -> Result<u64> {
    let bytes = given.parsed(table, name, |value| {
        value.parse::<ByteSize>().ok().filter(|size| size.0 >= FRAME_BYTES)
    })?;
    Ok(bytes.0 / FRAME_BYTES)
}

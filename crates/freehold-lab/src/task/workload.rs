//! Workloads whose tasks do the same on the host and on simulated machines.

use std::ops::RangeInclusive;

use anyhow::Result;
use bytesize::ByteSize;
use freehold::{FrameCount, Setting};
use freehold_host::Snapshot;
use serde_json::{Map, Value};

use super::calls::AllCalls;
use super::ring::RingPlan;
use super::{Block, Task};
use crate::books::check_all_back;
use crate::fragmentation::{Fragmentation, free_memory};
use crate::frames::Frames;
use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, Telling};
use crate::report::document::Work;
use crate::settings::Assignments;
use crate::workload::{Brief, SettingTable};

/// What a workload is told of the cell that it is to run in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) given: &'a Assignments,
    pub(crate) tasks: usize,
    /// Whether the machine is simulated.
    pub(crate) simulated: bool,
}

impl Setup<'_> {
    /// The value of a setting that is a number within a range or `auto`: as much as fits a minute
    /// of simulating, or as much as a clock measures well.
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
    /// The memory of the machine, of which it takes so much.
    AtLeast(FrameCount),
    /// So much: it is about memory that runs short. The setting is called `memory`.
    Exactly(FrameCount),
}

/// What a workload says in the end.
pub(crate) struct Findings {
    pub(crate) work: Work,
    pub(crate) specific: Map<String, Value>,
}

/// A workload, as each task sees it. The value is what all tasks share: the settings, and whatever
/// they agree on.
pub(crate) trait TaskWorkload: Sized + Send + Sync + 'static {
    /// The settings, and the name that they are listed under.
    const SETTINGS: SettingTable;
    /// Whether [`TaskWorkload::memory`] says exactly how much memory there is.
    const SETS_MEMORY: bool = false;
    /// The setting that a user lowers for a smaller workload.
    const SIZE: &'static str;
    /// What the results of a cell show in a table, and what the headings mean.
    const COLUMNS: &'static [Column];
    const LEGEND: &'static [&'static str];
    /// The numbers of its own that a comparison mentions.
    const TELLING: &'static [Telling];
    /// How it is cut down so that all designs can be compared while one waits; what takes seconds
    /// anyway is not cut.
    const BRIEF: Brief = Brief { on_host: &[], on_sim: &[] };
    /// What one task has found out.
    type Outcome: Send + 'static;

    /// Understands the settings.
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

    /// Does the work of one task, from start to end. What it puts into `held` stays allocated until
    /// the free memory has been looked at.
    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Self::Outcome>;

    /// Sums up what the tasks have found out, in their order.
    fn sum_up(&self, outcomes: &[Self::Outcome]) -> Findings;
}

/// What one task brings back; no outcome if it has failed.
pub(super) struct Returned<O> {
    pub(super) outcome: Option<O>,
    pub(super) held: Vec<Block>,
    pub(super) calls: AllCalls,
}

/// What the tasks of a cell have come to.
pub(super) struct Finished {
    pub(super) findings: Findings,
    pub(super) calls: AllCalls,
    pub(super) fragmentation: Fragmentation,
    pub(super) state: Snapshot,
}

/// Ends a run in which no task has failed: looks at the free memory, takes back what the tasks
/// hold, checks the books, and sums up.
pub(super) fn finish<W: TaskWorkload>(
    work: &W,
    allocator: &dyn Frames,
    managed: FrameCount,
    returned: Vec<Returned<W::Outcome>>,
) -> Result<Finished> {
    let state = allocator.snapshot();
    let before_drain = free_memory(allocator);
    allocator.drain_all();
    let fragmentation = Fragmentation { before_drain, after_drain: free_memory(allocator) };
    let calls = AllCalls::sum(returned.iter().map(|task| task.calls));
    let mut outcomes = Vec::new();
    for task in returned {
        for Block { pfn, order } in task.held {
            allocator.free(pfn, order)?;
        }
        outcomes.extend(task.outcome);
    }
    check_all_back(allocator, managed)?;
    Ok(Finished { findings: work.sum_up(&outcomes), calls, fragmentation, state })
}

/// A number of frames that a setting gives as a size in bytes.
pub(crate) fn frames_of(given: &Assignments, table: &'static [Setting], name: &str) -> Result<u64> {
    let bytes = given.parsed(table, name, |value| {
        value.parse::<ByteSize>().ok().filter(|size| size.0 >= FRAME_BYTES)
    })?;
    Ok(bytes.0 / FRAME_BYTES)
}

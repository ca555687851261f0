//! Workloads whose tasks are the same on the host and on simulated machines.

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
    /// So much: it is about memory that runs short. The setting is called `memory`.
    Exactly(FrameCount),
}

/// The results of a workload.
pub(crate) struct Findings {
    pub(crate) work: Work,
    pub(crate) specific: Map<String, Value>,
}

/// A workload, as each task sees it. The value is shared by all tasks: the settings, and all shared
/// state.
pub(crate) trait TaskWorkload: Sized + Send + Sync + 'static {
    /// The settings, and the name under which they are listed.
    const SETTINGS: SettingTable;
    /// Whether [`TaskWorkload::memory`] determines exactly how much memory there is.
    const SETS_MEMORY: bool = false;
    /// The setting that a user lowers for a smaller workload.
    const SIZE: &'static str;
    /// The columns of a cell's results in a table, and the meaning of the headings.
    const COLUMNS: &'static [Column];
    const LEGEND: &'static [&'static str];
    /// Its own numbers that a comparison mentions.
    const TELLING: &'static [Telling];
    /// How it is reduced so that comparing all designs is quick; what takes only seconds is not
    /// reduced.
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

    /// Runs the work of one task, from start to end. What it puts into `held` stays allocated until
    /// the free memory has been examined.
    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Self::Outcome>;

    /// Sums up the results of the tasks, in their order.
    fn sum_up(&self, outcomes: &[Self::Outcome]) -> Findings;
}

/// What one task returns; no outcome if it has failed.
pub(super) struct Returned<O> {
    pub(super) outcome: Option<O>,
    pub(super) held: Vec<Block>,
    pub(super) calls: AllCalls,
}

/// The results of the tasks of a cell.
pub(super) struct Finished {
    pub(super) findings: Findings,
    pub(super) calls: AllCalls,
    pub(super) fragmentation: Fragmentation,
    pub(super) state: Snapshot,
}

/// Ends a run in which no task has failed: examines the free memory, frees what the tasks hold,
/// checks the invariants, and sums up.
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

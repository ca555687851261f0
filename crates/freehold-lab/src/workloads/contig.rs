//! `contig`: contiguous ranges out of memory that is partly in use.
//!
//! What hugetlbfs and CMA ask of a kernel. All tasks fill the memory with cached files, frame by
//! frame, and with a little that cannot be moved, and drop files at random down to the wanted
//! occupancy. Then one task asks for aligned ranges, one after the other and spread evenly over the
//! memory: first of 2 MiB, then of 1 GiB. What it gets it gives back at once.
//!
//! The allocator cannot move frames yet, so a range is to be had only where it is free already and
//! no larger than its largest block; which one that is the allocator chooses.

use anyhow::Result;
use freehold::{Error, FrameCount, Order, Pfn, Request, Setting};
use serde_json::{Map, json};

use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, number, percent, scaled};
use crate::report::document::Work;
use crate::report::summary::Quantiles;
use crate::task::population::Population;
use crate::task::workload::{Auto, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    Setting {
        name: "memory_mib",
        values: "64..=1048576, or auto",
        default: "auto",
        meaning: "memory of the machine, in MiB; auto: 4096 if simulated, else 2048",
    },
    Setting {
        name: "occupancy",
        values: "0..=90",
        default: "50",
        meaning: "percent of the memory that is in use",
    },
    Setting {
        name: "unmovable",
        values: "0..=500",
        default: "1",
        meaning: "of 1000 frames that fill the memory, how many cannot be moved",
    },
    Setting {
        name: "ranges",
        values: "1..=100000",
        default: "256",
        meaning: "ranges of each size that are asked for, or all if there are fewer",
    },
];

const MEMORY_MIB: Auto = Auto { simulated: 4096, host: 2048 };

/// The sizes of the ranges, and what they are called.
const SIZES: [(&str, Order); 2] = [("mib_2", Order::PAGEBLOCK), ("gib_1", Order::new(18))];

/// The workload.
pub(crate) struct Contig {
    frames: u64,
    ranges: u64,
    cached: Population,
}

/// What the task that asks was answered, for the ranges of one size.
#[derive(Default)]
pub(crate) struct Answers {
    got: u64,
    latencies_ns: Vec<u64>,
}

impl TaskWorkload for Contig {
    const SETTINGS: SettingTable = ("contig", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "memory_mib";
    const COLUMNS: &'static [Column] = &[
        Column { heading: "2 MiB", cell: |r| number(r, "mib_2.asked", 0) },
        Column { heading: "success", cell: |r| percent(r, "mib_2.success") },
        Column { heading: "p50 us", cell: |r| scaled(r, "mib_2.latency.p50_ns", 1e3, 1) },
        Column { heading: "p99 us", cell: |r| scaled(r, "mib_2.latency.p99_ns", 1e3, 1) },
        Column { heading: "1 GiB", cell: |r| number(r, "gib_1.asked", 0) },
        Column { heading: "success", cell: |r| percent(r, "gib_1.success") },
        Column { heading: "max ms", cell: |r| scaled(r, "gib_1.latency.max_ns", 1e6, 2) },
    ];
    const LEGEND: &'static [&'static str] = &[
        "2 MiB, 1 GiB: ranges that were asked for. success: those that were had. The allocator",
        "cannot move frames yet: what is in use makes a range fail, and 1 GiB is too large for it.",
    ];
    /// The answers by size, from the task that asks.
    type Outcome = Vec<Answers>;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let given = setup.given;
        let mib = setup.number_or_auto(SETTINGS, "memory_mib", 64..=1_048_576, MEMORY_MIB)?;
        let frames = ((mib as u64) << 20) / FRAME_BYTES;
        let unmovable = given.number(SETTINGS, "unmovable", 0..=500)? as u64;
        let occupancy = given.number(SETTINGS, "occupancy", 0..=90)? as u64;
        Ok(Contig {
            frames,
            ranges: given.number(SETTINGS, "ranges", 1..=100_000)? as u64,
            cached: Population::new(setup.tasks, FrameCount::new(frames), unmovable, occupancy),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Vec<Answers>> {
        self.cached.settle(task, held)?;
        task.start_measuring()?;
        let index = task.place().index;
        let answers = match index {
            0 => {
                SIZES.iter().map(|(_, order)| self.ask_all(task, *order)).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        // Moved by nobody any more once all have come here.
        task.meet()?;
        held.extend(self.cached.owners.blocks(self.cached.slots_of(index)));
        Ok(answers)
    }

    fn sum_up(&self, outcomes: &[Vec<Answers>]) -> Findings {
        let mut specific = Map::new();
        let (mut count, mut ns) = (0, 0);
        for (answers, (name, _)) in outcomes.iter().flatten().zip(SIZES) {
            let asked = answers.latencies_ns.len() as u64;
            let fields = json!({
                "asked": asked,
                "got": answers.got,
                "success": answers.got as f64 / asked.max(1) as f64,
                "latency": Quantiles::of(answers.latencies_ns.iter().copied()),
            });
            specific.insert(name.to_owned(), fields);
            count += asked;
            ns += answers.latencies_ns.iter().sum::<u64>();
        }
        Findings { work: Work::of("ranges", count, ns.max(1) as f64 / 1e9), specific }
    }
}

impl Contig {
    /// Asks for ranges of one size, spread over the memory.
    fn ask_all<T: Task>(&self, task: &T, order: Order) -> Result<Answers> {
        let there = self.frames / order.frames().get();
        let asked = self.ranges.min(there);
        let mut answers = Answers::default();
        for range in 0..asked {
            let at = Pfn::new(range * there / asked * order.frames().get());
            let asked_ns = task.now_ns();
            let got = ask(task, at, order)?;
            answers.latencies_ns.push(task.now_ns() - asked_ns);
            if let Some(block) = got {
                answers.got += 1;
                task.free(block)?;
            }
        }
        Ok(answers)
    }
}

/// Asks for the range of this size at `at`, which the allocator has no call for yet: it gives
/// another one if it has any.
fn ask<T: Task>(task: &T, _at: Pfn, order: Order) -> Result<Option<Block>> {
    match task.alloc(Request::new(order)) {
        Ok(pfn) => Ok(Some(Block { pfn, order })),
        Err(Error::OutOfMemory | Error::BelowWatermark | Error::OrderTooLarge) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

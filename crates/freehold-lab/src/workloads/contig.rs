//! `contig`: contiguous ranges out of memory that is partly in use.
//!
//! The ranges that hugetlbfs and CMA request from a kernel. All tasks fill the memory with cached
//! files, frame by frame, and with a little unmovable data, and drop files at random down to the
//! wanted occupancy. Then one task requests aligned ranges, one after the other and spread evenly
//! over the memory: first of 2 MiB, then of 1 GiB. Movable content of a range is moved out of it,
//! and the task frees a range as soon as it gets it.

use anyhow::Result;
use freehold::{FrameCount, Order, Pfn, Setting};
use serde_json::{Map, json};

use crate::frames::Frames;
use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, Telling, number, of, percent, scaled};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::report::goal::Goal;
use crate::report::summary::Quantiles;
use crate::settings::setting;
use crate::task::population::Population;
use crate::task::workload::{Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("memory_mib", "64..=1048576", "4096").means("memory of the machine, in MiB"),
    setting("occupancy", "0..=90", "50").means("percent of the memory that is in use"),
    setting("unmovable", "0..=500", "1")
        .means("of 1000 frames that fill the memory, how many cannot be moved"),
    setting("ranges", "1..=100000", "256")
        .means("ranges of each size that are asked for, or all if there are fewer"),
];

/// The sizes of the ranges, and their names.
const SIZES: [(&str, Order); 2] = [("mib_2", Order::PAGEBLOCK), ("gib_1", Order::new(18))];

/// The workload.
pub(crate) struct Contig {
    frames: u64,
    ranges: u64,
    cached: Population,
}

/// The results of the requesting task, for the ranges of one size.
#[derive(Default)]
pub(crate) struct Answers {
    got: u64,
    /// Frames that were moved.
    migrated: u64,
    latencies_ns: Vec<u64>,
}

impl TaskWorkload for Contig {
    const SETTINGS: SettingTable = ("contig", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "memory_mib";
    const FIGURES: &'static [Figure] = &[
        Figure::gain("mib_2_success_share", "/workload_specific/mib_2/success"),
        Figure::cost("mib_2_p50_ns", "/workload_specific/mib_2/latency/p50_ns"),
        Figure::cost("mib_2_p99_ns", "/workload_specific/mib_2/latency/p99_ns"),
        Figure::cost("mib_2_moved_frames", "/workload_specific/mib_2/migrated"),
        Figure::gain("gib_1_success_share", "/workload_specific/gib_1/success"),
        Figure::cost("gib_1_max_ns", "/workload_specific/gib_1/latency/max_ns"),
        Figure::cost("gib_1_moved_frames", "/workload_specific/gib_1/migrated"),
    ];
    const GOALS: &'static [Goal] =
        &[Goal::share("2 MiB had", Self::FIGURES[0]), Goal::time("p50", Self::FIGURES[1])];
    const COLUMNS: &'static [Column] = &[
        Column("2 MiB", |r| percent(r, "mib_2.success")),
        Column("p50 us", |r| scaled(r, "mib_2.latency.p50_ns", 1e3, 0)),
        Column("p99 us", |r| scaled(r, "mib_2.latency.p99_ns", 1e3, 0)),
        Column("moved", |r| number(r, "mib_2.migrated", 0)),
        Column("1 GiB", |r| of(r, "gib_1.got", "gib_1.asked")),
        Column("max ms", |r| scaled(r, "gib_1.latency.max_ns", 1e6, 2)),
        Column("moved", |r| number(r, "gib_1.migrated", 0)),
    ];
    const LEGEND: &'static [&'static str] = &[
        "2 MiB, 1 GiB: the ranges that were had, as a share or of how many. us, ms: time of a",
        "request, refusals included. moved: frames that were moved out of the way, for all.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("{} of the ranges of 2 MiB are had", |r| percent(r, "mib_2.success")),
        Telling("{} of 1 GiB", |r| of(r, "gib_1.got", "gib_1.asked")),
        Telling("{} frames are moved for the smaller ones", |r| number(r, "mib_2.migrated", 0)),
    ];
    /// The answers by size, from the requesting task.
    type Outcome = Vec<Answers>;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let given = setup.given;
        let mib = given.number(SETTINGS, "memory_mib", 64..=1_048_576)?;
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
        // No content is moved any more once all have arrived here.
        task.meet()?;
        held.extend(self.cached.owners.blocks(self.cached.slots_of(index)));
        Ok(answers)
    }

    fn sum_up(&self, outcomes: &[Vec<Answers>], _: &Besides) -> Findings {
        let mut specific = Map::new();
        let (mut count, mut ns) = (0, 0);
        for (answers, (name, _)) in outcomes.iter().flatten().zip(SIZES) {
            let asked = answers.latencies_ns.len() as u64;
            if asked == 0 {
                // The memory is smaller than such a range.
                continue;
            }
            let fields = json!({
                "asked": asked,
                "got": answers.got,
                "migrated": answers.migrated,
                "success": answers.got as f64 / asked as f64,
                "latency": Quantiles::of(answers.latencies_ns.iter().copied()),
            });
            specific.insert(name.to_owned(), fields);
            count += answers.got;
            ns += answers.latencies_ns.iter().sum::<u64>();
        }
        Findings { work: Work::of("ranges", count, ns.max(1) as f64 / 1e9), specific }
    }
}

impl Contig {
    /// Requests ranges of one size, spread over the memory.
    fn ask_all<T: Task>(&self, task: &T, order: Order) -> Result<Answers> {
        let there = self.frames / order.frames().get();
        let asked = self.ranges.min(there);
        let mut answers = Answers::default();
        let migrated = || task.allocator().events().migrated.get();
        let migrated_before = migrated();
        for range in 0..asked {
            let at = Pfn::new(range * there / asked * order.frames().get());
            let asked_ns = task.now_ns();
            let got = self.cached.owners.try_alloc_range(task, Block { pfn: at, order })?;
            answers.latencies_ns.push(task.now_ns() - asked_ns);
            if let Some(block) = got {
                answers.got += 1;
                task.free_range(block)?;
            }
        }
        answers.migrated = migrated() - migrated_before;
        Ok(answers)
    }
}

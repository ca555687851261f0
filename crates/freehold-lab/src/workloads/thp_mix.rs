//! `thp-mix`: huge and small page faults side by side, in memory that was fragmented before.
//!
//! First all tasks together allocate nearly all memory one frame at a time, and free it in an order
//! that interleaves them: each frees every n-th frame of the whole, so neighbours are freed by
//! different CPUs. A few frames can be kept all over the memory. Then, for a fixed time, the first
//! half of the tasks fault in blocks of order 9, like transparent huge pages, and the second half
//! single frames. Where there is no block, its 2 MiB are faulted in by single frames, as Linux does
//! it; page_fault1 of will-it-scale counts the pages, whatever they came in. Each task keeps a
//! share of the memory in use: beyond that the huge ones free their oldest 2 MiB, the others random
//! frames.

use std::collections::VecDeque;

use anyhow::Result;
use freehold::{FrameCount, Order, Request, Setting};
use serde_json::{Map, json};

use crate::error::refuse;
use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, Telling, free_pageblocks, number, percent, scaled};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::report::goal::Goal;
use crate::settings::setting;
use crate::task::owners::Owners;
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, FAULT_ENTRY, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("memory_mib", "64..=1048576, or auto", "auto")
        .means("memory of the machine, in MiB; auto: 4096 if simulated, else 1024"),
    setting("time_ms", "1..=100000, or auto", "auto")
        .means("how long tasks fault, in milliseconds; auto: 100 if simulated, else 1000"),
    setting("used", "1..=95", "80")
        .means("percent of the memory that the tasks use, half of it in huge pages"),
    setting("kept", "0..=50", "0")
        .means("percent of the frames that stay in use when the memory has been shattered"),
];

const MEMORY_MIB: Auto = Auto { simulated: 4096, host: 1024 };
const TIME_MS: Auto = Auto { simulated: 100, host: 1000 };

/// Of 100 frames, how many are allocated to fragment the memory. The rest are reserves.
const SHATTERED: u64 = 96;

/// What a task does when there is no frame, before it retries.
const RETRY_NS: u64 = 10_000;

/// The workload.
pub(crate) struct ThpMix {
    tasks: usize,
    frames: u64,
    time_ns: u64,
    used: u64,
    kept: u64,
    /// The slots of all tasks, contiguous.
    owners: Owners,
    slots_each: usize,
}

/// The work done by a task.
#[derive(Default)]
pub(crate) struct Score {
    huge: bool,
    /// Those that began before the end.
    attempts: u64,
    /// Those that succeeded before the end.
    faults: u64,
    /// Pages faulted in one by one before the end, for want of a block.
    fallback_pages: u64,
    /// Those under way at the end that succeeded after it.
    late: u64,
    /// How long the last attempt ran over the end.
    late_ns: u64,
}

/// What 2 MiB of a task with huge pages are mapped to.
enum Mapped {
    Huge(Block),
    /// Single frames, by their slots.
    Small(Vec<usize>),
}

impl Score {
    /// Notes how an attempt ended.
    fn note(&mut self, succeeded: bool, ended_ns: u64, ends_ns: u64) {
        self.attempts += 1;
        self.late_ns = self.late_ns.max(ended_ns.saturating_sub(ends_ns));
        match (succeeded, ended_ns <= ends_ns) {
            (true, true) => self.faults += 1,
            (true, false) => self.late += 1,
            (false, _) => {}
        }
    }
}

impl TaskWorkload for ThpMix {
    const SETTINGS: SettingTable = ("thp-mix", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "memory_mib";
    const FIGURES: &'static [Figure] = &[
        Figure::gain("huge_per_second", "/workload_specific/huge/per_second"),
        Figure::gain("huge_success_share", "/workload_specific/huge/success"),
        Figure::gain("small_per_second", "/workload_specific/small/per_second"),
        Figure::gain("small_success_share", "/workload_specific/small/success"),
        Figure::gain("huge_pages_per_second", "/workload_specific/huge/pages_per_second"),
    ];
    const GOALS: &'static [Goal] =
        &[Goal::rate("huge/s", Self::FIGURES[0]), Goal::rate("small/s", Self::FIGURES[2])];
    const COLUMNS: &'static [Column] = &[
        Column("huge", |r| number(r, "huge.faults", 0)),
        Column("huge/s", |r| number(r, "huge.per_second", 0)),
        Column("success", |r| percent(r, "huge.success")),
        Column("small/s", |r| number(r, "small.per_second", 0)),
        Column("success", |r| percent(r, "small.success")),
        Column("over ms", |r| scaled(r, "late_ns_max", 1e6, 1)),
        Column("whole", free_pageblocks),
    ];
    const LEGEND: &'static [&'static str] = &[
        "huge: faults of 2 MiB by half of the tasks. small/s: faults of 4 KiB by the other half.",
        "success: of their attempts. All memory had been in use in single frames before. over: how",
        "long the last call ran over the end; what it got is in no rate. whole: share of the free",
        "memory that is whole pageblocks in the end, after a drain.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("{} huge faults in time", |r| number(r, "huge.faults", 0)),
        Telling("had at {} of the attempts", |r| percent(r, "huge.success")),
        Telling("{} small faults", |r| number(r, "small.faults", 0)),
        Telling("a call that runs over the end by {} ms", |r| scaled(r, "late_ns_max", 1e6, 1)),
    ];
    type Outcome = Score;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let (given, tasks) = (setup.given, setup.tasks);
        if tasks < 2 {
            return refuse("thp-mix needs two halves: raise --cpus to at least 2");
        }
        let mib = setup.number_or_auto(SETTINGS, "memory_mib", 64..=1_048_576, MEMORY_MIB)?;
        let time_ms = setup.number_or_auto(SETTINGS, "time_ms", 1..=100_000, TIME_MS)?;
        let frames = ((mib as u64) << 20) / FRAME_BYTES;
        let slots_each = (frames * SHATTERED / 100 / tasks as u64) as usize;
        Ok(ThpMix {
            tasks,
            frames,
            time_ns: time_ms as u64 * 1_000_000,
            used: given.number(SETTINGS, "used", 1..=95)? as u64,
            kept: given.number(SETTINGS, "kept", 0..=50)? as u64,
            owners: Owners::new(slots_each * tasks, FrameCount::new(frames)),
            slots_each,
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Score> {
        self.shatter(task)?;
        let index = task.place().index;
        let huge = index < self.tasks / 2;
        let half = if huge { self.tasks / 2 } else { self.tasks - self.tasks / 2 };
        let share = self.frames * self.used.saturating_sub(self.kept) / 200 / half as u64;
        task.start_measuring_for(self.time_ns)?;
        let ends_ns = task.now_ns() + self.time_ns;
        let score = if huge {
            let blocks = (share / Order::PAGEBLOCK.frames().get()).max(1);
            self.fault_huge(task, ends_ns, blocks as usize, held)?
        } else {
            self.fault_small(task, ends_ns, share as usize)?
        };
        // No content is moved any more once all have arrived here.
        task.meet()?;
        held.extend(self.owners.blocks(self.slots_of(index)));
        Ok(Score { huge, ..score })
    }

    fn sum_up(&self, outcomes: &[Score], _: &Besides) -> Findings {
        let mut specific = Map::new();
        let mut frames = 0;
        for (name, huge, order) in [("huge", true, Order::PAGEBLOCK), ("small", false, Order::ZERO)]
        {
            let of = outcomes.iter().filter(|score| score.huge == huge);
            let attempts: u64 = of.clone().map(|score| score.attempts).sum();
            let faults: u64 = of.clone().map(|score| score.faults).sum();
            let fallback_pages: u64 = of.clone().map(|score| score.fallback_pages).sum();
            let late: u64 = of.map(|score| score.late).sum();
            let pages = faults * order.frames().get() + fallback_pages;
            let per_second = |count: u64| count as f64 * 1e9 / self.time_ns as f64;
            let fields = json!({
                "attempts": attempts,
                "faults": faults,
                "late": late,
                "success": (faults + late) as f64 / attempts.max(1) as f64,
                "per_second": per_second(faults),
                "fallback_pages": fallback_pages,
                "pages_per_second": per_second(pages),
            });
            specific.insert(name.to_owned(), fields);
            frames += pages;
        }
        let late_ns_max = outcomes.iter().map(|score| score.late_ns).max();
        specific.insert("late_ns_max".to_owned(), json!(late_ns_max));
        Findings { work: Work::of("frames", frames, self.time_ns as f64 / 1e9), specific }
    }
}

impl ThpMix {
    fn slots_of(&self, task: usize) -> std::ops::Range<usize> {
        task * self.slots_each..(task + 1) * self.slots_each
    }

    /// Allocates nearly all memory in single frames, and frees it across the tasks.
    fn shatter<T: Task>(&self, task: &T) -> Result<()> {
        let index = task.place().index;
        for slot in self.slots_of(index) {
            // Reserves and what other CPUs cache may leave less than there are slots.
            let Some(block) = task.try_alloc(Request::default())? else { break };
            self.owners.put(slot, block);
        }
        task.meet()?;
        let mut rng = task.place().rng();
        for slot in (index..self.slots_each * self.tasks).step_by(self.tasks) {
            let kept = rng.u64(..100) < self.kept;
            if !kept && let Some(block) = self.owners.take(task, slot)? {
                task.free(block)?;
            }
        }
        task.meet()
    }

    /// Faults in single frames, of which it keeps `most`.
    fn fault_small<T: Task>(&self, task: &T, ends_ns: u64, most: usize) -> Result<Score> {
        let mut rng = task.place().rng();
        let mut slots: Vec<_> = self.free_slots(task.place().index).take(most).collect();
        let mut used = Vec::with_capacity(slots.len());
        let mut score = Score::default();
        while task.now_ns() < ends_ns {
            let block = task.try_fault(Request::default())?;
            score.note(block.is_some(), task.now_ns(), ends_ns);
            let Some(block) = block else {
                task.idle_ns(RETRY_NS);
                continue;
            };
            match slots.pop() {
                Some(slot) => {
                    self.owners.put(slot, block);
                    used.push(slot);
                }
                None => task.unmap(block)?,
            }
            if slots.is_empty() {
                // A quarter is freed at a time, so that frees come in runs.
                for _ in 0..used.len().div_ceil(4) {
                    let slot = used.swap_remove(rng.usize(..used.len()));
                    if let Some(block) = self.owners.take(task, slot)? {
                        task.unmap(block)?;
                    }
                    slots.push(slot);
                }
            }
        }
        Ok(score)
    }

    /// The empty slots of a task.
    fn free_slots(&self, task: usize) -> impl Iterator<Item = usize> + '_ {
        self.slots_of(task).filter(|&slot| self.owners.is_empty(slot))
    }

    /// Faults in 2 MiB after 2 MiB, of which it keeps `most`.
    fn fault_huge<T: Task>(
        &self,
        task: &T,
        ends_ns: u64,
        most: usize,
        held: &mut Vec<Block>,
    ) -> Result<Score> {
        let mut slots: Vec<_> = self.free_slots(task.place().index).collect();
        let mut mapped = VecDeque::with_capacity(most);
        let mut score = Score::default();
        while task.now_ns() < ends_ns {
            let block = self.try_fault_huge(task)?;
            score.note(block.is_some(), task.now_ns(), ends_ns);
            mapped.push_back(match block {
                Some(block) => Mapped::Huge(block),
                None => Mapped::Small(self.fault_pages(task, ends_ns, &mut slots, &mut score)?),
            });
            if mapped.len() < most {
                continue;
            }
            match mapped.pop_front() {
                Some(Mapped::Huge(block)) => task.unmap(block)?,
                Some(Mapped::Small(pages)) => {
                    for slot in pages {
                        if let Some(block) = self.owners.take(task, slot)? {
                            task.unmap(block)?;
                        }
                        slots.push(slot);
                    }
                }
                None => {}
            }
        }
        held.extend(mapped.into_iter().filter_map(|mapped| match mapped {
            Mapped::Huge(block) => Some(block),
            Mapped::Small(_) => None,
        }));
        Ok(score)
    }

    /// Faults in 2 MiB page by page, since there is no block; returns the slots of the pages.
    fn fault_pages<T: Task>(
        &self,
        task: &T,
        ends_ns: u64,
        slots: &mut Vec<usize>,
        score: &mut Score,
    ) -> Result<Vec<usize>> {
        let mut pages = Vec::new();
        for _ in 0..Order::PAGEBLOCK.frames().get() {
            if task.now_ns() >= ends_ns {
                break;
            }
            let Some(block) = task.try_fault(Request::default())? else {
                task.idle_ns(RETRY_NS);
                continue;
            };
            score.fallback_pages += u64::from(task.now_ns() <= ends_ns);
            match slots.pop() {
                Some(slot) => {
                    self.owners.put(slot, block);
                    pages.push(slot);
                }
                None => task.unmap(block)?,
            }
        }
        Ok(pages)
    }

    /// Faults in a huge page; content is moved if free memory is fragmented.
    fn try_fault_huge<T: Task>(&self, task: &T) -> Result<Option<Block>> {
        task.charge(&FAULT_ENTRY);
        let block = self.owners.try_alloc_compacting(task, Request::new(Order::PAGEBLOCK))?;
        if let Some(block) = block {
            task.map(block);
        }
        Ok(block)
    }
}

//! `replay`: what the CPUs of a recording did, on another allocator and another machine.
//!
//! A task does what one recorded CPU did, in its order. A block that another CPU has allocated is
//! waited for. On simulated machines the time between two calls of a CPU is the recorded one, spent
//! computing, or idle if it is long; on the host there is none. Several copies of the recorded CPUs
//! run side by side, each with blocks of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytesize::ByteSize;
use freehold::{FrameCount, Order, Pfn, Request, Setting};
use serde::Serialize;
use serde_json::json;

use crate::error::refuse;
use crate::fragmentation::{FreeMemory, free_memory};
use crate::frames::Frames;
use crate::machine::FRAME_BYTES;
use crate::replay::plan::{Do, OfCpu, Part, Plan, Slot};
use crate::report::columns::{Column, Telling, free_pageblocks, number, percent};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::settings::setting;
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Place, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("memory", "a size of at least 4MiB, such as 8GiB, or auto", "auto").means(
        "memory of the machine; auto: twice what is allocated at most, and at least \
                  256MiB a CPU",
    ),
    setting("rounds", "1..=1000000, or auto", "auto").means(
        "how often it is all done again; auto: 1 if simulated, else until a CPU makes a \
                  million calls",
    ),
    setting("stagger_ns", "0..=10000000000, or auto", "auto").means(
        "simulated copies begin at times drawn from so many ns; auto: a tenth of the \
                  recorded time",
    ),
    setting("idle_ns", "0..=1000000000", "1000000")
        .means("time between two calls of a CPU from which on it is taken to be idle, in ns"),
];

/// The least memory that `auto` means, for each task. Machines have more; with less, designs size
/// per-CPU lists and caches for a machine that is short of memory.
const TASK_BYTES_MIN: u64 = 256 << 20;

/// How many calls the busiest task makes on the host.
const HOST_CALLS: usize = 1_000_000;

/// How many looks at the free memory a run takes, at equal distances of recorded time.
const LOOKS: u64 = 20;

/// In place of a frame: the block is not allocated yet; the allocator had no memory for it.
const NOT_YET: u64 = u64::MAX;
const REFUSED: u64 = u64::MAX - 1;

/// Into how many parts a look divides the memory.
const PARTS: usize = 128;

/// The workload.
pub(crate) struct Replay {
    plan: Arc<Plan>,
    tasks: usize,
    /// The first frame of each block, copy by copy.
    blocks: Vec<AtomicU64>,
    memory_frames: u64,
    /// Allocated frames of each part of the memory, where looking at them costs nothing: on
    /// simulated machines.
    occupied: Vec<AtomicU64>,
    rounds: usize,
    /// Times between calls; none on the host.
    pace: Option<Pace>,
}

/// The times of a replay that keeps to the recorded ones.
#[derive(Clone, Copy)]
struct Pace {
    /// Copies begin within so much time of each other: programs that run side by side do not do
    /// the same in the same nanosecond.
    stagger_ns: u64,
    /// From which time on a CPU is idle between two calls.
    idle_ns: u64,
}

/// What one task did.
#[derive(Default)]
pub(crate) struct Replayed {
    elapsed_ns: u64,
    idle_ns: u64,
    waited_ns: u64,
    calls: u64,
    refused: u64,
    looks: Vec<Look>,
}

/// The free memory at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Look {
    /// Since the start of the replay.
    time_ns: u64,
    /// Since the start of the recording.
    recorded_ns: u64,
    free_frames: u64,
    free_pageblocks: u64,
    /// Of the free memory, in thousandths, what is in blocks too small for order 3, and for a
    /// pageblock.
    unusable_index_order3: u32,
    unusable_index_pageblock: u32,
    /// How full each part of the memory is, from the lowest frame to the highest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    occupancy_percent: Vec<u64>,
}

impl Look {
    fn at(
        (time_ns, recorded_ns): (u64, u64),
        memory: &FreeMemory,
        occupancy_percent: Vec<u64>,
    ) -> Self {
        let unusable = |order: Order| memory.unusable_index[usize::from(order.get())];
        Look {
            time_ns,
            recorded_ns,
            free_frames: memory.free_frames,
            free_pageblocks: memory.free_pageblocks,
            unusable_index_order3: unusable(Order::new(3)),
            unusable_index_pageblock: unusable(Order::PAGEBLOCK),
            occupancy_percent,
        }
    }
}

/// A task's way through its steps.
struct Walk<'a, T> {
    replay: &'a Replay,
    task: &'a T,
    /// The blocks of its copy.
    blocks: &'a [AtomicU64],
    done: Replayed,
}

impl<T: Task> Walk<'_, T> {
    /// Allocates a block, and shows it to other tasks.
    fn alloc(&mut self, slot: Slot, request: Request, shared: bool) -> Result<()> {
        let block = self.task.try_alloc(request)?;
        self.done.calls += 1;
        self.done.refused += u64::from(block.is_none());
        if shared {
            // Tasks that are earlier have not seen it by then.
            self.task.in_order();
        }
        self.show(slot, block.map_or(REFUSED, |block| block.pfn.get()));
        if let Some(block) = block {
            self.replay.occupy(block, u64::wrapping_add);
        }
        Ok(())
    }

    fn show(&self, slot: Slot, first: u64) {
        // Publishes nothing but itself: the allocator orders what belongs to the frames.
        self.blocks[slot as usize].store(first, Ordering::Relaxed);
    }

    /// Allocates what is there from before, when nothing is measured.
    fn prepare(&self, cpu: &OfCpu) -> Result<()> {
        for &(slot, order) in &cpu.before {
            let pfn = self.task.allocator().alloc(Request::new(order))?;
            self.replay.occupy(Block { pfn, order }, u64::wrapping_add);
            self.show(slot, pfn.get());
        }
        Ok(())
    }

    /// What is left of a round.
    fn left(&mut self, cpu: &OfCpu) -> Result<Vec<Block>> {
        let mut left = Vec::new();
        for part in &cpu.left {
            let pfn = self.frames_of(*part)?;
            left.extend(pfn.map(|pfn| Block { pfn, order: part.order }));
        }
        Ok(left)
    }

    /// Frees what is left of a round, when nothing is measured, and forgets its blocks.
    fn clear_up(&mut self, cpu: &OfCpu) -> Result<()> {
        for block in self.left(cpu)? {
            self.replay.occupy(block, u64::wrapping_sub);
            self.task.allocator().free(block.pfn, block.order)?;
        }
        self.task.meet()?;
        for step in &cpu.steps {
            if let Do::Alloc { slot, .. } = step.what {
                self.show(slot, NOT_YET);
            }
        }
        Ok(())
    }

    /// The frames of a part, once they are allocated; none if they never were.
    fn frames_of(&mut self, part: Part) -> Result<Option<Pfn>> {
        loop {
            match self.blocks[part.slot as usize].load(Ordering::Relaxed) {
                NOT_YET => self.done.waited_ns += self.task.timed_pause()?,
                REFUSED => return Ok(None),
                first => return Ok(Some(Pfn::new(first + u64::from(part.offset)))),
            }
        }
    }

    fn free(&mut self, part: Part) -> Result<()> {
        if let Some(pfn) = self.frames_of(part)? {
            let block = Block { pfn, order: part.order };
            self.replay.occupy(block, u64::wrapping_sub);
            self.task.free(block)?;
            self.done.calls += 1;
        }
        Ok(())
    }

    fn free_bulk(&mut self, parts: &[Part], frames: &mut Vec<Pfn>) -> Result<()> {
        frames.clear();
        for part in parts {
            frames.extend(self.frames_of(*part)?);
        }
        if !frames.is_empty() {
            for &pfn in &*frames {
                self.replay.occupy(Block { pfn, order: Order::ZERO }, u64::wrapping_sub);
            }
            self.task.free_bulk(frames)?;
            self.done.calls += 1;
        }
        Ok(())
    }

    /// Lets the time pass that the CPU took before its next call.
    fn think(&mut self, ns: u64, idle_from_ns: u64) {
        if ns >= idle_from_ns {
            self.task.idle_ns(ns);
            self.done.idle_ns += ns;
        } else {
            self.task.compute_ns(ns);
        }
    }
}

impl Replay {
    /// The blocks of the copy that a task is part of, and what the task does.
    fn part_of(&self, task: usize) -> (&[AtomicU64], &OfCpu) {
        let cpus = self.plan.cpus.len();
        let first = task / cpus * self.plan.slots;
        (&self.blocks[first..first + self.plan.slots], &self.plan.cpus[task % cpus])
    }

    /// The task that looks at the free memory: of the busiest CPU.
    fn looks(&self, task: usize) -> bool {
        let steps = |cpu: &usize| self.plan.cpus[*cpu].steps.len();
        (0..self.plan.cpus.len()).max_by_key(steps) == Some(task)
    }

    /// Counts the frames of a block, which lies within two parts of the memory at most.
    fn occupy(&self, block: Block, change: fn(u64, u64) -> u64) {
        let Some(parts) = self.memory_frames.checked_div(self.occupied.len() as u64) else {
            return;
        };
        let (first, frames) = (block.pfn.get(), block.order.frames().get());
        let part_of = |frame: u64| (frame / parts.max(1)).min(self.occupied.len() as u64 - 1);
        let (lower, upper) = (part_of(first), part_of(first + frames - 1));
        let below = if lower == upper { frames } else { upper * parts - first };
        for (part, frames) in [(lower, below), (upper, frames - below)] {
            let occupied = &self.occupied[part as usize];
            // All tasks of a simulated machine are one thread.
            occupied.store(change(occupied.load(Ordering::Relaxed), frames), Ordering::Relaxed);
        }
    }

    /// How full each part of the memory is.
    fn occupancy_percent(&self) -> Vec<u64> {
        let parts = (self.memory_frames / self.occupied.len().max(1) as u64).max(1);
        let occupied = self.occupied.iter().map(|frames| frames.load(Ordering::Relaxed));
        occupied.map(|frames| frames * 100 / parts).collect()
    }

    /// Does what a recorded CPU did, once.
    fn round<T: Task>(&self, walk: &mut Walk<'_, T>, index: usize) -> Result<()> {
        let (_, cpu) = self.part_of(index);
        let began_ns = walk.task.now_ns();
        let look_every_ns = (self.plan.elapsed_ns / LOOKS).max(1);
        let (mut recorded_ns, mut next_look_ns) = (0, 0);
        let looks = self.looks(index) && walk.done.looks.is_empty();
        let mut frames = Vec::new();
        for step in &cpu.steps {
            if let Some(pace) = self.pace {
                walk.think(step.after_ns, pace.idle_ns);
            }
            recorded_ns += step.after_ns;
            if looks && recorded_ns >= next_look_ns {
                let memory = free_memory(walk.task.allocator());
                walk.done.looks.push(Look::at(
                    (walk.task.now_ns() - began_ns, recorded_ns),
                    &memory,
                    self.occupancy_percent(),
                ));
                next_look_ns = recorded_ns + look_every_ns;
            }
            match step.what {
                Do::Alloc { slot, order, migratetype } => {
                    let request = Request::new(order).migratetype(migratetype);
                    walk.alloc(slot, request, self.plan.is_shared(slot))?;
                }
                Do::Free(part) => walk.free(part)?,
                Do::FreeBulk { first, count } => {
                    let parts = &cpu.bulk[first as usize..][..count as usize];
                    walk.free_bulk(parts, &mut frames)?;
                }
            }
        }
        walk.done.elapsed_ns += walk.task.now_ns() - began_ns;
        Ok(())
    }
}

impl TaskWorkload for Replay {
    const SETTINGS: SettingTable = ("replay", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "memory";
    const FIGURES: &'static [Figure] = &[
        Figure::aside("refused", "/workload_specific/refused"),
        Figure::aside("metadata_bytes", "/workload_specific/metadata_bytes"),
    ];
    const COLUMNS: &'static [Column] = &[
        Column("calls/s", |r| format!("{:.0}", r.work.per_second)),
        Column("alloc ns", |r| number(r, "calls.alloc.mean_ns", 1)),
        Column("free ns", |r| number(r, "calls.free.mean_ns", 1)),
        Column("allocator", |r| percent(r, "allocator_share")),
        Column("refused", |r| number(r, "refused", 0)),
        Column("whole", free_pageblocks),
    ];
    const LEGEND: &'static [&'static str] = &[
        "calls/s: of all CPUs together, by the time in which they were busy. allocator: share of",
        "that time. whole: free memory in whole pageblocks at the end, after a drain.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("the allocator takes {} of the time in which CPUs are busy", |r| {
            percent(r, "allocator_share")
        }),
        Telling("{} of the free memory is in whole pageblocks at the end", free_pageblocks),
    ];
    type Outcome = Replayed;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let Some(plan) = setup.given.recording() else {
            let message = "replay needs a recording: `freehold replay TRACE`".to_owned();
            return refuse(message);
        };
        let copies = setup.tasks / plan.cpus.len();
        let auto = (2 * plan.frames_max * copies as u64)
            .max(setup.tasks as u64 * TASK_BYTES_MIN / FRAME_BYTES);
        let memory_frames = setup.given.parsed(SETTINGS, "memory", |value| match value {
            "auto" => Some(auto),
            size => {
                let size = size.parse::<ByteSize>().ok().filter(|size| size.0 >= 4 << 20);
                size.map(|size| size.0 / FRAME_BYTES)
            }
        })?;
        let stagger_ns = match copies {
            1 => 0,
            _ => usize::try_from(plan.elapsed_ns / 10)?,
        };
        let stagger = Auto { simulated: stagger_ns, host: 0 };
        let pace = Pace {
            stagger_ns: setup.number_or_auto(SETTINGS, "stagger_ns", 0..=10_000_000_000, stagger)?
                as u64,
            idle_ns: setup.given.number(SETTINGS, "idle_ns", 0..=1_000_000_000)? as u64,
        };
        let steps = plan.cpus.iter().map(|cpu| cpu.steps.len()).max().unwrap_or(0).max(1);
        let rounds = Auto { simulated: 1, host: HOST_CALLS.div_ceil(steps) };
        Ok(Replay {
            rounds: setup.number_or_auto(SETTINGS, "rounds", 1..=1_000_000, rounds)?,
            plan: Arc::clone(plan),
            tasks: setup.tasks,
            blocks: (0..copies * plan.slots).map(|_| AtomicU64::new(NOT_YET)).collect(),
            memory_frames,
            occupied: (0..if setup.simulated { PARTS } else { 0 })
                .map(|_| AtomicU64::new(0))
                .collect(),
            pace: setup.simulated.then_some(pace),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.memory_frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Replayed> {
        let index = task.place().index;
        let (blocks, cpu) = self.part_of(index);
        let mut walk = Walk { replay: self, task, blocks, done: Replayed::default() };
        walk.prepare(cpu)?;
        task.start_measuring()?;
        if let Some(pace) = self.pace {
            let copy = index / self.plan.cpus.len();
            let mut rng = Place { index: copy, ..task.place() }.rng();
            task.idle_ns(rng.u64(0..=pace.stagger_ns));
        }
        self.round(&mut walk, index)?;
        for _ in 1..self.rounds {
            walk.clear_up(cpu)?;
            walk.prepare(cpu)?;
            task.meet()?;
            self.round(&mut walk, index)?;
        }
        held.extend(walk.left(cpu)?);
        Ok(walk.done)
    }
    fn sum_up(&self, outcomes: &[Replayed], _: &Besides) -> Findings {
        let sum = |of: fn(&Replayed) -> u64| outcomes.iter().map(of).sum::<u64>();
        let (all_ns, idle_ns, waited_ns) =
            (sum(|of| of.elapsed_ns), sum(|of| of.idle_ns), sum(|of| of.waited_ns));
        let busy_ns = all_ns.saturating_sub(idle_ns + waited_ns).max(1);
        let longest_ns = outcomes.iter().map(|of| of.elapsed_ns).max().unwrap_or(0);
        let calls = sum(|of| of.calls);
        let looks: Vec<_> = outcomes.iter().flat_map(|of| of.looks.clone()).collect();
        let fields = [
            ("rounds", json!(self.rounds)),
            ("copies", json!(self.tasks / self.plan.cpus.len())),
            ("recorded_ns", json!(self.plan.elapsed_ns)),
            ("replayed_ns", json!(longest_ns)),
            ("idle_share", json!(idle_ns as f64 / all_ns.max(1) as f64)),
            ("wait_share", json!(waited_ns as f64 / all_ns.max(1) as f64)),
            ("refused", json!(sum(|of| of.refused))),
            ("memory_bytes", json!(self.memory_frames * FRAME_BYTES)),
            ("recording", json!(self.plan.tally)),
            ("looks", json!(looks)),
        ];
        let seconds = busy_ns as f64 / 1e9 / outcomes.len() as f64;
        Findings::new(Work::of("calls", calls, seconds), fields)
    }
}

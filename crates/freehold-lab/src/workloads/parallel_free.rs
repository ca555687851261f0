//! `parallel-free`: many CPUs free at once.
//!
//! `workers`: one task allocates a huge region, then several free it in disjoint batches, which
//! they take from a common queue. Linux was to do this when a process with hundreds of GiB exits:
//! batches of 256 Ki pages for up to 32 workers (Aaron Lu, "mm: support parallel free of memory",
//! March 2017). `exit`: every task allocates its own share, then all free theirs at once, like the
//! processes of a container that ends.
//!
//! The frames are anonymous memory, so they are charged to a memory group and on the LRU lists.
//! They leave as in Linux 6.12: unmapping gathers up to 510 of them (`MAX_GATHER_BATCH`); then the
//! CPU puts what waits in its own batches on the lists (`free_pages_and_swap_cache`), and releases
//! 31 at a time (`PAGEVEC_SIZE`): it takes them off their lists in one hold of the LRU lock for
//! consecutive frames under it, uncharges them, and frees them by one bulk call
//! (`folios_put_refs`, `free_unref_folios`). In the kernel of the series, 4.10, the lock was held
//! for 32 frames at a time and all 510 were freed after (`release_pages`).
//!
//! The frames are not touched. Of each task only unmapping and freeing is measured. In the series,
//! the exiting task unmaps and the workers release; here each worker does both.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::Result;
use freehold::platform::Platform;
use freehold::{FrameCount, Order, Pfn, Request, Setting};
use freehold_lru::BATCH_MAX;
use serde_json::{Map, json};

use crate::error::refuse;
use crate::report::columns::{Column, LRU_LOCK, Telling, number, scaled};
use crate::report::document::{RunResult, Work};
use crate::report::figure::Figure;
use crate::report::goal::Goal;
use crate::report::summary::Summary;
use crate::settings::setting;
use crate::sim::linux::LRU_SETTINGS;
use crate::task::lru::{Frees, LruPlan};
use crate::task::page_lists::{self, PageLists};
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, TaskWorkload, frames_of};
use crate::task::{Block, Task, UNMAPPING};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("mode", "workers|exit|both", "both")
        .means("workers free what one task allocated, or all tasks exit at once, or both in turn"),
    setting("task_region", "a size of at least one frame, such as 64MiB", "64MiB")
        .means("memory that is freed in each of the modes, for each task"),
    setting("rounds", "1..=1000, or auto", "auto")
        .means("how often it is freed, of which the median counts; auto: 1 if simulated, else 25"),
    setting("batch_frames", "1..=10000000", "4096")
        .means("frames that a worker takes from the queue at a time"),
    setting("workers", "1..=4096, or all", "all")
        .means("tasks that free the region; Linux was to use up to 32"),
    setting("free", "single|bulk", "bulk")
        .means("frames are freed one at a time, or as many in bulk as left the LRU together"),
];

/// As in Linux 6.12. A process, or the container of all of them, is one memory group.
const ON_LISTS: &[Setting] = &page_lists::settings("node", "31", "one");

const ROUNDS: Auto = Auto { simulated: 1, host: 25 };

/// Frames that are gathered while they are unmapped: what fits a page beside 16 bytes of its own
/// (`MAX_GATHER_BATCH` of Linux 6.12).
const GATHERED: usize = 510;

/// What the allocator took for a frame of those freed last.
fn free_ns(result: &RunResult) -> String {
    scaled(result, "calls.free.total_ns", result.work.count as f64, 1)
}

/// The workload.
pub(crate) struct ParallelFree {
    workers: Option<usize>,
    exit: bool,
    region_frames: usize,
    batch: usize,
    bulk: bool,
    lists: Option<PageLists>,
    tasks: usize,
    queues: Vec<Queue>,
}

/// The frames that the workers free in one round.
#[derive(Default)]
struct Queue {
    /// What the first task has allocated for them.
    region: OnceLock<Vec<Pfn>>,
    /// How many batches of it have been taken.
    taken: AtomicUsize,
}

/// When a task began and ended each of its parts in one round, in ns.
#[derive(Default)]
pub(crate) struct Spans {
    workers: Option<(u64, u64)>,
    exit: Option<(u64, u64)>,
}

impl TaskWorkload for ParallelFree {
    const SETTINGS: SettingTable = ("parallel-free", SETTINGS);
    const ON_HOST: &'static [SettingTable] = &[("parallel-free LRU", ON_LISTS)];
    const ON_SIM: &'static [SettingTable] =
        &[("parallel-free LRU", ON_LISTS), ("simulated LRU", LRU_SETTINGS)];
    const USES_LRU: bool = true;
    const SIZE: &'static str = "task_region";
    const FIGURES: &'static [Figure] = &[
        Figure::cost("workers_ns", "/workload_specific/workers/ns/median")
            .of_samples("/workload_specific/workers/samples_ns"),
        Figure::aside("workers_per_second", "/workload_specific/workers/per_second"),
        Figure::cost("exit_ns", "/workload_specific/exit/ns/median")
            .of_samples("/workload_specific/exit/samples_ns"),
        Figure::aside("exit_per_second", "/workload_specific/exit/per_second"),
    ];
    const GOALS: &'static [Goal] =
        &[Goal::rate("workers/s", Self::FIGURES[1]), Goal::rate("exit/s", Self::FIGURES[3])];
    const COLUMNS: &'static [Column] = &[
        Column("workers ms", |r| scaled(r, "workers.ns.median", 1e6, 2)),
        Column("frames/s", |r| number(r, "workers.per_second", 0)),
        Column("exit ms", |r| scaled(r, "exit.ns.median", 1e6, 2)),
        Column("frames/s", |r| number(r, "exit.per_second", 0)),
        Column("free ns", free_ns),
        LRU_LOCK,
    ];
    const LEGEND: &'static [&'static str] = &[
        "workers: tasks that free what one task allocated. exit: all tasks free their own. ms:",
        "from the start until the last is done. free ns: what the allocator takes for a frame,",
        "in the last of the two; so are the locks' shares.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("{} frames/s by workers", |r| number(r, "workers.per_second", 0)),
        Telling("{} frames/s at exit", |r| number(r, "exit.per_second", 0)),
    ];
    type Outcome = Vec<Spans>;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let given = setup.given;
        let modes = [("workers", (true, false)), ("exit", (false, true)), ("both", (true, true))];
        let (by_workers, exit) = given.word(SETTINGS, "mode", &modes)?;
        let workers = given.parsed(SETTINGS, "workers", |value| match value {
            "all" => Some(setup.tasks),
            number => number.parse().ok().filter(|workers| (1..=4096).contains(workers)),
        })?;
        if workers > setup.tasks {
            let tasks = setup.tasks;
            return refuse(format!("--set workers={workers}: --cpus gives only {tasks} tasks"));
        }
        let task_frames = usize::try_from(frames_of(given, SETTINGS, "task_region")?)?;
        let rounds = setup.number_or_auto(SETTINGS, "rounds", 1..=1000, ROUNDS)?;
        Ok(ParallelFree {
            workers: by_workers.then_some(workers),
            exit,
            region_frames: task_frames * setup.tasks,
            batch: given.number(SETTINGS, "batch_frames", 1..=10_000_000)?,
            bulk: given.word(SETTINGS, "free", &[("single", false), ("bulk", true)])?,
            lists: PageLists::parse(given, ON_LISTS)?,
            tasks: setup.tasks,
            queues: (0..rounds).map(|_| Queue::default()).collect(),
        })
    }

    fn memory(&self) -> Memory {
        Memory::AtLeast(FrameCount::new(self.region_frames as u64))
    }

    fn lru(&self) -> Option<LruPlan> {
        let frees = if self.bulk { Frees::InBulk } else { Frees::OneByOne };
        self.lists.as_ref().map(|lists| lists.plan(self.tasks, frees))
    }

    fn run<T: Task>(&self, task: &T, _held: &mut Vec<Block>) -> Result<Vec<Spans>> {
        let round = |queue: &Queue| {
            Ok(Spans {
                workers: self.workers.map_or(Ok(None), |n| self.free_by_workers(task, queue, n))?,
                exit: if self.exit { Some(self.free_at_exit(task)?) } else { None },
            })
        };
        self.queues.iter().map(round).collect()
    }

    fn sum_up(&self, outcomes: &[Vec<Spans>], _: &Besides) -> Findings {
        let mut specific = Map::new();
        let frames = self.region_frames as f64;
        let mut seconds = 0.0;
        type Of = fn(&Spans) -> Option<(u64, u64)>;
        let parts: [(&str, usize, Of); 2] = [
            ("workers", self.workers.unwrap_or(0), |spans| spans.workers),
            ("exit", if self.exit { self.tasks } else { 0 }, |spans| spans.exit),
        ];
        for (name, tasks, of) in parts.into_iter().filter(|(_, tasks, _)| *tasks > 0) {
            let ns = |round: usize| {
                let spans = outcomes.iter().filter_map(|task| of(&task[round]));
                let began_ns = spans.clone().map(|span| span.0).min().unwrap_or(0);
                spans.map(|span| span.1).max().unwrap_or(0).saturating_sub(began_ns).max(1) as f64
            };
            let samples: Vec<_> = (0..self.queues.len()).map(ns).collect();
            let ns = Summary::of(&samples);
            // The standard fields are about the last of the parts.
            seconds = ns.median / 1e9;
            let per_second = frames / seconds;
            let rates: Vec<_> = samples.iter().map(|ns| frames * 1e9 / ns).collect();
            specific.insert("samples_per_second".to_owned(), json!(rates));
            let fields = json!({
                "tasks": tasks, "ns": ns, "samples_ns": samples, "per_second": per_second,
            });
            specific.insert(name.to_owned(), fields);
        }
        let work = Work::of("frames", self.region_frames as u64, seconds);
        Findings { work, specific }
    }
}

impl ParallelFree {
    /// Lets workers free what the first task has allocated. Returns when a worker was working.
    fn free_by_workers<T: Task>(
        &self,
        task: &T,
        queue: &Queue,
        workers: usize,
    ) -> Result<Option<(u64, u64)>> {
        let index = task.place().index;
        if index == 0 {
            let region = self.allocate(task, self.region_frames)?;
            queue.region.get_or_init(|| region);
        }
        task.start_measuring()?;
        let began_ns = task.now_ns();
        if index < workers {
            self.work_off(task, queue)?;
        }
        let ended_ns = task.now_ns();
        task.meet()?;
        Ok((index < workers).then_some((began_ns, ended_ns)))
    }

    /// Takes batches from the queue and frees them, until none is left.
    fn work_off<T: Task>(&self, task: &T, queue: &Queue) -> Result<()> {
        let region = queue.region.get().map_or(&[][..], Vec::as_slice);
        loop {
            task.in_order();
            // Relaxed: the counter only assigns numbers.
            let batch = queue.taken.fetch_add(1, Relaxed);
            let Some(frames) = region.chunks(self.batch).nth(batch) else { return Ok(()) };
            self.give_back(task, frames)?;
        }
    }

    /// Frees what the task has allocated itself, at the same time as all others.
    fn free_at_exit<T: Task>(&self, task: &T) -> Result<(u64, u64)> {
        let own = self.allocate(task, self.region_frames / self.tasks)?;
        task.start_measuring()?;
        let began_ns = task.now_ns();
        self.give_back(task, &own)?;
        let ended_ns = task.now_ns();
        Ok((began_ns, ended_ns))
    }

    /// Unmaps frames and frees them.
    fn give_back<T: Task>(&self, task: &T, frames: &[Pfn]) -> Result<()> {
        for gathered in frames.chunks(GATHERED) {
            if self.lists.is_some() {
                let lru = task.lru();
                lru.drain(lru.platform().cpu())?;
            }
            for batch in
                gathered.chunks(self.lists.as_ref().map_or(BATCH_MAX, |lists| lists.gather))
            {
                self.release(task, batch)?;
            }
        }
        Ok(())
    }

    /// Releases a batch, as many frames as leave the LRU together.
    fn release<T: Task>(&self, task: &T, frames: &[Pfn]) -> Result<()> {
        if self.lists.is_some() {
            page_lists::unmap(task, frames)
        } else if self.bulk {
            frames.iter().for_each(|_| task.charge(&UNMAPPING));
            task.free_bulk(frames)
        } else {
            let block = |&pfn| Block { pfn, order: Order::ZERO };
            Ok(frames.iter().map(block).try_for_each(|block| task.unmap(block))?)
        }
    }

    /// Faults in so many frames.
    fn allocate<T: Task>(&self, task: &T, frames: usize) -> Result<Vec<Pfn>> {
        let mut allocated = Vec::with_capacity(frames);
        for _ in 0..frames {
            let pfn = task.alloc(Request::default())?;
            if self.lists.is_some() {
                page_lists::add(task, pfn)?;
            }
            allocated.push(pfn);
        }
        Ok(allocated)
    }
}

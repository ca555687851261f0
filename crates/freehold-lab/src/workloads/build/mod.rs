//! `build`: the requests that a build of a large program makes to a page allocator.
//!
//! Every task runs one job after the other, as `make -j` keeps every CPU busy with compilers. A job
//! allocates blocks of several kinds, drawn from the seed. By default their shares, orders and
//! lifetimes are a choice, made so that all migratetypes and lifetimes mix; they are listed in
//! [`CHOSEN`]. [`RECORDED`] has them as a compiler asked for them. Memory is short enough for that
//! to matter: when it runs out, a task drops the oldest blocks of its cache and retries, as reclaim
//! does. Jobs are measured once the cache and the lasting data of each task
//! are as large as they get: from then on, a block goes for each that comes. At the end, the
//! workload examines what they leave of the memory.

mod kinds;

use std::collections::VecDeque;

use anyhow::Result;
use fastrand::Rng;
use freehold::{FrameCount, MigrateType, Order, Request, Setting};
use serde_json::json;

use crate::error::refuse;
use crate::report::columns::{Column, Telling, free_pageblocks, number, percent};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::settings::setting;
use crate::task::owners::Owners;
use crate::task::workload::{
    Auto, Besides, Findings, Memory, Setup, Span, TaskWorkload, frames_of,
};
use crate::task::{Block, Task};
use crate::workload::SettingTable;
use kinds::{CHOSEN, Kind, Life, RECORDED, drawn};

const SETTINGS: &[Setting] = &[
    setting("jobs", "1..=10000000, or auto", "auto")
        .means("jobs of each task that are measured; auto: 16 if simulated, else 500"),
    setting("job_allocs", "1..=10000000", "2000").means("blocks that a job allocates"),
    setting("cache", "a size of at least one frame, such as 32MiB", "32MiB")
        .means("cached files that each task keeps"),
    setting("lasting", "a size of at least one frame, such as 2MiB", "2MiB")
        .means("data of the kernel that outlive jobs, for each task"),
    setting("task_memory", "a size of at least one frame, such as 64MiB", "64MiB")
        .means("memory of the machine, for each task"),
    setting("compute_ns", "0..=1000000000", "2000")
        .means("computation for each block on simulated machines, in ns"),
    setting("kinds", "chosen|recorded", "chosen")
        .means("what jobs ask for: all types mixed, or as recorded from a compiler"),
    setting("stamps", "on|off", "off")
        .means("on the host, whether each frame of a block is stamped, and checked when it goes"),
    setting("compact_ms", "0..=1000000000", "0")
        .means("how often the first task has memory compacted, as kcompactd does, in ms; 0: never"),
    setting("unusable", "0..=100", "20")
        .means("percent of the free memory that may be of no use for huge pages then"),
];

const JOBS: Auto = Auto { simulated: 16, host: 500 };

/// Blocks that a job keeps of those that it frees at once.
const SCRATCH: usize = 64;

/// Blocks that are dropped from the cache when memory has run out.
const RECLAIMED: usize = 32;

/// Jobs before those that are measured, at most: a cache may be larger than the memory.
const WARM_UP_JOBS: usize = 1000;

/// The workload.
pub(crate) struct Build {
    jobs: usize,
    job_allocs: usize,
    cache_frames: u64,
    lasting_frames: u64,
    memory_frames: u64,
    compute_ns: u64,
    kinds: &'static [Kind],
    stamps: bool,
    background: Option<Background>,
}

/// Compaction in the background.
struct Background {
    period_ns: u64,
    unusable_percent: u32,
    /// The movable blocks of all tasks. Each task has so many slots.
    owners: Owners,
    task_slots: usize,
}

/// The work done by a task.
#[derive(Default)]
pub(crate) struct Done {
    span: Span,
    allocated: u64,
    /// Blocks that could not be allocated, even after reclaim.
    failed: u64,
    /// Blocks dropped from the cache because memory had run out.
    reclaimed: u64,
}

impl TaskWorkload for Build {
    const SETTINGS: SettingTable = ("build", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "task_memory";
    const FIGURES: &'static [Figure] = &[Figure::cost("failed_count", "/workload_specific/failed")];
    const COLUMNS: &'static [Column] = &[
        Column("blocks/s", |r| format!("{:.0}", r.work.per_second)),
        Column("alloc ns", |r| number(r, "calls.alloc.mean_ns", 1)),
        Column("free ns", |r| number(r, "calls.free.mean_ns", 1)),
        Column("share", |r| percent(r, "allocator_share")),
        Column("failed", |r| number(r, "failed", 0)),
        Column("whole", free_pageblocks),
    ];
    const LEGEND: &'static [&'static str] = &[
        "share: of the tasks' time that is spent in the allocator. failed: blocks that there",
        "was no memory for. whole: share of the free memory that is whole pageblocks in the end,",
        "after a drain.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("{} of the tasks' time goes into the allocator", |r| percent(r, "allocator_share")),
        Telling("{} blocks are not to be had", |r| number(r, "failed", 0)),
    ];
    type Outcome = Done;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let given = setup.given;
        let memory_frames = frames_of(given, SETTINGS, "task_memory")? * setup.tasks as u64;
        let cache_frames = frames_of(given, SETTINGS, "cache")?;
        let job_allocs = given.number(SETTINGS, "job_allocs", 1..=10_000_000)?;
        let period_ms = given.number(SETTINGS, "compact_ms", 0..=1_000_000_000)? as u64;
        let unusable_percent = given.number(SETTINGS, "unusable", 0..=100)? as u32;
        let stamps = given.word(SETTINGS, "stamps", &[("on", true), ("off", false)])?;
        if stamps && period_ms > 0 {
            return refuse("stamps=on needs compact_ms=0: a stamp says where its frame is");
        }
        let background = || {
            // The last job's, those freed early, and a block more than the cache has room for.
            let task_slots = cache_frames.min(memory_frames) as usize + job_allocs + SCRATCH + 2;
            Background {
                period_ns: period_ms * 1_000_000,
                unusable_percent,
                owners: Owners::new(task_slots * setup.tasks, FrameCount::new(memory_frames)),
                task_slots,
            }
        };
        Ok(Build {
            jobs: setup.number_or_auto(SETTINGS, "jobs", 1..=10_000_000, JOBS)?,
            job_allocs,
            cache_frames,
            lasting_frames: frames_of(given, SETTINGS, "lasting")?,
            memory_frames,
            compute_ns: given.number(SETTINGS, "compute_ns", 0..=1_000_000_000)? as u64,
            kinds: given.word(SETTINGS, "kinds", &[("chosen", CHOSEN), ("recorded", RECORDED)])?,
            stamps,
            background: (period_ms > 0).then(background),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.memory_frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Done> {
        let mut maker = Maker {
            work: self,
            task,
            rng: task.place().rng(),
            scratch: VecDeque::new(),
            job: Vec::new(),
            cache: Cache::default(),
            lasting: Lasting::default(),
            empty: self.background.as_ref().map_or(Vec::new(), |of| {
                let first = task.place().index * of.task_slots;
                (first..first + of.task_slots).rev().collect()
            }),
            compacts_ns: task.now_ns(),
            done: Done::default(),
        };
        for _ in 0..WARM_UP_JOBS {
            maker.run_job()?;
            if maker.is_steady() {
                break;
            }
        }
        maker.done = Done::default();
        task.start_measuring()?;
        maker.done.span.began_ns = task.now_ns();
        for _ in 0..self.jobs {
            maker.run_job()?;
        }
        maker.done.span.ended_ns = task.now_ns();
        if self.background.is_some() {
            // No content is moved any more once all have arrived here.
            task.meet()?;
        }
        let cached = std::mem::take(&mut maker.cache.pieces);
        let lasting = std::mem::take(&mut maker.lasting.pieces);
        for piece in cached.into_iter().chain(lasting) {
            held.push(maker.take(piece)?);
        }
        Ok(maker.done)
    }

    fn sum_up(&self, outcomes: &[Done], _: &Besides) -> Findings {
        let sum = |of: fn(&Done) -> u64| outcomes.iter().map(of).sum::<u64>();
        let seconds = Span::seconds(outcomes.iter().map(|done| done.span));
        let fields = [
            ("failed", json!(sum(|done| done.failed))),
            ("reclaimed", json!(sum(|done| done.reclaimed))),
        ];
        Findings::new(Work::of("blocks", sum(|done| done.allocated), seconds), fields)
    }
}

/// A block of a task, or where one is whose content may be moved meanwhile.
#[derive(Clone, Copy)]
enum Piece {
    Fixed(Block),
    Slot(usize, Order),
}

impl Piece {
    fn frames(self) -> u64 {
        let (Piece::Fixed(Block { order, .. }) | Piece::Slot(_, order)) = self;
        order.frames().get()
    }
}

/// The cache of a task, oldest first.
#[derive(Default)]
struct Cache {
    pieces: VecDeque<Piece>,
    frames: u64,
    was_full: bool,
}

impl Cache {
    fn push(&mut self, piece: Piece) {
        self.frames += piece.frames();
        self.pieces.push_back(piece);
    }

    fn pop(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.frames -= piece.frames();
        Some(piece)
    }
}

/// The lasting data of a task.
#[derive(Default)]
struct Lasting {
    pieces: Vec<Piece>,
    frames: u64,
    was_full: bool,
}

impl Lasting {
    fn push(&mut self, piece: Piece) {
        self.frames += piece.frames();
        self.pieces.push(piece);
    }

    /// Takes out any of the blocks.
    fn draw(&mut self, rng: &mut Rng) -> Option<Piece> {
        let drawn = (!self.pieces.is_empty()).then(|| rng.usize(..self.pieces.len()))?;
        let piece = self.pieces.swap_remove(drawn);
        self.frames -= piece.frames();
        Some(piece)
    }
}

/// A task and the blocks that it holds.
struct Maker<'a, T: Task> {
    work: &'a Build,
    task: &'a T,
    rng: Rng,
    scratch: VecDeque<Piece>,
    job: Vec<Piece>,
    cache: Cache,
    lasting: Lasting,
    /// Slots without a block.
    empty: Vec<usize>,
    /// When it compacts next, if it is the first task.
    compacts_ns: u64,
    done: Done,
}

impl<T: Task> Maker<'_, T> {
    /// Whether blocks go for those that come: everything is as large as it gets, or memory is
    /// short.
    fn is_steady(&self) -> bool {
        self.cache.was_full && self.lasting.was_full || self.done.reclaimed > 0
    }

    fn run_job(&mut self) -> Result<()> {
        for _ in 0..self.work.job_allocs {
            let kinds = self.work.kinds;
            let kind = &kinds[drawn(&mut self.rng, kinds.iter().map(|kind| kind.share))];
            let order = Order::new(drawn(&mut self.rng, kind.orders.into_iter()) as u8);
            let Some(block) = self.make(kind, order)? else { continue };
            self.task.compute_ns(self.work.compute_ns);
            let piece = self.keep(kind, block);
            match kind.life {
                Life::Scratch => self.scratch.push_back(piece),
                Life::Job => self.job.push(piece),
                Life::Cache => self.cache.push(piece),
                Life::Lasting => self.lasting.push(piece),
            }
            self.trim()?;
            self.compact_if_due();
        }
        let (scratch, job) = (std::mem::take(&mut self.scratch), std::mem::take(&mut self.job));
        for piece in scratch.into_iter().chain(job) {
            self.free(piece)?;
        }
        Ok(())
    }

    /// Keeps a block: in a slot, if content is moved in the background and this can be.
    fn keep(&mut self, kind: &Kind, block: Block) -> Piece {
        match &self.work.background {
            Some(of) if kind.migratetype == MigrateType::Movable => {
                let slot = self.empty.pop().expect("there is a slot for each block");
                of.owners.put(slot, block);
                Piece::Slot(slot, block.order)
            }
            _ => Piece::Fixed(block),
        }
    }

    fn take(&mut self, piece: Piece) -> Result<Block> {
        match (piece, &self.work.background) {
            (Piece::Slot(slot, _), Some(of)) => {
                self.empty.push(slot);
                Ok(of.owners.take(self.task, slot)?.expect("the slot has a block"))
            }
            (Piece::Fixed(block), _) => {
                if self.work.stamps {
                    self.task.restamp(block, stamp_of(block), 0)?;
                }
                Ok(block)
            }
            (Piece::Slot(..), None) => unreachable!("slots are for what is moved"),
        }
    }

    fn free(&mut self, piece: Piece) -> Result<()> {
        let block = self.take(piece)?;
        Ok(self.task.free(block)?)
    }

    fn compact_if_due(&mut self) {
        if let Some(of) = &self.work.background
            && self.task.place().index == 0
            && self.task.now_ns() >= self.compacts_ns
        {
            of.owners.compact(self.task, of.unusable_percent);
            self.compacts_ns = self.task.now_ns() + of.period_ns;
        }
    }

    /// Allocates a block, from the cache's memory if there is no other.
    fn make(&mut self, kind: &Kind, order: Order) -> Result<Option<Block>> {
        let request = Request::new(order).migratetype(kind.migratetype);
        for _ in 0..2 {
            let made = match kind.faulted {
                true => self.task.try_fault(request)?,
                false => self.task.try_alloc(request)?,
            };
            if let Some(block) = made {
                if self.work.stamps {
                    self.task.restamp(block, 0, stamp_of(block))?;
                }
                self.done.allocated += 1;
                return Ok(made);
            }
            self.reclaim()?;
        }
        self.done.failed += 1;
        Ok(None)
    }

    fn reclaim(&mut self) -> Result<()> {
        for _ in 0..RECLAIMED {
            let Some(piece) = self.cache.pop() else { break };
            self.free(piece)?;
            self.done.reclaimed += 1;
        }
        Ok(())
    }

    /// Frees blocks whose lifetime has ended.
    fn trim(&mut self) -> Result<()> {
        if self.scratch.len() > SCRATCH
            && let Some(piece) = self.scratch.pop_front()
        {
            self.free(piece)?;
        }
        while self.cache.frames > self.work.cache_frames
            && let Some(piece) = self.cache.pop()
        {
            self.cache.was_full = true;
            self.free(piece)?;
        }
        while self.lasting.frames > self.work.lasting_frames
            && let Some(piece) = self.lasting.draw(&mut self.rng)
        {
            self.lasting.was_full = true;
            self.free(piece)?;
        }
        Ok(())
    }
}

/// What the frames of a block bear: nothing that a free one bears, or one of another block.
fn stamp_of(block: Block) -> u64 {
    block.pfn.get() << 8 | u64::from(block.order.get()) << 1 | 1
}

#[cfg(test)]
mod tests {
    use freehold::Pfn;
    use freehold_host::{ArenaBuilder, Host};
    use freehold_linux::zone_lock::ZoneLock;

    use super::*;
    use crate::settings::Assignments;
    use crate::task::run_one;

    #[test]
    fn a_frame_that_somebody_else_has_written_is_found() {
        let given = ["jobs=1".to_owned(), "stamps=on".to_owned()];
        let given = Assignments::parse(&given, &[SETTINGS]).unwrap();
        let build = Build::new(&Setup { given: &given, tasks: 1, simulated: false }).unwrap();
        let arena = ArenaBuilder::<ZoneLock<Host>>::new().bytes(64 << 20).build_frames().unwrap();
        run_one(&arena, &arena.allocator(), &build).unwrap();

        (0..arena.total_frames().get()).for_each(|pfn| arena.store_word(Pfn::new(pfn), 1, 7));
        let error = run_one(&arena, &arena.allocator(), &build).err().expect("frames are not free");
        assert!(format!("{error:#}").contains("handed it out twice"), "{error:#}");
    }
}

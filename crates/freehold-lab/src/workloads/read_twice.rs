//! `read-twice`: what vm-scalability's lru-file-readtwice asks of the LRU lists.
//!
//! Tasks read sparse files that are larger than what their memory groups may cache, two readers a
//! file, block by block. So each block is read twice: the first read brings it in and pushes
//! another out, the second moves it to the active list. There are as many files as CPUs, and each
//! CPU reads two of them in turns, so that the two readers of a file run on different CPUs. Source:
//! teawater/vm-scalability, `case-lru-file-readtwice`: two `dd bs=4k of=/dev/null` for each file,
//! which `truncate` has made sparse; as modified for the lock over LRU lists by group: 104 groups
//! of two readers.
//!
//! On simulated machines, a reader is charged for what `dd` does for each block:
//!
//! * two system calls, `read` and the `write` to `/dev/null`, at `workload.trap_ns` each: 1,050
//!   cycles for a fault and its return. A system call takes *roughly a thousand cycles* on a
//!   Skylake with the mitigations that are on by default since 2018, 300 ns there (blog.i0.pm,
//!   *what a syscall actually costs you*, March 2019); without them, a third;
//! * a copy of 4 KiB to the reader: all of the frame passes through the caches, from where it is,
//!   and the buffer is cached;
//! * of a block that is not cached, the frame, which is cleared: a file without blocks on the disk
//!   is not read from it.
//!
//! Not charged are the index of the page cache, which the readers of a file share, and the walk of
//! `dd` and the file system between; blocks come one at a time, without reading ahead.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use bytesize::ByteSize;
use freehold::{FrameCount, Setting};
use freehold_lru::{BATCH_MAX, LruLock, LruPolicy};
use freehold_sim::Key;
use serde_json::{Value, json};

use crate::machine::{FRAME_BYTES, Machine};
use crate::report::columns::{Column, LRU_LOCK, number, percent, print_columns};
use crate::report::document::{RunResult, Work};
use crate::report::figure::Figure;
use crate::settings::setting;
use crate::sim::linux::LRU_SETTINGS;
use crate::task::lru::{Bounds, Frees, LOCKS, LruPlan};
use crate::task::page_cache::{Disk, Files, Found, PageCache, Read, Use};
use crate::task::workload::{Besides, Findings, Memory, Setup, TaskWorkload, frames_of};
use crate::task::{Block, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("file_bytes", "a size of at least one frame, such as 4MiB", "4MiB")
        .means("size of each file; both of its readers read all of it once"),
    setting("share_bytes", "a size of at least one frame, such as 1MiB", "1MiB")
        .means("what the group of a file may cache"),
    setting("lru", "shards|group|node", "group")
        .means("LRU lists in shards, or under one lock a group on a node, or one a node"),
    setting("lru_batch", "1..=31", "31")
        .means("frames collected for one hold of the LRU lock (Linux 6.12: 31)"),
    setting("groups", "files|one", "files")
        .means("a memory group for each file, or one for all that may cache as much together"),
];

/// What `dd` enters the kernel for, a block: to read it and to write it.
const SYSTEM_CALLS: [Key; 2] = [Key::TrapNs; 2];

/// The workload.
pub(crate) struct ReadTwice {
    cpus: usize,
    simulated: bool,
    file_blocks: u64,
    share_frames: u64,
    lock: LruLock,
    lru_batch: u32,
    one_group: bool,
    memory: FrameCount,
    /// Made once the memory is known to suffice.
    cache: OnceLock<Arc<PageCache>>,
    files: Files,
    disk: Disk,
}

/// What one task has read.
pub(crate) struct Reads {
    /// Blocks that were cached.
    hits: u64,
    per_second: f64,
}

impl TaskWorkload for ReadTwice {
    const SETTINGS: SettingTable = ("read-twice", SETTINGS);
    const ON_SIM: &'static [SettingTable] = &[("simulated LRU", LRU_SETTINGS)];
    const SETS_MEMORY: bool = true;
    const USES_LRU: bool = true;
    const FRAGMENTS: bool = false;
    const SIZE: &'static str = "share_bytes";
    const FIGURES: &'static [Figure] = &[
        Figure::gain("hit_share", "/workload_specific/hit_share"),
        Figure::aside("read_ns", "/workload_specific/read_ns"),
        Figure::aside("lru_lock_wait_share", "/time_share/lru_lock"),
    ];
    const COLUMNS: &'static [Column] = &[
        Column("reads/s", |result| format!("{:.0}", result.work.per_second)),
        Column("hits", |result| percent(result, "hit_share")),
        Column("ns/read", |result| number(result, "read_ns", 0)),
        LRU_LOCK,
    ];
    type Outcome = Reads;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let Setup { given, tasks: cpus, simulated } = *setup;
        let file_blocks = frames_of(given, SETTINGS, "file_bytes")?;
        let share_frames = frames_of(given, SETTINGS, "share_bytes")?;
        // Memory for what all files may cache, and as much again, so that it is the groups' limits
        // that are in the way; on the host also what CPUs cache.
        let bytes = (2 * share_frames * FRAME_BYTES + (4 << 20)) * cpus as u64;
        let bytes = if simulated { bytes } else { bytes + (64 << 20) };
        let memory = FrameCount::new(bytes / FRAME_BYTES);
        let files = Files::new(vec![file_blocks; cpus]);
        let disk = Disk::new(files.clone(), simulated)?;
        Ok(ReadTwice {
            cpus,
            simulated,
            file_blocks,
            share_frames,
            lock: given.word(SETTINGS, "lru", &LOCKS)?,
            lru_batch: given.number(SETTINGS, "lru_batch", 1..=BATCH_MAX)? as u32,
            one_group: given.word(SETTINGS, "groups", &[("files", false), ("one", true)])?,
            memory,
            cache: OnceLock::new(),
            files,
            disk,
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(self.memory)
    }

    fn lru(&self) -> Option<LruPlan> {
        // A group for all may have as much as those of each together.
        let (groups, share) = match self.one_group {
            true => (1, self.share_frames * self.cpus as u64),
            false => (self.cpus, self.share_frames),
        };
        let bounds = Bounds { max: Some(FrameCount::new(share)), ..Bounds::default() };
        Some(LruPlan {
            lock: self.lock,
            batch: self.lru_batch,
            policy: LruPolicy::default(),
            groups: vec![bounds; groups],
            index: Arc::clone(self.cache()) as _,
            frees: Frees::AtOnce,
        })
    }

    fn run<T: Task>(&self, task: &T, _held: &mut Vec<Block>) -> Result<Reads> {
        self.read(task, 0..self.warm_up())?;
        task.start_measuring()?;
        let began_ns = task.now_ns();
        let hits = self.read(task, self.warm_up()..self.file_blocks)?;
        let elapsed_ns = (task.now_ns() - began_ns).max(1);
        Ok(Reads { hits, per_second: self.reads() as f64 * 1e9 / elapsed_ns as f64 })
    }

    fn sum_up(&self, outcomes: &[Reads], besides: &Besides) -> Findings {
        let per_second: f64 = outcomes.iter().map(|reads| reads.per_second).sum();
        let hits: u64 = outcomes.iter().map(|reads| reads.hits).sum();
        let count = self.reads() * self.cpus as u64;
        let seconds = besides.elapsed_ns.map_or(count as f64 / per_second, |ns| ns / 1e9);
        let fields = [
            ("files", json!(self.cpus)),
            ("hit_share", json!(hits as f64 / count.max(1) as f64)),
            ("file_bytes", json!(self.file_blocks * FRAME_BYTES)),
            ("share_bytes", json!(self.share_frames * FRAME_BYTES)),
            ("read_ns", json!(self.cpus as f64 * 1e9 / per_second)),
        ];
        Findings::new(Work { unit: "reads", count, seconds, per_second }, fields)
    }

    fn show(results: &[RunResult], machine: &Machine) -> Result<()> {
        let share = results.first().and_then(|of| of.workload_specific.get("share_bytes"));
        let share = ByteSize(share.and_then(Value::as_u64).unwrap_or_default());
        let legend = format!("hits: reads that found their block cached; {share} a file may be.");
        print_columns(results, machine, Self::COLUMNS, &[&legend])
    }
}

impl ReadTwice {
    fn cache(&self) -> &Arc<PageCache> {
        let of_lru = Use { first_counts: true, shadows: 0, blocks_max: None };
        let new = || PageCache::new(self.files.clone(), self.memory, of_lru);
        self.cache.get_or_init(|| Arc::new(new()))
    }

    /// How many blocks of each file are read before time is taken. On simulated machines, nothing
    /// is reclaimed until the groups are full.
    fn warm_up(&self) -> u64 {
        if self.simulated { self.share_frames.min(self.file_blocks / 2) } else { 0 }
    }

    /// How many blocks a task reads while time is taken.
    fn reads(&self) -> u64 {
        2 * (self.file_blocks - self.warm_up())
    }

    /// Reads a part of the two files of a task, in turns; returns how many blocks were cached.
    fn read<T: Task>(&self, task: &T, blocks: Range<u64>) -> Result<u64> {
        let first = task.place().index;
        let files = [first, (first + self.cpus.div_ceil(2)) % self.cpus];
        let (cache, mut hits) = (self.cache(), 0);
        for block in blocks {
            for file in files {
                task.charge(&SYSTEM_CALLS);
                let block = self.files.first(file) + block;
                let read = Read { block, group: task.group(file), wait_ns: 0 };
                hits += u64::from(cache.read(task, &self.disk, read)? == Found::Cached);
            }
        }
        Ok(hits)
    }
}

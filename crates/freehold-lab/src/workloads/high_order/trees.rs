//! The page cache of source trees: files, their frames, and the slab objects that belong to them.
//!
//! A cached file has three frames, an inode, a directory entry and a node of the index. A tree has
//! 36,560 files: mmtests reckons 400 MiB for one (`NUM_KERNELS`), Linux 3.3 has 15 million lines
//! (the H, January 2012), and a file 410 on average (28,442,673 lines in 69,325 files of Linux 5.8:
//! Linux Foundation, *2020 Linux Kernel History Report*). That makes 11.2 KiB a file.
//!
//! Reclaim goes along one list in clusters of 32 frames (`SWAP_CLUSTER_MAX`), from the file that
//! was read in first; one that was used since has another turn. Objects are not reclaimed with the
//! frames: a shrinker visits those of files without frames, the oldest first, at least 128 at a
//! time (`SHRINK_BATCH`), and twice the share of them that was scanned of the frames
//! (`do_shrink_slab` with `DEFAULT_SEEKS`).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Result;
use freehold::{FrameCount, MigrateType, Order, Request, Watermark};

use super::slab::{Object, SHAPES, Slabs};
use crate::frames::{CLUSTER, Frames};
use crate::task::owners::Owners;
use crate::task::{Block, Task};

/// How many files a tree of 400 MiB has.
const TREE_FILES: usize = 36_560;

/// Frames of a file.
const FILE_FRAMES: usize = 3;

/// How many objects a shrinker visits at least (`SHRINK_BATCH`).
const SHRINK_BATCH: u32 = 128;

/// How often an allocation of small blocks reclaims without success before it gives up
/// (`MAX_RECLAIM_RETRIES`).
const RETRIES: usize = 16;

/// The cached files of all trees.
pub(super) struct Trees {
    /// The frames of files, file by file; behind them slots for processes.
    pub(super) owners: Owners,
    slabs: [Slabs; SHAPES.len()],
    /// How many trees there are, and how many files each has.
    count: usize,
    files_each: usize,
    /// The frames between the low and the high watermark of a zone.
    between_marks: OnceLock<u64>,
    state: Mutex<State>,
}

struct State {
    files: Vec<File>,
    /// Files with frames, those read in first at the front.
    cached: VecDeque<u32>,
    /// Files that had no frames when they came here, but have objects.
    frameless: VecDeque<u32>,
    /// Objects that the shrinker is to visit.
    debt: f64,
}

#[derive(Clone, Copy)]
struct File {
    stage: Stage,
    used_again: bool,
    objects: [Option<Object>; SHAPES.len()],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is in memory.
    Gone,
    /// It has objects, but no frames.
    Frameless,
    /// A task reads it in, drops its frames or frees its objects.
    Busy,
    Cached,
}

impl Trees {
    /// So many trees of a size, none of which is in memory, for so many tasks, each with slots for
    /// the frames of a process.
    pub(super) fn new(
        (count, tree_mib): (usize, u64),
        (tasks, slots_each): (usize, usize),
        memory: FrameCount,
    ) -> Self {
        let files_each = TREE_FILES * tree_mib as usize / 400;
        let files = count * files_each;
        let file = File { stage: Stage::Gone, used_again: false, objects: [None; SHAPES.len()] };
        let state = State {
            files: vec![file; files],
            cached: VecDeque::new(),
            frameless: VecDeque::new(),
            debt: 0.0,
        };
        Trees {
            owners: Owners::new(files * FILE_FRAMES + tasks * slots_each, memory),
            slabs: SHAPES.map(|shape| Slabs::new(shape, tasks)),
            count,
            files_each,
            between_marks: OnceLock::new(),
            state: Mutex::new(state),
        }
    }

    /// How many trees there are, and how many files each has.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.count, self.files_each)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slots for frames of processes begin here.
    pub(super) fn process_slots(&self) -> usize {
        self.count * self.files_each * FILE_FRAMES
    }

    /// How many frames slabs have.
    pub(super) fn slab_frames(&self) -> u64 {
        self.slabs.iter().map(Slabs::frames).sum()
    }

    /// How many frames files have.
    pub(super) fn file_frames(&self) -> u64 {
        self.owners.blocks(0..self.process_slots()).count() as u64
    }

    /// Reads a file, which no other task reads: its frames are used, or read in.
    pub(super) fn read<T: Task>(&self, task: &T, file: usize) -> Result<()> {
        let before = loop {
            task.in_order();
            let mut state = self.state();
            let file = &mut state.files[file];
            match file.stage {
                Stage::Cached => {
                    file.used_again = true;
                    return Ok(());
                }
                Stage::Busy => {}
                stage => {
                    file.stage = Stage::Busy;
                    break stage;
                }
            }
            drop(state);
            task.pause()?;
        };
        if before == Stage::Gone {
            let mut objects = [None; SHAPES.len()];
            for (object, slabs) in objects.iter_mut().zip(&self.slabs) {
                *object = self.new_object(task, slabs)?;
            }
            self.state().files[file].objects = objects;
        }
        for slot in file * FILE_FRAMES..(file + 1) * FILE_FRAMES {
            if let Some(block) = self.alloc(task, Request::default())? {
                // What is read passes through the caches.
                task.clear(block);
                self.owners.put(slot, block);
            }
        }
        task.in_order();
        let mut state = self.state();
        (state.files[file].stage, state.files[file].used_again) = (Stage::Cached, false);
        state.cached.push_back(file as u32);
        Ok(())
    }

    fn new_object<T: Task>(&self, task: &T, slabs: &Slabs) -> Result<Option<Object>> {
        let index = task.place().index;
        if let Some(object) = slabs.take(index) {
            return Ok(Some(object));
        }
        let request = Request::default().migratetype(MigrateType::Reclaimable);
        let block = match task.try_alloc(request.with_order(slabs.order()))? {
            Some(block) => Some(block),
            None => self.alloc(task, request)?,
        };
        Ok(block.map(|block| slabs.take_from_new(index, block)))
    }

    /// Allocates a small block. Below the low watermark, reclaims up to the high one first, which
    /// is what `kswapd` does; below the minimum, a cluster at a time.
    pub(super) fn alloc<T: Task>(&self, task: &T, request: Request) -> Result<Option<Block>> {
        if let Some(block) = task.try_alloc(request.watermark(Watermark::Low))? {
            return Ok(Some(block));
        }
        let wanted = match self.between_marks.get() {
            Some(&known) => known,
            None => {
                // Outside the lock's initialisation, since other tasks may run meanwhile.
                let now = between_marks(task);
                *self.between_marks.get_or_init(|| now)
            }
        };
        self.reclaim(task, wanted)?;
        for _ in 0..RETRIES {
            if let Some(block) = task.try_alloc(request)? {
                return Ok(Some(block));
            }
            if self.reclaim(task, CLUSTER)? == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Reclaims at least so many frames, cluster by cluster, unless there are no more. Returns how
    /// many.
    pub(super) fn reclaim<T: Task>(&self, task: &T, wanted: u64) -> Result<u64> {
        let mut reclaimed = 0;
        while reclaimed < wanted {
            let frames = self.reclaim_cluster(task)?;
            reclaimed += frames + self.shrink(task)?;
            if frames == 0 {
                break;
            }
        }
        Ok(reclaimed)
    }

    /// Drops the frames of the files at the front, and notes what that means for the shrinker.
    fn reclaim_cluster<T: Task>(&self, task: &T) -> Result<u64> {
        task.in_order();
        let mut files = Vec::new();
        {
            let state = &mut *self.state();
            let listed = state.cached.len() as u64;
            let mut scanned = 0;
            // Each file twice: then none has been used in between.
            while (files.len() * FILE_FRAMES) < CLUSTER as usize && scanned < 2 * listed {
                let Some(file) = state.cached.pop_front() else { break };
                scanned += 1;
                let of_file = &mut state.files[file as usize];
                if std::mem::take(&mut of_file.used_again) {
                    state.cached.push_back(file);
                } else {
                    of_file.stage = Stage::Busy;
                    files.push(file);
                }
            }
            let twice = 2.0 * state.frameless.len() as f64;
            let share = scanned as f64 / listed.max(1) as f64;
            state.debt = (state.debt + twice * share).min(twice);
        }
        let mut frames = 0;
        for &file in &files {
            let first = file as usize * FILE_FRAMES;
            for slot in first..first + FILE_FRAMES {
                if let Some(block) = self.owners.take(task, slot)? {
                    task.free(block)?;
                    frames += 1;
                }
            }
        }
        task.in_order();
        let state = &mut *self.state();
        for file in files {
            state.files[file as usize].stage = Stage::Frameless;
            state.frameless.push_back(file);
        }
        Ok(frames)
    }

    /// Lets the shrinker visit what it owes. Returns how many frames came free.
    fn shrink<T: Task>(&self, task: &T) -> Result<u64> {
        let mut frames = 0;
        loop {
            task.in_order();
            let mut objects = Vec::new();
            {
                let state = &mut *self.state();
                if state.debt < f64::from(SHRINK_BATCH) || state.frameless.is_empty() {
                    return Ok(frames);
                }
                state.debt -= f64::from(SHRINK_BATCH);
                for _ in 0..SHRINK_BATCH {
                    let Some(file) = state.frameless.pop_front() else { break };
                    let file = &mut state.files[file as usize];
                    // It may have been read again, and even dropped again.
                    if file.stage == Stage::Frameless {
                        file.stage = Stage::Gone;
                        objects.push(std::mem::take(&mut file.objects));
                    }
                }
            }
            for (object, slabs) in
                objects.iter().flat_map(|of_file| of_file.iter().zip(&self.slabs))
            {
                if let Some(block) = object.and_then(|object| slabs.give(object)) {
                    frames += block.order.frames().get();
                    task.free(block)?;
                }
            }
        }
    }

    /// All blocks that are left, at a time when no task does anything.
    pub(super) fn take_all(&self) -> Vec<Block> {
        let in_slabs = self.slabs.iter().flat_map(Slabs::take_all);
        self.owners.blocks(0..self.process_slots()).chain(in_slabs).collect()
    }
}

/// How many frames lie between the low and the high watermark of the zone where they are the most.
fn between_marks<T: Task>(task: &T) -> u64 {
    let zones = task.allocator().levels();
    zones.iter().map(|zone| zone.marks.high.get() - zone.marks.low.get()).max().unwrap_or(0)
}

/// How many frames the zone that lacks the fewest lacks until compaction can work for a block: the
/// low watermark and twice the block (`compact_gap`, `compaction_suitable`).
pub(super) fn below_gap<T: Task>(task: &T, order: Order) -> u64 {
    let gap = 2 * order.frames().get();
    let zones = task.allocator().levels();
    let zones = zones.iter().filter(|zone| zone.managed.get() > zone.marks.low.get() + gap);
    let lacks = zones.map(|zone| (zone.marks.low.get() + gap).saturating_sub(zone.free.get()));
    lacks.min().unwrap_or(0)
}

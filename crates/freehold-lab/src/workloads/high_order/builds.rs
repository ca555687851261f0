//! The builds: trees are copied, and then compiled, each by one process after the other.
//!
//! A process takes 38 ms of a CPU and faults 1,081 pages in: 29,135 processes of a build of Linux
//! 4.13 took 1,120 s and 31,486,712 minor faults (M. Vermeulen, *phoronix/build-linux-kernel*,
//! perf.mvermeulen.com, on Intel). A choice is what else it does: it brings one more file of its
//! tree into memory, a source or an object, and uses 16 of 1,024 headers again; it has a kernel
//! stack of 16 KiB and nine page tables. For every 16 files, a block of the inode table is dirty
//! and part of the journal (inodes of ext4 have 256 bytes): its frame can neither be moved nor
//! dropped until it is written, 30 s later (`dirty_expire_centisecs`).

use std::collections::VecDeque;

use anyhow::Result;
use fastrand::Rng;
use freehold::{MigrateType, Order, Request};

use super::trees::Trees;
use crate::frames::below_high;
use crate::task::{Block, FAULT_ENTRY, Task};

/// Pages that a process faults in.
pub(super) const FAULTS: usize = 1081;

/// What a process computes, in ns.
const PROCESS_NS: u64 = 38_450_000;

/// In so many parts, with faults between.
const PARTS: usize = 16;

/// Header files of a tree, and how many of them a process uses.
const HEADERS: usize = 1024;
const HEADERS_USED: usize = 16;

/// Page tables of a process: one for the top, two each for the next levels at both ends of the
/// address space, one each for program, heap, libraries and stack.
const TABLES: usize = 9;

/// The order of a kernel stack (`THREAD_SIZE_ORDER` of x86-64).
const STACK: Order = Order::new(2);

/// Inodes of ext4 in a block of the inode table.
const INODES_IN_BLOCK: u64 = 16;

/// How long a dirty block stays so.
const DIRTY_NS: u64 = 30_000_000_000;

/// How many files are read between two looks at the watermarks.
const LOOK_EVERY: usize = 64;

/// When builds work and how fast.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Of 100 processes that there would be, how many are run.
    pub(super) percent: u64,
    /// How many times faster than the original all waiting is.
    pub(super) haste: u64,
}

/// The builds of one task.
pub(super) struct Builder<'a, T> {
    task: &'a T,
    trees: &'a Trees,
    pace: Pace,
    /// The trees that it builds.
    own: Vec<usize>,
    /// How many files it has brought into memory.
    files: u64,
    rng: Rng,
    /// Blocks that are dirty, and until when.
    dirty: VecDeque<(u64, Block)>,
}

impl<'a, T: Task> Builder<'a, T> {
    /// The builds of this task, if it has any: the first task attempts allocations instead, unless
    /// it is alone.
    pub(super) fn new(task: &'a T, trees: &'a Trees, tasks: usize, pace: Pace) -> Self {
        let place = task.place();
        let builder_of = |tree: usize| if tasks == 1 { 0 } else { 1 + tree % (tasks - 1) };
        let own = (0..trees.size().0).filter(|&tree| builder_of(tree) == place.index).collect();
        let rng = place.rng();
        Builder { task, trees, pace, own, files: 0, rng, dirty: VecDeque::new() }
    }

    /// Copies its trees.
    pub(super) fn copy(&mut self) -> Result<()> {
        (0..self.all_files()).try_for_each(|_| self.next_file())
    }

    /// Runs processes until it is time to end; nothing if it has no trees.
    pub(super) fn build(&mut self, is_over: impl Fn() -> bool) -> Result<()> {
        while !self.own.is_empty() && !is_over() {
            let began_ns = self.task.now_ns();
            self.process()?;
            let took_ns = self.task.now_ns() - began_ns;
            let period_ns = PROCESS_NS * 100 / self.pace.percent / self.pace.haste;
            self.task.idle_ns(period_ns.saturating_sub(took_ns));
            self.task.pause()?;
        }
        Ok(())
    }

    /// Reads on until memory is in use again: until files take what is above the high watermarks,
    /// or all are cached.
    pub(super) fn refill(&mut self) -> Result<()> {
        for number in 0..self.all_files() {
            if number.is_multiple_of(LOOK_EVERY) && below_high(self.task.allocator()) > 0 {
                break;
            }
            self.next_file()?;
        }
        Ok(())
    }

    /// How many files its trees have.
    fn all_files(&self) -> usize {
        self.own.len() * self.trees.size().1
    }

    /// Brings the next file of its trees into memory.
    fn next_file(&mut self) -> Result<()> {
        let (tree, file) = self.place();
        self.files += 1;
        self.trees.read(self.task, tree * self.trees.size().1 + file)
    }

    /// The tree and the file that are next: those of its trees in turn.
    fn place(&self) -> (usize, usize) {
        let (turn, trees) = (self.files as usize, self.own.len());
        (self.own[turn % trees], turn / trees % self.trees.size().1)
    }

    fn process(&mut self) -> Result<()> {
        let (task, trees) = (self.task, self.trees);
        self.write_back()?;
        let (tree, _) = self.place();
        self.next_file()?;
        if self.files.is_multiple_of(INODES_IN_BLOCK)
            && let Some(block) = trees.alloc(task, Request::default())?
        {
            self.dirty.push_back((task.now_ns() + DIRTY_NS / self.pace.haste, block));
        }
        for _ in 0..HEADERS_USED {
            trees.read(task, tree * trees.size().1 + self.rng.usize(..HEADERS))?;
        }
        let unmovable = Request::default().migratetype(MigrateType::Unmovable);
        let mut kernel = Vec::new();
        kernel.extend(trees.alloc(task, unmovable.with_order(STACK))?);
        for _ in 0..TABLES {
            kernel.extend(trees.alloc(task, unmovable)?);
        }
        let first = trees.process_slots() + task.place().index * FAULTS;
        let slots = first..first + FAULTS;
        for slot in slots.clone() {
            if (slot - first).is_multiple_of(FAULTS.div_ceil(PARTS)) {
                task.compute_ns(PROCESS_NS / PARTS as u64);
            }
            task.charge(&FAULT_ENTRY);
            if let Some(block) = trees.alloc(task, Request::default())? {
                task.map(block);
                trees.owners.put(slot, block);
            }
        }
        for slot in slots {
            if let Some(block) = trees.owners.take(task, slot)? {
                task.unmap(block)?;
            }
        }
        for block in kernel {
            task.free(block)?;
        }
        Ok(())
    }

    /// Frees the blocks that have been written by now.
    fn write_back(&mut self) -> Result<()> {
        let now_ns = self.task.now_ns();
        while let Some(&(until_ns, block)) = self.dirty.front()
            && until_ns <= now_ns
        {
            self.dirty.pop_front();
            self.task.free(block)?;
        }
        Ok(())
    }

    /// Ends the builds. What is still dirty stays allocated.
    pub(super) fn end(self) -> impl Iterator<Item = Block> {
        self.dirty.into_iter().map(|(_, block)| block)
    }
}

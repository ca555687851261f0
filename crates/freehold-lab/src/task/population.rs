//! Memory in use: filled by jobs, then thinned out at random.

use anyhow::Result;
use freehold::{FrameCount, MigrateType, Request};

use super::owners::Owners;
use super::{Block, Task};

/// Of 100 frames, how many the fill takes. The rest are reserves.
const FILLED: u64 = 94;

/// Blocks that a job allocates; every second one is its own, and freed at the end.
const JOB: usize = 512;

/// The cached files of all tasks, which can be moved and dropped, frame by frame.
pub(crate) struct Population {
    /// Of 1000 frames that fill the memory, how many cannot be moved.
    unmovable: u64,
    /// Of 100 frames of the memory, how many are in use when it has been thinned out.
    occupancy: u64,
    /// The slots of all tasks, contiguous, oldest first.
    pub(crate) owners: Owners,
    slots_each: usize,
}

impl Population {
    /// Room for so many tasks to fill a memory.
    pub(crate) fn new(tasks: usize, memory: FrameCount, unmovable: u64, occupancy: u64) -> Self {
        let cached = memory.get() * FILLED / 100 * (1000 - unmovable) / 1000;
        let slots_each = cached as usize / tasks;
        let owners = Owners::new(slots_each * tasks, memory);
        Population { unmovable, occupancy, owners, slots_each }
    }

    /// The slots of a task.
    pub(crate) fn slots_of(&self, task: usize) -> std::ops::Range<usize> {
        task * self.slots_each..(task + 1) * self.slots_each
    }

    /// Fills the memory and thins it out, with all tasks. Unmovable blocks go into `held`.
    pub(crate) fn settle<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<()> {
        self.fill(task, held)?;
        task.meet()?;
        self.thin_out(task)?;
        task.meet()
    }

    /// Fills the task's share of the memory, job by job.
    fn fill<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<()> {
        let mut rng = task.place().rng();
        let mut slots = self.slots_of(task.place().index);
        let unmovable = Request::default().migratetype(MigrateType::Unmovable);
        let mut own = Vec::with_capacity(JOB / 2);
        while !slots.is_empty() {
            for step in 0..JOB {
                let kept = step.is_multiple_of(2);
                if kept && rng.u64(..1000) < self.unmovable {
                    held.extend(task.try_alloc(unmovable)?);
                    continue;
                }
                let slot = if kept { slots.next() } else { None };
                match (task.try_alloc(Request::default())?, slot) {
                    (Some(block), Some(slot)) => self.owners.put(slot, block),
                    (Some(block), None) => own.push(block),
                    // Reserves and what other CPUs cache may leave less than there are slots.
                    (None, _) => slots = 0..0,
                }
            }
            for block in own.drain(..) {
                task.free(block)?;
            }
        }
        Ok(())
    }

    /// Drops cached frames at random, down to the wanted occupancy.
    fn thin_out<T: Task>(&self, task: &T) -> Result<()> {
        let mut rng = task.place().rng();
        for slot in self.slots_of(task.place().index) {
            if rng.u64(..FILLED) >= self.occupancy
                && let Some(block) = self.owners.take(task, slot)?
            {
                task.free(block)?;
            }
        }
        Ok(())
    }
}

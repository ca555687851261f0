//! The owners of blocks, so that content can be moved while tasks use other blocks.
//!
//! A slot is like a page-table entry in a kernel: the one place that records where some content is.
//! A task that uses a block through its slot, or moves it, takes the slot for that time. Slots are
//! words that are changed by compare-exchange, so no lock of the host is held while a task of a
//! simulated machine lets others run.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use anyhow::Result;
use freehold::{FrameCount, Migrate, MigrateError, Order, Pfn, RangeRequest, Request};
use freehold_sim::Path;

use super::{Block, Task, if_any};
use crate::frames::Frames;

/// The movable blocks of all tasks, by slot and by frame.
pub(crate) struct Owners {
    /// The content of each slot.
    slots: Vec<AtomicU64>,
    /// For the first frame of each block that is held, its slot plus one. A hint: the slot is
    /// authoritative.
    holders: Vec<AtomicU64>,
}

/// A slot that holds nothing.
const EMPTY: u64 = 0;
/// Marks a slot that holds a block.
const HELD: u64 = 1;
/// Marks a slot whose block is being moved.
const BUSY: u64 = 2;

fn held(block: Block) -> u64 {
    block.pfn.get() << 8 | u64::from(block.order.get()) << 2 | HELD
}

fn block_of(word: u64) -> Option<Block> {
    let block = || Block { pfn: Pfn::new(word >> 8), order: Order::new((word >> 2 & 63) as u8) };
    (word & HELD != 0).then(block)
}

/// A word of 0 for each frame of a machine with so much memory.
pub(crate) fn word_each(memory: FrameCount) -> Vec<AtomicU64> {
    /// Machines round the memory of each node up, by less than this in total.
    const ROUNDING: usize = 1 << 18;
    zeros(memory.get() as usize + ROUNDING)
}

/// So many words of 0.
pub(crate) fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Owners {
    /// Empty slots, for blocks of a machine with so much memory.
    pub(crate) fn new(slots: usize, memory: FrameCount) -> Self {
        Owners { slots: zeros(slots), holders: word_each(memory) }
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether a slot holds nothing.
    pub(crate) fn is_empty(&self, slot: usize) -> bool {
        self.slots[slot].load(Acquire) == EMPTY
    }

    /// Puts a block into a slot that is empty and that no other task fills.
    pub(crate) fn put(&self, slot: usize, block: Block) {
        self.holder(block.pfn).store(slot as u64 + 1, Relaxed);
        // A task that sees the block in the slot sees its content as well.
        self.slots[slot].store(held(block), Release);
    }

    /// Takes a block out of its slot; if it is being moved, waits. Of several tasks that take, one
    /// gets the block.
    ///
    /// # Errors
    ///
    /// Another task has failed.
    pub(crate) fn take<T: Task>(&self, task: &T, slot: usize) -> Result<Option<Block>> {
        loop {
            let word = self.slots[slot].load(Acquire);
            let Some(block) = block_of(word) else { return Ok(None) };
            if word & BUSY != 0 {
                task.pause()?;
                continue;
            }
            if self.slots[slot].compare_exchange(word, EMPTY, Acquire, Relaxed).is_ok() {
                self.holder(block.pfn).store(EMPTY, Relaxed);
                return Ok(Some(block));
            }
        }
    }

    /// Moves the content of a block by `copy`, and its slot with it.
    ///
    /// # Errors
    ///
    /// [`MigrateError::Busy`] if the block is being used, freed or moved right now, and
    /// [`MigrateError::Failed`] if no slot holds such a block; nothing has changed then.
    pub(crate) fn relocate(
        &self,
        from: Block,
        to: Pfn,
        copy: impl FnOnce(),
    ) -> Result<(), MigrateError> {
        let holder = self.holder(from.pfn).load(Relaxed);
        let slot = (holder as usize).checked_sub(1).ok_or(MigrateError::Failed)?;
        let word = held(from);
        match self.slots[slot].compare_exchange(word, word | BUSY, Acquire, Relaxed) {
            Ok(_) => {}
            Err(other) if other == word | BUSY || other == EMPTY => return Err(MigrateError::Busy),
            Err(_) => return Err(MigrateError::Failed),
        }
        copy();
        self.holder(from.pfn).store(EMPTY, Relaxed);
        self.put(slot, Block { pfn: to, order: from.order });
        Ok(())
    }

    /// As [`Task::try_alloc`]; if free memory is fragmented, content is moved.
    pub(crate) fn try_alloc_compacting<T: Task>(
        &self,
        task: &T,
        request: Request,
    ) -> Result<Option<Block>> {
        let mover = Mover { owners: self, task };
        let alloc = || task.allocator().alloc_compacting(request, &mover);
        let order = request.order();
        if_any(task.timed(Path::Alloc, alloc).map(|pfn| Block { pfn, order }))
    }

    /// Has content moved until no more than so many percent of the free memory are of no use for
    /// huge pages.
    pub(crate) fn compact<T: Task>(&self, task: &T, unusable_percent: u32) {
        let mover = Mover { owners: self, task };
        task.allocator().compact_proactively(unusable_percent * 10, &mover);
    }

    /// Allocates exactly the frames of a block, after moving movable content out of them; `None` if
    /// that is impossible.
    pub(crate) fn try_alloc_range<T: Task>(&self, task: &T, block: Block) -> Result<Option<Block>> {
        let request = RangeRequest::new(block.order.frames()).at(block.pfn);
        let mover = Mover { owners: self, task };
        let alloc = || task.allocator().alloc_range(request, &mover);
        if_any(task.timed(Path::Alloc, alloc).map(|_| block))
    }

    /// The blocks of some slots, at a time when none is being moved.
    pub(crate) fn blocks(&self, slots: std::ops::Range<usize>) -> impl Iterator<Item = Block> + '_ {
        self.slots[slots].iter().filter_map(|slot| block_of(slot.load(Acquire)))
    }

    fn holder(&self, pfn: Pfn) -> &AtomicU64 {
        &self.holders[pfn.get() as usize]
    }
}

/// The owner that the allocator asks to move content, on behalf of a task.
struct Mover<'a, T> {
    owners: &'a Owners,
    task: &'a T,
}

impl<T: Task> Migrate for Mover<'_, T> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        let from = Block { pfn: from, order };
        self.owners.relocate(from, to, || self.task.copy(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::host::tests::on_host;
    use std::cell::Cell;

    fn block(pfn: u64, order: u8) -> Block {
        Block { pfn: Pfn::new(pfn), order: Order::new(order) }
    }

    #[test]
    fn a_block_is_found_where_it_was_moved_to() {
        on_host(|task| {
            let owners = Owners::new(2, FrameCount::new(4096));
            assert_eq!(owners.take(task, 0).unwrap(), None);
            owners.put(0, block(1024, 9));
            owners.put(1, block(7, 0));
            let copied = Cell::new(false);
            let copy = || copied.set(true);
            assert_eq!(owners.relocate(block(1024, 9), Pfn::new(512), copy), Ok(()));
            assert!(copied.get());
            assert_eq!(owners.blocks(0..2).collect::<Vec<_>>(), [block(512, 9), block(7, 0)]);
            assert_eq!(owners.take(task, 0).unwrap(), Some(block(512, 9)));
            assert_eq!(owners.take(task, 0).unwrap(), None);
        });
    }

    #[test]
    fn what_no_slot_holds_is_not_moved() {
        let owners = Owners::new(1, FrameCount::new(4096));
        let relocate = |from| owners.relocate(from, Pfn::new(99), || panic!("nothing to copy"));
        assert_eq!(relocate(block(5, 0)), Err(MigrateError::Failed), "unmovable, or another's");
        owners.put(0, block(4, 1));
        assert_eq!(relocate(block(4, 0)), Err(MigrateError::Failed), "of another order");
        assert_eq!(relocate(block(5, 0)), Err(MigrateError::Failed), "within a block");
        assert_eq!(owners.blocks(0..1).collect::<Vec<_>>(), [block(4, 1)]);
    }

    #[test]
    fn a_block_that_is_being_moved_is_not_moved_by_another() {
        let owners = Owners::new(1, FrameCount::new(4096));
        owners.put(0, block(5, 0));
        let outer = owners.relocate(block(5, 0), Pfn::new(6), || {
            let inner = owners.relocate(block(5, 0), Pfn::new(7), || panic!("moved twice"));
            assert_eq!(inner, Err(MigrateError::Busy));
        });
        assert_eq!(outer, Ok(()));
        assert_eq!(owners.blocks(0..1).collect::<Vec<_>>(), [block(6, 0)]);
    }

    #[test]
    fn tasks_take_and_put_while_others_move() {
        const ROUNDS: u64 = 20_000;
        let owners = Owners::new(1, FrameCount::new(4));
        owners.put(0, block(0, 0));
        let moved = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Moves the block back and forth between frames 0 and 1, wherever it is.
                while moved.load(Relaxed) < ROUNDS {
                    for (from, to) in [(0, 1), (1, 0)] {
                        let done = owners.relocate(block(from, 0), Pfn::new(to), || {});
                        moved.fetch_add(u64::from(done.is_ok()), Relaxed);
                    }
                }
            });
            on_host(|task| {
                while moved.load(Relaxed) < ROUNDS {
                    let taken = owners.take(task, 0).unwrap().expect("it is never lost");
                    assert!(taken.pfn.get() < 2);
                    owners.put(0, taken);
                }
            });
        });
        assert_eq!(owners.blocks(0..1).count(), 1);
    }
}

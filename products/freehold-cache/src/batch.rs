//! Writing a batch of dirty blocks: in the order of their offsets, adjacent ones in one write.
//!
//! A block is written under its latch, shared, so that readers go on and no writer changes it
//! meanwhile, and stays dirty until the write has succeeded. So it is neither evicted nor taken for
//! written before it is. No latch is waited for while another is held: a writer that has one of
//! them may wait for the other.

use std::io::{self, IoSlice};

use crate::counters::Count;
use crate::file_state::FileState;
use crate::io::Run;
use crate::key::{Block, Key, SlotIndex};
use crate::load::LATCH_WAIT;
use crate::pool::Pool;
use crate::slot::{Flag, Page, Slot};
use crate::sync::RwLockReadGuard;

/// The most blocks of a batch.
pub(crate) const BATCH_BLOCKS: usize = 128;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was not dirty any more.
    Clean,
    Written,
    Failed,
    /// A writer has it.
    Busy,
}

/// What became of a batch.
pub(crate) struct Batch {
    /// Of each block.
    pub(crate) outcomes: Vec<Outcome>,
    /// The first failure.
    pub(crate) error: Option<io::Error>,
}

impl Batch {
    pub(crate) fn count(&self, of: Outcome) -> u64 {
        self.outcomes.iter().filter(|&&outcome| outcome == of).count() as u64
    }
}

impl Pool {
    /// Writes those of the blocks, in their order, that are dirty and that no writer has.
    pub(crate) fn write_batch(&self, file: &FileState, blocks: &[(Block, SlotIndex)]) -> Batch {
        self.write_some(file, blocks, |slot| slot.latch.try_read_recursive())
    }

    /// Writes a block if it is dirty. Waits for its writer, so the caller has no latch.
    pub(crate) fn write_one(&self, file: &FileState, (block, index): (Block, SlotIndex)) -> Batch {
        loop {
            // Recursive: does not wait for writers that wait themselves, maybe for a guard of this
            // thread's. And not for long: another call may write the block, and another block come
            // in its place.
            let done = self.write_some(file, &[(block, index)], |slot| {
                slot.latch.try_read_recursive_for(LATCH_WAIT)
            });
            if done.count(Outcome::Busy) == 0 || !file.is_dirty(block, index) {
                return done;
            }
        }
    }

    fn write_some<'a>(
        &'a self,
        file: &FileState,
        blocks: &[(Block, SlotIndex)],
        latch: impl Fn(&'a Slot) -> Option<RwLockReadGuard<'a, Page>>,
    ) -> Batch {
        let mut batch = Batch { outcomes: vec![Outcome::Clean; blocks.len()], error: None };
        let mut held = Vec::with_capacity(blocks.len());
        for (nth, &(block, index)) in blocks.iter().enumerate() {
            let slot = self.slot(index);
            match latch(slot) {
                None => batch.outcomes[nth] = Outcome::Busy,
                // Otherwise it was written, and maybe another block is there by now.
                Some(page)
                    if Key::new(file.number, block) == Some(page.key) && slot.has(Flag::Dirty) =>
                {
                    held.push((nth, block, page));
                }
                Some(_) => {}
            }
        }
        let adjacent: Vec<_> = held.chunk_by(|one, next| one.1.0 + 1 == next.1.0).collect();
        let mut runs: Vec<_> = adjacent.iter().map(|of| run_of(file, of)).collect();
        if runs.is_empty() {
            return batch;
        }
        let mut results = file.storage.write_runs(&mut runs).into_iter();
        drop(runs);
        for of in adjacent {
            let no_result = || Err(io::Error::other("the storage returned no result"));
            let result = results.next().unwrap_or_else(no_result);
            let outcome = if result.is_ok() { Outcome::Written } else { Outcome::Failed };
            for &(nth, block, _) in of {
                batch.outcomes[nth] = outcome;
                // Another call may have written it as well.
                if outcome == Outcome::Written && file.remove_dirty(block) {
                    self.slot(blocks[nth].1).clear(Flag::Dirty);
                }
            }
            let counted = if result.is_ok() { Count::WrittenBack } else { Count::WriteError };
            file.tenant.counters.add(counted, of.len() as u64);
            batch.error = batch.error.or(result.err());
        }
        file.note_written(batch.error.as_ref());
        batch
    }
}

/// Adjacent blocks, with their places in the batch.
fn run_of<'a>(file: &FileState, of: &'a [(usize, Block, RwLockReadGuard<'_, Page>)]) -> Run<'a> {
    let buffers = of.iter().map(|(.., page)| IoSlice::new(page.bytes())).collect();
    Run { offset: file.offset(of[0].1), buffers }
}

//! Dirty blocks to storage: in batches, in the order of their offsets, adjacent ones in one write.
//!
//! A block is written under its latch, shared, so that readers go on and no writer changes it
//! meanwhile, and stays dirty until the write has succeeded. So it is neither evicted nor taken for
//! written before it is. No latch is waited for while another is held: a writer that has one of
//! them may wait for the other.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::cache::Shared;
use crate::counters::Count;
use crate::error::SyncError;
use crate::file_state::FileState;
use crate::io::Run;
use crate::load::LATCH_WAIT;
use crate::pool::Pool;
use crate::slot::{Block, Flag, Key, Page, Slot, SlotIndex};
use crate::sync::RwLockReadGuard;
use crate::tenant::TenantState;

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
    fn write_one(&self, file: &FileState, (block, index): (Block, SlotIndex)) -> Batch {
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

impl Shared {
    /// Writes all blocks of a file that are dirty when this is called; returns how many of them
    /// could not be written, and the first error. Waits for writers if told to.
    pub(crate) fn write_back(&self, file: &FileState, waits: bool) -> (u64, Option<io::Error>) {
        let (pool, mut next) = (self.lru.owner(), Block(0));
        let (mut failed, mut first_error) = (0, None);
        // What becomes dirty behind it from now on is left out, so that the call ends.
        let end = file.last_dirty();
        while end.is_some_and(|end| next <= end) {
            let blocks = file.dirty_from(next, BATCH_BLOCKS);
            let Some(&(last, _)) = blocks.last() else { break };
            next = Block(last.0 + 1);
            let done = pool.write_batch(file, &blocks);
            failed += done.count(Outcome::Failed);
            first_error = first_error.or(done.error);
            let busy = done.outcomes.iter().zip(&blocks);
            for (_, block) in busy.filter(|(outcome, _)| waits && **outcome == Outcome::Busy) {
                let done = pool.write_one(file, *block);
                failed += done.count(Outcome::Failed);
                first_error = first_error.or(done.error);
            }
        }
        (failed, first_error)
    }

    /// Makes durable what was written to a file before the call.
    pub(crate) fn sync(&self, file: &FileState) -> Result<(), SyncError> {
        let before = file.failures();
        let (failed, error) = self.write_back(file, true);
        // Even if a block could not be written: the others are to be durable.
        file.make_durable();
        file.report(before, failed, error)
    }

    /// Whether of all blocks at least so many percent are dirty.
    fn is_dirty(&self, percent: u64) -> bool {
        self.dirty() >= part(self.blocks, percent)
    }

    /// The same of all blocks, or of those that the tenant may have.
    pub(crate) fn is_dirty_for(&self, tenant: &TenantState, percent: u64) -> bool {
        self.is_dirty(percent) || tenant.dirty() >= part(tenant.blocks_max(), percent)
    }

    /// Before a block is made dirty: if as much is dirty as may be, writes some of it first.
    ///
    /// A storage that fails stops the writers of its own files. It does not stop those of others,
    /// unless so many files of the tenant fail that half of the rest is dirty as well.
    ///
    /// # Errors
    ///
    /// The error of the write-back, if there are still so many.
    pub(crate) fn throttle(&self, file: &FileState) -> io::Result<()> {
        let (tenant, most) = (&file.tenant, self.dirty_max_percent);
        if self.is_dirty_for(tenant, self.dirty_background_percent) {
            self.signal.wake();
        }
        let is_full = || self.is_dirty_for(tenant, most);
        if !is_full() {
            return Ok(());
        }
        let write_some = |file: &FileState| {
            let blocks = file.dirty_from(Block(0), BATCH_BLOCKS);
            self.lru.owner().write_batch(file, &blocks).error
        };
        // Its own file first; the others only if that does not do.
        if let Some(error) = write_some(file).filter(|_| is_full()) {
            return Err(error);
        }
        let is_of = |other: &FileState| Arc::ptr_eq(&other.tenant, tenant);
        let mut failure = None;
        for other in self.open_files() {
            if !is_full() {
                return Ok(());
            }
            if let Some(error) = other.failing() {
                failure = failure.or(Some(error).filter(|_| is_of(&other)));
            } else if is_of(&other) || self.is_dirty(most) {
                write_some(&other);
            }
        }
        let failure = failure.filter(|_| self.is_dirty_for(tenant, (most + 100) / 2));
        failure.map_or(Ok(()), Err)
    }
}

/// So many percent of so many blocks, and at least one.
fn part(blocks: u64, percent: u64) -> u64 {
    (blocks * percent / 100).max(1)
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::io::Storage;
    use crate::{Cache, Limits};

    struct Counting(Arc<AtomicU64>);

    impl Storage for Counting {
        fn read_at(&self, _: u64, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            Ok(0)
        }

        fn write_at(&self, _: u64, _: &mut [IoSlice<'_>]) -> io::Result<()> {
            self.0.fetch_add(1, SeqCst);
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A list of dirty blocks is old by the time that they are written: another file's block may be
    /// in the place of one.
    #[test]
    fn no_block_is_written_to_another_file() {
        let cache = Cache::builder().memory_bytes(16 << 12).write_back_every(None).build().unwrap();
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let writes = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let open = |nth: usize| {
            let storage = Box::new(Counting(Arc::clone(&writes[nth])));
            cache.open_storage(&tenant, storage).unwrap()
        };
        let files = [open(0), open(1)];
        drop(files[1].write(Block(7)).unwrap());
        let [one, other] = [0, 1].map(|nth| Arc::clone(&cache.shared.open_files()[nth]));
        let pool = cache.shared.lru.owner();
        let dirty = other.dirty_from(Block(0), 1);
        assert_eq!(pool.write_batch(&one, &dirty).outcomes, [Outcome::Clean]);
        let neighbour = [(Block(8), dirty[0].1)];
        assert_eq!(pool.write_batch(&other, &neighbour).outcomes, [Outcome::Clean]);
        assert_eq!([&writes[0], &writes[1]].map(|count| count.load(SeqCst)), [0, 0]);
        assert_eq!(pool.write_batch(&other, &dirty).outcomes, [Outcome::Written]);
        assert_eq!(pool.write_batch(&other, &dirty).outcomes, [Outcome::Clean]);
        assert_eq!(writes[1].load(SeqCst), 1);
    }
}

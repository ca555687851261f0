//! Dirty blocks to storage: those of a file, all of them for a sync, some of them when much is
//! dirty.

use std::io;
use std::sync::Arc;

use crate::batch::{BATCH_BLOCKS, Outcome};
use crate::error::SyncError;
use crate::file_state::FileState;
use crate::key::Block;
use crate::shared::Shared;
use crate::tenant_state::TenantState;

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
    use std::io::{IoSlice, IoSliceMut};
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

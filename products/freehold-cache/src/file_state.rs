//! What the cache knows of an open file: its storage, its dirty blocks, and failures to report.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::error::{SyncError, SyncState};
use crate::io::Storage;
use crate::key::{Block, Key, SlotIndex};
use crate::sync::{AtomicBool, AtomicU64, Mutex, RwLock};
use crate::tenant_state::TenantState;

pub(crate) struct FileState {
    /// Among the open files.
    pub(crate) number: usize,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) tenant: Arc<TenantState>,
    pub(crate) block_bytes: usize,
    /// Device and inode, if it is a file of the operating system.
    pub(crate) identity: Option<(u64, u64)>,
    /// Its last handle is gone, and all of its blocks. Others may still know it for a while.
    is_closed: AtomicBool,
    /// How many of its blocks are cached.
    cached: AtomicU64,
    /// The blocks that are not on storage, and where they are: in the order in which they are
    /// written. A block is in it as long as its slot is dirty.
    dirty: Mutex<BTreeMap<u64, SlotIndex>>,
    failures: Mutex<Failures>,
    /// Whether the last write-back failed.
    is_failing: AtomicBool,
    /// Shared by calls that have the storage make durable what was written, until what became of it
    /// is noted.
    syncing: RwLock<()>,
    /// The block behind the one that was read last: the next one of a sequential reader.
    next: AtomicU64,
    /// The first block of the piece that was read ahead last.
    mark: AtomicU64,
    /// How many pieces were read in the background; `None` once it is closed. Held while one is.
    pub(crate) pieces: Mutex<Option<u64>>,
}

#[derive(Default)]
struct Failures {
    /// How many write-backs have failed, and how many of these a `sync` has reported.
    noted: u64,
    reported: u64,
    /// The last one.
    last: Option<io::Error>,
    /// A failure of the storage's `sync`.
    lost: Option<io::Error>,
}

impl FileState {
    pub(crate) fn new(
        number: usize,
        storage: Box<dyn Storage>,
        tenant: Arc<TenantState>,
        block_bytes: usize,
        identity: Option<(u64, u64)>,
    ) -> Self {
        FileState {
            number,
            storage,
            tenant,
            block_bytes,
            identity,
            is_closed: AtomicBool::new(false),
            cached: AtomicU64::new(0),
            dirty: Mutex::default(),
            failures: Mutex::default(),
            is_failing: AtomicBool::new(false),
            syncing: RwLock::default(),
            next: AtomicU64::new(u64::MAX),
            mark: AtomicU64::new(u64::MAX),
            pieces: Mutex::new(Some(0)),
        }
    }

    pub(crate) fn key(&self, block: Block) -> io::Result<Key> {
        let out_of_range = || io::Error::new(io::ErrorKind::InvalidInput, "block out of range");
        Key::new(self.number, block).ok_or_else(out_of_range)
    }

    pub(crate) fn offset(&self, block: Block) -> u64 {
        // Block numbers have 40 bits and blocks at most 20.
        block.0 * self.block_bytes as u64
    }

    /// Reads a block. What lies behind the end of the file reads as zeroes.
    pub(crate) fn read_one(&self, block: Block, bytes: &mut [u8]) -> io::Result<()> {
        let mut buffers = [IoSliceMut::new(bytes)];
        let read = self.storage.read_at(self.offset(block), &mut buffers)?;
        bytes[read.min(self.block_bytes)..].fill(0);
        Ok(())
    }

    /// Reads adjacent blocks, and returns how many begin before the end of the file. What lies
    /// behind it reads as zeroes.
    pub(crate) fn read(&self, first: Block, blocks: &mut [&mut [u8]]) -> io::Result<usize> {
        let mut buffers: Vec<_> = blocks.iter_mut().map(|block| IoSliceMut::new(block)).collect();
        let read = self.storage.read_at(self.offset(first), &mut buffers)?;
        for (nth, block) in blocks.iter_mut().enumerate() {
            let from = read.saturating_sub(nth * self.block_bytes).min(block.len());
            block[from..].fill(0);
        }
        Ok(read.div_ceil(self.block_bytes))
    }

    /// Whether the block follows the one that was read last. Notes it as the last one.
    pub(crate) fn is_sequential(&self, block: Block) -> bool {
        // Relaxed: a guess. Several readers of one file disturb each other's.
        let follows = self.next.load(Relaxed) == block.0;
        self.note_read(block);
        follows
    }

    pub(crate) fn note_read(&self, block: Block) {
        // Relaxed: as above. A load first, so that readers of one block do not fight for the line.
        if self.next.load(Relaxed) != block.0 + 1 {
            self.next.store(block.0 + 1, Relaxed);
        }
    }

    /// Notes that a piece that begins there is being read ahead.
    pub(crate) fn set_mark(&self, first: Block) {
        // Relaxed: as above.
        self.mark.store(first.0, Relaxed);
    }

    pub(crate) fn is_mark(&self, block: Block) -> bool {
        // Relaxed: as above.
        self.mark.load(Relaxed) == block.0
    }

    /// Waits for the piece that is being read in the background; there will be no other.
    pub(crate) fn stop_reading_on(&self) {
        *self.pieces.lock() = None;
    }

    /// Counts a block that was charged.
    pub(crate) fn add_cached(&self) {
        // Relaxed: a count. When the file is closed, nothing adds to it any more.
        self.cached.fetch_add(1, Relaxed);
        self.tenant.add_cached();
    }

    /// Counts a block that is about to be uncharged.
    pub(crate) fn remove_cached(&self) {
        self.tenant.remove_cached();
        // Relaxed: as above.
        self.cached.fetch_sub(1, Relaxed);
    }

    pub(crate) fn cached(&self) -> u64 {
        // Relaxed: as above.
        self.cached.load(Relaxed)
    }

    /// Notes that a block is dirty. Called under its exclusive latch.
    pub(crate) fn insert_dirty(&self, block: Block, slot: SlotIndex) {
        if self.dirty.lock().insert(block.0, slot).is_none() {
            self.tenant.add_dirty(1);
        }
    }

    /// Notes that a block is on storage; returns whether it was dirty. Called under its latch,
    /// shared or not, so that no writer has it.
    pub(crate) fn remove_dirty(&self, block: Block) -> bool {
        let removed = self.dirty.lock().remove(&block.0).is_some();
        if removed {
            self.tenant.remove_dirty(1);
        }
        removed
    }

    /// Whether a block is dirty, and there.
    pub(crate) fn is_dirty(&self, block: Block, slot: SlotIndex) -> bool {
        self.dirty.lock().get(&block.0) == Some(&slot)
    }

    pub(crate) fn dirty_count(&self) -> u64 {
        self.dirty.lock().len() as u64
    }

    /// The dirty block with the highest number.
    pub(crate) fn last_dirty(&self) -> Option<Block> {
        self.dirty.lock().last_key_value().map(|(&block, _)| Block(block))
    }

    /// Up to so many dirty blocks in order, from this one on.
    pub(crate) fn dirty_from(&self, first: Block, most: usize) -> Vec<(Block, SlotIndex)> {
        let dirty = self.dirty.lock();
        let from = dirty.range(first.0..).take(most);
        from.map(|(&block, &slot)| (Block(block), slot)).collect()
    }

    /// Notes what became of a write-back.
    pub(crate) fn note_written(&self, error: Option<&io::Error>) {
        // Relaxed: a hint which files are worth a try.
        self.is_failing.store(error.is_some(), Relaxed);
        if let Some(error) = error {
            let mut failures = self.failures.lock();
            failures.noted += 1;
            failures.last = Some(copy_of(error));
        }
    }

    /// How many write-backs have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.lock().noted
    }

    /// The error of the last write-back, if it failed.
    pub(crate) fn failing(&self) -> Option<io::Error> {
        // Relaxed: as above.
        let is_failing = self.is_failing.load(Relaxed);
        self.failures.lock().last.as_ref().filter(|_| is_failing).map(copy_of)
    }

    /// Has the storage make durable what was written before the call, or notes that it may be lost.
    pub(crate) fn make_durable(&self) {
        let under_way = self.syncing.read();
        if self.failures.lock().lost.is_some() {
            return;
        }
        let note_lost = |error| self.failures.lock().lost = Some(error);
        match catch_unwind(AssertUnwindSafe(|| self.storage.sync())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note_lost(error),
            Err(panic) => {
                note_lost(io::Error::other("the storage panicked"));
                resume_unwind(panic);
            }
        }
        drop(under_way);
        // The storage tells one call of a failure, and what others have written may be lost by it
        // as well: waits until those that are under way have noted theirs.
        drop(self.syncing.write());
    }

    /// What a `sync` has to report that found so many failures when it began, and could not write
    /// so many blocks itself. Each failure of a write-back is reported once, a loss every time.
    ///
    /// What others failed to write meanwhile is left to the next one: this one may have passed it.
    pub(crate) fn report(
        &self,
        before: u64,
        unwritten: u64,
        error: Option<io::Error>,
    ) -> Result<(), SyncError> {
        let failures = &mut *self.failures.lock();
        if let Some(lost) = &failures.lost {
            return Err(SyncError { error: copy_of(lost), state: SyncState::Lost });
        }
        if let Some(error) = error {
            failures.reported = failures.noted;
            return Err(SyncError { error, state: SyncState::Dirty(unwritten) });
        }
        match &failures.last {
            Some(last) if failures.reported < before => {
                failures.reported = before;
                Err(SyncError { error: copy_of(last), state: SyncState::Repaired })
            }
            _ => Ok(()),
        }
    }

    /// Notes that none of its blocks is cached any more, nor will be.
    pub(crate) fn close(&self) {
        // Release: its blocks were written before, for the call that opens the file again.
        self.is_closed.store(true, Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with `close`.
        self.is_closed.load(Acquire)
    }
}

/// The same error once more.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, FileStorage, Limits};

    #[test]
    fn a_failure_is_reported_once_by_a_sync_that_began_after_it() {
        let cache = Cache::builder().memory_bytes(16 << 12).build().unwrap();
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let storage = FileStorage::new(tempfile::tempfile().unwrap());
        let _file = cache.open_storage(&tenant, Box::new(storage)).unwrap();
        let file = &cache.shared.open_files()[0];
        let error = || io::Error::other("on purpose");
        let report = |before| file.report(before, 0, None).map_err(|error| error.state);
        file.note_written(Some(&error()));
        let before = file.failures();
        file.note_written(Some(&error()));
        assert_eq!(report(0), Ok(()));
        assert_eq!(report(before), Err(SyncState::Repaired));
        assert_eq!(report(before), Ok(()));
        assert_eq!(report(file.failures()), Err(SyncState::Repaired));
        file.note_written(Some(&error()));
        let state = file.report(before, 3, Some(error())).unwrap_err().state;
        assert_eq!((state, report(file.failures())), (SyncState::Dirty(3), Ok(())));
    }
}

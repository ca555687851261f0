//! What the cache knows of an open file: its storage, its dirty blocks, and failures to report.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::{SyncError, SyncState};
use crate::io::Storage;
use crate::slot::{Block, Key, SlotIndex};
use crate::sync::{AtomicU64, Mutex};
use crate::tenant::TenantState;

pub(crate) struct FileState {
    /// Among the open files.
    pub(crate) number: usize,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) tenant: Arc<TenantState>,
    pub(crate) block_bytes: usize,
    /// Device and inode, if it is a file of the operating system.
    pub(crate) identity: Option<(u64, u64)>,
    /// How many of its blocks are cached.
    cached: AtomicU64,
    /// The blocks that are not on storage, and where they are: in the order in which they are
    /// written. A block is in it as long as its slot is dirty.
    dirty: Mutex<BTreeMap<u64, SlotIndex>>,
    failures: Mutex<Failures>,
    /// The block behind the one that was read last: the next one of a sequential reader.
    next: AtomicU64,
}

#[derive(Default)]
struct Failures {
    /// The first failure of a write-back that no `sync` has reported.
    unreported: Option<io::Error>,
    /// A failure to make writes durable: what it was.
    lost: Option<(io::ErrorKind, String)>,
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
            cached: AtomicU64::new(0),
            dirty: Mutex::default(),
            failures: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
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

    /// Notes that a block could not be written.
    pub(crate) fn note_failure(&self, error: io::Error) {
        self.failures.lock().unreported.get_or_insert(error);
    }

    /// Notes that what was written may be lost.
    pub(crate) fn note_lost(&self, error: &io::Error) {
        self.failures.lock().lost.get_or_insert((error.kind(), error.to_string()));
    }

    /// The failure that a `sync` has to report, with so many blocks that it could not write. Each
    /// failure of a write-back is reported once, a loss every time.
    pub(crate) fn take_failure(&self, unwritten: u64) -> Option<SyncError> {
        let mut failures = self.failures.lock();
        let unreported = failures.unreported.take();
        if let Some((kind, text)) = &failures.lost {
            let error = io::Error::new(*kind, text.clone());
            return Some(SyncError { error, state: SyncState::Lost });
        }
        let state = if unwritten > 0 { SyncState::Dirty(unwritten) } else { SyncState::Repaired };
        unreported.map(|error| SyncError { error, state })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.failures.lock().lost.is_some()
    }
}

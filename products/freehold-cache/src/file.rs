//! Files as users of the cache see them.

use std::fmt;
use std::sync::Arc;

use crate::error::{CacheError, SyncError};
use crate::file_state::FileState;
use crate::guard::{BlockMut, BlockRef};
use crate::key::Block;
use crate::load::Fill;
use crate::shared::Shared;

/// A file whose blocks are cached, opened by [`Cache::open`](crate::Cache::open). A handle: clones
/// are the same file.
///
/// A file is a row of whole blocks. What lies behind its end reads as zeroes; a block that is
/// written there extends the file to the end of that block.
///
/// # Guards and threads
///
/// A guard is a hold on one block, as that of a reader-writer lock. A thread that holds a guard of
/// a block and asks for another one of the same block may wait for itself; a thread that wants to
/// write several blocks asks for them in the order of their numbers, as every other thread does.
///
/// # Closing
///
/// When the last handle is dropped, dirty blocks are written, but not made durable, and errors are
/// lost, except for the counter `lost` of the tenant: [`CachedFile::sync`] or [`CachedFile::close`]
/// tells. All blocks of the file leave the cache then, which visits the records of all blocks, at a
/// few nanoseconds each.
#[derive(Clone)]
pub struct CachedFile {
    opened: Arc<Opened>,
}

struct Opened {
    shared: Arc<Shared>,
    file: Arc<FileState>,
}

impl CachedFile {
    pub(crate) fn new(shared: Arc<Shared>, file: Arc<FileState>) -> Self {
        CachedFile { opened: Arc::new(Opened { shared, file }) }
    }

    /// A block, to be read. Threads that want the same block at the same time cause one read of the
    /// storage.
    ///
    /// Cost of a hit: a look-up under a lock of which there are many, the latch of the block, a
    /// count and perhaps a mark; no system call and no allocation.
    ///
    /// # Errors
    ///
    /// [`CacheError::Io`] if the storage cannot be read; each caller of the block tries by itself.
    /// [`CacheError::NoRoom`] or [`CacheError::TenantFull`] if guards keep all blocks that could
    /// make room, for as long as the builder's [`wait`](crate::CacheBuilder::wait).
    pub fn read(&self, block: Block) -> Result<BlockRef<'_>, CacheError> {
        let Opened { shared, file } = &*self.opened;
        Ok(BlockRef::new(shared.shared_page(file, block)?, block))
    }

    /// A block, to be changed: read first, if it is not cached. Waits until no other guard of the
    /// block lives. The block is dirty at once, even if nothing is written to it.
    ///
    /// # Errors
    ///
    /// As [`CachedFile::read`]; [`CacheError::Io`] also if as many blocks are dirty as may be and
    /// those of this file cannot be written; or if half of the rest is dirty as well, and another
    /// file of the tenant cannot be written.
    pub fn write(&self, block: Block) -> Result<BlockMut<'_>, CacheError> {
        let Opened { shared, file } = &*self.opened;
        Ok(BlockMut::new(shared.exclusive_page(file, block, Fill::Read)?, block))
    }

    /// A block of zeroes in the place of what there was, which is not read.
    ///
    /// # Errors
    ///
    /// As [`CachedFile::write`].
    pub fn overwrite(&self, block: Block) -> Result<BlockMut<'_>, CacheError> {
        let Opened { shared, file } = &*self.opened;
        Ok(BlockMut::new(shared.exclusive_page(file, block, Fill::Zero)?, block))
    }

    /// Reads those of these blocks in that are not cached, so that [`CachedFile::read`] finds them.
    /// Returns how many it has read, once they are there.
    ///
    /// With [`IoEngine::Uring`](crate::IoEngine::Uring) the storage works on up to 128 of them at a
    /// time. With [`IoEngine::Pread`](crate::IoEngine::Pread), it reads one after the other, but
    /// adjacent ones together.
    ///
    /// What is left out is read when it is asked for: blocks for which there is no room without
    /// waiting, more than a quarter of what the tenant may have, those behind the end of the file,
    /// and those that cannot be read. Waits for no guard.
    pub fn prefetch(&self, blocks: impl IntoIterator<Item = Block>) -> u64 {
        let Opened { shared, file } = &*self.opened;
        shared.prefetch(file, blocks)
    }

    /// Copies bytes out of the file. Each block for itself: another thread may write between two.
    ///
    /// # Errors
    ///
    /// As [`CachedFile::read`]. Any part of the buffer may have been filled then.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), CacheError> {
        self.each_block(offset, buffer.len(), |block, within, range| {
            let content = self.read(block)?;
            buffer[range.clone()].copy_from_slice(&content[within..within + range.len()]);
            Ok(())
        })
    }

    /// Copies bytes into the file. Each block for itself, as with [`CachedFile::read_at`]. Blocks
    /// that are written as a whole are not read.
    ///
    /// # Errors
    ///
    /// As [`CachedFile::write`]. Any number of blocks from the first one on may have been written
    /// then.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), CacheError> {
        self.each_block(offset, bytes.len(), |block, within, range| {
            let is_whole = range.len() == self.block_bytes();
            let mut content = if is_whole { self.overwrite(block)? } else { self.write(block)? };
            content[within..within + range.len()].copy_from_slice(&bytes[range]);
            Ok(())
        })
    }

    /// Calls with each block of a range of bytes, where the range begins within it, and which part
    /// of the range it has.
    fn each_block(
        &self,
        offset: u64,
        bytes: usize,
        mut call: impl FnMut(Block, usize, std::ops::Range<usize>) -> Result<(), CacheError>,
    ) -> Result<(), CacheError> {
        let size = self.block_bytes();
        let mut done = 0;
        while done < bytes {
            let at = offset.checked_add(done as u64);
            let at = at.ok_or(std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
            let (block, within) = (Block(at / size as u64), (at % size as u64) as usize);
            let end = bytes.min(done + size - within);
            call(block, within, done..end)?;
            done = end;
        }
        Ok(())
    }

    /// Makes durable what was written: when this returns `Ok`, all writes whose guards were dropped
    /// before the call are on storage, and survive a loss of power. Other writes may be, in any
    /// order and in part.
    ///
    /// Waits for writers of dirty blocks, so the calling thread must hold no [`BlockMut`] of this
    /// file.
    ///
    /// # Errors
    ///
    /// A failure of this call, or one of a write-back before it that no `sync` of the file has
    /// reported, wherever it happened: [`SyncError::state`] says what is on storage. Each failure
    /// is reported by one call, whichever begins next; blocks that could not be written stay dirty,
    /// and the next call tries again. After a failure of the storage's own `sync`, every call fails
    /// with [`SyncState::Lost`](crate::SyncState::Lost).
    pub fn sync(&self) -> Result<(), SyncError> {
        self.opened.shared.sync(&self.opened.file)
    }

    /// Writes dirty blocks, those excepted that are being written to, without making them durable.
    /// Returns how many are left.
    ///
    /// # Errors
    ///
    /// The first failure, which the next [`CachedFile::sync`] reports as well.
    pub fn write_back(&self) -> std::io::Result<u64> {
        match self.opened.shared.write_back(&self.opened.file, false) {
            (_, Some(error)) => Err(error),
            (_, None) => Ok(self.opened.file.dirty_count()),
        }
    }

    /// As [`CachedFile::sync`]; with the last handle the file's blocks leave the cache after it.
    ///
    /// # Errors
    ///
    /// As [`CachedFile::sync`]. Blocks that could not be written are lost then, if this was the
    /// last handle.
    pub fn close(self) -> Result<(), SyncError> {
        self.sync()
    }

    /// How many blocks are dirty.
    pub fn dirty_blocks(&self) -> u64 {
        self.opened.file.dirty_count()
    }

    /// The size of a block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.opened.shared.block_bytes
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Waits for calls that have a block for a moment. There are no guards of the file any more,
        // so none of these waits for one of this thread's. What fails stays dirty, and is counted.
        let _failed = self.shared.write_back(&self.file, true);
        self.file.stop_reading_on();
        let lost = self.shared.purge(&self.file);
        self.file.tenant.add_lost(lost);
        self.file.close();
    }
}

impl fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.opened.file;
        f.debug_struct("CachedFile")
            .field("tenant", &file.tenant.name)
            .field("dirty", &file.dirty_count())
            .finish_non_exhaustive()
    }
}

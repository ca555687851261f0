//! Reading in what has not been asked for yet: the blocks behind those of a sequential reader, and
//! those that a caller names.
//!
//! Nothing here waits for room or for a guard, and what fails is given up: the read of the block
//! itself tries again, and says why.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::BATCH_BLOCKS;
use crate::counters::Count;
use crate::error::CacheError;
use crate::file_state::FileState;
use crate::io::ReadRun;
use crate::key::Block;
use crate::load::Coming;
use crate::shared::Shared;
use crate::slot::{Flag, Page};
use crate::sync::RwLockWriteGuard;

/// Whether a block could be entered ahead.
enum Ahead<'a> {
    Entered(Coming<'a>),
    /// It is there, or another thread reads it.
    There,
    NoRoom,
}

impl Shared {
    /// Reads a block that has been entered, and those behind it.
    pub(crate) fn load_ahead<'a>(
        &'a self,
        file: &Arc<FileState>,
        block: Block,
        first: Coming<'a>,
    ) -> Result<Option<RwLockWriteGuard<'a, Page>>, CacheError> {
        let mut coming = vec![first];
        coming.extend(self.enter_piece(file, Block(block.0 + 1)));
        file.set_mark(Block(block.0 + 1));
        if let Err(error) = self.fill(file, block, &mut coming) {
            file.tenant.counters.add(Count::ReadError, 1);
            return Err(error.into());
        }
        let mut arrived = coming.into_iter().map(|coming| self.arrive(coming));
        let first = arrived.next();
        arrived.for_each(drop);
        Ok(first.flatten())
    }

    /// Reads those of the blocks in that are not there, in batches; returns how many it has read.
    pub(crate) fn prefetch(
        &self,
        file: &Arc<FileState>,
        blocks: impl IntoIterator<Item = Block>,
    ) -> u64 {
        let (mut read, mut left) = (0, file.blocks_ahead_max());
        let index = &self.lru.owner().index;
        let is_missing =
            |block: &Block| file.key(*block).is_ok_and(|key| index.find(key).is_none());
        let mut blocks = blocks.into_iter().filter(is_missing);
        while left > 0 {
            // All of a batch first: the caller's iterator may read blocks itself.
            let batch: Vec<_> = blocks.by_ref().take(BATCH_BLOCKS.min(left as usize)).collect();
            let mut coming = Vec::with_capacity(batch.len());
            let mut has_room = !batch.is_empty();
            for block in batch {
                match self.enter_ahead(file, block) {
                    Ahead::Entered(next) => coming.push(next),
                    Ahead::There => {}
                    Ahead::NoRoom => {
                        has_room = false;
                        break;
                    }
                }
            }
            left -= coming.len() as u64;
            read += self.fill_runs(file, coming);
            if !has_room {
                break;
            }
        }
        read
    }

    /// Enters a piece of blocks, as long as there is room, up to the first one that is there.
    pub(crate) fn enter_piece<'a>(
        &'a self,
        file: &Arc<FileState>,
        first: Block,
    ) -> Vec<Coming<'a>> {
        let next = |nth| match self.enter_ahead(file, Block(first.0 + nth)) {
            Ahead::Entered(next) => Some(next),
            Ahead::There | Ahead::NoRoom => None,
        };
        (0..self.piece_blocks(file)).map_while(next).collect()
    }

    /// How many blocks are read ahead at a time. Two such pieces may be there that were not read.
    fn piece_blocks(&self, file: &FileState) -> u64 {
        (file.blocks_ahead_max() / 2).min(self.read_ahead_blocks as u64)
    }

    /// Where the piece behind the one that begins there begins.
    pub(crate) fn piece_behind(&self, file: &FileState, mark: Block) -> Block {
        Block(mark.0 + self.piece_blocks(file))
    }

    /// Notes the first use of a block that was read ahead, and asks for the next piece if it is the
    /// first one of its own.
    pub(crate) fn note_arrival(&self, file: &Arc<FileState>, block: Block) {
        file.note_read(block);
        if file.is_mark(block) {
            self.requests.push(file, block);
        }
    }

    /// Enters a block that is not there, if there is room without waiting.
    fn enter_ahead<'a>(&'a self, file: &Arc<FileState>, block: Block) -> Ahead<'a> {
        let Ok(key) = file.key(block) else { return Ahead::There };
        if self.lru.owner().index.find(key).is_some() {
            return Ahead::There;
        }
        let Some(memory) = self.allocate_once() else { return Ahead::NoRoom };
        match self.enter(file, key, memory, Duration::ZERO) {
            Ok(Some(next)) => {
                next.slot.set(Flag::ReadAhead);
                Ahead::Entered(next)
            }
            Ok(None) => Ahead::There,
            Err(_) => Ahead::NoRoom,
        }
    }

    /// Reads the blocks that are coming, adjacent ones, from the first one on. Gives up those that
    /// were read ahead if they are behind the end of the file or could not be read.
    fn fill(&self, file: &FileState, block: Block, coming: &mut Vec<Coming<'_>>) -> io::Result<()> {
        let read = |coming: &mut [Coming<'_>]| {
            let mut bytes: Vec<_> = coming.iter_mut().map(|one| one.bytes_mut()).collect();
            file.read(block, &mut bytes)
        };
        let there = match read(coming) {
            Ok(there) => there.max(1),
            Err(error) if coming.len() == 1 => return Err(error),
            Err(_) => {
                read(&mut coming[..1])?;
                1
            }
        };
        coming.truncate(there);
        file.tenant.counters.add(Count::ReadAhead, coming.len() as u64 - 1);
        Ok(())
    }

    /// Reads the blocks that are coming, any ones, by one call of the storage; returns how many
    /// arrived. Gives up the others, as [`Shared::fill`] does.
    pub(crate) fn fill_runs(&self, file: &FileState, mut coming: Vec<Coming<'_>>) -> u64 {
        if coming.is_empty() {
            return 0;
        }
        coming.sort_by_key(Coming::block);
        let size = file.block_bytes;
        let adjacent = coming.chunk_by_mut(|one, next| one.block().0 + 1 == next.block().0);
        let mut runs: Vec<_> = adjacent
            .map(|of| ReadRun {
                offset: file.offset(of[0].block()),
                buffers: of.iter_mut().map(|one| IoSliceMut::new(one.bytes_mut())).collect(),
            })
            .collect();
        let lengths: Vec<_> = runs.iter().map(|run| run.buffers.len()).collect();
        let mut results = file.storage.read_runs(&mut runs).into_iter();
        drop(runs);
        let (mut arrived, mut coming) = (0, coming.into_iter());
        for length in lengths {
            let bytes = results.next().unwrap_or(Ok(0)).unwrap_or_else(|_| {
                file.tenant.counters.add(Count::ReadError, 1);
                0
            });
            for (nth, mut one) in coming.by_ref().take(length).enumerate() {
                let there = bytes.saturating_sub(nth * size).min(size);
                if there > 0 {
                    one.bytes_mut()[there..].fill(0);
                    drop(self.arrive(one));
                    arrived += 1;
                }
            }
        }
        file.tenant.counters.add(Count::ReadAhead, arrived);
        arrived
    }
}

impl FileState {
    /// How many blocks are worth reading ahead for the tenant: a quarter of what it may have.
    fn blocks_ahead_max(&self) -> u64 {
        self.tenant.blocks_max() / 4
    }
}

//! A page cache for files that are only read: which block is in which frame.
//!
//! The index has no lock, as lookups in Linux's have none. A reader that finds a frame takes a
//! reference and looks again; reclaim empties an entry once it has the claim to its frame, which is
//! not given while a reader has a reference.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::thread;

use anyhow::{Result, ensure};
use freehold::lru::{Claim, GroupId, Kind, LruError, Verdict};
use freehold::{FrameCount, Pfn, Request};
use freehold_sim::Key;

use super::disk::Disk;
use crate::task::Task;
use crate::task::lru::Index;
use crate::task::owners::{word_each, zeros};

/// The index. A block is a number over all files, one file after the other.
pub(super) struct Cache {
    /// For each block the number of its frame and one more, or 0.
    frames: Vec<AtomicU64>,
    /// For each frame the number of the block for which it was last entered.
    blocks: Vec<AtomicU64>,
}

impl Cache {
    /// An empty index of so many blocks, in a machine of so much memory.
    pub(super) fn new(blocks: u64, memory: FrameCount) -> Self {
        Cache { frames: zeros(blocks as usize), blocks: word_each(memory) }
    }

    fn find(&self, block: u64) -> Option<Pfn> {
        // Acquire: what is in the frame was written before it was entered.
        self.frames[block as usize].load(Acquire).checked_sub(1).map(Pfn::new)
    }

    /// Enters a frame for a block that has none; says whether that was so.
    fn enter(&self, block: u64, frame: Pfn) -> bool {
        // Release: for the reader that finds the frame.
        self.blocks[frame.get() as usize].store(block, Release);
        let entry = &self.frames[block as usize];
        entry.compare_exchange(0, frame.get() + 1, AcqRel, Acquire).is_ok()
    }
}

impl Index for Cache {
    /// Files are only read, so all of them can be read again.
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let block = self.blocks[frame.get() as usize].load(Acquire);
        // A frame that lost the race for its entry was never in it.
        if self.find(block) == Some(frame)
            && let Some(claimed) = claim.take()
        {
            self.frames[block as usize].store(0, Release);
            claimed.commit();
        }
    }

    fn take_all(&self) -> Vec<Pfn> {
        let taken = self.frames.iter().map(|entry| entry.swap(0, AcqRel));
        taken.filter_map(|entry| entry.checked_sub(1)).map(Pfn::new).collect()
    }
}

impl Cache {
    /// Reads one block through the cache; says whether it was there.
    pub(super) fn read<T: Task>(
        &self,
        task: &T,
        group: GroupId,
        disk: &Disk,
        block: u64,
    ) -> Result<bool> {
        let lru = task.lru();
        let mut hit = true;
        let frame = loop {
            if let Some(frame) = self.find(block) {
                if lru.get(frame).is_err() {
                    // It is just being reclaimed.
                    give_way(task);
                    continue;
                }
                if self.find(block) == Some(frame) {
                    break frame;
                }
                lru.put(frame)?;
                continue;
            }
            hit = false;
            let frame = task.alloc(Request::default())?;
            task.fill(frame, |content| disk.read(block, content))?;
            while let Err(error) = lru.add_reclaiming(frame, group, Kind::File) {
                let waits = matches!(error, LruError::GroupLimit | LruError::TooManyReclaims);
                ensure!(waits, error);
                // Other readers are in all frames that the group may have, or are reclaiming.
                give_way(task);
            }
            lru.get(frame)?;
            if self.enter(block, frame) {
                break frame;
            }
            // The other reader of the file was faster. Neither reference is needed.
            lru.put_bulk(&[frame, frame])?;
        };
        task.copy_out(frame, |content| disk.check(block, content))?;
        lru.mark_accessed(frame)?;
        lru.put(frame)?;
        Ok(hit)
    }
}

/// Lets another reader, or reclaim, go on.
fn give_way<T: Task>(task: &T) {
    task.charge(&[Key::PauseNs]);
    task.in_order();
    // For the host, where neither of these does anything.
    thread::yield_now();
}

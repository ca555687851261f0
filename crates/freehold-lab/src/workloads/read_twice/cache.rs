//! A page cache for files that are only read: which block is in which frame.
//!
//! The index has no lock, as lookups in Linux's have none. A reader that finds a frame takes a
//! reference and looks again; reclaim empties an entry once it has the claim to its frame, which is
//! not given while a reader has a reference.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use freehold::lru::{Claim, GroupId, Kind, Lru, LruLock, LruSettings, Owner, Verdict};
use freehold::platform::Platform;
use freehold::{Error, FrameCount, Pfn};

use super::Options;
use crate::books::check_none_listed;

/// The index. A block is a number over all files, one file after the other.
pub(super) struct Files<F> {
    /// For each block the number of its frame and one more, or 0.
    frames: Vec<AtomicU64>,
    /// For each frame the number of the block for which it was last entered.
    blocks: Vec<AtomicU64>,
    /// Gives frames back to the allocator.
    free: F,
}

impl<F: Fn(&[Pfn])> Files<F> {
    /// An empty index of so many blocks, in a machine of so much memory.
    pub(super) fn new(blocks: u64, memory: FrameCount, free: F) -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Files { frames: zeros(blocks), blocks: zeros(memory.get()), free }
    }

    fn find(&self, block: u64) -> Option<Pfn> {
        // Acquire: what is in the frame was written before it was entered.
        self.frames[block as usize].load(Acquire).checked_sub(1).map(Pfn::new)
    }

    /// Enters a frame for a block that has none; says whether that was so.
    fn enter(&self, block: u64, frame: Pfn) -> bool {
        // Release: for whoever finds the frame.
        self.blocks[frame.get() as usize].store(block, Release);
        let entry = &self.frames[block as usize];
        entry.compare_exchange(0, frame.get() + 1, AcqRel, Acquire).is_ok()
    }

    /// The frames in the index, which is emptied.
    pub(super) fn take_all(&self) -> Vec<Pfn> {
        let taken = self.frames.iter().map(|entry| entry.swap(0, AcqRel));
        taken.filter_map(|entry| entry.checked_sub(1)).map(Pfn::new).collect()
    }
}

impl<F: Fn(&[Pfn])> Owner for Files<F> {
    /// Files are only read, so all of them can be read again.
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let block = self.blocks[frame.get() as usize].load(Acquire);
        // A frame that lost the race for its entry was never in it.
        if self.find(block) == Some(frame) && claim.take() {
            self.frames[block as usize].store(0, Release);
        }
    }

    fn release(&self, frames: &[Pfn]) {
        (self.free)(frames);
    }
}

/// What readers do outside the cache, on each machine.
pub(super) trait Ground {
    fn alloc(&self) -> Result<Pfn, Error>;

    /// Reads a block of a file into a frame.
    fn fill(&self, frame: Pfn, block: u64) -> anyhow::Result<()>;

    /// Copies a block out of a frame.
    fn copy(&self, frame: Pfn, block: u64) -> anyhow::Result<()>;

    /// Waits a little for another reader or for reclaim.
    fn pause(&self);
}

/// The LRU, as the options ask for it, and the groups of the files.
pub(super) fn settings(options: &Options, files: usize) -> LruSettings {
    let groups = 1 + if options.one_group { 1 } else { files };
    let batch = options.lru_batch;
    LruSettings { lock: options.lock, batch, groups: groups as u32, ..LruSettings::default() }
}

/// Makes the groups of the files. A group for all may have as much as those of each together.
pub(super) fn make_groups<P: Platform, O: Owner>(
    lru: &Lru<P, O>,
    options: &Options,
    files: usize,
) -> Result<Vec<GroupId>, Error> {
    let make = |frames| lru.create_group(GroupId::ROOT, Some(FrameCount::new(frames)));
    match options.one_group {
        true => Ok(vec![make(options.share_frames * files as u64)?]),
        false => (0..files).map(|_| make(options.share_frames)).collect(),
    }
}

/// Reads one block through the cache; says whether it was there.
pub(super) fn read<P: Platform, F: Fn(&[Pfn])>(
    lru: &Lru<P, Files<F>>,
    group: GroupId,
    block: u64,
    ground: &impl Ground,
) -> anyhow::Result<bool> {
    let files = lru.owner();
    let mut hit = true;
    let frame = loop {
        if let Some(frame) = files.find(block) {
            if lru.get(frame).is_err() {
                // It is just being reclaimed.
                ground.pause();
                continue;
            }
            if files.find(block) == Some(frame) {
                break frame;
            }
            lru.put(frame)?;
            continue;
        }
        hit = false;
        let frame = ground.alloc()?;
        ground.fill(frame, block)?;
        while let Err(error) = lru.add_reclaiming(frame, group, Kind::File) {
            anyhow::ensure!(error == Error::GroupLimit, error);
            // Other readers are in all frames that the group may have.
            ground.pause();
        }
        lru.get(frame)?;
        if files.enter(block, frame) {
            break frame;
        }
        // The other reader of the file was faster. Neither reference is needed.
        lru.put_bulk(&[frame, frame])?;
    };
    ground.copy(frame, block)?;
    lru.mark_accessed(frame)?;
    lru.put(frame)?;
    Ok(hit)
}

/// Drops everything, and checks that nothing is left.
pub(super) fn finish<P: Platform, F: Fn(&[Pfn])>(lru: &Lru<P, Files<F>>) -> anyhow::Result<()> {
    lru.put_bulk(&lru.owner().take_all())?;
    check_none_listed(lru)
}

/// The locks by their names on the command line.
pub(super) const LOCKS: [(&str, LruLock); 2] = [("group", LruLock::Group), ("node", LruLock::Node)];

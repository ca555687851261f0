//! A page cache for files that are only read: which block is in which frame.
//!
//! The index has no lock, as lookups in Linux's have none. A reader that finds a frame takes a
//! reference and looks again; reclaim empties an entry once it has the claim to its frame, which is
//! not given while a reader has a reference.
//!
//! If the workload wants it, an entry that was emptied keeps the shadow of its block. The LRU hears
//! of it when the block is read again.

use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::thread;

use anyhow::{Result, ensure};
use freehold::{Error, FrameCount, Pfn, Request};
use freehold_lru::{BATCH_MAX, Claim, GroupId, Kind, LruError, Scope, Verdict};
use freehold_sim::Key;

mod disk;
mod entry;
mod files;
mod shadows;

pub(crate) use disk::Disk;
use entry::Entry;
pub(crate) use files::Files;
use shadows::Shadows;

use super::Task;
use super::lru::Index;
use super::owners::{word_each, zeros};

/// How often a reader looks for a free frame before it gives up.
const ALLOCATIONS_MAX: usize = 1000;

/// How the cache uses the LRU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Whether the read that brings a block in counts as its first use, as in Linux.
    pub(crate) first_counts: bool,
    /// How many shadows are kept for each file.
    pub(crate) shadows: usize,
    /// Beyond so many cached blocks, a reader evicts a batch before it brings another one in.
    /// Without, blocks are evicted when there is no memory, or when a group is at its limit.
    pub(crate) blocks_max: Option<u64>,
}

/// The index.
pub(crate) struct PageCache {
    /// For each block its [`Entry`].
    entries: Vec<AtomicU64>,
    /// For each frame the number of the block for which it was last entered.
    blocks: Vec<AtomicU64>,
    files: Files,
    shadows: Shadows,
    of_lru: Use,
    cached: AtomicU64,
}

/// What a task reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) block: u64,
    /// The group that is charged for it.
    pub(crate) group: GroupId,
    /// How long the disk takes before its first byte comes.
    pub(crate) wait_ns: u64,
}

/// What a reader finds of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Cached,
    /// A shadow: it was cached not long ago.
    Evicted,
    Nothing,
}

impl PageCache {
    /// An empty index of these files, in a machine of so much memory.
    pub(crate) fn new(files: Files, memory: FrameCount, of_lru: Use) -> Self {
        PageCache {
            entries: zeros(files.blocks() as usize),
            blocks: word_each(memory),
            shadows: Shadows::new(files.count(), of_lru.shadows),
            files,
            of_lru,
            cached: AtomicU64::new(0),
        }
    }

    fn entry(&self, block: u64) -> Entry {
        // Acquire: what is in the frame was written before it was entered.
        Entry::of_word(self.entries[block as usize].load(Acquire))
    }

    fn find(&self, block: u64) -> Option<Pfn> {
        self.entry(block).frame()
    }

    /// Replaces an entry, unless it is another one by now; says whether it did.
    fn replace(&self, block: u64, old: Entry, new: Entry) -> bool {
        // Release: for the reader that finds the frame.
        let (old, new) = (old.to_word(), new.to_word());
        self.entries[block as usize].compare_exchange(old, new, AcqRel, Acquire).is_ok()
    }

    /// Enters a frame for a block. Returns what there was before, or nothing if there is a frame.
    fn enter(&self, block: u64, frame: Pfn) -> Option<Entry> {
        self.blocks[frame.get() as usize].store(block, Release);
        loop {
            match self.entry(block) {
                Entry::Cached(_) => return None,
                old if self.replace(block, old, Entry::Cached(frame)) => {
                    self.cached.fetch_add(1, Relaxed);
                    return Some(old);
                }
                _ => {}
            }
        }
    }
}

impl Index for PageCache {
    /// Files are only read, so all of them can be read again.
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let block = self.blocks[frame.get() as usize].load(Acquire);
        // A frame that lost the race for its entry was never in it.
        if self.find(block) != Some(frame) {
            return;
        }
        let Some(claimed) = claim.take() else { return };
        self.entries[block as usize].store(Entry::Nothing.to_word(), Release);
        self.cached.fetch_sub(1, Relaxed);
        let shadow = Entry::Evicted(claimed.commit());
        // A reader that is back already does without.
        if self.of_lru.shadows == 0 || !self.replace(block, Entry::Nothing, shadow) {
            return;
        }
        let (file, _) = self.files.place(block);
        if let Some((oldest, shadow)) = self.shadows.push(file, block, shadow.to_word()) {
            self.replace(oldest, Entry::of_word(shadow), Entry::Nothing);
        }
    }

    fn take_all(&self) -> Vec<Pfn> {
        let taken = self.entries.iter().map(|entry| Entry::of_word(entry.swap(0, AcqRel)));
        taken.filter_map(Entry::frame).collect()
    }
}

impl PageCache {
    /// Reads one block through the cache.
    pub(crate) fn read<T: Task>(&self, task: &T, disk: &Disk, read: Read) -> Result<Found> {
        let (lru, block) = (task.lru(), read.block);
        let mut found = Found::Cached;
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
            found = Found::Nothing;
            self.make_room(task)?;
            let frame = self.read_in(task, disk, read)?;
            lru.get(frame)?;
            if let Some(before) = self.enter(block, frame) {
                if let Entry::Evicted(shadow) = before {
                    found = Found::Evicted;
                    lru.refault(frame, shadow)?;
                }
                break frame;
            }
            // The other reader of the file was faster. Neither reference is needed.
            lru.put_bulk(&[frame, frame])?;
        };
        task.copy_out(frame, |content| disk.check(block, content))?;
        if found == Found::Cached || self.of_lru.first_counts {
            lru.mark_accessed(frame)?;
        }
        lru.put(frame)?;
        Ok(found)
    }

    /// Evicts a batch if more is cached than may be.
    fn make_room<T: Task>(&self, task: &T) -> Result<()> {
        let is_over = |most| self.cached.load(Relaxed) >= most;
        if self.of_lru.blocks_max.is_some_and(is_over) {
            match task.lru().reclaim(Scope::All, FrameCount::new(BATCH_MAX as u64)) {
                Err(LruError::TooManyReclaims) => give_way(task),
                done => _ = done?,
            }
        }
        Ok(())
    }

    /// Reads a block into a frame, which is added to the LRU.
    fn read_in<T: Task>(&self, task: &T, disk: &Disk, read: Read) -> Result<Pfn> {
        let frame = alloc(task)?;
        if read.wait_ns > 0 {
            task.idle_ns(read.wait_ns);
        }
        task.fill(frame, |content| disk.read(read.block, content))?;
        while let Err(error) = task.lru().add_reclaiming(frame, read.group, Kind::File) {
            let waits = matches!(error, LruError::GroupLimit(_) | LruError::TooManyReclaims);
            ensure!(waits, error);
            // Other readers are in all frames that the group may have, or are reclaiming.
            give_way(task);
        }
        Ok(frame)
    }
}

/// Allocates a frame; waits while other tasks are in all that could be reclaimed.
fn alloc<T: Task>(task: &T) -> Result<Pfn> {
    let mut outcome = task.alloc_reclaiming(Request::default());
    for _ in 1..ALLOCATIONS_MAX {
        if !matches!(outcome, Err(Error::OutOfMemory | Error::BelowWatermark)) {
            break;
        }
        give_way(task);
        outcome = task.alloc_reclaiming(Request::default());
    }
    Ok(outcome?)
}

/// Lets another reader, or reclaim, go on.
fn give_way<T: Task>(task: &T) {
    task.charge(&[Key::PauseNs]);
    task.in_order();
    // For the host, where neither of these does anything.
    thread::yield_now();
}

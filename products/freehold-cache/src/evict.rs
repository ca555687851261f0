//! What the LRU asks the owner of the frames: which blocks go, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use freehold_host::lru::{Claim, Owner, Verdict};
use freehold_host::{Order, Pfn};

use crate::batch::{BATCH_BLOCKS, Outcome};
use crate::counters::Count;
use crate::file_state::FileState;
use crate::index::Entry;
use crate::key::{Block, Key, SlotIndex};
use crate::pool::Pool;
use crate::slot::Flag;
use crate::sync::thread;

/// How often a reclaim waits for others that have all blocks in hand, and how long.
const WAITS_MAX: u32 = 200;
const WAIT: Duration = Duration::from_micros(50);

impl Pool {
    /// The file and the block in a frame, unless a guard keeps it.
    fn content(&self, frame: Pfn) -> Option<(Arc<FileState>, Block)> {
        let page = self.slot(SlotIndex::of(frame)).latch.try_read_recursive()?;
        Some((Arc::clone(page.file.as_ref()?), page.key.block()))
    }

    /// Writes back the dirty blocks in these frames, and others of the same files that follow them,
    /// since reclaim comes to these before long.
    fn write_back_frames(&self, frames: &[Pfn], verdicts: &mut [Verdict]) {
        let mut dirty = Vec::new();
        for (nth, frame) in frames.iter().enumerate() {
            if self.slot(SlotIndex::of(*frame)).has(Flag::Dirty)
                && let Some((file, block)) = self.content(*frame)
            {
                dirty.push((file, block, nth));
            }
        }
        dirty.sort_by_key(|(file, block, _)| (file.number, *block));
        for of_file in dirty.chunk_by(|one, next| one.0.number == next.0.number) {
            let (file, first) = (&of_file[0].0, of_file[0].1);
            let asked = of_file.iter().map(|&(_, block, nth)| (block, SlotIndex::of(frames[nth])));
            let mut blocks = file.dirty_from(first, BATCH_BLOCKS);
            blocks.extend(asked);
            blocks.sort_by_key(|&(block, _)| block);
            blocks.dedup_by_key(|&mut (block, _)| block);
            let done = self.write_batch(file, &blocks);
            for &(_, block, nth) in of_file {
                let at = blocks.binary_search_by_key(&block, |&(block, _)| block);
                verdicts[nth] = match at.map(|at| done.outcomes[at]) {
                    Ok(Outcome::Written) => Verdict::Written,
                    Ok(Outcome::Clean) => Verdict::Drop,
                    Ok(Outcome::Failed) => Verdict::Failed,
                    Ok(Outcome::Busy) | Err(_) => Verdict::Keep,
                };
            }
        }
    }
}

impl Owner for Pool {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        let mut verdict = [Verdict::Keep];
        self.reclaim_bulk(&[frame], &mut verdict);
        verdict[0]
    }

    fn reclaim_bulk(&self, frames: &[Pfn], verdicts: &mut [Verdict]) {
        let mut is_any_dirty = false;
        for (frame, verdict) in frames.iter().zip(&mut *verdicts) {
            let slot = self.slot(SlotIndex::of(*frame));
            if slot.has(Flag::Dirty) {
                is_any_dirty = true;
            } else if !slot.has(Flag::Loading) {
                // A guard on the block keeps it: `forget` sees to that.
                *verdict = Verdict::Drop;
            }
        }
        if is_any_dirty {
            self.write_back_frames(frames, verdicts);
        }
    }

    fn wait(&self, waits: u32) -> bool {
        // Others are writing back what they have in hand, or read into it.
        if waits < WAITS_MAX {
            thread::sleep(WAIT);
        }
        waits < WAITS_MAX
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let index = SlotIndex::of(frame);
        let slot = self.slot(index);
        // A guard on the block, or a caller that looks at it, keeps it.
        let Some(mut page) = slot.latch.try_write() else { return };
        // A writer may have had it since it was written back.
        if page.key == Key::NONE || slot.has(Flag::Dirty) {
            return;
        }
        let key = page.key;
        let evicted = self.index.evict(key, index, || claim.take().map(|claimed| claimed.commit()));
        let Some(shadow) = evicted else { return };
        page.key = Key::NONE;
        let file = page.file.take();
        drop(page);
        slot.clear(Flag::ReadAhead);
        if let Some(file) = file {
            file.remove_cached();
            file.tenant.counters.add(Count::Evicted, 1);
            for (key, shadow) in file.tenant.push_shadow(key, shadow).into_iter().flatten() {
                self.index.remove(key, Entry::Evicted(shadow));
            }
        }
    }

    fn release(&self, blocks: &[Pfn], _order: Order) {
        for frame in blocks {
            // Others have this latch for a moment only: those that looked the block up before it
            // went.
            let memory = self.slot(SlotIndex::of(*frame)).latch.write().memory.take();
            self.give_back(memory);
        }
    }
}

//! The queue on which other CPUs put blocks that belong to a CPU: a stack that anybody pushes to
//! without a lock, and that its owner takes as a whole.
//!
//! After Rik van Riel's `free_llist` (2026). Push and take-all alone cannot suffer from a block
//! that leaves and comes back in between: a push that succeeds links to whatever is on top then.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::designs::linux::frame::FrameTable;
use crate::memmap::index::FrameIndex;
use crate::platform::{Platform, SharedCell, Word};

/// The end of the chain.
const NONE: u32 = u32::MAX;

/// A queue on a cache line of its own: others write to it while the owner works on its lists.
#[repr(C, align(64))]
pub struct Queue<P: Platform> {
    top: P::U32,
}

impl<P: Platform> Queue<P> {
    pub(super) fn new() -> Self {
        Queue { top: P::U32::new(NONE) }
    }

    /// Pushes blocks that the caller holds, all in one step.
    pub(super) fn push(&self, frames: &FrameTable<P>, blocks: impl Iterator<Item = FrameIndex>) {
        let mut ends: Option<(FrameIndex, FrameIndex)> = None;
        for block in blocks {
            if let Some((first, _)) = ends {
                frames.record(block).next.set(first.0);
            }
            ends = Some((block, ends.map_or(block, |(_, last)| last)));
        }
        let Some((first, last)) = ends else { return };
        let mut top = self.top.load(Relaxed);
        loop {
            frames.record(last).next.set(top);
            // Release: publishes the links, and the blocks' marks written before, to whoever takes
            // the chain; a push on top of this one continues the release sequence. Relaxed on
            // failure: the value is only a link to write.
            match self.top.compare_exchange(top, first.0, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all blocks, the latest first. The caller holds the lock of the owner's lists, and may
    /// put a block on a list once it has asked for the next one.
    pub(super) fn take_all<'a>(
        &self,
        frames: &'a FrameTable<P>,
    ) -> impl Iterator<Item = FrameIndex> + use<'a, P> {
        // Relaxed: a look, so that an empty queue's line stays shared.
        if self.top.load(Relaxed) == NONE {
            return chain(frames, NONE);
        }
        // Acquire: pairs with the release of every push in the chain. A swap, so that no crowd of
        // pushes can hold it up.
        chain(frames, self.top.swap(NONE, Acquire))
    }

    /// Forgets what is on the queue. No other CPU pushes at the same time.
    pub(super) fn forget(&self) {
        // Relaxed: there is no other thread.
        self.top.store(NONE, Relaxed);
    }

    /// The blocks that are on the queue now. The caller holds the lock of the owner's lists, so
    /// that none of them leaves.
    pub(super) fn iter<'a>(
        &self,
        frames: &'a FrameTable<P>,
    ) -> impl Iterator<Item = FrameIndex> + use<'a, P> {
        // Acquire: pairs with the release of every push in the chain.
        chain(frames, self.top.load(Acquire))
    }
}

fn chain<P: Platform>(
    frames: &FrameTable<P>,
    mut next: u32,
) -> impl Iterator<Item = FrameIndex> + use<'_, P> {
    core::iter::from_fn(move || {
        let block = (next != NONE).then_some(FrameIndex(next))?;
        next = frames.record(block).next.get();
        Some(block)
    })
}

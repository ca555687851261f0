//! The queue on which other CPUs put blocks that belong to a CPU: a stack that anybody pushes to
//! without a lock, and that its owner takes as a whole.
//!
//! After Rik van Riel's `free_llist` (2026). Push and take-all alone cannot suffer from a block that
//! leaves and comes back in between: a push that succeeds links to whatever is on top then.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::memmap::frame::{FrameIndex, FrameTable};
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

    /// Pushes a block that the caller holds.
    pub(super) fn push(&self, frames: &FrameTable<P>, block: FrameIndex) {
        let mut top = self.top.load(Relaxed);
        loop {
            frames.record(block).next.set(top);
            // Release: publishes the link, and the block's mark written before, to whoever takes
            // the chain; a push on top of this one continues the release sequence. Relaxed on
            // failure: the value is only a link to write.
            match self.top.compare_exchange(top, block.0, Release, Relaxed) {
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
        let mut top = self.top.load(Relaxed);
        while top != NONE {
            // Acquire: pairs with the release of every push in the chain. Relaxed on failure: the
            // value is only compared.
            match self.top.compare_exchange(top, NONE, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        chain(frames, top)
    }

    /// The blocks that are on the queue now. The caller holds the lock of the owner's lists, so that
    /// none of them leaves.
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

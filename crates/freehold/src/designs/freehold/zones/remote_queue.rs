//! Remote queues: how the cache that holds a full pageblock learns of frames that others have
//! freed in it.
//!
//! A cache has full pageblocks in no list. So a free on another CPU that finds the pageblock
//! unwatched pushes it on the remote queue of the cache, which is some stacks of pageblocks linked
//! through their records. The holder takes a stack as a whole, and follows the links.
//!
//! # The mark
//!
//! The state of a pageblock says whether it is *queued*. Who sets that mark, by compare-exchange,
//! pushes the pageblock, and no other call does: so it is on one stack at most. Until it is
//! pushed, other frees rely on the mark already, and need not wait. Who takes the stack reads the
//! link of each pageblock, and only then clears its mark: from then on the next push may write the
//! link.
//!
//! A pageblock without its mark is unwatched, unless its cache has listed it. So who has cleared
//! the mark looks at the remote frees once more: see [`remote`]. A pageblock may leave the cache
//! while it is queued, and stays on that stack. Who takes it there has the holder of now collect.
//!
//! [`remote`]: crate::designs::freehold::pageblocks::remote

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::Zones;
use crate::designs::freehold::pageblocks::state::{Holder, State};
use crate::designs::freehold::pageblocks::{NIL, PageblockIndex, Pageblocks};
use crate::geometry::STACKS_MAX;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};

/// The remote queue of one CPU in a zone. Several stacks on one cache line: where many CPUs push
/// at the same time, the line goes round among them, and of those that push on one stack, each
/// time round all but one come too late and try again.
#[repr(C, align(64))]
pub(crate) struct RemoteQueue<P: Platform>([P::U32; STACKS_MAX]);

/// 2^32 by the golden ratio: spreads numbers that lie close together (Knuth, volume 3, 6.4).
const GOLDEN: u32 = 0x9e37_79b9;

impl<P: Platform> RemoteQueue<P> {
    pub(super) fn new() -> Self {
        RemoteQueue(core::array::from_fn(|_| P::U32::new(NIL)))
    }

    /// Adds a pageblock, which the caller has marked as queued, and so may write its link. Each
    /// CPU uses so many stacks.
    fn push(&self, pageblocks: &Pageblocks<P>, pageblock: PageblockIndex, stacks: usize) {
        // Frames of neighbours are often freed at the same time: these go to different stacks.
        let stack = pageblock.0.wrapping_mul(GOLDEN) >> 16 & (stacks as u32 - 1);
        let (head, link) = (&self.0[stack as usize], pageblocks.queue_link(pageblock));
        // Relaxed: the link is only followed by the CPU that takes the stack.
        let mut first = head.load(Relaxed);
        loop {
            // Relaxed: pushing the pageblock releases it.
            link.store(first, Relaxed);
            // Release: publishes the link. Acquire: from a CPU that took the stack to drain the
            // cache, and had noted before that the zone's caches hold nothing; see `pop_all`.
            match head.compare_exchange(first, pageblock.0, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all pageblocks of a stack.
    fn pop_all(&self, stack: usize) -> Option<PageblockIndex> {
        // Acquire: pairs with the release in `push`, of all CPUs that pushed: their steps on the
        // stack are one chain of RMWs. Release: a CPU that pushes from now on sees what the caller
        // did before.
        PageblockIndex::of_link(self.0[stack].swap(NIL, AcqRel))
    }

    /// Forgets what is queued. No other CPU pushes at the same time.
    pub(crate) fn clear(&self) {
        // Relaxed: there is no other thread.
        self.0.iter().for_each(|head| head.store(NIL, Relaxed));
    }
}

impl<P: Platform> Zones<P> {
    /// How many stacks each remote queue has: a power of two.
    pub(crate) fn stacks(&self) -> usize {
        self.cpus.next_power_of_two().min(STACKS_MAX)
    }

    /// Whether a stack of the queue of a CPU in a zone has pageblocks: a hint.
    pub(crate) fn has_queued(&self, cpu: usize, zone: ZoneIndex, stack: usize) -> bool {
        // Relaxed: a hint.
        self.cpu_zone(cpu, zone).queue.0[stack].load(Relaxed) != NIL
    }

    /// Takes a stack of the queue of a CPU in a zone; has each pageblock, which is queued no more,
    /// looked at by `act`, with the state that it had.
    pub(crate) fn pop_queued(
        &self,
        cpu: usize,
        zone: ZoneIndex,
        stack: usize,
        mut act: impl FnMut(PageblockIndex, State),
    ) {
        let mut next = self.cpu_zone(cpu, zone).queue.pop_all(stack);
        while let Some(pageblock) = next {
            let before;
            (before, next) = self.unqueue(pageblock);
            act(pageblock, before);
        }
    }

    /// Unmarks a pageblock as queued; returns its state before, and the next one on the stack. The
    /// caller has taken the stack.
    fn unqueue(&self, pageblock: PageblockIndex) -> (State, Option<PageblockIndex>) {
        // Relaxed: taking the stack acquired it. Before the mark is cleared: then others may write
        // the link.
        let next = PageblockIndex::of_link(self.pageblocks.queue_link(pageblock).load(Relaxed));
        let before = self.pageblocks.update(pageblock, State::unqueue);
        (before, next)
    }

    /// Ensures that remote frees of a pageblock will be collected: by the walker that holds it, by
    /// this call, or by the cache that holds it, on whose remote queue it is pushed. The call runs
    /// on the CPU `here`.
    pub(crate) fn ensure_collected(&self, here: usize, pageblock: PageblockIndex) {
        let zone = self.pageblocks.zone(pageblock);
        let section = self.section_of_part(here, zone);
        let mut state = self.pageblocks.state_after_step(pageblock);
        loop {
            if !state.is_split() || state.is_watched() {
                return;
            }
            match state.holder() {
                // It will collect when it releases the pageblock.
                Holder::Walker => return,
                Holder::None if self.pageblocks.acquire(pageblock) => {
                    return self.release(pageblock, &section);
                }
                Holder::None => state = self.pageblocks.state_after_step(pageblock),
                Holder::Cpu(cpu) => {
                    let queued = |now: State| (now == state).then(|| now.queue());
                    match self.pageblocks.try_update(pageblock, queued) {
                        Ok(_) => return self.push_queued(cpu, pageblock),
                        Err(now) => state = now,
                    }
                }
            }
        }
    }

    /// Pushes a pageblock that the caller has marked as queued, and marks the cache.
    fn push_queued(&self, cpu: usize, pageblock: PageblockIndex) {
        // Read now: only a pageblock that is queued stays with its zone.
        let zone = self.pageblocks.zone(pageblock);
        self.cpu_zone(cpu, zone).queue.push(&self.pageblocks, pageblock, self.stacks());
        self.mark_cached(cpu, zone);
    }
}

//! Remote frees, and how a pageblock changes hands: the protocol that every free rests on.
//!
//! A CPU that does not hold a pageblock frees a frame of it by one RMW on the remote bitmap. The
//! holder collects such frames when it runs out. A pageblock is *watched* if its holder will
//! collect them without being told: it is listed by a CPU cache, queued, or held by a walker.
//!
//! # Lost wake-ups, and why they cannot occur
//!
//! A remote free reads the state after its RMW. If the pageblock is watched, it is done. The danger
//! is that the holder has looked at the remote bitmap for the last time just before.
//!
//! Every step that ends the watch therefore publishes the unwatched state first, and then scans
//! every word of the remote bitmap once more. There are four: a walker releases the pageblock
//! ([`Pageblocks::try_release`]), a cache marks it full ([`Pageblocks::try_mark_full`]), it leaves
//! a remote queue (`Zones::pop_queued`, and the collection that follows), and a free acquires
//! it for a cache (`put_acquiring`). A remote free does the same the other way round: it sets its
//! bits first, and then reads the state.
//!
//! All four accesses are sequentially consistent: the change of the state, the last look, the RMW
//! of the free, and its read of the state. So there is one order of all of them. If the RMW comes
//! before the last look at its word, the last look finds the frame. If it comes after, it also
//! comes after the change of the state, and so does the read of the state by the free, which then
//! finds the unwatched state or a later one. Then the free itself queues the pageblock or acquires
//! it (`Zones::ensure_collected`). This is Dekker's pattern: two writes, each followed by a look at
//! the other. With acquire and release alone, both looks could be too old.
//!
//! A last look that finds a frame in a pageblock that another CPU holds by then has nothing left to
//! do: a walker has yet to release it; and a cache that has acquired it will look once more, at
//! once or when it unlists it.
//!
//! `tests/models/freehold_loom*.rs` model all these steps and fail without the last look; but for
//! the acquisition by a free, where it matters only if a frame is freed twice at the same time.

use core::sync::atomic::Ordering::{AcqRel, SeqCst};

use super::state::{Holder, State};
use super::{PageblockIndex, Pageblocks, REMOTE};
use crate::platform::{Platform, Word};
use crate::units::Order;

/// What a collection of remote frees found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    /// Frames that were freed remotely.
    pub(crate) frames: u32,
    /// Of those, frames that were free already: freed twice, at the same time.
    pub(crate) doubles: u32,
}

impl<P: Platform> Pageblocks<P> {
    /// Frees frames of a pageblock that the caller does not hold; returns those that had been freed
    /// already.
    #[inline]
    pub(crate) fn put_remotely(&self, word: usize, mask: u64) -> u64 {
        // Release: the CPU that collects the frames is ordered behind what was done with them.
        // SeqCst: for the look at the state that follows; see the module.
        self.map::<REMOTE>(word).fetch_or(mask, SeqCst)
    }

    /// The state of a pageblock, for the look that follows a step on its remote bitmap.
    #[inline(always)]
    pub(crate) fn state_after_step(&self, pageblock: PageblockIndex) -> State {
        self.record(pageblock).state_after_step()
    }

    /// Moves frames that were freed remotely to the free ones. The caller holds the pageblock. If
    /// it has just published that it no longer watches it, this is the last look.
    #[inline(never)]
    pub(crate) fn collect_remote(&self, pageblock: PageblockIndex) -> Collected {
        let mut found = Collected::default();
        for (word, remote) in pageblock.words().zip(self.maps(pageblock).words::<REMOTE>()) {
            // SeqCst: it may be the last look; see the module.
            let bits = remote.load(SeqCst);
            let freed = if bits == 0 { 0 } else { bits & !self.tails(word) };
            if freed != 0 {
                let free = self.free(word);
                // First free, then no longer remote: a second free finds one or the other, unless
                // both happen at the same time.
                self.set_free(word, free | freed);
                remote.fetch_and(!freed, AcqRel);
                found.frames += (freed & !free).count_ones();
                found.doubles += (freed & free).count_ones();
            }
        }
        found
    }

    /// Whether frames of a pageblock that the caller has just released were freed remotely: the
    /// last look.
    pub(crate) fn has_remote(&self, pageblock: PageblockIndex) -> bool {
        let mut words = pageblock.words().zip(self.maps(pageblock).words::<REMOTE>());
        words.any(|(word, remote)| {
            // SeqCst: see the module.
            let remote = remote.load(SeqCst);
            remote != 0 && remote & !self.tails(word) != 0
        })
    }

    /// Discards the remote frees of a whole pageblock that the caller alone can reach; returns how
    /// many frames that were.
    pub(crate) fn discard_remote(&self, pageblock: PageblockIndex) -> u32 {
        let discard = |word| match self.remote(word) {
            0 => 0,
            // Acquire: from the CPU that freed them. Release: for one that frees one of them again.
            _ => self.map::<REMOTE>(word).swap(0, AcqRel).count_ones(),
        };
        pageblock.words().map(discard).sum()
    }

    /// Acquires a split pageblock that has no holder.
    pub(crate) fn try_acquire(
        &self,
        pageblock: PageblockIndex,
        holder: Holder,
    ) -> Result<State, State> {
        self.try_update(pageblock, |state| {
            let may = state.is_split() && state.holder() == Holder::None;
            may.then(|| state.acquire(holder))
        })
    }

    /// The same as a walker; returns whether it could. The caller is in a section.
    pub(crate) fn acquire(&self, pageblock: PageblockIndex) -> bool {
        self.try_acquire(pageblock, Holder::Walker).is_ok()
    }

    /// Releases a pageblock that the caller holds as a walker; returns whether it could. If not,
    /// frames were freed remotely meanwhile, and the caller holds it again. As an orphan it has its
    /// largest run in a tree, by `order`.
    pub(crate) fn try_release(&self, pageblock: PageblockIndex, order: Order) -> bool {
        self.update(pageblock, |state| state.release(order));
        !self.has_remote(pageblock) || !self.acquire(pageblock)
    }

    /// Marks a pageblock without free frames as full: its cache no longer watches it. If frames
    /// were freed remotely meanwhile, it is listed again. Returns what was found.
    pub(crate) fn try_mark_full(&self, pageblock: PageblockIndex) -> Collected {
        self.update(pageblock, State::unlist);
        let found = self.collect_remote(pageblock);
        if found.frames > 0 {
            self.update(pageblock, State::list);
        }
        found
    }

    /// Marks a pageblock that the caller holds as whole, and as held by `holder` from now on.
    pub(crate) fn mark_whole(&self, pageblock: PageblockIndex, holder: Holder) {
        self.clear_all_unmovable(pageblock);
        self.update(pageblock, |state| state.become_whole(holder));
    }
}

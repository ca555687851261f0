//! Putting frames back that a free has claimed: into the bitmap of a pageblock that the running
//! CPU's cache holds, or into the remote bitmap of one that it does not hold.
//!
//! | the pageblock | what is done |
//! |---|---|
//! | is held by the running CPU's cache, which is not in use | bits are set among the free ones |
//! | has no holder, and the zone is not low | the cache acquires it first |
//! | else | bits are set among the remote ones, which its holder collects: see [`remote`] |
//!
//! Who frees the last frame of a pageblock that another CPU holds releases it, if that CPU's lock
//! is free: an idle CPU would have it for long.
//!
//! [`remote`]: crate::designs::freehold::pageblocks::remote

use core::ops::Range;

use super::lock::LockedCache;
use crate::Error;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::state::{Holder, State};
use crate::platform::{Pin, Platform};
use crate::zone::watermark::Watermark;

/// What became of frames that were put into a pageblock of a cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// They are free, and nothing else need be done.
    Done,
    /// They are free. The pageblock was full, or may be whole now.
    Relink,
    /// The cache does not hold the pageblock.
    NotHeld,
    /// A frame is free already.
    DoubleFree,
}

impl<P: Platform> Freehold<P> {
    /// Frees frames of a word. The caller alone has a claim to them: they are allocations of their
    /// own, or claimed. The pageblock was seen in this state before, and is split.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`] if one of the frames is free, or if the bitmap of frames in use says
    /// that it is not in use.
    #[inline(never)]
    pub(crate) fn put_in_word(
        &self,
        context: Context<'_, P>,
        state: State,
        word: usize,
        mask: u64,
    ) -> Result<(), Error> {
        if !self.pageblocks().try_end_use(word, mask) {
            return Err(Error::DoubleFree);
        }
        self.put_frames(context, state, word..word + 1, mask)
    }

    /// The same for frames whose use has been ended, the same ones of several words; fails at the
    /// first word in which one of them is free.
    #[inline(always)]
    pub(crate) fn put_frames(
        &self,
        context: Context<'_, P>,
        state: State,
        words: Range<usize>,
        mask: u64,
    ) -> Result<(), Error> {
        let pageblock = PageblockIndex::of_word(words.start);
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        // A number that no CPU has is in no state.
        if state.is_split_of(cpu)
            && let Some(per_cpu) = self.cpus.try_get(cpu)
            && per_cpu.try_lock()
        {
            // Unlocks and unpins.
            let guard = self.guard_of(pin, per_cpu, cpu, self.pageblocks().zone(pageblock));
            if let Some(result) = guard.put_held(words.clone(), mask) {
                return result;
            }
        } else {
            drop(pin);
        }
        words.into_iter().try_for_each(|word| self.put_elsewhere(context, word, mask))
    }

    /// Frees frames of a pageblock that the running CPU's cache does not hold.
    #[inline(never)]
    fn put_elsewhere(&self, context: Context<'_, P>, word: usize, mask: u64) -> Result<(), Error> {
        let pageblock = PageblockIndex::of_word(word);
        let state = self.pageblocks().state(pageblock);
        let free = self.pageblocks().free_or_remote(word);
        // It was split. It can only have become whole if these frames were free.
        if !state.is_split() || free & mask != 0 {
            return Err(Error::DoubleFree);
        }
        if state.holder() == Holder::None && self.put_acquiring(context, word, mask)? {
            return Ok(());
        }
        let before = self.pageblocks().put_remotely(word, mask);
        // First the RMW, then the read of the state: see `remote`.
        if before & mask != mask && !self.pageblocks().state_after_step(pageblock).is_watched() {
            self.zones.ensure_collected(context.cpu_here(), pageblock);
        }
        if before & mask != 0 {
            return Err(Error::DoubleFree);
        }
        if free | before | mask == !0 {
            self.try_release_if_free(context, pageblock);
        }
        Ok(())
    }

    /// Frees frames of an orphan: acquires it for the running CPU's cache, and frees locally. Only
    /// if the zone stays above its low watermark; returns whether it did.
    #[inline(never)]
    fn put_acquiring(
        &self,
        context: Context<'_, P>,
        word: usize,
        mask: u64,
    ) -> Result<bool, Error> {
        let pageblock = PageblockIndex::of_word(word);
        let index = self.pageblocks().zone(pageblock);
        let (zone, of) = (self.zones.zone(index), self.pageblocks().state(pageblock).migratetype());
        let free = || u64::from(self.pageblocks().count_free(pageblock));
        let cpu = context.cpu_here();
        if !zone.may_cache_for(of, self.zones.cpu_count(), cpu)
            || !zone.may_take(free(), Watermark::Low, zone.kind())
        {
            return Ok(false);
        }
        let Some(guard) = self.try_lock(context.pin().1, cpu, index) else { return Ok(false) };
        if !guard.acquire(pageblock) {
            return Ok(false);
        }
        // The pageblock had no holder and is not listed yet, so its last holder may rely on this
        // collection.
        guard.collect(pageblock);
        guard.relink(pageblock);
        // If the cache does not hold it any more, it was whole.
        guard.put_held(word..word + 1, mask).unwrap_or(Err(Error::DoubleFree)).map(|()| true)
    }

    /// Unlinks a pageblock all of whose frames are free, if the lock of its holder is free. Other
    /// CPUs have freed the last of them.
    #[cold]
    pub(super) fn try_release_if_free(&self, context: Context<'_, P>, pageblock: PageblockIndex) {
        let Holder::Cpu(cpu) = self.pageblocks().state(pageblock).holder() else { return };
        if !self.pageblocks().is_free(pageblock) {
            return;
        }
        let zone = self.pageblocks().zone(pageblock);
        let Some(guard) = self.try_lock(context.pin().1, cpu, zone) else { return };
        guard.collect_queued();
        // What follows takes stack that the collection needs for itself.
        guard.release_if_listed(pageblock);
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Unlinks a pageblock if it is a listed one of this cache, and whole.
    #[inline(never)]
    fn release_if_listed(&self, pageblock: PageblockIndex) {
        let state = self.pageblocks().state(pageblock);
        if state.is_split_of(self.cpu) && state.is_listed() && self.is_of_zone(pageblock) {
            self.unlink_if_whole(pageblock);
        }
    }

    /// As `put_frames`, in a cache. `None` if the cache does not hold the pageblock.
    pub(crate) fn put_held(&self, words: Range<usize>, mask: u64) -> Option<Result<(), Error>> {
        let pageblock = PageblockIndex::of_word(words.start);
        let (mut unusual, mut result) = (false, Ok(()));
        for word in words {
            match self.put_local(self.cpu, word, mask) {
                Put::Done => {}
                Put::Relink => unusual = true,
                Put::NotHeld => return None,
                Put::DoubleFree => {
                    result = Err(Error::DoubleFree);
                    break;
                }
            }
        }
        if unusual {
            self.relink_after_free(pageblock);
        }
        Some(result)
    }

    /// Frees frames of a pageblock of a CPU's cache, whose lock the caller has.
    pub(crate) fn put_local(&self, cpu: usize, word: usize, mask: u64) -> Put {
        // The holder changes under the lock only.
        let state = self.pageblocks().state(PageblockIndex::of_word(word));
        if !state.is_split_of(cpu) {
            return Put::NotHeld;
        }
        let (free, remote) = (self.pageblocks().free(word), self.pageblocks().remote(word));
        if (free | remote) & mask != 0 {
            return Put::DoubleFree;
        }
        self.pageblocks().set_free(word, free | mask);
        match state.is_listed() && (free | remote | mask != !0 || state.is_active()) {
            true => Put::Done,
            false => Put::Relink,
        }
    }
}

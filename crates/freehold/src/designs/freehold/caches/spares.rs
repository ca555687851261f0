//! Spares: whole pageblocks of a cache, for blocks of just that size, which come from the spares
//! and go back there, and for the next pageblock to be split.
//!
//! Spares and pool exchange several pageblocks at once, neighbours by one step. Those that
//! become whole by frees of parts add to the spares only if there are none.
//!
//! While there is enough besides, a cache may have many, so that CPUs with a set of such blocks do
//! not meet at the pool. A call that finds the pool empty, or the zone low, takes them all back:
//! before it turns to another zone, and before types fall back on each other.
//!
//! A cache holds spares only while its zone is not below the low watermark. A free to a cache
//! without spares checks the level, and marks the cache. A free to a cache with spares checks
//! nothing: before a call takes a zone below its low watermark, it drains the caches that are
//! marked so. `tests/models/freehold_loom.rs` has a model of that.

use super::cache::CpuCache;
use super::lock::LockedCache;
use crate::Error;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::run::lowest;
use crate::designs::freehold::pageblocks::state::{Holder, State, Use};
use crate::designs::freehold::pageblocks::{FRAMES, FrameRef, PageblockIndex};
use crate::memmap::index::ZoneIndex;
use crate::platform::{Pin, Platform};
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// Pageblocks of one word of the pool.
const WORD_PAGEBLOCKS: usize = u64::BITS as usize;

impl<P: Platform> Freehold<P> {
    /// Takes a spare for a request.
    #[inline(always)]
    pub(crate) fn alloc_spare(&self, cache: &CpuCache<'_, P>, request: &Request) -> Option<u32> {
        let pageblock = cache.pop_spare()?;
        self.zones.hand_out_one(pageblock, request.content());
        Some(pageblock.frame())
    }

    /// Frees an allocated block of one pageblock to the spares of a cache, whose lock the caller
    /// has, if there are some already and there is room; returns whether it did. If not, nothing
    /// has changed.
    #[inline(always)]
    pub(crate) fn try_free_to_spares(
        &self,
        cache: CpuCache<'_, P>,
        cpu: usize,
        frame_ref: &FrameRef<'_, P>,
        state: State,
    ) -> bool {
        let most = self.zones.zone(frame_ref.zone()).spares_max() as usize;
        (1..most).contains(&cache.spare_count())
            // Of calls that free it, or parts of it, at the same time, one succeeds here.
            && frame_ref.try_change(state, state.free_to_spares(cpu))
            && cache.push_spare(frame_ref.pageblock())
    }

    /// Releases the spares of all caches of a zone, which may have no more than a few from now on.
    /// Leaves alone what other calls and leases have locked.
    #[cold]
    #[inline(never)]
    pub(crate) fn reclaim_spares(&self, context: Context<'_, P>, zone: ZoneIndex) {
        self.zones.zone(zone).set_spares_max(self.zones.cpu_count());
        for cpu in self.zones.cached_on(zone) {
            if let Some(guard) = self.try_lock(context.pin().1, cpu, zone) {
                guard.release_spares(usize::MAX);
            }
        }
    }

    /// Frees an allocated block of one pageblock to the spares of the running CPU. Returns whether
    /// it did; if not, nothing has changed.
    #[inline(never)]
    pub(crate) fn free_pageblock(&self, context: Context<'_, P>, pfn: Pfn) -> bool {
        let Some(frame_ref) = self.pageblocks().lookup(pfn) else { return false };
        let state = frame_ref.state();
        if !state.is_lone_pageblock() || !frame_ref.frame().is_multiple_of(FRAMES) {
            return false;
        }
        let zone = frame_ref.zone();
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        if let Some(per_cpu) = self.cpus.try_get(cpu)
            && per_cpu.try_lock()
        {
            if !self.try_free_to_spares(self.cache_of(per_cpu, cpu, zone), cpu, &frame_ref, state) {
                // Unlocks and unpins.
                let guard = self.guard_of(pin, per_cpu, cpu, zone);
                return guard.free_to_spares(frame_ref.pageblock()) == Ok(true);
            }
            per_cpu.unlock();
            return true;
        }
        false
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Acquires pageblocks of one word of the pool as spares, by one step, if the zone stays above
    /// its low watermark. There are no spares yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn fetch_spares(&self, request: &Request) {
        let zone = self.zone();
        let pool = zone.pool();
        let start = self.zones().start(pool, self.cpu, request.content());
        let found =
            self.zones().forest.next(pool, start).or_else(|| self.zones().forest.next(pool, 0));
        let Some(first) = found else { return };
        let (word, behind) = (first / WORD_PAGEBLOCKS, !0 << (first % WORD_PAGEBLOCKS));
        let there = self.zones().forest.members(pool, word) & behind;
        zone.allow_spares(there.count_ones());
        let members = lowest(there, (zone.spares_max() / 2).max(1));
        let frames = members.count_ones() * FRAMES;
        if frames == 0 || !zone.may_cache(frames, request) {
            return;
        }
        self.mark_cached();
        if !zone.try_cache(frames, request) {
            return;
        }
        if !self.zones().forest.remove_mask(pool, word, members) {
            return zone.add_free(frames);
        }
        self.cache.note_refill(frames);
        // The lowest one is used first.
        let mut left = members;
        while left != 0 {
            let bit = left.ilog2();
            left &= !(1 << bit);
            let pageblock =
                self.zones().pageblock_at(self.zone_index, word * WORD_PAGEBLOCKS + bit as usize);
            self.pageblocks().replace(pageblock, |state| state.become_whole(Holder::Cpu(self.cpu)));
            self.cache.push_spare(pageblock);
        }
    }

    /// Makes an unlinked pageblock, all of whose frames were freed, a spare, if there is none; of
    /// several, it takes the place of the one that would be used last, and is used first: else a
    /// thread that takes one at a time, and frees it in parts, would touch all of them. A single
    /// one stays, and the pageblock goes to the pool.
    pub(crate) fn stash_spare(&self, pageblock: PageblockIndex) {
        if self.cache.spare_count() == 1 {
            return self.release_whole(pageblock);
        }
        self.release_spares(1);
        self.mark_cached();
        self.pageblocks().mark_whole(pageblock, Holder::Cpu(self.cpu));
        self.cache.push_spare(pageblock);
    }

    /// Releases `count` spares to the pool, or all if there are fewer: those that would be used
    /// last. Returns how many pageblocks the last word of the pool that got some has then.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_spares(&self, count: usize) -> u32 {
        let count = count.min(self.cache.spare_count());
        if count == 0 {
            return 0;
        }
        let (zone, frames) = (self.zone(), count as u32 * FRAMES);
        self.cache.note_drain(frames);
        zone.add_free(frames);
        // Neighbours go by one step.
        let (mut word, mut members) = (0, 0);
        self.cache.remove_spares(|place, pageblock| {
            if place >= count {
                return false;
            }
            self.pageblocks().replace(pageblock, |state| state.become_whole(Holder::None));
            let bit = self.zones().bit(pageblock);
            if bit / WORD_PAGEBLOCKS != word && members != 0 {
                self.zones().forest.insert_mask(zone.pool(), word, members);
                members = 0;
            }
            word = bit / WORD_PAGEBLOCKS;
            members |= 1 << (bit % WORD_PAGEBLOCKS);
            true
        });
        (self.zones().forest.insert_mask(zone.pool(), word, members) | members).count_ones()
    }

    /// Frees an allocated block of one pageblock to the spares of this cache, which may get their
    /// first one, or make room; returns whether it did. If the zone is low, or the block is
    /// isolated, nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`] if it is no such block any more.
    #[inline(never)]
    pub(crate) fn free_to_spares(&self, pageblock: PageblockIndex) -> Result<bool, Error> {
        let (zone, count) = (self.zone(), self.cache.spare_count());
        // A cache with spares has not been drained, so the zone is not low.
        if count == 0 && !zone.may_take(0, Watermark::Low, zone.kind()) {
            return Ok(false);
        }
        // Of calls that free it, or parts of it, at the same time, one succeeds here.
        let taken = self.pageblocks().try_update(pageblock, |now| {
            let alone = now.used_for() == Use::Huge && now.order() == Order::PAGEBLOCK;
            let free = alone && now.holder() == Holder::None && !now.is_isolated();
            free.then(|| now.free_to_spares(self.cpu))
        });
        match taken {
            Ok(_) => {}
            Err(now) if now.is_isolated() => return Ok(false),
            Err(_) => return Err(Error::DoubleFree),
        }
        if count >= zone.spares_max().max(1) as usize {
            zone.allow_spares(self.release_spares(count.div_ceil(2)));
        }
        self.mark_cached();
        self.cache.push_spare(pageblock);
        Ok(true)
    }
}

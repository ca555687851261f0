//! Operations of the owner of a lease: what it does with the caches, which have no other user
//! meanwhile.

use super::fast_path::{is_run_in_word, what};
use super::lease::Operation;
use super::lock::LockedCache;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::state::State;
use crate::error::Error;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{Order, Pfn};

impl<P: Platform> Operation<'_, '_, P> {
    /// The cache in a zone, for the functions of the design.
    fn cache(&self, zone: ZoneIndex) -> LockedCache<'_, P> {
        let (design, platform) = (self.lease.allocator.design(), self.lease.allocator.platform());
        design.locked_cache(platform, self.lease.per_cpu, self.lease.cpu, zone)
    }

    /// Takes a block out of an active word.
    #[inline(always)]
    pub(super) fn alloc_fast(&self, request: Request) -> Option<Pfn> {
        if request.is_ordinary() {
            self.alloc_in_word::<false>(request)
        } else if is_run_in_word(&request) {
            self.alloc_in_word::<true>(request)
        } else {
            None
        }
    }

    /// Takes a single frame, or a block of at most a word, out of the active word.
    #[inline(always)]
    fn alloc_in_word<const RUN: bool>(&self, request: Request) -> Option<Pfn> {
        let (design, what) = (self.lease.allocator.design(), what::<RUN>());
        let hot = self.lease.per_cpu.hot_of(self.lease.per_cpu.best(&request))?;
        let frame_ref =
            design.pageblocks().lookup_word_fast(hot.active_word(what, request.content_index()))?;
        let frame = self.lease.per_cpu.take_of::<RUN>(&frame_ref, &request)?;
        hot.note_alloc(request.order().frames().get());
        Some(design.pageblocks().near_pfn_of(frame))
    }

    /// Allocates a block out of the cache in the best zone, which may acquire pageblocks for it.
    /// Waits for no other call.
    #[inline(never)]
    pub(super) fn alloc(&self, request: &Request) -> Option<Pfn> {
        if !request.is_anywhere() || !request.is_unsparing() {
            return None;
        }
        let design = self.lease.allocator.design();
        let zone = self.lease.per_cpu.best(request);
        design.zones.try_zone(zone)?;
        let guard = self.cache(zone);
        let frame = guard.take_at_hand(request).or_else(|| guard.take(request))?;
        guard.cache.note_alloc(request.order().frames().get());
        Some(design.pageblocks().pfn_of(frame))
    }

    /// Frees a single frame of a pageblock that the caches have listed; returns whether it was one.
    #[inline(always)]
    pub(super) fn free_fast(&self, pfn: Pfn, order: Order) -> bool {
        let design = self.lease.allocator.design();
        if order == Order::ZERO
            && let Some(frame_ref) = design.pageblocks().lookup_fast(pfn)
        {
            let state = frame_ref.state();
            return state.is_listed_of(self.lease.cpu)
                && frame_ref.is_single_in_use(frame_ref.free_or_remote())
                && frame_ref.try_put_here(state, frame_ref.mask(0));
        }
        false
    }

    /// Frees a block of at most a word in a pageblock that the caches hold, or a whole pageblock to
    /// their spares. `None` if it is something else, which is left alone. Waits for no other call.
    #[inline(never)]
    pub(super) fn free(&self, pfn: Pfn, order: Order) -> Option<Result<(), Error>> {
        let design = self.lease.allocator.design();
        let frame_ref = design.pageblocks().lookup(pfn)?;
        let state = frame_ref.state();
        if order == Order::PAGEBLOCK && state.is_lone_pageblock() && pfn.is_aligned(order) {
            let guard = self.cache(frame_ref.zone());
            if design.try_free_to_spares(guard.cache, self.lease.cpu, &frame_ref, state) {
                return Some(Ok(()));
            }
            match guard.free_to_spares(frame_ref.pageblock()) {
                Ok(false) => {}
                done => return Some(done.map(|_| ())),
            }
        }
        if !state.is_split_of(self.lease.cpu) {
            return None;
        }
        let (state, mask) = match order {
            Order::ZERO => {
                let (free, mask) = (frame_ref.free_or_remote(), frame_ref.mask(0));
                if !frame_ref.is_single_in_use(free) {
                    return None;
                }
                if !design.pageblocks().try_end_use(frame_ref.word_index(), mask) {
                    return Some(Err(Error::DoubleFree));
                }
                (state, mask)
            }
            _ => {
                let frame_ref = design.pageblocks().lookup_fast(pfn)?;
                design.begin_free_in_word(&frame_ref, pfn, order)?
            }
        };
        if state.is_listed()
            && frame_ref.remote() & mask == 0
            && frame_ref.try_put_here(state, mask)
        {
            return Some(Ok(()));
        }
        Some(self.put_frames(frame_ref.word_index(), state, mask))
    }

    /// Frees frames of a word that are allocations of their own, or claimed, and whose use has been
    /// ended.
    #[cold]
    #[inline(never)]
    fn put_frames(&self, word: usize, state: State, mask: u64) -> Result<(), Error> {
        let (design, words) = (self.lease.allocator.design(), word..word + 1);
        let guard = self.cache(design.pageblocks().zone(PageblockIndex::of_word(word)));
        match guard.put_held(words.clone(), mask) {
            Some(result) => result,
            None => design.put_frames(self.lease.allocator.context(), state, words, mask),
        }
    }
}

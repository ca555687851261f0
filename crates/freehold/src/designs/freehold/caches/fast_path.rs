//! Fast paths of allocation: from the cache of the running CPU in its best zone.
//!
//! They check no watermark: in a zone that is below its low watermark, caches hold nothing.

use core::num::NonZeroU64;

use super::cache::Active;
use super::lock::{LockedCache, PerCpu};
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::FrameRef;
use crate::designs::freehold::pageblocks::run::{ORDER_MAX, WORD_FRAMES, WORD_ORDER, ones};
use crate::platform::{Pin, Platform};
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// Whether a request prefers no node, and is for more than one frame and at most a word, so that
/// the active word for runs may serve it.
#[inline(always)]
pub(crate) const fn is_run_in_word(request: &Request) -> bool {
    let order = request.order().get();
    order > 0 && order <= WORD_ORDER && request.is_unsparing() && request.is_anywhere()
}

/// What the active pageblock of a fast path serves: runs, or single frames.
#[inline(always)]
pub(crate) const fn what<const RUN: bool>() -> Active {
    if RUN { Active::Runs } else { Active::Singles }
}

impl<P: Platform> Freehold<P> {
    /// Takes a single frame, or a block of at most a word, out of the active word.
    #[inline(always)]
    pub(crate) fn alloc_in_word<const RUN: bool>(
        &self,
        context: Context<'_, P>,
        request: Request,
    ) -> Option<Pfn> {
        let what = what::<RUN>();
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        // The slow path folds a number that no CPU has.
        if let Some(per_cpu) = self.cpus.try_get(cpu)
            && let Some(hot) = per_cpu.hot_of(per_cpu.best(&request))
        {
            // Looked up before the lock is taken. The next locked step waits for all that comes
            // between the lock and its release.
            let word = hot.active_word(what, request.content_index());
            if let Some(frame_ref) = self.pageblocks().lookup_word_fast(word)
                && per_cpu.try_lock()
            {
                if hot.active_word(what, request.content_index()) == word
                    && let Some(frame) = per_cpu.take_of::<RUN>(&frame_ref, &request)
                {
                    hot.note_alloc(request.order().frames().get());
                    per_cpu.unlock();
                    return Some(self.pageblocks().near_pfn_of(frame));
                }
                return self.alloc_from_locked(pin, per_cpu, cpu, request);
            }
        }
        None
    }

    /// Takes a block that is not in the active word: out of the running CPU's cache, which may
    /// acquire pageblocks for it, or whole pageblocks from the pool.
    #[inline(never)]
    pub(crate) fn alloc_from_own_cache(
        &self,
        context: Context<'_, P>,
        request: Request,
    ) -> Option<Pfn> {
        if !request.is_unsparing() {
            return None;
        }
        let (cpu, pin) = Pin::new(context.platform);
        let cpu = cpu.index();
        if let Some(per_cpu) = self.cpus.try_get(cpu)
            && per_cpu.best(&request).index() < self.zones.len()
            && per_cpu.try_lock()
        {
            if request.order() == Order::PAGEBLOCK {
                let cache = self.cache_of(per_cpu, cpu, per_cpu.best(&request));
                if let Some(frame) = self.alloc_spare(&cache, &request) {
                    cache.note_alloc(Order::PAGEBLOCK.frames().get());
                    per_cpu.unlock();
                    return Some(self.pageblocks().pfn_of(frame));
                }
            }
            if let Some(pfn) = self.alloc_from_locked(pin, per_cpu, cpu, request) {
                return Some(pfn);
            }
        } else {
            drop(pin);
        }
        match (Order::PAGEBLOCK..=ORDER_MAX).contains(&request.order()) {
            true => self.alloc_huge_from_best(context, request),
            false => None,
        }
    }

    /// Takes a block out of the cache of a CPU in the best zone. The caller has taken the lock;
    /// this releases it.
    #[inline(never)]
    fn alloc_from_locked(
        &self,
        pin: Pin<'_, P>,
        per_cpu: &PerCpu<P>,
        cpu: usize,
        request: Request,
    ) -> Option<Pfn> {
        let guard = self.guard_of(pin, per_cpu, cpu, per_cpu.best(&request));
        let frame = guard.take_at_hand(&request).or_else(|| {
            let zone = guard.zone_index;
            let may_serve = self.zones.may_serve_from_cache(cpu, zone, &request);
            may_serve.then(|| guard.take(&request)).flatten()
        })?;
        guard.cache.note_alloc(request.order().frames().get());
        Some(self.pageblocks().pfn_of(frame))
    }

    /// Takes whole pageblocks from the pool, if the best zone stays above its low watermark.
    #[inline(never)]
    fn alloc_huge_from_best(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        let zone = self.per_cpu(context.cpu_here()).best(&request);
        self.zones.try_zone(zone)?;
        let may_take = self.zones.allows(zone, &request, Watermark::Low);
        let frame = may_take.then(|| self.zones.alloc_huge(context, zone, &request)).flatten();
        frame.map(|frame| self.pageblocks().pfn_of(frame))
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Takes a block out of the active pageblock for its order, or a spare.
    #[inline(always)]
    pub(crate) fn take_at_hand(&self, request: &Request) -> Option<u32> {
        match request.order().get() {
            0 => self.take_in_pageblock::<false>(request),
            1..=WORD_ORDER => self.take_in_pageblock::<true>(request),
            _ if request.order() == Order::PAGEBLOCK => {
                self.design.alloc_spare(&self.cache, request)
            }
            _ => None,
        }
    }

    /// As `alloc_in_word`, out of any word of the active pageblock.
    #[inline(always)]
    fn take_in_pageblock<const RUN: bool>(&self, request: &Request) -> Option<u32> {
        let (what, type_index) = (what::<RUN>(), request.content_index());
        let frame_ref =
            self.pageblocks().lookup_word(self.cache.hot.active_word(what, type_index))?;
        let frame_ref = frame_ref.word_with_run(request.order().get())?;
        self.cache.hot.set_active_word(what, type_index, frame_ref.word_index() as u32);
        let frame = self.per_cpu.take_of::<RUN>(&frame_ref, request)?;
        let mask = ones(request.order().get()) << (frame % WORD_FRAMES);
        self.pageblocks().begin_use(frame_ref.word_index(), mask);
        Some(frame)
    }
}

impl<P: Platform> PerCpu<P> {
    /// Takes the lowest frame of a word, or the lowest block of at most a word, if it has one. The
    /// caller holds the pageblock.
    #[inline(always)]
    pub(crate) fn take_of<const RUN: bool>(
        &self,
        frame_ref: &FrameRef<'_, P>,
        request: &Request,
    ) -> Option<u32> {
        match RUN {
            false => self.take_single(frame_ref),
            true => frame_ref.take_run(request.order().get()),
        }
    }

    /// Takes the lowest frame of a word, if it has one and frames are not picked at random.
    #[inline(always)]
    pub(crate) fn take_single(&self, frame_ref: &FrameRef<'_, P>) -> Option<u32> {
        let free = NonZeroU64::new(frame_ref.free()).filter(|_| !self.picks_at_random)?;
        frame_ref.set_free(free.get() & (free.get() - 1));
        Some(frame_ref.frame() + free.trailing_zeros())
    }
}

//! Allocation: from the cache of the running CPU, of another CPU, or past all caches. Where none of
//! these serves, `last_resort` follows.

use super::fast_path::is_run_in_word;
use super::lock::{CacheGuard, LockedCache};
use crate::Error;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::traits::Alloc;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::zone::watermark::Watermark;

/// How often the lock of a cache that CPUs share is tried: others have it for a moment, and past
/// all caches, all CPUs meet.
const TRIES: usize = 16;

impl<P: Platform> Alloc<P> for Freehold<P> {
    /// Takes a block for a request that prefers no node.
    #[inline(always)]
    fn alloc_fast(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        let taken = if request.is_ordinary() {
            self.alloc_in_word::<false>(context, request)
        } else if is_run_in_word(&request) {
            self.alloc_in_word::<true>(context, request)
        } else {
            None
        };
        taken.or_else(|| self.alloc_from_own_cache(context, request))
    }

    /// Tries, in this order: the running CPU's cache of the best zone, and any zone above its low
    /// watermark; what other CPUs cache, in zones that are not below theirs; and at last, after all
    /// caches have been drained, any zone, as deep as the request may go. That depth comes next
    /// for what must be at hand.
    fn alloc(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
    ) -> Result<Pfn, Error> {
        let request = &request;
        let usable = || self.zones.usable(zones, request);
        let frame = match self.alloc_unless_short(context, usable, request) {
            Some(frame) => frame,
            None if request.is_at_hand() => {
                let depth = Some(request.depth()).filter(|&depth| depth != depth.at_first());
                let take = |depth| {
                    usable().find_map(|zone| self.alloc_near(context, zone, request, depth)) //
                };
                depth.and_then(take).ok_or(Error::OutOfMemory)?
            }
            None => self.alloc_last_resort(context, usable, request)?,
        };
        Ok(self.note_allocated(context, zones, request, frame))
    }
}

impl<P: Platform> Freehold<P> {
    /// Takes a block, unless it takes the last resort, or no more than what is at hand will do.
    pub(crate) fn alloc_unless_short<Z: Iterator<Item = ZoneIndex>>(
        &self,
        context: Context<'_, P>,
        zones: impl Fn() -> Z,
        request: &Request,
    ) -> Option<u32> {
        let class = request.depth().at_first();
        let frame = zones().enumerate().find_map(|(nth, zone)| {
            // What the own cache holds is there to be used up first. In zones that the request does
            // not prefer, it may be reserved for requests that have no other zone.
            let may_use_own = class == Watermark::Low
                && request.depth() != Watermark::Low
                && (nth == 0 || self.zones.zone(zone).may_cache(0, request));
            let fetched = self.alloc_near(context, zone, request, class);
            let own = || self.alloc_from_held(context, zone, request);
            fetched.or_else(|| may_use_own.then(own).flatten())
        });
        let others = |zone| self.alloc_from_others(context, zone, request, class);
        frame.or_else(|| (!request.is_at_hand()).then(|| zones().find_map(others)).flatten())
    }

    /// Counts a block for the zone that it came from, by the zones that were wanted.
    pub(crate) fn note_allocated(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        frame: u32,
    ) -> Pfn {
        let from = self.pageblocks().zone(PageblockIndex::of_frame(frame));
        self.zones.note_numa(context.cpu_here(), zones, request, from, request.order().frames());
        self.pageblocks().pfn_of(frame)
    }

    /// Takes a block of a zone, unless that takes it below the mark of `class`. Asks other CPUs for
    /// nothing but many spares, before the zone counts as short, or types fall back on each other.
    pub(crate) fn alloc_near(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
    ) -> Option<u32> {
        let allows = || self.zones.allows(zone, request, class);
        let of_zone = self.zones.zone(zone);
        let has_many = of_zone.has_many_spares(self.zones.cpu_count());
        let is_dry = has_many && self.zones.forest.next(of_zone.pool(), 0).is_none();
        // Read once: where memory is short, all CPUs write to the level.
        let mut is_allowed = !is_dry && allows();
        if has_many && !is_allowed {
            self.reclaim_spares(context, zone);
            is_allowed = allows();
        }
        is_allowed.then(|| self.alloc_in(context, zone, request)).flatten()
    }

    /// Takes a block out of what the running CPU's cache holds already.
    fn alloc_from_held(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let (cpu, pin) = context.pin();
        let guard = self.try_lock(pin, cpu, zone)?;
        guard.take_held(request).inspect(|_| guard.note_taken(context, request.order()))
    }

    /// Takes a block of a zone whose level allows it.
    pub(super) fn alloc_in(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        let may_serve = self.zones.may_serve_from_cache(context.cpu_here(), zone, request);
        let guard = may_serve.then(|| self.lock_serving(context, zone, request)).flatten();
        let frame = guard.and_then(|guard| {
            guard.take(request).inspect(|_| guard.note_taken(context, request.order()))
        });
        frame.or_else(|| self.alloc_uncached(context, zone, request))
    }

    /// Takes the lock of the caches that serve a request in a zone best: those of the running CPU,
    /// or, for content that cannot move, those that it shares. Else that of any CPU, after some
    /// tries.
    fn lock_serving<'a>(
        &'a self,
        context: Context<'a, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<CacheGuard<'a, P>> {
        let (here, cpus) = (context.cpu_here(), self.zones.cpu_count());
        let caching = self.zones.zone(zone).caching_cpu(request.content(), cpus, here);
        let shared = caching.filter(|&cpu| cpu != here);
        let guard = shared.and_then(|cpu| {
            // A lease has it for long.
            let may_wait = || request.may_wait() && !self.per_cpu(cpu).lease.has_lock();
            (0..TRIES).take_while(|&nth| nth == 0 || may_wait()).find_map(|nth| {
                if nth > 0 {
                    context.platform.relax();
                }
                self.try_lock(context.pin().1, cpu, zone)
            })
        });
        guard.or_else(|| self.lock_any(context, zone))
    }

    /// Takes a block that no cache holds.
    fn alloc_uncached(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
    ) -> Option<u32> {
        match request.order() < Order::PAGEBLOCK {
            true => self.zones.alloc_direct(context, zone, request),
            false => self.zones.alloc_huge(context, zone, request),
        }
    }

    /// Makes caches release pageblocks, one by one, until one of them serves the request, if the
    /// zone is not below its low watermark. The active pageblock of another CPU is not released but
    /// shared, if the request may go below the low watermark: else CPUs would take it from each
    /// other where there are fewer pageblocks than CPUs.
    fn alloc_from_others(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        request: &Request,
        class: Watermark,
    ) -> Option<u32> {
        if !self.zones.zone(zone).may_cache(0, request) {
            return None;
        }
        // The same condition as for the running CPU's cache in `alloc`.
        let may_share = class == Watermark::Low && request.depth() != Watermark::Low;
        let (here, cpus) = (context.cpu_here(), self.zones.cpu_count());
        (here..here + cpus).find_map(|cpu| {
            loop {
                let guard = self.try_lock(context.pin().1, cpu % cpus, zone)?;
                let Some(released) = guard.release_one(request.content(), !may_share) else {
                    let shared = may_share.then(|| guard.take_held(request)).flatten();
                    return shared.inspect(|_| guard.note_taken(context, request.order()));
                };
                drop(guard);
                if self.pageblocks().has_run(released, request.order())
                    && self.zones.allows(zone, request, class)
                    && let Some(frame) = self.alloc_uncached(context, zone, request)
                {
                    return Some(frame);
                }
            }
        })
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Takes a block out of what the cache holds already.
    fn take_held(&self, request: &Request) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        match order {
            Order::ZERO => self.take_active(migratetype).or_else(|| {
                if !self.refill_from_own(migratetype) {
                    return None;
                }
                self.take_active(migratetype)
            }),
            Order::PAGEBLOCK => self.design.alloc_spare(&self.cache, request),
            _ if order > Order::PAGEBLOCK => None,
            _ => {
                let own = self.take_run_of_own(request);
                let own = own.or_else(|| self.take_run_of_spare(request));
                own.or_else(|| self.take_run_of_singles(request))
            }
        }
    }

    /// Takes a block out of the cache, which may acquire a pageblock for it.
    pub(crate) fn take(&self, request: &Request) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        match order {
            Order::ZERO => self.take_active(migratetype).or_else(|| {
                if !self.refill(request) {
                    return None;
                }
                self.take_active(migratetype)
            }),
            Order::PAGEBLOCK => self.design.alloc_spare(&self.cache, request).or_else(|| {
                self.fetch_spares(request);
                self.design.alloc_spare(&self.cache, request)
            }),
            _ if order > Order::PAGEBLOCK => None,
            _ => self.take_run(request),
        }
    }

    /// As `take`, for a block of more than one frame and less than a pageblock.
    #[inline(never)]
    fn take_run(&self, request: &Request) -> Option<u32> {
        self.take_run_of_own(request)
            .or_else(|| self.take_run_of_orphan(request))
            .or_else(|| self.take_run_of_spare(request))
            .or_else(|| self.take_fresh_run(request))
            .or_else(|| self.take_run_of_singles(request))
    }

    /// Counts a block that the running CPU has taken out of this cache, its own or another CPU's.
    pub(crate) fn note_taken(&self, context: Context<'_, P>, order: Order) {
        let (here, frames) = (context.cpu_here(), order.frames().get());
        if self.cpu == here {
            self.cache.note_alloc(frames);
        } else {
            self.zones().cpu_zone(here, self.zone_index).counters.note_borrowed(frames);
        }
    }
}

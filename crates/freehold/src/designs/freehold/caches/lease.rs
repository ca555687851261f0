//! Leases: one thread uses the caches of a CPU without their lock.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use super::fast_path::{is_run_in_word, what};
use super::lock::{ASKED, HELD, LockedCache, PerCpu, VACANT};
use crate::allocator::PageAllocator;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::state::State;
use crate::designs::traits::Alloc;
use crate::error::{BulkFreeError, Error};
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::request::Request;
use crate::units::{CpuId, Order, Pfn};

/// The right of one thread to the caches of one CPU, for as long as it lives: for programs with a
/// thread a core, or a thread that is about to allocate much.
///
/// Its holder allocates and frees single frames without any lock or locked step. All other threads
/// go on as before. Those that run on this CPU take from other caches, and all of them free frames
/// of the holder's pageblocks remotely.
///
/// When another call runs out of memory, or drains the CPU, the holder is asked to release what it
/// does not need. It does so the next time that it looks for more frames, or when it calls
/// [`Lease::give_back_if_asked`]. A holder that does neither keeps what it has, and no other call
/// depends on it: what others free is not lost, and a drain does not wait.
///
/// ```
/// # use freehold::designs::Freehold;
/// # use freehold::platform::Platform;
/// # use freehold::{CpuId, Error, Order, PageAllocator, Request};
/// fn work<P: Platform>(frames: &PageAllocator<P, Freehold<P>>) -> Result<(), Error> {
///     let lease = frames.lease(CpuId::new(0))?;
///     let frame = lease.alloc(Request::default())?;
///     lease.free(frame, Order::ZERO)
/// }
/// ```
pub struct Lease<'a, P: Platform> {
    pub(crate) allocator: &'a PageAllocator<P, Freehold<P>>,
    pub(crate) per_cpu: &'a PerCpu<P>,
    pub(crate) cpu: usize,
    /// `Send`, but not `Sync`: a lease may move to another thread, but no two use it at once.
    one_thread: PhantomData<Cell<()>>,
}

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Leases the caches of a CPU for as long as the result lives. The CPU need not be the one that
    /// the caller runs on, though the caches best serve a thread that runs there: their zones are
    /// near to that CPU.
    ///
    /// Cost: waits for a call under way on these caches.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`]; [`Error::Leased`] if another lease has them.
    pub fn lease(&self, cpu: CpuId) -> Result<Lease<'_, P>, Error> {
        let context = self.context();
        if cpu.index() >= context.topology.cpus() {
            return Err(Error::UnknownCpu);
        }
        let per_cpu = self.design().per_cpu(cpu.index());
        match self.design().begin_lease(context, per_cpu, (VACANT, HELD)) {
            true => Ok(Lease::over(self, per_cpu, cpu.index())),
            false => Err(Error::Leased),
        }
    }
}

impl<'a, P: Platform> Lease<'a, P> {
    /// The lease of caches whose lock the caller has.
    #[inline(always)]
    pub(crate) fn over(
        allocator: &'a PageAllocator<P, Freehold<P>>,
        per_cpu: &'a PerCpu<P>,
        cpu: usize,
    ) -> Self {
        Lease { allocator, per_cpu, cpu, one_thread: PhantomData }
    }
}

impl<P: Platform> Lease<'_, P> {
    /// The cache in a zone, for the functions of the design.
    fn cache(&self, zone: ZoneIndex) -> LockedCache<'_, P> {
        let (design, platform) = (self.allocator.design(), self.allocator.platform());
        design.locked_cache(platform, self.per_cpu, self.cpu, zone)
    }

    /// Allocates one block, as [`PageAllocator::alloc`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        if let Some(pfn) = self.alloc_fast(request) {
            return Ok(pfn);
        }
        self.alloc_beyond_word(request)
    }

    /// Takes a block out of an active word.
    #[inline(always)]
    pub(crate) fn alloc_fast(&self, request: Request) -> Option<Pfn> {
        if request.is_ordinary() {
            self.take_in_word::<false>(request)
        } else if is_run_in_word(&request) {
            self.take_in_word::<true>(request)
        } else {
            None
        }
    }

    /// Takes a single frame, or a block of at most a word, out of the active word.
    #[inline(always)]
    fn take_in_word<const RUN: bool>(&self, request: Request) -> Option<Pfn> {
        let (design, what) = (self.allocator.design(), what::<RUN>());
        let hot = self.per_cpu.hot_of(self.per_cpu.best(&request))?;
        let frame_ref = design
            .zones
            .pageblocks
            .lookup_word_fast(hot.active_word(what, request.content_index()))?;
        let frame = self.per_cpu.take_of::<RUN>(&frame_ref, &request)?;
        hot.note_alloc(request.order().frames().get());
        Some(design.zones.pageblocks.pfn_of(frame))
    }

    #[inline(never)]
    fn alloc_beyond_word(&self, request: Request) -> Result<Pfn, Error> {
        self.give_back_if_asked();
        if let Some(pfn) = self.alloc_own(&request) {
            return Ok(pfn);
        }
        self.alloc_slowly(request)
    }

    /// Allocates a block out of the cache in the best zone, which may acquire pageblocks for it.
    /// Waits for no other call.
    pub(crate) fn alloc_own(&self, request: &Request) -> Option<Pfn> {
        if !request.is_anywhere() || !request.is_unsparing() {
            return None;
        }
        let design = self.allocator.design();
        let zone = self.per_cpu.best(request);
        design.zones.try_zone(zone)?;
        let guard = self.cache(zone);
        let frame = guard.take_block(request).or_else(|| guard.alloc(request))?;
        guard.cache.note_alloc(request.order().frames().get());
        Some(design.zones.pageblocks.pfn_of(frame))
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, request: Request) -> Result<Pfn, Error> {
        let (context, design) = (self.allocator.context(), self.allocator.design());
        let (resolved, zones) = self.allocator.resolve(request)?;
        let best = design.zones.usable(zones, &resolved).next().filter(|_| request.is_unsparing());
        if let Some(zone) = best
            && let Some(frame) = self.cache(zone).alloc(&resolved)
        {
            let frames = resolved.order().frames();
            design.cache(self.cpu, zone).note_alloc(frames.get());
            design.zones.note_numa(self.cpu, zones, &resolved, zone, frames);
            return Ok(design.zones.pageblocks.pfn_of(frame));
        }
        design.alloc(context, zones, resolved).or_else(|_| {
            // What these caches hold may be what is missing.
            self.give_back();
            self.allocator.alloc(request)
        })
    }

    /// Allocates blocks of one kind into `out`, as [`PageAllocator::alloc_bulk`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc_bulk`].
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        self.give_back_if_asked();
        let design = self.allocator.design();
        let (resolved, zones) = self.allocator.resolve(request)?;
        let mut count = 0;
        if let Some(zone) = design.may_take_words(zones, &resolved) {
            while count < out.len() {
                let guard = self.cache(zone);
                match guard.take_words(zones, &resolved, &mut out[count..]) {
                    0 => break,
                    words => count += words,
                }
            }
        }
        while count < out.len() {
            let Ok(pfn) = self.alloc(request) else { break };
            out[count] = pfn;
            count += 1;
        }
        Ok(count)
    }

    /// Frees a block, or part of one, as [`PageAllocator::free`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free`].
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        if self.free_fast(pfn, order) {
            return Ok(());
        }
        self.free_own(pfn, order).unwrap_or_else(|| self.allocator.free(pfn, order))
    }

    /// Frees a single frame of a pageblock that the caches have listed; returns whether it was one.
    #[inline(always)]
    pub(crate) fn free_fast(&self, pfn: Pfn, order: Order) -> bool {
        let design = self.allocator.design();
        if order == Order::ZERO
            && let Some(frame_ref) = design.zones.pageblocks.lookup_fast(pfn)
        {
            let state = frame_ref.state();
            return state.is_listed_of(self.cpu)
                && frame_ref.is_single_in_use(frame_ref.free_or_remote())
                && frame_ref.try_free_here(state, frame_ref.mask(0));
        }
        false
    }

    /// Frees a block of at most a word in a pageblock that the caches hold, or a whole pageblock to
    /// their spares. `None` if it is something else, which is left alone. Waits for no other call.
    #[inline(never)]
    pub(crate) fn free_own(&self, pfn: Pfn, order: Order) -> Option<Result<(), Error>> {
        let design = self.allocator.design();
        let frame_ref = design.zones.pageblocks.lookup(pfn)?;
        let state = frame_ref.state();
        if order == Order::PAGEBLOCK && state.is_lone_pageblock() && pfn.is_aligned(order) {
            let guard = self.cache(frame_ref.zone());
            if design.try_free_to_spares(guard.cache, self.cpu, &frame_ref, state) {
                return Some(Ok(()));
            }
            match guard.free_to_spares(frame_ref.pageblock()) {
                Ok(false) => {}
                done => return Some(done.map(|_| ())),
            }
        }
        if !state.is_split_of(self.cpu) {
            return None;
        }
        let (state, mask) = match order {
            Order::ZERO => {
                let (free, mask) = (frame_ref.free_or_remote(), frame_ref.mask(0));
                if !frame_ref.is_single_in_use(free) {
                    return None;
                }
                if !design.zones.pageblocks.try_end_use(frame_ref.word_index(), mask) {
                    return Some(Err(Error::DoubleFree));
                }
                (state, mask)
            }
            _ => {
                let frame_ref = design.zones.pageblocks.lookup_fast(pfn)?;
                design.begin_free_in_word(&frame_ref, pfn, order)?
            }
        };
        if state.is_listed()
            && frame_ref.remote() & mask == 0
            && frame_ref.try_free_here(state, mask)
        {
            return Some(Ok(()));
        }
        Some(self.free_unused(frame_ref.word_index(), state, mask))
    }

    /// Frees frames of a word that are allocations of their own, or claimed, and whose use has been
    /// ended.
    #[cold]
    #[inline(never)]
    fn free_unused(&self, word: usize, state: State, mask: u64) -> Result<(), Error> {
        let (design, words) = (self.allocator.design(), word..word + 1);
        let guard = self.cache(design.zones.pageblocks.zone(PageblockIndex::of_word(word)));
        match guard.free_held(words.clone(), mask) {
            Some(result) => result,
            None => design.free_unused(self.allocator.context(), state, words, mask),
        }
    }

    /// Frees blocks of one order, as [`PageAllocator::free_bulk`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free_bulk`].
    pub fn free_bulk(&self, pageblocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        let design = self.allocator.design();
        let mut freed = 0;
        while let Some(&first) = pageblocks.get(freed) {
            let run = match order {
                Order::ZERO => design.word_of(&pageblocks[freed..]).filter(|run| {
                    run.state.is_split_of(self.cpu)
                        && design.zones.pageblocks.try_end_use(run.word, run.mask)
                        && self.free_unused(run.word, run.state, run.mask).is_ok()
                }),
                _ => None,
            };
            match run {
                Some(run) => freed += run.count,
                None => {
                    self.free(first, order).map_err(|error| BulkFreeError { freed, error })?;
                    freed += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether another call has asked for frames.
    pub fn is_asked(&self) -> bool {
        // Relaxed: a request, which nothing depends on.
        self.per_cpu.lease.load(Relaxed) == ASKED
    }

    /// Releases all free frames of the caches, if another call has asked for them. A thread that
    /// has nothing to do should call it now and then.
    pub fn give_back_if_asked(&self) {
        if self.is_asked() {
            self.give_back();
        }
    }

    /// Releases all free frames of the caches.
    pub fn give_back(&self) {
        // Relaxed: a call that asks from now on may ask again.
        self.per_cpu.lease.store(HELD, Relaxed);
        for zone in self.allocator.design().zones.indexes() {
            self.cache(zone).drain();
        }
    }
}

impl<P: Platform> Drop for Lease<'_, P> {
    fn drop(&mut self) {
        let (_, _pin) = self.allocator.context().pin();
        // Relaxed, but before the lock is free, or this store might overwrite what the next lease
        // writes. The release of the lock passes the caches on.
        self.per_cpu.lease.store(VACANT, Relaxed);
        self.allocator.design().end_lease(self.per_cpu);
    }
}

impl<P: Platform> fmt::Debug for Lease<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

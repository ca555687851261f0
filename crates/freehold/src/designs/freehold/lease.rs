//! Holding a slot for a while: no lock at all on the fast path.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::Relaxed;

use super::Freehold;
use super::free::AtHome;
use super::guard::{ASKED, HELD, Home, SlotGuard, VACANT};
use super::runs::WORD_FRAMES;
use crate::Error;
use crate::allocator::PageAllocator;
use crate::memmap::block::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::request::Request;
use crate::units::{CpuId, Order, Pfn};
use crate::zone::watermark::Watermark;

/// The right to the slots of one CPU, for one thread, for as long as it lives: for programs with a
/// thread a core, or a thread that is about to allocate much.
///
/// Its holder allocates and frees single frames without any lock or locked step. Everybody else
/// goes on as before: threads that run on this CPU take from other slots, and frames of the
/// holder's pageblocks are freed remotely.
///
/// When others run out of memory, or somebody drains the CPU, the holder is asked to give back what
/// it does not need. It does so the next time that it has to look for more frames, or when it calls
/// [`Lease::give_back_if_asked`]. One that does neither keeps what it has, and nothing else
/// depends on it: what others free is not lost, and whoever drains does not wait.
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
    allocator: &'a PageAllocator<P, Freehold<P>>,
    cpu: usize,
    /// May go from thread to thread, but not be used by two at once.
    one_thread: PhantomData<Cell<()>>,
}

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Takes the slots of a CPU for as long as the result lives. The CPU need not be the one that
    /// the caller runs on, though what is near to it is best used there.
    ///
    /// Cost: waits for a call on these slots that is under way.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`]; [`Error::Leased`] if somebody else has them.
    pub fn lease(&self, cpu: CpuId) -> Result<Lease<'_, P>, Error> {
        let context = self.context();
        if cpu.index() >= context.topology.cpus() {
            return Err(Error::UnknownCpu);
        }
        let home = self.design().homes.get(cpu.index());
        while !home.try_lock() {
            if home.lease.load(Relaxed) != VACANT {
                return Err(Error::Leased);
            }
            context.platform.relax();
        }
        // Relaxed: only tells others not to wait for the lock, which is taken.
        home.lease.store(HELD, Relaxed);
        Ok(Lease { allocator: self, cpu: cpu.index(), one_thread: PhantomData })
    }
}

impl<P: Platform> Lease<'_, P> {
    fn home(&self) -> &Home<P> {
        self.allocator.design().homes.get(self.cpu)
    }

    /// What the functions of the design want to see: the slot in a zone, locked. It stays locked.
    fn guard(&self, zone: ZoneIndex) -> ManuallyDrop<SlotGuard<'_, P>> {
        let platform = self.allocator.platform();
        ManuallyDrop::new(self.allocator.design().guard(platform, self.cpu, zone))
    }

    /// Allocates one block, as [`PageAllocator::alloc`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        let plain = request.order == Order::ZERO && request.node.is_none() && !request.only_node;
        if plain && may_use_up(&request) {
            let design = self.allocator.design();
            let slot = design.slots.try_get(self.home().best(request.effective_limit()));
            if let Some(slot) = slot
                && let Some(frame) = design.take_current(slot, request.migratetype)
            {
                slot.note_alloc(1);
                return Ok(design.pfn_of(frame));
            }
        }
        self.alloc_slowly(request)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, request: Request) -> Result<Pfn, Error> {
        self.give_back_if_asked();
        let (context, design) = (self.allocator.context(), self.allocator.design());
        let (resolved, zones) = self.allocator.resolve(request)?;
        let best = design.usable(zones, &resolved).next().filter(|_| may_use_up(&request));
        if let Some(zone) = best
            && let Some(frame) = design.alloc_with(&self.guard(zone), &resolved)
        {
            let frames = resolved.order.frames();
            design.slot(self.cpu, zone).note_alloc(frames.get());
            design.note_numa(self.cpu, zones, &resolved, zone, frames);
            return Ok(design.pfn_of(frame));
        }
        design.alloc_slowly(context, zones, &resolved).map(|frame| design.pfn_of(frame)).or_else(
            |_| {
                // What this slot holds may be what is missing.
                self.give_back();
                self.allocator.alloc(request)
            },
        )
    }

    /// Frees a block, or part of one, as [`PageAllocator::free`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free`].
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        let design = self.allocator.design();
        let Some(frame) = design.blocks.index_of(pfn) else { return Err(Error::ForeignFrame) };
        let (word, mask) = ((frame / WORD_FRAMES) as usize, 1 << (frame % WORD_FRAMES));
        if order == Order::ZERO && design.blocks.are_single(word, mask) {
            match design.free_at_home(self.cpu, word, mask) {
                AtHome::Done => return Ok(()),
                AtHome::DoubleFree => return Err(Error::DoubleFree),
                AtHome::Unusual => {
                    self.settle(word);
                    return Ok(());
                }
                AtHome::NotHeld => {}
            }
        }
        self.allocator.free(pfn, order)
    }

    #[cold]
    #[inline(never)]
    fn settle(&self, word: usize) {
        let design = self.allocator.design();
        let block = super::blocks::BlockIndex::of_word(word);
        design.settle(&self.guard(design.blocks.zone(block)), block);
    }

    /// Whether others would like to have frames back.
    pub fn is_asked(&self) -> bool {
        // Relaxed: a request, which nothing depends on.
        self.home().lease.load(Relaxed) == ASKED
    }

    /// Gives back all free frames of the slots if others have asked for that. A thread that has
    /// nothing to do should call it now and then.
    pub fn give_back_if_asked(&self) {
        if self.is_asked() {
            self.give_back();
        }
    }

    /// Gives back all free frames of the slots.
    pub fn give_back(&self) {
        // Relaxed: whoever asks from now on may be told again.
        self.home().lease.store(HELD, Relaxed);
        for zone in self.allocator.design().zone_indexes() {
            self.allocator.design().drain_held(&self.guard(zone));
        }
    }
}

/// Whether a request may be served from what the slot holds, however low the zone is.
#[inline(always)]
fn may_use_up(request: &Request) -> bool {
    !matches!(request.watermark, Watermark::High | Watermark::Low)
}

impl<P: Platform> Drop for Lease<'_, P> {
    fn drop(&mut self) {
        // Relaxed: before the lock is free, or else the next holder's mark might be overwritten.
        // Releasing the lock hands the slots on.
        self.home().lease.store(VACANT, Relaxed);
        self.home().unlock();
    }
}

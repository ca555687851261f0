//! An arena as C sees it: memory by addresses, freed by its address alone. No unsafe code: what a
//! wrong pointer leads to is an error.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::designs::Freehold;
use freehold::{
    CpuId, Design, FrameCount, FrameStatus, Immovable, Order, Pfn, RangeRequest, Request,
};
use freehold_host::{FrameArena, Host, Leases};

use crate::args::Wish;
use crate::error::freehold_error::*;
use crate::error::{Result, explained};
use crate::stretches::Stretches;

/// An arena: memory that is given out by pages. A handle never changes, so all functions take it as
/// const.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct freehold_arena {
    pub(crate) frames: FrameArena,
    stretches: Stretches,
    purged: AtomicU64,
    /// So many CPUs have caches that explicit leases may take, at least 1.
    pub(crate) cpus: u32,
}

/// How many blocks of a bulk call are under way at a time.
const CHUNK: usize = 64;

/// Allocations up to a pageblock are blocks, whose size is a power of two: searching a range for
/// less would cost more than the memory is worth.
const BLOCK_MAX: Order = Order::PAGEBLOCK;

impl freehold_arena {
    pub(crate) fn new(frames: FrameArena) -> Self {
        let capacity = frames.capacity_bytes() / frames.frame_size().bytes();
        // With automatic leases, the second half is for these.
        let all = (0..).map(CpuId::new).find(|cpu| frames.allocator().drain(*cpu).is_err());
        let cpus = match frames.leases() {
            Leases::Auto => frames.spare_leases() as u32,
            Leases::Off => all.map_or(1, CpuId::get).max(1),
        };
        let (stretches, purged) = (Stretches::new(capacity), AtomicU64::new(0));
        freehold_arena { frames, stretches, purged, cpus }
    }

    /// How many frames purges have given back so far.
    pub(crate) fn purged(&self) -> u64 {
        self.purged.load(Relaxed)
    }

    pub(crate) fn purge(&self) -> Result<FrameCount> {
        let purged = self.frames.purge().map_err(explained)?;
        self.purged.fetch_add(purged.get(), Relaxed);
        Ok(purged)
    }

    #[inline]
    pub(crate) fn address(&self, pfn: Pfn) -> *mut c_void {
        self.frames.address_of(pfn).as_ptr().cast()
    }

    fn frames_of(&self, bytes: usize) -> FrameCount {
        FrameCount::from_bytes(bytes, self.frames.frame_size())
    }

    fn bytes_of(&self, frames: FrameCount) -> usize {
        self.frames.frame_size().bytes_of(frames)
    }

    /// Allocates a block. One that may not wait takes no lease either, for which the C library
    /// would allocate memory.
    #[inline]
    pub(crate) fn alloc(&self, order: u32, wish: &Wish) -> Result<*mut c_void> {
        let request = wish.request(order_of(order));
        let pfn = if wish.nowait {
            self.frames.allocator().alloc(request)?
        } else {
            self.frames.alloc(request)?
        };
        Ok(self.address(pfn))
    }

    /// Allocates so many bytes: the smallest block; or, where that would waste much, a range.
    pub(crate) fn alloc_bytes(&self, bytes: usize) -> Result<*mut c_void> {
        let frames = self.frames_of(bytes);
        if frames == FrameCount::ZERO {
            return Err(FREEHOLD_ESIZE);
        }
        let order = Order::covering(frames);
        let is_block = order <= BLOCK_MAX || order.frames() == frames;
        if is_block && order <= <Freehold<Host> as Design<Host>>::ORDER_MAX {
            return Ok(self.address(self.frames.alloc(Request::new(order))?));
        }
        self.alloc_range(bytes, 0, &Wish::default())
    }

    /// Allocates contiguous frames that hold so many bytes.
    pub(crate) fn alloc_range(
        &self,
        bytes: usize,
        align: usize,
        wish: &Wish,
    ) -> Result<*mut c_void> {
        if wish.nowait {
            return Err(FREEHOLD_EINVAL);
        }
        if bytes == 0 {
            return Err(FREEHOLD_ESIZE);
        }
        let base = self.frames.base().addr().get();
        if align != 0 && (!align.is_power_of_two() || base & (align - 1) != 0) {
            return Err(FREEHOLD_EALIGN);
        }
        let align = FrameCount::new(self.frames_of(align).get().max(1));
        let request = RangeRequest::new(self.frames_of(bytes)).align(align);
        let first = self.frames.allocator().alloc_range(wish.range(request), &Immovable)?;
        self.join(first, self.frames_of(bytes));
        Ok(self.address(first))
    }

    /// Makes one allocation of the blocks that a range consists of.
    fn join(&self, first: Pfn, frames: FrameCount) {
        let end = first.offset(frames);
        let block = |pfn| self.frames.allocator().order_of(pfn).expect("a block of the range");
        let mut next = first.offset(block(first).frames());
        while next < end {
            self.stretches.join(next);
            next = next.offset(block(next).frames());
        }
    }

    /// Allocates blocks of one order into `blocks`; returns how many.
    pub(crate) fn alloc_bulk(
        &self,
        order: u32,
        wish: &Wish,
        mut put: impl FnMut(usize, *mut c_void),
        count: usize,
    ) -> Result<usize> {
        let (mut chunk, mut got) = ([Pfn::default(); CHUNK], 0);
        while got < count {
            let chunk = &mut chunk[..CHUNK.min(count - got)];
            let request = wish.request(order_of(order));
            let more = self.frames.allocator().alloc_bulk(request, chunk)?;
            for &pfn in &chunk[..more] {
                put(got, self.address(pfn));
                got += 1;
            }
            if more < chunk.len() {
                break;
            }
        }
        if got == 0 && count > 0 { Err(FREEHOLD_ENOMEM) } else { Ok(got) }
    }

    /// The first block of the allocation that begins at an address.
    #[inline]
    fn block_at(&self, address: *const c_void) -> Result<(Pfn, Order)> {
        if address.is_null() {
            return Err(FREEHOLD_ENULL);
        }
        let pfn = self.frames.pfn_of(address).ok_or(FREEHOLD_EFOREIGN)?;
        let order = match self.frames.allocator().status(pfn) {
            FrameStatus::Allocated { first, order } if first == pfn => order,
            FrameStatus::Allocated { .. } => return Err(FREEHOLD_EINTERIOR),
            FrameStatus::Free => return Err(FREEHOLD_EDOUBLEFREE),
            _ => return Err(FREEHOLD_EFOREIGN),
        };
        // Frames lie at multiples of their size in memory, too.
        let is_inside = address.addr() & (self.frames.frame_size().bytes() - 1) != 0;
        if is_inside || self.stretches.continues(pfn) {
            return Err(FREEHOLD_EINTERIOR);
        }
        Ok((pfn, order))
    }

    /// The first block of the allocation that begins at an address, and how many frames the
    /// allocation has.
    fn allocation_at(&self, address: *const c_void) -> Result<(Pfn, Order, FrameCount)> {
        let (first, order) = self.block_at(address)?;
        let mut end = first.offset(order.frames());
        while self.stretches.continues(end) {
            let Some(order) = self.frames.allocator().order_of(end) else { break };
            end = end.offset(order.frames());
        }
        Ok((first, order, end.frames_above(first).unwrap_or_default()))
    }

    /// The size of the allocation that begins at an address.
    pub(crate) fn usable_bytes(&self, address: *const c_void) -> Result<usize> {
        let (_, _, frames) = self.allocation_at(address)?;
        Ok(self.bytes_of(frames))
    }

    /// Frees the allocation at an address, each of its blocks by `free`.
    #[inline]
    pub(crate) fn free_by(
        &self,
        address: *const c_void,
        free: impl Fn(Pfn, Order) -> std::result::Result<(), freehold::Error>,
    ) -> Result<()> {
        let (pfn, order) = self.block_at(address)?;
        if self.stretches.continues(pfn.offset(order.frames())) {
            self.free_rest(pfn.offset(order.frames()), &free)?;
        }
        // The first block goes last: of two calls that race, one gets it, and the other an error.
        Ok(free(pfn, order)?)
    }

    /// Frees the blocks that continue an allocation. Each is freed by who parts it from the one
    /// before it, so that none is freed twice, or not at all, if calls race.
    #[cold]
    fn free_rest(
        &self,
        mut next: Pfn,
        free: &impl Fn(Pfn, Order) -> std::result::Result<(), freehold::Error>,
    ) -> Result<()> {
        while self.stretches.part(next) {
            let order = self.frames.allocator().order_of(next).ok_or(FREEHOLD_ECORRUPT)?;
            free(next, order)?;
            next = next.offset(order.frames());
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn free(&self, address: *const c_void) -> Result<()> {
        self.free_by(address, |pfn, order| self.frames.free(pfn, order))
    }

    /// Frees without getting a lease, for which the C library would allocate memory.
    pub(crate) fn free_nowait(&self, address: *const c_void) -> Result<()> {
        self.free_by(address, |pfn, order| self.frames.allocator().free(pfn, order))
    }

    /// Frees an allocation if it has the size that is asked for with so many bytes.
    pub(crate) fn free_sized(&self, address: *const c_void, bytes: usize) -> Result<()> {
        let (_, order, frames) = self.allocation_at(address)?;
        let wanted = self.frames_of(bytes);
        let is_block = order.frames() == frames && Order::covering(wanted) == order;
        if wanted == FrameCount::ZERO || wanted != frames && !is_block {
            return Err(FREEHOLD_ESIZE);
        }
        self.free(address)
    }

    /// Frees allocations; returns how many, and why no more.
    pub(crate) fn free_bulk(
        &self,
        count: usize,
        mut at: impl FnMut(usize) -> *const c_void,
    ) -> (usize, Result<()>) {
        let (mut chunk, mut held, mut order, mut freed) = ([Pfn::default(); CHUNK], 0, None, 0);
        let flush = |chunk: &[Pfn], order: Option<Order>| match order {
            Some(order) => self.frames.allocator().free_bulk(chunk, order),
            None => Ok(()),
        };
        for index in 0..=count {
            let address = if index < count { at(index) } else { std::ptr::null() };
            let next = self.block_at(address);
            // Blocks of one order are freed together; others, and ranges, one by one.
            let fits = next.is_ok_and(|(pfn, of)| {
                order.is_none_or(|order| order == of)
                    && !self.stretches.continues(pfn.offset(of.frames()))
            });
            if !fits || held == CHUNK {
                if let Err(error) = flush(&chunk[..held], order) {
                    return (freed + error.freed, Err(error.error.into()));
                }
                (freed, held, order) = (freed + held, 0, None);
            }
            match next {
                _ if index == count => {}
                Err(error) => return (freed, Err(error)),
                Ok((pfn, of)) if !self.stretches.continues(pfn.offset(of.frames())) => {
                    (chunk[held], order) = (pfn, Some(of));
                    held += 1;
                }
                Ok(_) => match self.free(address) {
                    Ok(()) => freed += 1,
                    Err(error) => return (freed, Err(error)),
                },
            }
        }
        (freed, Ok(()))
    }

    /// The frames of memory that a caller has allocated, all of them.
    pub(crate) fn owned(&self, address: *const c_void, bytes: usize) -> Result<(Pfn, FrameCount)> {
        if address.is_null() {
            return Err(FREEHOLD_ENULL);
        }
        let mask = self.frames.frame_size().bytes() - 1;
        let first = self.frames.pfn_of(address).ok_or(FREEHOLD_EFOREIGN)?;
        if address.addr() & mask != 0 {
            return Err(FREEHOLD_EALIGN);
        }
        let offset = address.addr() - self.frames.base().addr().get();
        if bytes == 0 || bytes & mask != 0 || bytes > self.frames.capacity_bytes() - offset {
            return Err(FREEHOLD_ESIZE);
        }
        let end = first.offset(self.frames_of(bytes));
        let mut next = first;
        while next < end {
            next = match self.frames.allocator().status(next) {
                FrameStatus::Allocated { first, order } => first.offset(order.frames()),
                FrameStatus::Free => return Err(FREEHOLD_EDOUBLEFREE),
                _ => return Err(FREEHOLD_EFOREIGN),
            };
        }
        Ok((first, self.frames_of(bytes)))
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.frames.base()
    }
}

/// The order with this number. Numbers too large stay so.
#[inline]
fn order_of(number: u32) -> Order {
    Order::new(number.min(63) as u8)
}

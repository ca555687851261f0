//! An arena as C sees it: memory by addresses, freed by its address alone. No unsafe code: what a
//! wrong pointer leads to is an error.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::designs::Freehold;
use freehold::{Design, FrameCount, FrameStatus, Immovable, Order, Pfn, RangeRequest, Request};
use freehold_host::{FrameArena, Host, Leases};

use crate::args::Wish;
use crate::error::freehold_error::*;
use crate::error::{Result, explained, freehold_error};
use crate::heads::{Head, Heads};

/// An arena: memory that is given out by pages. A handle never changes, so all functions take it as
/// const.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct freehold_arena {
    pub(crate) frames: FrameArena,
    heads: Heads,
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
        let cpus = match frames.leases() {
            Leases::Auto => frames.spare_leases(),
            Leases::Off => frames.allocator().cpus(),
        } as u32;
        freehold_arena { frames, heads: Heads::new(capacity), purged: AtomicU64::new(0), cpus }
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
    fn address(&self, pfn: Pfn) -> *mut c_void {
        self.frames.address_of(pfn).as_ptr().cast()
    }

    /// The address of a block that was allocated just now.
    #[inline]
    pub(crate) fn give(&self, pfn: Pfn, order: Order) -> *mut c_void {
        self.heads.put(pfn, Head::block(order));
        self.address(pfn)
    }

    fn frames_of(&self, bytes: usize) -> FrameCount {
        FrameCount::from_bytes(bytes, self.frames.frame_size())
    }

    fn bytes_of(&self, frames: FrameCount) -> usize {
        self.frames.frame_size().bytes_of(frames)
    }

    /// Allocates a block, however chosen.
    #[inline]
    pub(crate) fn alloc_any(&self, order: Order) -> Result<*mut c_void> {
        Ok(self.give(self.frames.alloc(Request::new(order))?, order))
    }

    /// Allocates a block. One that may not wait takes no lease either, for which the C library
    /// would allocate memory.
    #[inline]
    pub(crate) fn alloc(&self, order: u32, wish: &Wish) -> Result<*mut c_void> {
        let order = order_of(order);
        let request = wish.request(order);
        let pfn = if wish.nowait {
            self.frames.allocator().alloc(request)?
        } else {
            self.frames.alloc(request)?
        };
        Ok(self.give(pfn, order))
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
            return self.alloc_any(order);
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
        let order_at = |pfn| self.frames.allocator().order_of(pfn).expect("a block of the range");
        self.heads.put_range(first, self.frames_of(bytes), order_at);
        Ok(self.address(first))
    }

    /// Allocates blocks of one order into `blocks`; returns how many.
    pub(crate) fn alloc_bulk(
        &self,
        order: u32,
        wish: &Wish,
        mut put: impl FnMut(usize, *mut c_void),
        count: usize,
    ) -> Result<usize> {
        let (mut chunk, mut got, order) = ([Pfn::default(); CHUNK], 0, order_of(order));
        while got < count {
            let chunk = &mut chunk[..CHUNK.min(count - got)];
            let request = wish.request(order);
            let more = self.frames.allocator().alloc_bulk(request, chunk)?;
            for &pfn in &chunk[..more] {
                put(got, self.give(pfn, order));
                got += 1;
            }
            if more < chunk.len() {
                break;
            }
        }
        if got == 0 && count > 0 { Err(FREEHOLD_ENOMEM) } else { Ok(got) }
    }

    /// The allocation that begins at an address.
    #[inline]
    fn head_at(&self, address: *const c_void) -> Result<(Pfn, Head)> {
        // Frames lie at multiples of their size in memory, too.
        let is_inside = address.addr() & (self.frames.frame_size().bytes() - 1) != 0;
        match self.frames.pfn_of(address) {
            Some(pfn) if !is_inside => match self.heads.first(pfn) {
                Some(head) => Ok((pfn, head)),
                None => Err(self.why_none(address)),
            },
            _ => Err(self.why_none(address)),
        }
    }

    /// Why no allocation begins at an address.
    #[cold]
    fn why_none(&self, address: *const c_void) -> freehold_error {
        if address.is_null() {
            return FREEHOLD_ENULL;
        }
        let Some(pfn) = self.frames.pfn_of(address) else { return FREEHOLD_EFOREIGN };
        match self.frames.allocator().status(pfn) {
            // Another call is freeing it at this moment.
            FrameStatus::Allocated { first, .. } if self.heads.part(first).is_none() => {
                FREEHOLD_EDOUBLEFREE
            }
            FrameStatus::Allocated { .. } => FREEHOLD_EINTERIOR,
            FrameStatus::Free => FREEHOLD_EDOUBLEFREE,
            _ => FREEHOLD_EFOREIGN,
        }
    }

    /// How many frames an allocation has.
    fn frames_at(&self, first: Pfn, head: Head) -> FrameCount {
        let (mut end, mut last) = (first.offset(head.order().frames()), head);
        while last.goes_on() {
            let Some(next) = self.heads.part(end) else { break };
            (end, last) = (end.offset(next.order().frames()), next);
        }
        end.frames_above(first).unwrap_or_default()
    }

    /// The size of the allocation that begins at an address.
    pub(crate) fn usable_bytes(&self, address: *const c_void) -> Result<usize> {
        let (first, head) = self.head_at(address)?;
        Ok(self.bytes_of(self.frames_at(first, head)))
    }

    /// Frees the allocation at an address, each of its blocks by `free`.
    #[inline]
    pub(crate) fn free_by(
        &self,
        address: *const c_void,
        free: impl Fn(Pfn, Order) -> std::result::Result<(), freehold::Error>,
    ) -> Result<()> {
        let (pfn, head) = self.head_at(address)?;
        Ok(self.heads.free(pfn, head, free)?)
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
        let (pfn, head) = self.head_at(address)?;
        let (wanted, frames) = (self.frames_of(bytes), self.frames_at(pfn, head));
        let is_block = !head.goes_on() && Order::covering(wanted) == head.order();
        if wanted == FrameCount::ZERO || wanted != frames && !is_block {
            return Err(FREEHOLD_ESIZE);
        }
        self.free(address)
    }

    /// Frees allocations; returns how many, and why no more.
    pub(crate) fn free_bulk(
        &self,
        count: usize,
        at: impl Fn(usize) -> *const c_void,
    ) -> (usize, Result<()>) {
        let (mut chunk, mut freed) = ([Pfn::default(); CHUNK], 0);
        while freed < count {
            let (pfn, head) = match self.head_at(at(freed)) {
                Ok((_, head)) if head.goes_on() => match self.free(at(freed)) {
                    Ok(()) => {
                        freed += 1;
                        continue;
                    }
                    Err(error) => return (freed, Err(error)),
                },
                Ok(found) => found,
                Err(error) => return (freed, Err(error)),
            };
            // Blocks of one order are freed together.
            chunk[0] = pfn;
            let mut held = usize::from(self.heads.take(pfn, head));
            while held > 0 && held < CHUNK.min(count - freed) {
                match self.head_at(at(freed + held)) {
                    Ok((pfn, other)) if other == head && self.heads.take(pfn, head) => {
                        chunk[held] = pfn;
                        held += 1;
                    }
                    _ => break,
                }
            }
            if held == 0 {
                return (freed, Err(FREEHOLD_EDOUBLEFREE));
            }
            if let Err(error) = self.frames.allocator().free_bulk(&chunk[..held], head.order()) {
                return (freed + error.freed, Err(error.error.into()));
            }
            freed += held;
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
pub(crate) fn order_of(number: u32) -> Order {
    Order::new(number.min(63) as u8)
}

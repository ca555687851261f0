//! Collections whose memory is an arena's: `allocator-api2`.
#![expect(unsafe_code, reason = "implements a trait that is unsafe to implement")]

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};
use freehold_host::designs::Freehold;
use freehold_host::{
    Arena, Design, Error, FrameCount, FrameStatus, Host, Order, PageRange, Pages, Pfn, RangeRequest,
};

/// An allocator of collections in an [`Arena`], for few and large ones: every allocation takes
/// whole frames.
///
/// It takes as many frames as the size needs, whatever the order of the block that they come from,
/// and grows by the frames behind it where these are free and copying would cost more.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use freehold_adapters::ArenaAllocator;
/// use freehold_host::Arena;
///
/// let arena = Arena::builder().bytes(64 << 20).build()?;
/// let mut column = Vec::<u64, _>::with_capacity_in(1 << 20, ArenaAllocator::new(&arena));
/// column.extend(0..1 << 20);
/// assert!(arena.contains(column.as_ptr()));
/// # Ok::<(), freehold_host::HostError>(())
/// ```
#[derive(Debug)]
pub struct ArenaAllocator<'a, D: Design<Host> = Freehold<Host>> {
    arena: &'a Arena<D>,
}

impl<D: Design<Host>> Clone for ArenaAllocator<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Design<Host>> Copy for ArenaAllocator<'_, D> {}

impl<'a, D: Design<Host>> ArenaAllocator<'a, D> {
    /// An allocator in `arena`.
    pub const fn new(arena: &'a Arena<D>) -> Self {
        ArenaAllocator { arena }
    }

    fn frames(&self, bytes: usize) -> FrameCount {
        FrameCount::from_bytes(bytes, self.arena.frame_size())
    }

    fn slice(&self, first: Pfn, frames: FrameCount) -> NonNull<[u8]> {
        let bytes = self.arena.frame_size().bytes_of(frames);
        NonNull::slice_from_raw_parts(self.arena.address_of(first), bytes)
    }

    /// Frames at a multiple of `align` bytes.
    fn take(&self, frames: FrameCount, align: usize) -> Result<Pfn, Error> {
        let align = self.frames(align);
        match self.arena.allocate(Order::covering(frames.max(align))) {
            Ok(pages) if pages.frames() == frames => Ok(pages.into_raw().0),
            Ok(pages) => {
                let mut range = PageRange::from(pages);
                range.trim(frames);
                Ok(range.into_raw().0)
            }
            // The largest orders are for ranges.
            Err(Error::OrderTooLarge) => {
                let range = self.arena.allocate_range(RangeRequest::new(frames).align(align))?;
                Ok(range.into_raw().0)
            }
            Err(error) => Err(error),
        }
    }

    /// The owner of an allocation.
    ///
    /// # Safety
    ///
    /// These frames are an allocation of this arena, which the caller owns.
    unsafe fn own(&self, memory: NonNull<u8>, frames: FrameCount) -> PageRange<'a, D> {
        let first = self.arena.pfn_of(memory.as_ptr()).expect("memory of this arena");
        // SAFETY: as the caller promises.
        unsafe { PageRange::from_raw(self.arena, first, frames) }
    }

    /// Takes the frames that follow, if they are free, where that costs less than a copy.
    fn grow_in_place(&self, first: Pfn, old: FrameCount, new: FrameCount) -> bool {
        let (next, more, last) = (first + old, new - old, first + (new - FrameCount::new(1)));
        let is_worth_it = old >= Order::PAGEBLOCK.frames();
        let is_free = |pfn: Pfn| self.arena.status(pfn) == FrameStatus::Free;
        if !is_worth_it || !is_free(next) || !is_free(last) {
            return false;
        }
        // The memory of the next node may follow without a gap: no range can have frames of both.
        let is_of_one_node = self.arena.ranges().iter().any(|range| {
            range.start <= first && last < range.start + range.frames //
        });
        if !is_of_one_node {
            return false;
        }
        let range = self.arena.allocate_range(RangeRequest::new(more).at(next));
        range.map(PageRange::into_raw).is_ok()
    }

    /// Moves content to a new allocation, as much of it as fits.
    ///
    /// # Safety
    ///
    /// `memory` is allocated here with the layout `old`, and gone then.
    unsafe fn move_to(
        &self,
        memory: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let to = self.allocate(new)?;
        let bytes = old.size().min(new.size());
        // SAFETY: both are at least that long, and different allocations.
        unsafe { memory.copy_to_nonoverlapping(to.cast(), bytes) };
        // SAFETY: as the caller promises.
        unsafe { self.deallocate(memory, old) };
        Ok(to)
    }
}

// SAFETY: what is allocated stays so until it is freed here, since the arena is borrowed as long as
// this allocator or a copy of it exists, and lets nobody free what belongs to an owner.
unsafe impl<D: Design<Host>> Allocator for ArenaAllocator<'_, D> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let dangling = NonNull::new(ptr::without_provenance_mut(layout.align()));
            let dangling = dangling.expect("an alignment is not zero");
            return Ok(NonNull::slice_from_raw_parts(dangling, 0));
        }
        let frames = self.frames(layout.size());
        let first = self.take(frames, layout.align()).map_err(|_| AllocError)?;
        let memory = self.slice(first, frames);
        if !memory.cast::<u8>().addr().get().is_multiple_of(layout.align()) {
            // The arena itself is not so aligned.
            // SAFETY: allocated just now.
            drop(unsafe { self.own(memory.cast(), frames) });
            return Err(AllocError);
        }
        Ok(memory)
    }

    /// # Safety
    ///
    /// As the trait has it.
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        let frames = self.frames(layout.size());
        // SAFETY: as the caller promises.
        let range = unsafe { self.own(memory, frames) };
        let order = Order::covering(frames);
        // Faster. What grows in place has a pageblock at least, so this is one block or a part.
        if frames == order.frames() && order < Order::PAGEBLOCK && range.pfn().is_aligned(order) {
            let (first, _) = range.into_raw();
            // SAFETY: these frames are the caller's.
            drop(unsafe { Pages::from_raw(self.arena, first, order) });
        }
    }

    /// # Safety
    ///
    /// As the trait has it.
    unsafe fn grow(
        &self,
        memory: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let (old_frames, new_frames) = (self.frames(old.size()), self.frames(new.size()));
        if let Some(first) = self.arena.pfn_of(memory.as_ptr())
            && old.size() > 0
            && memory.addr().get().is_multiple_of(new.align())
            && (old_frames == new_frames || self.grow_in_place(first, old_frames, new_frames))
        {
            return Ok(self.slice(first, new_frames));
        }
        // SAFETY: as the caller promises.
        unsafe { self.move_to(memory, old, new) }
    }

    /// # Safety
    ///
    /// As the trait has it.
    unsafe fn shrink(
        &self,
        memory: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if new.size() > 0 && memory.addr().get().is_multiple_of(new.align()) {
            let frames = self.frames(new.size());
            // SAFETY: as the caller promises.
            let mut range = unsafe { self.own(memory, self.frames(old.size())) };
            range.trim(frames);
            return Ok(self.slice(range.into_raw().0, frames));
        }
        // SAFETY: as the caller promises.
        unsafe { self.move_to(memory, old, new) }
    }
}

//! Frames for page tables and mappings: `x86_64::structures::paging`.
#![expect(unsafe_code, reason = "implements a trait that is unsafe to implement")]

use core::fmt;

use freehold::platform::Platform;
use freehold::{Design, MigrateType, Order, PageAllocator, Pfn, Request};
use x86_64::PhysAddr;
use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

/// Frames of an allocator for `x86_64::structures::paging`: of 4 KiB, 2 MiB and 1 GiB.
///
/// A `Mapper` takes the frames of its page tables from it. Content is unmovable by default, as page
/// tables are. `None` does not say why: what reclaims memory calls the allocator itself.
pub struct PagingFrames<'a, P: Platform, D: Design<P>> {
    allocator: &'a PageAllocator<P, D>,
    request: Request,
}

impl<'a, P: Platform, D: Design<P>> PagingFrames<'a, P, D> {
    /// Frames of `allocator`, whose frame 0 is at the physical address 0.
    ///
    /// # Safety
    ///
    /// Frames that came from here are freed only when they are not in use any more: the front door
    /// of the allocator, which is safe to call, frees any frame that is allocated.
    pub const unsafe fn new(allocator: &'a PageAllocator<P, D>) -> Self {
        let request = Request::new(Order::ZERO).migratetype(MigrateType::Unmovable);
        PagingFrames { allocator, request }
    }

    /// The same frames by another request: its migratetype, node, watermark and whether it waits.
    /// Its order does not matter.
    #[must_use]
    pub const fn with_request(self, request: Request) -> Self {
        PagingFrames { request, ..self }
    }

    /// The allocator's number of a frame, for its calls.
    pub fn pfn_of<S: PageSize>(&self, frame: PhysFrame<S>) -> Pfn {
        Pfn::from_address(frame.start_address().as_u64(), self.allocator.frame_size())
    }

    fn order_of<S: PageSize>(&self) -> Order {
        Order::from_bytes(S::SIZE as usize, self.allocator.frame_size())
    }
}

// SAFETY: the allocator hands out no block again before it is freed, and blocks do not overlap.
// That none is freed while it is in use is the contract of `PagingFrames::new`.
unsafe impl<S: PageSize, P: Platform, D: Design<P>> FrameAllocator<S> for PagingFrames<'_, P, D> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        let order = self.order_of::<S>();
        let pfn = self.allocator.alloc(self.request.with_order(order)).ok()?;
        let address = pfn.address(self.allocator.frame_size())?;
        // Blocks are aligned to their size.
        PhysFrame::from_start_address(PhysAddr::try_new(address).ok()?).ok()
    }
}

impl<S: PageSize, P: Platform, D: Design<P>> FrameDeallocator<S> for PagingFrames<'_, P, D> {
    /// # Safety
    ///
    /// As the trait has it.
    ///
    /// # Panics
    ///
    /// If no block of this size is allocated there.
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        let freed = self.allocator.free(self.pfn_of(frame), self.order_of::<S>());
        assert!(freed.is_ok(), "no frame of this size is allocated there");
    }
}

impl<P: Platform, D: Design<P>> fmt::Debug for PagingFrames<'_, P, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagingFrames").field("request", &self.request).finish_non_exhaustive()
    }
}

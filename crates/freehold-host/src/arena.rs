//! An allocator on real memory that hands out owned memory.

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use freehold::designs::Freehold;
use freehold::{
    Census, CpuId, Design, Error, Events, FrameCount, FrameSize, FrameStatus, Immovable,
    MemoryRange, Order, Pfn, RangeRequest, Request, Violation, ZoneStats,
};
use freehold_lru::{LruSettings, Owner};

use crate::{
    ArenaBuilder, FrameArena, Host, HostError, HostLru, Leases, OwnedPageRange, OwnedPages,
    PageRange, Pages, Placement, Snapshot,
};

/// A page allocator with its memory: reserves address space, spreads it over the machine's memory
/// nodes, and hands out [`Pages`] that free themselves.
///
/// An arena is shared by reference, with scoped threads or an `Arc`. All methods may be called
/// from any thread at any time; allocation costs what the design's front door costs.
///
/// # Why there is no way to the front door
///
/// Freeing a frame by its number is safe, and would free the memory under a live [`Pages`]. An
/// arena therefore keeps its front door to itself and offers what cannot take memory from an
/// owner. [`Arena::into_frames`] and [`ArenaBuilder::build_frames`] give a [`FrameArena`], whose
/// front door is open and whose memory is reached through raw pointers.
pub struct Arena<D: Design<Host> = Freehold<Host>> {
    frames: FrameArena<D>,
}

impl Arena {
    /// A builder for the default design; [`ArenaBuilder::new`] is the same for any design.
    pub fn builder() -> ArenaBuilder {
        ArenaBuilder::new()
    }
}

impl<D: Design<Host>> Arena<D> {
    /// Takes a ground whose front door nobody has used yet.
    pub(crate) fn from_new_frames(frames: FrameArena<D>) -> Self {
        Arena { frames }
    }

    pub(crate) fn frames(&self) -> &FrameArena<D> {
        &self.frames
    }

    /// Opens the front door: from now on frames are bare numbers. Blocks given up by
    /// [`Pages::into_raw`] stay allocated.
    pub fn into_frames(self) -> FrameArena<D> {
        self.frames
    }

    /// Allocates a block of `1 << order` frames for movable content, from the nearest node. Its
    /// content is unspecified.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::BelowWatermark`] or [`Error::OrderTooLarge`].
    #[inline]
    pub fn allocate(&self, order: Order) -> Result<Pages<'_, D>, Error> {
        self.allocate_with(Request::new(order))
    }

    /// Allocates a block like [`Arena::allocate`] and fills it with zeroes, which costs about
    /// 40 ns a frame in the cache, 150 ns in memory, and a page fault where it was never touched.
    ///
    /// # Errors
    ///
    /// As for [`Arena::allocate`].
    pub fn allocate_zeroed(&self, order: Order) -> Result<Pages<'_, D>, Error> {
        let mut pages = self.allocate(order)?;
        pages.fill(0);
        Ok(pages)
    }

    /// Allocates a block that keeps the arena, for values that outlive a borrow of it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use freehold::Request;
    /// use freehold_host::Arena;
    ///
    /// let arena = Arc::new(Arena::builder().bytes(16 << 20).build()?);
    /// let mut page = arena.allocate_owned(Request::default())?;
    /// drop(arena);
    /// page.fill(1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Arena::allocate_with`].
    #[inline]
    pub fn allocate_owned(self: &Arc<Self>, request: Request) -> Result<OwnedPages<D>, Error> {
        let pfn = self.frames.alloc(request)?;
        Ok(OwnedPages::own(Arc::clone(self), pfn, request.order()))
    }

    /// Allocates a block as the request says: its migratetype, node and watermark.
    ///
    /// # Errors
    ///
    /// As for [`Arena::allocate`], and [`Error::UnknownNode`] or [`Error::UnknownZone`] if the
    /// request names what the arena does not have. All memory of an arena is in normal zones.
    #[inline]
    pub fn allocate_with(&self, request: Request) -> Result<Pages<'_, D>, Error> {
        let pfn = self.frames.alloc(request)?;
        Ok(Pages::own(self, pfn, request.order()))
    }

    /// Allocates any number of contiguous frames, beyond the largest order too: a guest's RAM of
    /// 3 GiB, say. An alignment is one of addresses as far as [`Arena::base`] has it.
    ///
    /// ```
    /// use freehold_host::{Arena, FrameCount, FrameSize, RangeRequest};
    ///
    /// let arena = Arena::builder().bytes(16 << 20).build()?;
    /// let frames = FrameCount::from_bytes(5_000_000, FrameSize::DEFAULT);
    /// let mut range = arena.allocate_range(RangeRequest::new(frames))?;
    /// range.fill(1);
    /// # Ok::<(), freehold_host::HostError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc_range`](freehold::PageAllocator::alloc_range). No content
    /// moves, so [`Error::RangeBusy`] means that no stretch of free frames is long enough.
    pub fn allocate_range(&self, request: RangeRequest) -> Result<PageRange<'_, D>, Error> {
        let pfn = self.frames.allocator().alloc_range(request, &Immovable)?;
        Ok(PageRange::own(self, pfn, request.frames()))
    }

    /// The same for a range that keeps the arena.
    ///
    /// # Errors
    ///
    /// As for [`Arena::allocate_range`].
    pub fn allocate_range_owned(
        self: &Arc<Self>,
        request: RangeRequest,
    ) -> Result<OwnedPageRange<D>, Error> {
        let pfn = self.frames.allocator().alloc_range(request, &Immovable)?;
        Ok(OwnedPageRange::own(Arc::clone(self), pfn, request.frames()))
    }

    /// Gives the memory of free frames back to the machine, and returns of how many. See
    /// [`FrameArena::purge`].
    ///
    /// # Errors
    ///
    /// As for [`FrameArena::purge`].
    pub fn purge(&self) -> Result<FrameCount, HostError> {
        self.frames.purge()
    }

    /// Creates an LRU for the frames of this arena, whose contents belong to `owner`. See
    /// [`FrameArena::lru`]. The owner keeps the [`OwnedPages`] of what is cached, and drops those
    /// that it is asked to release.
    ///
    /// # Errors
    ///
    /// As for [`FrameArena::lru`].
    pub fn lru<O: Owner>(&self, settings: &LruSettings, owner: O) -> Result<HostLru<O>, HostError> {
        self.frames.lru(settings, owner)
    }

    /// Adds memory within [`ArenaBuilder::capacity_bytes`]. See [`FrameArena::grow`].
    ///
    /// # Errors
    ///
    /// As for [`FrameArena::grow`].
    pub fn grow(&self, bytes: usize) -> Result<Vec<MemoryRange>, HostError> {
        self.frames.grow(bytes)
    }

    /// Takes memory away, if it is free. See [`FrameArena::shrink`].
    ///
    /// # Errors
    ///
    /// As for [`FrameArena::shrink`].
    pub fn shrink(&self, bytes: usize) -> Result<Vec<MemoryRange>, HostError> {
        self.frames.shrink(bytes, &Immovable)
    }

    /// Returns the frames that all CPUs keep to themselves to their zones, where they merge. See
    /// [`PageAllocator::drain_all`](freehold::PageAllocator::drain_all).
    pub fn drain(&self) {
        self.frames.allocator().drain_all();
    }

    /// Periodic upkeep of one CPU. See [`PageAllocator::tick`](freehold::PageAllocator::tick).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`].
    pub fn tick(&self, cpu: CpuId) -> Result<(), Error> {
        self.frames.allocator().tick(cpu)
    }

    /// The state of every zone: one for each node that the arena spreads over.
    pub fn zones(&self) -> impl Iterator<Item = ZoneStats> + '_ {
        self.frames.allocator().zones()
    }

    /// What has happened since the arena was built. Exact whenever no call is under way.
    pub fn events(&self) -> Events {
        self.frames.allocator().events()
    }

    /// What the allocator knows of itself, for people and for those who watch over machines.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.frames.allocator())
    }

    /// Checks every invariant of the allocator's books and says where the frames are. Visits every
    /// frame with locks held. See [`PageAllocator::validate`](freehold::PageAllocator::validate).
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found: a defect of the allocator.
    pub fn validate(&self) -> Result<Census, Violation> {
        self.frames.allocator().validate()
    }

    /// The memory that the arena manages now, free or not: a range for each node.
    pub fn ranges(&self) -> Vec<MemoryRange> {
        self.frames.ranges()
    }

    /// How much memory the arena manages now, free or not.
    pub fn total_frames(&self) -> FrameCount {
        self.frames.total_frames()
    }

    /// The size of a frame.
    #[inline]
    pub fn frame_size(&self) -> FrameSize {
        self.frames.frame_size()
    }

    /// How much address space the allocator's metadata has, in bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.frames.metadata_bytes()
    }

    /// Whether threads get leases by themselves. See [`FrameArena::leases`].
    pub fn leases(&self) -> Leases {
        self.frames.leases()
    }

    /// The file behind the memory, if there is one. See [`FrameArena::file`].
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.frames.file()
    }

    /// Where the memory comes from.
    pub fn placement(&self) -> &Placement {
        self.frames.placement()
    }

    /// The address of frame 0.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.frames.base()
    }

    /// How much address space the arena has from [`Arena::base`] on, in bytes.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        self.frames.capacity_bytes()
    }

    /// Whether an address lies in the arena's address space.
    #[inline]
    pub fn contains<T: ?Sized>(&self, address: *const T) -> bool {
        self.frames.contains(address)
    }

    /// The frame in which an address lies; `None` if the arena does not contain it.
    #[inline]
    pub fn pfn_of<T: ?Sized>(&self, address: *const T) -> Option<Pfn> {
        self.frames.pfn_of(address)
    }

    /// What a frame is, and which block it is part of. See
    /// [`PageAllocator::status`](freehold::PageAllocator::status).
    pub fn status(&self, pfn: Pfn) -> FrameStatus {
        self.frames.allocator().status(pfn)
    }

    /// The address of a frame, for instance to hand it to a device. See
    /// [`FrameArena::address_of`].
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn address_of(&self, pfn: Pfn) -> NonNull<u8> {
        self.frames.address_of(pfn)
    }
}

// A panic in a call, such as one of an owner whose content moves, leaves the accounting as it was
// before or after: see the crate's documentation.
impl<D: Design<Host>> UnwindSafe for Arena<D> {}
impl<D: Design<Host>> RefUnwindSafe for Arena<D> {}

impl<D: Design<Host>> fmt::Debug for Arena<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arena").field(&self.frames).finish()
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Arena>();
};

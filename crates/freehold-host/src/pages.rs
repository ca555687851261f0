//! Owned memory of an arena.
#![expect(unsafe_code, reason = "makes slices from frames that the value owns")]

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::sync::Arc;

use freehold::designs::Freehold;
use freehold::{Design, Error, FrameCount, Order, Pfn};

use crate::{Arena, Host, HostError};

/// A block of memory, `1 << order` frames, that is borrowed from its [`Arena`] and freed on drop.
pub type Pages<'a, D = Freehold<Host>> = Block<&'a Arena<D>>;

/// A block of memory that keeps its arena: for values that outlive any borrow. Allocated by
/// [`Arena::allocate_owned`].
pub type OwnedPages<D = Freehold<Host>> = Block<Arc<Arena<D>>>;

/// Any number of contiguous frames, borrowed from their [`Arena`] and freed on drop. Allocated by
/// [`Arena::allocate_range`].
pub type PageRange<'a, D = Freehold<Host>> = Block<&'a Arena<D>, FrameCount>;

/// Any number of contiguous frames that keep their arena. Allocated by
/// [`Arena::allocate_range_owned`].
pub type OwnedPageRange<D = Freehold<Host>> = Block<Arc<Arena<D>>, FrameCount>;

/// How a block refers to its arena: by `&Arena` or by `Arc<Arena>`. Implemented for these alone.
pub trait ArenaRef: Deref<Target = Arena<Self::Design>> + private::Sealed {
    /// The design of the arena.
    type Design: Design<Host>;
}

/// How large a block is: an [`Order`], or a [`FrameCount`] that need not be a power of two.
/// Implemented for these alone.
///
/// Nothing here frees a block under its owner, in generic code neither:
///
/// ```compile_fail,E0599
/// use freehold_host::{Arena, Extent, Pfn};
///
/// fn free<S: Extent>(extent: S, arena: &Arena, pfn: Pfn) {
///     extent.free(arena, pfn);
/// }
/// ```
pub trait Extent: Copy + fmt::Debug + private::Sealed {
    /// How many frames.
    fn frames(self) -> FrameCount;

    /// The order, if it is one.
    fn order(self) -> Option<Order>;
}

impl Extent for Order {
    #[inline]
    fn frames(self) -> FrameCount {
        Order::frames(self)
    }

    #[inline]
    fn order(self) -> Option<Order> {
        Some(self)
    }
}

impl Extent for FrameCount {
    fn frames(self) -> FrameCount {
        self
    }

    fn order(self) -> Option<Order> {
        None
    }
}

/// Frees a block. No method of [`Extent`]: generic code can call what its supertraits have, private
/// ones too.
#[inline]
fn free<D: Design<Host>, S: Extent>(arena: &Arena<D>, pfn: Pfn, extent: S) -> Result<(), Error> {
    match extent.order() {
        Some(order) => arena.frames().free(pfn, order),
        None => arena.frames().allocator().free_range(pfn, extent.frames()),
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Order {}
    impl Sealed for super::FrameCount {}
    impl<D: super::Design<super::Host>> Sealed for &super::Arena<D> {}
    impl<D: super::Design<super::Host>> Sealed for super::Arc<super::Arena<D>> {}
}

impl<D: Design<Host>> ArenaRef for &Arena<D> {
    type Design = D;
}

impl<D: Design<Host>> ArenaRef for Arc<Arena<D>> {
    type Design = D;
}

/// A block of memory, freed on drop: [`Pages`] or [`OwnedPages`], of `1 << order` frames, or
/// [`PageRange`] or [`OwnedPageRange`], of any number.
///
/// It can be sent to and freed on any thread. The content is initialised, but unspecified: what the
/// last owner left, unless it was allocated zeroed.
pub struct Block<A: ArenaRef, S: Extent = Order> {
    arena: A,
    pfn: Pfn,
    extent: S,
}

impl<A: ArenaRef, S: Extent> Block<A, S> {
    /// The owner of a block that the arena has just allocated. Private to the crate, because only
    /// the arena may vouch for that.
    #[inline]
    pub(crate) fn own(arena: A, pfn: Pfn, extent: S) -> Self {
        Block { arena, pfn, extent }
    }

    /// The owner of a block that [`Block::into_raw`] gave up, or that the caller has otherwise
    /// allocated from the arena.
    ///
    /// # Safety
    ///
    /// The frames were allocated from `arena`: as one block of this order or a larger one, of which
    /// they are a part aligned to their size, or as frames of one node that make up this range.
    /// They are not free, and the caller owns them: no other `Block` covers any, and nothing uses
    /// their memory by other means.
    #[inline]
    pub unsafe fn from_raw(arena: A, pfn: Pfn, extent: S) -> Self {
        Block::own(arena, pfn, extent)
    }

    /// Gives up the ownership without freeing the block.
    #[inline]
    pub fn into_raw(self) -> (Pfn, S) {
        let (_, pfn, extent) = self.into_parts();
        (pfn, extent)
    }

    fn into_parts(self) -> (A, Pfn, S) {
        let block = ManuallyDrop::new(self);
        // SAFETY: The block is not dropped, so the reference to the arena moves out just once.
        let arena = unsafe { core::ptr::read(&block.arena) };
        (arena, block.pfn, block.extent)
    }

    /// The number of the first frame, counted from the start of the arena.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// How many frames the block has.
    #[inline]
    pub fn frames(&self) -> FrameCount {
        self.extent.frames()
    }

    /// The arena that it comes from.
    #[inline]
    pub fn arena(&self) -> &Arena<A::Design> {
        &self.arena
    }

    /// The address of the first byte, for devices, guests and system calls. It stays the same until
    /// the block is freed.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        self.arena.address_of(self.pfn)
    }

    /// The size in bytes: `len` of the slice, without a borrow of it.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.arena.frame_size().bytes_of(self.frames())
    }

    /// Gives the memory behind the block back to the machine, which takes one system call. The
    /// block stays owned and reads as zero; the next write to each page takes memory again.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlock`).
    pub fn discard(&mut self) -> Result<(), HostError> {
        // This value is borrowed exclusively, so no slice of the block is in use.
        self.arena.frames().discard(self.pfn, self.frames())
    }

    /// The same for some of its frames, from the one at `offset` on.
    ///
    /// # Errors
    ///
    /// As for [`Block::discard`].
    ///
    /// # Panics
    ///
    /// If the block has fewer frames.
    pub fn discard_part(
        &mut self,
        offset: FrameCount,
        frames: FrameCount,
    ) -> Result<(), HostError> {
        // SAFETY: This value is borrowed exclusively, so no slice of the block is in use.
        unsafe { self.discard_shared(offset, frames) }
    }

    /// The same for memory that others access by its address: devices, or a guest. To them it is a
    /// write of zeroes.
    ///
    /// # Safety
    ///
    /// No slice of these frames is in use.
    ///
    /// # Errors
    ///
    /// As for [`Block::discard`].
    ///
    /// # Panics
    ///
    /// If the block has fewer frames.
    pub unsafe fn discard_shared(
        &self,
        offset: FrameCount,
        frames: FrameCount,
    ) -> Result<(), HostError> {
        let left = self.frames().get().checked_sub(offset.get());
        assert!(left.is_some_and(|left| frames.get() <= left), "frames beyond the block");
        self.arena.frames().discard(self.pfn + offset, frames)
    }

    /// Takes the memory from the machine, by so many threads (at least one), so that no later
    /// access faults. The content stays as it is.
    ///
    /// # Errors
    ///
    /// As for [`FrameArena::prefault`](crate::FrameArena::prefault).
    pub fn prefault(&self, threads: usize) -> Result<(), HostError> {
        self.arena.frames().prefault(self.pfn, self.frames(), threads)
    }
}

impl<A: ArenaRef> Block<A> {
    /// The size of the block as an order.
    #[inline]
    pub fn order(&self) -> Order {
        self.extent
    }

    /// Splits the block into halves, which are freed one by one. Costs nothing. `Err` gives back a
    /// block of one frame, which has no halves.
    ///
    /// # Errors
    ///
    /// The block itself.
    pub fn split(self) -> Result<(Self, Self), Self>
    where
        A: Clone,
    {
        let Some(half) = self.extent.get().checked_sub(1).map(Order::new) else {
            return Err(self);
        };
        let (arena, pfn, _) = self.into_parts();
        let upper = Block::own(A::clone(&arena), pfn + half.frames(), half);
        Ok((Block::own(arena, pfn, half), upper))
    }

    /// Frees all but the first `1 << order` frames. A larger order changes nothing. Costs one free
    /// for each halving.
    pub fn trim(&mut self, order: Order) {
        while self.extent > order {
            self.extent = Order::new(self.extent.get() - 1);
            let freed = self.arena.frames().free(self.pfn + self.extent.frames(), self.extent);
            debug_assert_eq!(freed, Ok(()), "trimming {self:?}");
        }
    }
}

/// The same frames, to be split and trimmed anywhere.
impl<A: ArenaRef> From<Block<A>> for Block<A, FrameCount> {
    fn from(block: Block<A>) -> Self {
        let (arena, pfn, order) = block.into_parts();
        Block::own(arena, pfn, order.frames())
    }
}

impl<A: ArenaRef> Block<A, FrameCount> {
    /// Splits the range into its first `frames` and the rest, which are freed one by one. Costs
    /// nothing. `Err` gives back a range of which one part would be empty.
    ///
    /// # Errors
    ///
    /// The range itself.
    pub fn split_at(self, frames: FrameCount) -> Result<(Self, Self), Self>
    where
        A: Clone,
    {
        if frames == FrameCount::ZERO || frames >= self.extent {
            return Err(self);
        }
        let (arena, pfn, all) = self.into_parts();
        let upper = Block::own(A::clone(&arena), pfn + frames, all - frames);
        Ok((Block::own(arena, pfn, frames), upper))
    }

    /// Frees all but the first `frames`, of which one is left at least. A larger number changes
    /// nothing.
    pub fn trim(&mut self, frames: FrameCount) {
        let frames = frames.max(FrameCount::new(1));
        if frames < self.extent {
            let freed = free(&*self.arena, self.pfn + frames, self.extent - frames);
            debug_assert_eq!(freed, Ok(()), "trimming {self:?}");
            self.extent = frames;
        }
    }
}

impl<D: Design<Host>, S: Extent> Block<&'static Arena<D>, S> {
    /// The memory for as long as the process lives. [`Block::from_raw`] with
    /// [`Arena::pfn_of`] brings the block back.
    pub fn leak(self) -> &'static mut [u8] {
        let block = ManuallyDrop::new(self);
        let start = block.address();
        // SAFETY: The block is never freed, so the memory is the caller's alone; its arena lives as
        // long. It is initialised: see `deref`.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), block.bytes()) }
    }
}

impl<A: ArenaRef, S: Extent> Deref for Block<A, S> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.address();
        // SAFETY: This value owns the block, so nothing writes it while the shared borrow lasts: of
        // memory that others can reach, the caller of `build_shared` or `mapping` has promised so.
        // The block lies in the arena's mapping, which the arena keeps while it is referred to; its
        // bytes are initialised, because mappings start as zeroes, hold a file's content, or were
        // given as initialised.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), self.bytes()) }
    }
}

impl<A: ArenaRef, S: Extent> DerefMut for Block<A, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.address();
        // SAFETY: As in `deref`; the exclusive borrow keeps other uses of the block away.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), self.bytes()) }
    }
}

impl<A: ArenaRef, S: Extent> AsRef<[u8]> for Block<A, S> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<A: ArenaRef, S: Extent> AsMut<[u8]> for Block<A, S> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<A: ArenaRef, S: Extent> Borrow<[u8]> for Block<A, S> {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<A: ArenaRef, S: Extent> BorrowMut<[u8]> for Block<A, S> {
    fn borrow_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<A: ArenaRef, S: Extent> Drop for Block<A, S> {
    #[inline]
    fn drop(&mut self) {
        let freed = free(&*self.arena, self.pfn, self.extent);
        // Only a wrong promise to `from_raw` or a defect of the allocator leads here; the frames
        // are lost then, and panicking in a drop would turn a leak into an abort.
        debug_assert_eq!(freed, Ok(()), "freeing {:?}", (self.pfn, self.extent));
    }
}

impl<A: ArenaRef, S: Extent> fmt::Debug for Block<A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("pfn", &self.pfn)
            .field("extent", &self.extent)
            .finish_non_exhaustive()
    }
}

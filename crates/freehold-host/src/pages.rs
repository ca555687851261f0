//! Owned memory of an arena.
#![expect(unsafe_code, reason = "makes slices from frames that the value owns")]

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use freehold::designs::Freehold;
use freehold::{Design, Order, Pfn};

use crate::{Arena, Host, HostError};

/// A block of memory, `1 << order` frames, that is borrowed from its [`Arena`] and freed on drop.
pub type Pages<'a, D = Freehold<Host>> = Block<&'a Arena<D>>;

/// A block of memory that keeps its arena: for values that outlive any borrow. Allocated by
/// [`Arena::allocate_owned`].
pub type OwnedPages<D = Freehold<Host>> = Block<Arc<Arena<D>>>;

/// How a block refers to its arena: by `&Arena` or by `Arc<Arena>`. Implemented for these alone.
pub trait ArenaRef: Deref<Target = Arena<Self::Design>> + private::Sealed {
    /// The design of the arena.
    type Design: Design<Host>;
}

mod private {
    pub trait Sealed {}
    impl<D: super::Design<super::Host>> Sealed for &super::Arena<D> {}
    impl<D: super::Design<super::Host>> Sealed for super::Arc<super::Arena<D>> {}
}

impl<D: Design<Host>> ArenaRef for &Arena<D> {
    type Design = D;
}

impl<D: Design<Host>> ArenaRef for Arc<Arena<D>> {
    type Design = D;
}

/// A block of memory, `1 << order` frames, freed on drop: [`Pages`] or [`OwnedPages`].
///
/// It can be sent to and freed on any thread. The content is initialised, but unspecified: what the
/// last owner left, unless it was allocated zeroed.
pub struct Block<A: ArenaRef> {
    arena: A,
    pfn: Pfn,
    order: Order,
}

impl<A: ArenaRef> Block<A> {
    /// The owner of a block that the arena has just allocated. Private to the crate, because only
    /// the arena may vouch for that.
    #[inline]
    pub(crate) fn own(arena: A, pfn: Pfn, order: Order) -> Self {
        Block { arena, pfn, order }
    }

    /// The owner of a block that [`Block::into_raw`] gave up, or that the caller has otherwise
    /// allocated from the arena.
    ///
    /// # Safety
    ///
    /// The block was allocated from `arena` as one block of this order, it is not free, and the
    /// caller owns it: no other `Block` covers it, and nothing uses its memory by other means.
    #[inline]
    pub unsafe fn from_raw(arena: A, pfn: Pfn, order: Order) -> Self {
        Block::own(arena, pfn, order)
    }

    /// Gives up the ownership without freeing the block.
    #[inline]
    pub fn into_raw(self) -> (Pfn, Order) {
        let (_, pfn, order) = self.into_parts();
        (pfn, order)
    }

    fn into_parts(self) -> (A, Pfn, Order) {
        let block = ManuallyDrop::new(self);
        // SAFETY: The block is not dropped, so the reference to the arena moves out just once.
        let arena = unsafe { core::ptr::read(&block.arena) };
        (arena, block.pfn, block.order)
    }

    /// The number of the first frame, counted from the start of the arena.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The size of the block as an order.
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.arena.frame_size().bytes_of(self.order.frames())
    }

    /// Gives the memory behind the block back to the machine, which takes one system call. The
    /// block stays owned and reads as zero; the next write to each page takes memory again.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlock`).
    pub fn discard(&mut self) -> Result<(), HostError> {
        // This value is borrowed exclusively, so no slice of the block is in use.
        self.arena.frames().discard(self.pfn, self.order.frames())
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
        let Some(half) = self.order.get().checked_sub(1).map(Order::new) else {
            return Err(self);
        };
        let (arena, pfn, _) = self.into_parts();
        let upper = Block::own(A::clone(&arena), pfn + half.frames(), half);
        Ok((Block::own(arena, pfn, half), upper))
    }

    /// Frees all but the first `1 << order` frames. A larger order changes nothing. Costs one free
    /// for each halving.
    pub fn trim(&mut self, order: Order) {
        while self.order > order {
            self.order = Order::new(self.order.get() - 1);
            let freed = self.arena.frames().free(self.pfn + self.order.frames(), self.order);
            debug_assert_eq!(freed, Ok(()), "trimming {self:?}");
        }
    }
}

impl<D: Design<Host>> Block<&'static Arena<D>> {
    /// The memory for as long as the process lives. [`Block::from_raw`] with
    /// [`Arena::pfn_of`] brings the block back.
    pub fn leak(self) -> &'static mut [u8] {
        let block = ManuallyDrop::new(self);
        let start = block.arena.frames().address_of(block.pfn);
        // SAFETY: The block is never freed, so the memory is the caller's alone; its arena lives as
        // long. It is initialised: see `deref`.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), block.bytes()) }
    }
}

impl<A: ArenaRef> Deref for Block<A> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.arena.frames().address_of(self.pfn);
        // SAFETY: This value owns the block, so nothing writes it while the shared borrow lasts.
        // The block lies in the arena's mapping, which the arena keeps while it is referred to; its
        // bytes are initialised, because mappings start as zeroes, hold a file's content, or were
        // given as initialised.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), self.bytes()) }
    }
}

impl<A: ArenaRef> DerefMut for Block<A> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.arena.frames().address_of(self.pfn);
        // SAFETY: As in `deref`; the exclusive borrow keeps other uses of the block away.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), self.bytes()) }
    }
}

impl<A: ArenaRef> AsRef<[u8]> for Block<A> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<A: ArenaRef> AsMut<[u8]> for Block<A> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<A: ArenaRef> Borrow<[u8]> for Block<A> {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<A: ArenaRef> BorrowMut<[u8]> for Block<A> {
    fn borrow_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<A: ArenaRef> Drop for Block<A> {
    #[inline]
    fn drop(&mut self) {
        let freed = self.arena.frames().free(self.pfn, self.order);
        // Only a wrong promise to `from_raw` or a defect of the allocator leads here; the frames
        // are lost then, and panicking in a drop would turn a leak into an abort.
        debug_assert_eq!(freed, Ok(()), "freeing {:?}", (self.pfn, self.order));
    }
}

impl<A: ArenaRef> fmt::Debug for Block<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("pfn", &self.pfn)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

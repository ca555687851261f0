//! Owned memory of an arena.
#![expect(unsafe_code, reason = "makes slices from frames that the value owns")]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use freehold::designs::Freehold;
use freehold::{Design, Order, Pfn};

use crate::{Arena, Host, HostError};

/// A block of memory, `1 << order` frames, freed on drop.
///
/// It is borrowed from its [`Arena`], and can be sent to and freed on any thread. The content is
/// initialised, but unspecified: what the last owner left, unless it was allocated zeroed.
pub struct Pages<'a, D: Design<Host> = Freehold<Host>> {
    arena: &'a Arena<D>,
    pfn: Pfn,
    order: Order,
}

impl<'a, D: Design<Host>> Pages<'a, D> {
    /// The owner of a block that the arena has just allocated. Private to the crate, because only
    /// the arena may vouch for that.
    #[inline]
    pub(crate) fn own(arena: &'a Arena<D>, pfn: Pfn, order: Order) -> Self {
        Pages { arena, pfn, order }
    }

    /// The owner of a block that [`Pages::into_raw`] gave up, or that the caller has otherwise
    /// allocated from the arena.
    ///
    /// # Safety
    ///
    /// The block was allocated from `arena` as one block of this order, it is not free, and the
    /// caller owns it: no other `Pages` covers it, and nobody uses its memory by other means.
    #[inline]
    pub unsafe fn from_raw(arena: &'a Arena<D>, pfn: Pfn, order: Order) -> Self {
        Pages::own(arena, pfn, order)
    }

    /// Gives up the ownership without freeing the block.
    #[inline]
    pub fn into_raw(self) -> (Pfn, Order) {
        let pages = ManuallyDrop::new(self);
        (pages.pfn, pages.order)
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
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlockall`).
    pub fn discard(&mut self) -> Result<(), HostError> {
        // SAFETY: This value owns the block and is borrowed exclusively, so that no slice of the
        // block is in use.
        unsafe { self.arena.frames().discard(self.pfn, self.order.frames()) }
    }
}

impl<D: Design<Host>> Deref for Pages<'_, D> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.arena.frames().address_of(self.pfn);
        // SAFETY: This value owns the block, so nobody writes it while the shared borrow lasts.
        // The block lies in the arena's mapping, which the arena keeps while it is borrowed; its
        // bytes are initialised, because the mapping starts as zeroes.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), self.bytes()) }
    }
}

impl<D: Design<Host>> DerefMut for Pages<'_, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.arena.frames().address_of(self.pfn);
        // SAFETY: As in `deref`; the exclusive borrow keeps other uses of the block away.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), self.bytes()) }
    }
}

impl<D: Design<Host>> Drop for Pages<'_, D> {
    #[inline]
    fn drop(&mut self) {
        let freed = self.arena.frames().free(self.pfn, self.order);
        // Only a wrong promise to `from_raw` or a defect of the allocator leads here; the frames
        // are lost then, and panicking in a drop would turn a leak into an abort.
        debug_assert_eq!(freed, Ok(()), "freeing {:?}", (self.pfn, self.order));
    }
}

impl<D: Design<Host>> fmt::Debug for Pages<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("pfn", &self.pfn)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

//! Where frames lie: addresses from frame numbers, and back.

use core::ptr::NonNull;

use freehold::{Design, FrameCount, Pfn};

use crate::{FrameArena, Host};

impl<D: Design<Host>> FrameArena<D> {
    /// The address of frame 0.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// How much address space the arena has from [`FrameArena::base`] on, in bytes: all of its
    /// capacity.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether an address lies in the arena's address space: in what is mapped of it, if that is
    /// [not all](crate::ArenaBuilder::map_as_it_grows).
    #[inline]
    pub fn contains<T: ?Sized>(&self, address: *const T) -> bool {
        self.memory.has(self.offset_of(address), 1)
    }

    /// The frame in which an address lies; `None` if the arena does not contain it. Costs a
    /// subtraction, a comparison and a shift.
    #[inline]
    pub fn pfn_of<T: ?Sized>(&self, address: *const T) -> Option<Pfn> {
        let offset = self.offset_of(address);
        self.memory.has(offset, 1).then(|| Pfn::from_address(offset as u64, self.frame_size))
    }

    /// How far an address is above the base; a large number if it lies below.
    #[inline]
    fn offset_of<T: ?Sized>(&self, address: *const T) -> usize {
        address.addr().wrapping_sub(self.memory.base().addr().get())
    }

    /// The address of a frame. Costs a comparison and an addition.
    ///
    /// # Panics
    ///
    /// If the frame lies beyond the arena's capacity.
    #[inline]
    pub fn address_of(&self, pfn: Pfn) -> NonNull<u8> {
        // A number too large saturates to an offset that is beyond any mapping.
        self.memory.address(self.frame_size.bytes_of(FrameCount::new(pfn.get())))
    }
}

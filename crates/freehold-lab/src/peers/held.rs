//! Owned memory at an address, in one word.
#![expect(unsafe_code, reason = "a block may move between threads")]

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use freehold::Order;

use crate::peers::FRAME_BYTES;

/// A block of memory from `P`, owned by the holder of this value: there is no copy of it, and only
/// `P` creates one and takes it back. The default is no block.
///
/// The address of a frame ends in zero bits, so the order fits there.
pub(crate) struct Held<P> {
    tagged: *mut u8,
    from: PhantomData<fn(P)>,
}

// SAFETY: The value is an address and an order. It never reads or writes the memory, which belongs
// to the process, not to a thread.
unsafe impl<P> Send for Held<P> {}

impl<P> Held<P> {
    /// Keeps a block that `P` allocated; nothing if it does not begin at a frame.
    pub(crate) fn new(address: NonNull<u8>, order: Order) -> Option<Self> {
        let is_frame = address.as_ptr().addr().is_multiple_of(FRAME_BYTES);
        let tag = usize::from(order.get());
        let tagged = address.as_ptr().map_addr(|address| address | tag);
        is_frame.then_some(Held { tagged, from: PhantomData })
    }

    /// The address of the block; null for no block.
    pub(crate) fn address(&self) -> *mut u8 {
        self.tagged.map_addr(|address| address & !(FRAME_BYTES - 1))
    }

    /// The order that it was allocated with.
    pub(crate) fn order(&self) -> Order {
        Order::new((self.tagged.addr() % FRAME_BYTES) as u8)
    }

    /// The number of the first frame, among all addresses.
    pub(crate) fn first_frame(&self) -> u64 {
        (self.tagged.addr() / FRAME_BYTES) as u64
    }
}

impl<P> Default for Held<P> {
    fn default() -> Self {
        Held { tagged: ptr::null_mut(), from: PhantomData }
    }
}

/// The size of a block in bytes, if it can be represented.
pub(crate) fn bytes_of(order: Order) -> Option<usize> {
    FRAME_BYTES.checked_shl(u32::from(order.get())).filter(|&bytes| isize::try_from(bytes).is_ok())
}

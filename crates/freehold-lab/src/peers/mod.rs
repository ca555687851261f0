//! Other allocators to race Freehold against: two crates used by kernels in Rust, two mallocs, the
//! host kernel itself, and any allocator in a shared library.
//!
//! All of them, and any entrant that a race adds, implement [`Peer`]. Its calls are generic, never
//! `dyn`: a measured call takes a few nanoseconds, and an indirect call takes as long.
//!
//! | peer | what it is asked for |
//! |---|---|
//! | [`Buddy`], `Bitmap` | frame numbers, under the lock that users of these crates take |
//! | `Malloc`, with the feature `mallocs` | memory of a frame's size and alignment |
//! | [`Kernel`] | mappings, touched once |
//! | [`Plugin`] | what `include/freehold_peer.h` specifies, from a library loaded at run time |
//!
//! All the `unsafe` code that this needs is here, so that a race needs none.

mod held;
mod kernel;
mod locked;
#[cfg(feature = "mallocs")]
mod malloc;
mod memory;
mod plugin;

use core::mem;

use freehold::{MigrateType, Order};

pub(crate) use freehold::geometry::FRAME_BYTES;
pub(crate) use kernel::Kernel;
pub(crate) use locked::{Bitmap1M, Bitmap16M, Bitmap64K, Buddy};
#[cfg(feature = "mallocs")]
pub(crate) use malloc::{Jemalloc, Mimalloc};
pub(crate) use plugin::Plugin;

/// An allocator of frames, shared by threads.
pub(crate) trait Peer: Send + Sync {
    /// A block owned by its holder. The default is no block.
    type Block: Default + Send;

    /// The view of one thread.
    type Seat<'a>: Seat<Block = Self::Block>
    where
        Self: 'a;

    /// Whether the first frame of a block is a multiple of its size.
    const ALIGNS: bool = true;

    /// Of how many frames a thread may hold blocks at once, if more would take too long or too
    /// much.
    const HELD_FRAMES_MAX: usize = usize::MAX;

    /// Seats one of the threads, by its number from 0. No two threads have the same number at a
    /// time.
    fn sit(&self, thread: usize) -> Self::Seat<'_>;

    /// The number of a block's first frame: within the peer's memory if it has its own, otherwise
    /// among all addresses.
    fn first_frame(block: &Self::Block) -> u64;

    /// How many frames it manages; `None` if it takes them from the machine on demand.
    fn managed_frames(&self) -> Option<u64> {
        None
    }

    /// Whether it has blocks of an order.
    fn serves(&self, _order: Order) -> bool {
        true
    }

    /// Whether it has its own bulk calls.
    fn has_bulk(&self) -> bool {
        false
    }

    /// How much memory its metadata takes, in bytes; `None` if that is not known.
    fn metadata_bytes(&self) -> Option<usize> {
        None
    }

    /// A remark about how it was built, if any.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// Checks its own accounting, when all blocks have been freed.
    ///
    /// # Errors
    ///
    /// A description of the inconsistency.
    fn audit(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A peer refused to free what it had allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// The calls of one thread.
pub(crate) trait Seat {
    /// As in [`Peer::Block`].
    type Block: Default;

    /// Allocates a block; `None` if there is none.
    fn alloc(&mut self, order: Order, migratetype: MigrateType) -> Option<Self::Block>;

    /// Frees a block. `order` is the one that it was allocated with.
    ///
    /// # Errors
    ///
    /// [`Refused`], by peers that can detect a wrong block.
    fn free(&mut self, block: Self::Block, order: Order) -> Result<(), Refused>;

    /// Allocates single frames for all of `out` and returns how many there were. One at a time
    /// unless the peer [has bulk calls](Peer::has_bulk).
    #[inline]
    fn alloc_bulk(&mut self, out: &mut [Self::Block]) -> usize {
        alloc_singly(self, out)
    }

    /// Frees single frames; the content of `blocks` afterwards does not matter.
    ///
    /// # Errors
    ///
    /// As for [`Seat::free`].
    #[inline]
    fn free_bulk(&mut self, blocks: &mut [Self::Block]) -> Result<(), Refused> {
        free_singly(self, blocks)
    }
}

/// [`Seat::alloc_bulk`], one at a time.
#[inline]
fn alloc_singly<S: Seat + ?Sized>(seat: &mut S, out: &mut [S::Block]) -> usize {
    fill(out, || seat.alloc(Order::ZERO, MigrateType::Movable))
}

/// Fills slots one by one and returns how many: fewer if a block is not to be had.
#[inline(always)]
pub(crate) fn fill<B>(slots: &mut [B], mut alloc: impl FnMut() -> Option<B>) -> usize {
    for (at, slot) in slots.iter_mut().enumerate() {
        match alloc() {
            Some(block) => *slot = block,
            None => return at,
        }
    }
    slots.len()
}

/// [`Seat::free_bulk`], one at a time.
#[inline]
fn free_singly<S: Seat + ?Sized>(seat: &mut S, blocks: &mut [S::Block]) -> Result<(), Refused> {
    blocks.iter_mut().try_for_each(|block| seat.free(mem::take(block), Order::ZERO))
}

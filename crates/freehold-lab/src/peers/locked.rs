//! Two page-frame allocators from crates.io, under the lock that their users put around them.
//!
//! Neither supports threads, so every call takes the lock, in rCore, zCore, ArceOS and here.

use core::mem::size_of;

use bitmap_allocator::{BitAlloc, BitAlloc1M, BitAlloc16M, BitAlloc64K};
use buddy_system_allocator::LockedFrameAllocator;
use freehold::{MigrateType, Order};
use spin::Mutex;

use crate::peers::{Peer, Refused, Seat};

/// Constructing a large bitmap passes it over the stack, several times in debug builds.
const BITMAP_STACK_BYTES: usize = 64 << 20;

/// The crate `buddy_system_allocator`: free blocks of each order in a `BTreeSet`, in its own
/// `LockedFrameAllocator`.
pub(crate) struct Buddy {
    frames: u64,
    allocator: LockedFrameAllocator,
}

impl Buddy {
    /// Manages frames 0 and up.
    pub(crate) fn new(frames: u64) -> Self {
        let allocator = LockedFrameAllocator::new();
        allocator.lock().add_frame(0, frames as usize);
        Buddy { frames, allocator }
    }
}

/// The crate `bitmap-allocator`: a tree of bitmaps with 16 branches at each level, in a
/// `spin::Mutex`.
pub(crate) struct Bitmap<A> {
    frames: u64,
    allocator: Box<Mutex<A>>,
}

/// With the type for 2^16 frames, which are 256 MiB.
pub(crate) type Bitmap64K = Bitmap<BitAlloc64K>;

/// With the type for 2^20 frames, which has one level more.
pub(crate) type Bitmap1M = Bitmap<BitAlloc1M>;

/// With the type for 2^24 frames, which has two levels more.
pub(crate) type Bitmap16M = Bitmap<BitAlloc16M>;

impl<A: BitAlloc + Send + 'static> Bitmap<A> {
    /// Manages frames 0 and up; `None` if there are more than the type has bits.
    pub(crate) fn new(frames: u64) -> Option<Self> {
        let count = usize::try_from(frames).ok().filter(|&count| count > 0 && count <= A::CAP)?;
        let building =
            std::thread::Builder::new().stack_size(BITMAP_STACK_BYTES).spawn(move || {
                let allocator = Box::new(Mutex::new(A::default()));
                allocator.lock().insert(0..count);
                allocator
            });
        let allocator = building.ok()?.join().ok()?;
        Some(Bitmap { frames, allocator })
    }
}

/// The seat of a thread at an allocator that does not support threads.
pub(crate) struct LockedSeat<'a, P>(&'a P);

impl Peer for Buddy {
    type Block = u64;
    type Seat<'a> = LockedSeat<'a, Self>;

    fn sit(&self, _thread: usize) -> LockedSeat<'_, Self> {
        LockedSeat(self)
    }

    fn first_frame(block: &u64) -> u64 {
        *block
    }

    fn managed_frames(&self) -> Option<u64> {
        Some(self.frames)
    }
}

impl Seat for LockedSeat<'_, Buddy> {
    type Block = u64;

    #[inline(always)]
    fn alloc(&mut self, order: Order, _: MigrateType) -> Option<u64> {
        let frame = self.0.allocator.lock().alloc(1 << order.get())?;
        Some(frame as u64)
    }

    #[inline(always)]
    fn free(&mut self, block: u64, order: Order) -> Result<(), Refused> {
        self.0.allocator.lock().dealloc(block as usize, 1 << order.get());
        Ok(())
    }
}

impl<A: BitAlloc + Send + 'static> Peer for Bitmap<A> {
    type Block = u64;
    type Seat<'a> = LockedSeat<'a, Self>;

    fn sit(&self, _thread: usize) -> LockedSeat<'_, Self> {
        LockedSeat(self)
    }

    fn first_frame(block: &u64) -> u64 {
        *block
    }

    fn managed_frames(&self) -> Option<u64> {
        Some(self.frames)
    }

    /// The type has all its bits, whether there are frames for them or not.
    fn metadata_bytes(&self) -> Option<usize> {
        Some(size_of::<Mutex<A>>())
    }

    fn note(&self) -> Option<&'static str> {
        Some(match A::CAP {
            BitAlloc64K::CAP => "of type BitAlloc64K, with bits for 2^16 frames",
            BitAlloc1M::CAP => "of type BitAlloc1M, with bits for 2^20 frames",
            _ => "of type BitAlloc16M, with bits for 2^24 frames",
        })
    }
}

impl<A: BitAlloc> Seat for LockedSeat<'_, Bitmap<A>> {
    type Block = u64;

    #[inline(always)]
    fn alloc(&mut self, order: Order, _: MigrateType) -> Option<u64> {
        let mut bits = self.0.allocator.lock();
        let frame = match order {
            Order::ZERO => bits.alloc(),
            order => bits.alloc_contiguous(None, 1 << order.get(), usize::from(order.get())),
        };
        Some(frame? as u64)
    }

    #[inline(always)]
    fn free(&mut self, block: u64, order: Order) -> Result<(), Refused> {
        let mut bits = self.0.allocator.lock();
        let freed = match order {
            Order::ZERO => bits.dealloc(block as usize),
            order => bits.dealloc_contiguous(block as usize, 1 << order.get()),
        };
        freed.then_some(()).ok_or(Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_frames_are_had_and_come_back<P: Peer<Block = u64>>(peer: &P) {
        let mut seat = peer.sit(0);
        let huge = seat.alloc(Order::new(9), MigrateType::Movable).expect("a block is free");
        assert_eq!(huge % 512, 0);
        seat.free(huge, Order::new(9)).unwrap();
        for _ in 0..2 {
            let all = || seat.alloc(Order::ZERO, MigrateType::Movable);
            let mut frames: Vec<_> = std::iter::from_fn(all).collect();
            assert_eq!(frames.len() as u64, peer.managed_frames().unwrap());
            frames.sort_unstable();
            frames.dedup();
            assert_eq!(frames.len() as u64, peer.managed_frames().unwrap());
            for frame in frames {
                seat.free(frame, Order::ZERO).unwrap();
            }
        }
    }

    #[test]
    fn the_buddy_system_serves() {
        all_frames_are_had_and_come_back(&Buddy::new(2048));
    }

    #[test]
    fn the_bitmaps_serve_what_they_have_bits_for() {
        all_frames_are_had_and_come_back(&Bitmap64K::new(2048).unwrap());
        all_frames_are_had_and_come_back(&Bitmap1M::new(2048).unwrap());
        all_frames_are_had_and_come_back(&Bitmap16M::new(2048).unwrap());
        assert!(Bitmap64K::new(1 << 16).is_some() && Bitmap64K::new((1 << 16) + 1).is_none());
        assert!(Bitmap1M::new(1 << 20).is_some() && Bitmap1M::new((1 << 20) + 1).is_none());
    }

    #[test]
    fn a_bitmap_says_its_type_and_takes_more_than_a_bit_a_frame() {
        let (small, large) = (Bitmap64K::new(1 << 16).unwrap(), Bitmap1M::new(1 << 20).unwrap());
        assert_eq!(small.note(), Some("of type BitAlloc64K, with bits for 2^16 frames"));
        assert_eq!(large.note(), Some("of type BitAlloc1M, with bits for 2^20 frames"));
        for (bytes, bits) in [(small.metadata_bytes(), 1 << 16), (large.metadata_bytes(), 1 << 20)]
        {
            let bytes = bytes.unwrap();
            assert!((bits / 8 + 1..bits / 4).contains(&bytes), "{bytes}");
        }
        assert_eq!(Buddy::new(2048).metadata_bytes(), None);
    }
}

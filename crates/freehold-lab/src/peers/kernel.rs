//! The host kernel as a peer: a mapping for each block.
#![expect(unsafe_code, reason = "maps, touches and unmaps memory")]

use core::ptr::{NonNull, null_mut};

use freehold::{MigrateType, Order};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::peers::held::{Held, bytes_of};
use crate::peers::{FRAME_BYTES, Peer, Refused, Seat};

/// The host kernel: `mmap`, one byte written in each frame, `munmap`.
///
/// That is more than allocating a frame: a system call each way, a page fault, a page cleared and
/// entered into page tables, its entry flushed. It is the cost for a program that asks the machine.
/// Blocks of a pageblock and more ask for huge pages.
#[derive(Debug, Default)]
pub(crate) struct Kernel;

impl Kernel {
    /// The kernel that this process runs on.
    pub(crate) fn new() -> Self {
        Kernel
    }
}

impl Peer for Kernel {
    type Block = Held<Kernel>;
    type Seat<'a> = &'a Kernel;

    /// A mapping lies wherever the kernel puts it.
    const ALIGNS: bool = false;

    /// A frame takes a microsecond. And a process has at most 65530 mappings by default.
    const HELD_FRAMES_MAX: usize = 4096;

    fn sit(&self, _thread: usize) -> &Kernel {
        self
    }

    fn first_frame(block: &Held<Kernel>) -> u64 {
        block.first_frame()
    }
}

impl Seat for &Kernel {
    type Block = Held<Kernel>;

    fn alloc(&mut self, order: Order, _: MigrateType) -> Option<Held<Kernel>> {
        let bytes = bytes_of(order)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: Without a requested address the kernel picks an unused one, so that the new
        // mapping replaces nothing.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE) };
        let start = start.ok()?;
        if order >= Order::PAGEBLOCK {
            // SAFETY: The advice changes how the new mapping is backed, never what it holds.
            let advised = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
            // A kernel without huge pages backs the block with small ones, which is its answer.
            let _ = advised;
        }
        let start = start.cast::<u8>();
        for offset in (0..bytes).step_by(FRAME_BYTES) {
            // SAFETY: The byte lies in the new mapping, which is not shared yet.
            unsafe { start.wrapping_add(offset).write_volatile(1) };
        }
        Held::new(NonNull::new(start)?, order)
    }

    fn free(&mut self, block: Held<Kernel>, _: Order) -> Result<(), Refused> {
        if block.address().is_null() {
            return Err(Refused);
        }
        let bytes = bytes_of(block.order()).ok_or(Refused)?;
        // SAFETY: A block that is one was mapped above with the size of its order. This is the only
        // handle to it, and it is consumed here.
        unsafe { munmap(block.address().cast(), bytes) }.map_err(|_| Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_come_and_go() {
        let kernel = Kernel::new();
        let mut seat = kernel.sit(0);
        for order in [0, 2, 9].map(Order::new) {
            let [first, second] =
                [(); 2].map(|()| seat.alloc(order, MigrateType::Movable).expect("there is memory"));
            let distance = Kernel::first_frame(&first).abs_diff(Kernel::first_frame(&second));
            assert!(distance >= order.frames().get());
            assert_eq!(seat.free(first, order), Ok(()));
            assert_eq!(seat.free(second, order), Ok(()));
        }
        assert_eq!(seat.free(Held::default(), Order::ZERO), Err(Refused));
    }
}

//! Mallocs, asked for memory of a block's size and alignment.
#![expect(unsafe_code, reason = "calls allocators whose memory has to come back as it went")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;

use freehold::{MigrateType, Order};

use crate::peers::held::{Held, bytes_of};
use crate::peers::{Peer, Refused, Seat};

/// A malloc as a peer. It takes its memory from the machine on demand and keeps it; migratetypes
/// mean nothing to it.
pub(crate) struct Malloc<A>(A);

/// mimalloc, called directly.
pub(crate) type Mimalloc = Malloc<mimalloc::MiMalloc>;

/// jemalloc, as packaged by the maintainers of TiKV.
pub(crate) type Jemalloc = Malloc<tikv_jemallocator::Jemalloc>;

impl Mimalloc {
    /// The mimalloc of this process.
    pub(crate) fn new() -> Self {
        Malloc(mimalloc::MiMalloc)
    }
}

impl Default for Mimalloc {
    fn default() -> Self {
        Mimalloc::new()
    }
}

impl Jemalloc {
    /// The jemalloc of this process.
    pub(crate) fn new() -> Self {
        Malloc(tikv_jemallocator::Jemalloc)
    }
}

impl Default for Jemalloc {
    fn default() -> Self {
        Jemalloc::new()
    }
}

fn layout_of(order: Order) -> Option<Layout> {
    let bytes = bytes_of(order)?;
    Layout::from_size_align(bytes, bytes).ok()
}

impl<A: GlobalAlloc + Send + Sync + 'static> Peer for Malloc<A> {
    type Block = Held<A>;
    type Seat<'a> = &'a Malloc<A>;

    fn sit(&self, _thread: usize) -> &Malloc<A> {
        self
    }

    fn first_frame(block: &Held<A>) -> u64 {
        block.first_frame()
    }
}

impl<A: GlobalAlloc> Seat for &Malloc<A> {
    type Block = Held<A>;

    #[inline]
    fn alloc(&mut self, order: Order, _: MigrateType) -> Option<Held<A>> {
        let layout = layout_of(order)?;
        // SAFETY: A frame or more: the size is not 0.
        let memory = unsafe { self.0.alloc(layout) };
        Held::new(NonNull::new(memory)?, order)
    }

    #[inline]
    fn free(&mut self, block: Held<A>, _: Order) -> Result<(), Refused> {
        if block.address().is_null() {
            return Err(Refused);
        }
        let layout = layout_of(block.order()).ok_or(Refused)?;
        // SAFETY: A block that is one came from `alloc` above, of the one malloc `A` of this
        // process, with the layout of the order that it carries. It is consumed here.
        unsafe { self.0.dealloc(block.address(), layout) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_are_aligned_apart_and_come_back<A>(malloc: &Malloc<A>)
    where
        A: GlobalAlloc + Send + Sync + 'static,
    {
        let mut seat = malloc.sit(0);
        for order in [0, 3, 9].map(Order::new) {
            let blocks: Vec<_> = (0..8)
                .map(|_| seat.alloc(order, MigrateType::Movable).expect("there is memory"))
                .collect();
            let mut firsts: Vec<_> = blocks.iter().map(Malloc::<A>::first_frame).collect();
            firsts.sort_unstable();
            assert!(firsts.iter().all(|first| first % order.frames().get() == 0), "{firsts:?}");
            let apart = firsts.windows(2).all(|pair| pair[1] - pair[0] >= order.frames().get());
            assert!(apart, "{firsts:?}");
            for block in blocks {
                seat.free(block, order).expect("a block that came from here");
            }
        }
    }

    #[test]
    fn mimalloc_serves() {
        blocks_are_aligned_apart_and_come_back(&Mimalloc::new());
    }

    #[test]
    fn jemalloc_serves() {
        blocks_are_aligned_apart_and_come_back(&Jemalloc::new());
    }

    #[test]
    fn no_block_is_refused() {
        let malloc = Mimalloc::new();
        assert_eq!(malloc.sit(0).free(Held::default(), Order::ZERO), Err(Refused));
        assert!(malloc.sit(0).alloc(Order::new(60), MigrateType::Movable).is_none());
    }
}

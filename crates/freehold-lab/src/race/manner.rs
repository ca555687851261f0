//! The manners in which a set of blocks is allocated and freed: the loops that the clock runs for.

use std::mem;

use crate::peers::{Peer, Refused, Seat, fill};
use fastrand::Rng;
use freehold::{MigrateType, Order};

use super::mix::draw;

/// Frames that a bulk call allocates or frees.
pub(super) const BULK_FRAMES: usize = 64;

/// A way to allocate so many blocks and to free them.
pub(super) trait Manner<P: Peer> {
    /// How many blocks a set has.
    fn count(&self) -> usize;

    /// The order of the block at this index.
    fn order(&self, at: usize) -> Order;

    /// Allocates a block for each slot; returns how many there were.
    fn take(&self, seat: &mut P::Seat<'_>, slots: &mut [P::Block]) -> usize;

    /// Frees all blocks.
    fn give(&self, seat: &mut P::Seat<'_>, blocks: &mut Vec<P::Block>) -> Result<(), Refused>;

    /// A new set starts.
    fn begin(&mut self) {}

    /// The blocks have been shuffled with a copy of this generator.
    fn shuffled(&mut self, _rng: Rng) {}
}

/// Blocks of one order, one at a time. The order is a constant, as in real programs.
pub(super) struct Singles<const ORDER: u8>(pub(super) usize);

impl<P: Peer, const ORDER: u8> Manner<P> for Singles<ORDER> {
    fn count(&self) -> usize {
        self.0
    }

    fn order(&self, _: usize) -> Order {
        Order::new(ORDER)
    }

    fn take(&self, seat: &mut P::Seat<'_>, slots: &mut [P::Block]) -> usize {
        fill(slots, || seat.alloc(Order::new(ORDER), MigrateType::Movable))
    }

    fn give(&self, seat: &mut P::Seat<'_>, blocks: &mut Vec<P::Block>) -> Result<(), Refused> {
        blocks.drain(..).try_for_each(|block| seat.free(block, Order::new(ORDER)))
    }
}

/// Single frames, many a call; as many as fill whole calls.
pub(super) struct Bulk(pub(super) usize);

impl<P: Peer> Manner<P> for Bulk {
    fn count(&self) -> usize {
        self.0.next_multiple_of(BULK_FRAMES)
    }

    fn order(&self, _: usize) -> Order {
        Order::ZERO
    }

    fn take(&self, seat: &mut P::Seat<'_>, slots: &mut [P::Block]) -> usize {
        for (nth, call) in slots.chunks_mut(BULK_FRAMES).enumerate() {
            let got = seat.alloc_bulk(call);
            if got < call.len() {
                return nth * BULK_FRAMES + got;
            }
        }
        slots.len()
    }

    fn give(&self, seat: &mut P::Seat<'_>, blocks: &mut Vec<P::Block>) -> Result<(), Refused> {
        blocks.chunks_mut(BULK_FRAMES).try_for_each(|call| seat.free_bulk(call))
    }
}

/// Blocks of the recorded orders and types.
pub(super) struct Mixed {
    wanted: Vec<(Order, MigrateType)>,
    /// The orders of the blocks in their current sequence.
    orders: Vec<Order>,
}

impl Mixed {
    /// Blocks of at most so many frames together.
    pub(super) fn new(frames: usize, seed: u64) -> Self {
        Mixed { wanted: draw(frames, seed), orders: Vec::new() }
    }
}

impl<P: Peer> Manner<P> for Mixed {
    fn count(&self) -> usize {
        self.wanted.len()
    }

    fn order(&self, at: usize) -> Order {
        self.orders[at]
    }

    fn take(&self, seat: &mut P::Seat<'_>, slots: &mut [P::Block]) -> usize {
        let mut wanted = self.wanted.iter();
        fill(slots, || {
            let &(order, migratetype) = wanted.next()?;
            seat.alloc(order, migratetype)
        })
    }

    fn give(&self, seat: &mut P::Seat<'_>, blocks: &mut Vec<P::Block>) -> Result<(), Refused> {
        let mut both = blocks.iter_mut().zip(&self.orders);
        both.try_for_each(|(block, &order)| seat.free(mem::take(block), order))
    }

    fn begin(&mut self) {
        self.orders.clear();
        self.orders.extend(self.wanted.iter().map(|&(order, _)| order));
    }

    fn shuffled(&mut self, mut rng: Rng) {
        rng.shuffle(&mut self.orders);
    }
}

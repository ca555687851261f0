//! Sizes of blocks.

use core::fmt;

use super::{FrameCount, FrameSize};
use crate::geometry::PAGEBLOCK_ORDER;

/// The size of a block as a power of two: order 0 is one frame, order 3 is eight.
///
/// Any number can be named; an allocator answers
/// [`Error::OrderTooLarge`](crate::Error::OrderTooLarge) to one that it does not serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Order(u8);

/// How many orders the buddy system keeps: 0 to [`Order::BUDDY_MAX`].
#[doc(hidden)]
pub const ORDERS: usize = Order::BUDDY_MAX.index() + 1;

impl Order {
    /// One frame.
    pub const ZERO: Self = Order(0);

    /// The order of a pageblock, the unit of migratetypes, as [`PAGEBLOCK_ORDER`] has it: 512
    /// frames by default, 2 MiB with 4 KiB frames.
    pub const PAGEBLOCK: Self = Order(PAGEBLOCK_ORDER);

    /// The largest block that the buddy system keeps: 1024 frames, or a pageblock if that is
    /// larger, as in Linux.
    pub const BUDDY_MAX: Self = Order(if PAGEBLOCK_ORDER > 10 { PAGEBLOCK_ORDER } else { 10 });

    /// This order. Values above 63 are held as 63: no address space has such blocks.
    #[inline]
    pub const fn new(order: u8) -> Self {
        Order(if order > 63 { 63 } else { order })
    }

    /// The order as a number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The order as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// How many frames a block of this order has.
    #[inline]
    pub const fn frames(self) -> FrameCount {
        FrameCount::new(1 << (self.0 & 63))
    }

    /// The smallest order whose blocks have so many frames or more.
    #[inline]
    pub const fn covering(frames: FrameCount) -> Self {
        match frames.get().checked_next_power_of_two() {
            Some(power) => Order(power.ilog2() as u8),
            None => Order(63),
        }
    }

    /// The smallest order whose blocks have so many bytes or more.
    #[inline]
    pub const fn from_bytes(bytes: usize, size: FrameSize) -> Self {
        Order::covering(FrameCount::from_bytes(bytes, size))
    }

    /// The next larger order.
    #[inline]
    pub const fn up(self) -> Self {
        Order::new(self.0 + 1)
    }

    /// All orders from this one to `last`, upwards.
    pub fn to(self, last: Order) -> impl DoubleEndedIterator<Item = Order> {
        (self.0..=last.0).map(Order)
    }
}

impl From<Order> for u8 {
    fn from(order: Order) -> Self {
        order.0
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_order_that_is_enough() {
        for (frames, order) in [(0, 0), (1, 0), (2, 1), (3, 2), (512, 9), (513, 10)] {
            assert_eq!(Order::covering(FrameCount::new(frames)), Order::new(order), "{frames}");
        }
        assert_eq!(Order::covering(FrameCount::new(u64::MAX)), Order::new(63));
        assert_eq!(Order::from_bytes(3 << 20, FrameSize::MIN), Order::new(10));
    }
}

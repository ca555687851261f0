//! What the naive model knows of ranges, and of content that moves.

use crate::naive::{Frame, Naive, ORDERS};
use freehold::{FrameCount, Order, Pfn};

impl Naive {
    /// Notes that contiguous frames were allocated, in the largest blocks that fit.
    pub(crate) fn take_range(&mut self, first: Pfn, frames: FrameCount, zones: &[usize]) {
        let (mut at, end) = (first.get(), first.get() + frames.get());
        assert_eq!(self.zone_of(at), self.zone_of(end - 1), "a range of one zone");
        while at < end {
            let fits = |order: &u8| at.is_multiple_of(1 << order) && at + (1 << order) <= end;
            let order = (0..ORDERS).rev().find(fits).expect("a frame fits");
            self.take(Pfn::new(at), order, zones);
            at += 1 << order;
        }
    }

    /// Whether these are frames of one zone, all in use.
    pub(crate) fn is_one_range(&self, mut frames: std::ops::Range<u64>) -> bool {
        let first = frames.start;
        !frames.is_empty()
            && frames.all(|pfn| {
                self.frame(pfn) == Frame::Used && self.zone_of(pfn) == self.zone_of(first)
            })
    }

    /// Moves the content of a block that is held to one that is free, in the same zone or one of a
    /// kind that is more restricted.
    pub(crate) fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) {
        let (from, to, order) = (from.get(), to.get(), order.get());
        assert_eq!(self.held.remove(&from), Some(order), "what is moved from {from:#x} is a block");
        assert!(to.is_multiple_of(1 << order), "to {to:#x}, order {order}");
        let kind = |pfn| self.zone_of(pfn).map(|zone| self.zones[zone].1);
        for (from, to) in (from..from + (1 << order)).zip(to..) {
            assert_eq!(self.frame(to), Frame::Free, "{to:#x} is moved to");
            assert!(kind(to) <= kind(from), "{from:#x} is moved to {to:#x}");
        }
        self.fill(from, order, Frame::Free);
        self.fill(to, order, Frame::Used);
        self.held.insert(to, order);
    }
}

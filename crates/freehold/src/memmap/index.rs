//! Indexes of frames and zones in tables: neither frame numbers nor counts.

use crate::units::Order;

/// The index of a frame in the tables: its number minus a constant of its stretch.
///
/// Indexes are aligned as numbers are (see [`stretches`](super::stretches)), so alignment and
/// buddies can be computed on them as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameIndex(pub u32);

impl FrameIndex {
    /// The index as an offset into tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The head of the block that is this block's buddy at `order`.
    #[inline]
    pub const fn buddy(self, order: Order) -> Self {
        FrameIndex(self.0 ^ (1 << order.get()))
    }

    /// The head of the block of `order` that this frame lies in.
    #[inline]
    pub const fn head(self, order: Order) -> Self {
        FrameIndex(self.0 & !((1 << order.get()) - 1))
    }

    /// The order of the largest block that begins here and ends at or before `end`.
    pub fn largest_before(self, end: Self) -> Order {
        let aligned = self.0.trailing_zeros().min(u32::from(Order::BUDDY_MAX.get()));
        Order::new(aligned.min((end.0 - self.0).ilog2()) as u8)
    }

    /// The frame one block of `order` further up.
    #[inline]
    pub const fn after(self, order: Order) -> Self {
        FrameIndex(self.0 + (1 << order.get()))
    }
}

/// Frames that lie side by side in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    pub first: FrameIndex,
    /// The first frame behind them.
    pub end: FrameIndex,
}

impl FrameRange {
    /// Whether no frame of a block is among them.
    pub fn has_none_of(self, block: FrameIndex, order: Order) -> bool {
        block >= self.end || block.after(order) <= self.first
    }

    /// Whether all frames of a block are among them.
    pub fn has_all_of(self, block: FrameIndex, order: Order) -> bool {
        block >= self.first && block.after(order) <= self.end
    }
}

/// The index of a zone in the table of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneIndex(pub u16);

impl ZoneIndex {
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

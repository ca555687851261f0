//! Indexes of frames and zones in tables: neither frame numbers nor counts.

use crate::units::{FrameCount, Order};

/// The index of a frame in the table: its number minus that of the table's first frame.
///
/// The first frame is aligned to the largest block, so alignment and buddies can be computed on
/// indexes as well as on frame numbers.
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
    /// So many frames from one on, of a table of `len`, if it has them all.
    pub fn within(first: Option<FrameIndex>, frames: FrameCount, len: FrameCount) -> Option<Self> {
        let first = first?;
        let end = u64::from(first.0).checked_add(frames.get()).filter(|&end| end <= len.get())?;
        // The table has fewer than 2^32 frames.
        Some(FrameRange { first, end: FrameIndex(end as u32) })
    }

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

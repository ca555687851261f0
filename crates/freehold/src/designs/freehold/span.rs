//! Frames that lie side by side.

use super::Freehold;
use super::blocks::{BlockIndex, FRAMES};
use super::runs::WORD_FRAMES;
use crate::designs::Design;
use crate::platform::Platform;
use crate::units::{Order, Pfn};

/// Frames from the first one to behind the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) end: u32,
}

impl Span {
    /// All frames of so many pageblocks.
    pub(super) const fn of(block: BlockIndex, count: u32) -> Self {
        Span { first: block.frame(), end: block.frame() + count * FRAMES }
    }

    /// The parts of the span in each pageblock that it touches.
    pub(super) fn blocks(self) -> impl Iterator<Item = (BlockIndex, Span)> {
        (self.first / FRAMES..self.end.div_ceil(FRAMES)).map(move |block| {
            let block = BlockIndex(block);
            let (first, end) = (block.frame(), block.frame() + FRAMES);
            (block, Span { first: first.max(self.first), end: end.min(self.end) })
        })
    }

    /// The words that the span touches, and its bits in each.
    pub(super) fn words(self) -> impl Iterator<Item = (usize, u64)> {
        (self.first / WORD_FRAMES..self.end.div_ceil(WORD_FRAMES)).map(move |word| {
            let start = word * WORD_FRAMES;
            let below = |frame: u32| match frame.saturating_sub(start) {
                bits @ 0..WORD_FRAMES => (1 << bits) - 1,
                _ => !0,
            };
            (word as usize, below(self.end) & !below(self.first))
        })
    }
}

/// The largest block that begins at a frame and ends before another one.
pub(super) fn largest_block<P: Platform>(pfn: Pfn, frames: u32) -> Order {
    let largest = Freehold::<P>::ORDER_MAX.get();
    let aligned = pfn.get().trailing_zeros().min(u32::from(largest));
    Order::new(aligned.min(frames.ilog2()) as u8)
}

//! Arithmetic of bitmaps. A run is an aligned power of two of frames within a pageblock.

use core::ops::Range;

use super::{FRAMES, PageblockIndex};
pub(crate) use crate::memmap::bits::{Span, WORD_FRAMES, WORD_ORDER, longer, lowest, ones, starts};
use crate::units::{Order, Pfn};

/// The largest block that can be allocated: 1 GiB of 4 KiB frames.
pub(crate) const ORDER_MAX: Order = Order::new(18);

/// A run: the words that it lies in, and its bits in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first word, counted over the whole bitmap.
    pub(crate) word: u32,
    /// The first bit in it. 0 if the run has several words.
    pub(crate) bit: u32,
    /// How many frames.
    pub(crate) order: Order,
}

impl Run {
    /// The run of `order`, at most 8, that begins at a frame.
    #[inline]
    pub(crate) const fn at(frame: u32, order: Order) -> Self {
        Run { word: frame / WORD_FRAMES, bit: frame % WORD_FRAMES, order }
    }

    /// The first frame.
    pub(crate) const fn frame(self) -> u32 {
        self.word * WORD_FRAMES + self.bit
    }

    /// The frame after the last one.
    pub(crate) const fn end(self) -> u32 {
        self.frame() + (1 << self.order.get())
    }

    /// How many words it has bits in.
    const fn len(self) -> u32 {
        1 << self.order.get().saturating_sub(WORD_ORDER)
    }

    /// Its bits in each of its words.
    #[inline]
    pub(crate) const fn mask(self) -> u64 {
        ones(self.order.get()) << self.bit
    }

    /// Its words.
    pub(crate) fn words(self) -> Range<usize> {
        let first = self.word as usize;
        first..first + self.len() as usize
    }
}

impl Span {
    /// All frames of `count` pageblocks.
    pub(crate) const fn of(pageblock: PageblockIndex, count: u32) -> Self {
        Span { first: pageblock.frame(), end: pageblock.frame() + count * FRAMES }
    }

    /// The parts of the span in each pageblock that it touches.
    pub(crate) fn pageblocks(self) -> impl DoubleEndedIterator<Item = (PageblockIndex, Span)> {
        self.by_pageblock().map(|(pageblock, part)| (PageblockIndex(pageblock), part))
    }
}

/// The largest block that begins at a frame and has at most `frames` frames.
pub(crate) fn largest_block(pfn: Pfn, frames: u32) -> Order {
    let aligned = pfn.get().trailing_zeros().min(u32::from(ORDER_MAX.get()));
    Order::new(aligned.min(frames.ilog2()) as u8)
}

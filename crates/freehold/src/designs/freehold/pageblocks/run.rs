//! Arithmetic of bitmaps. A run is an aligned power of two of frames within a pageblock; a span is
//! adjacent frames, across pageblocks.

use core::ops::Range;

use super::{FRAMES, PageblockIndex};
use crate::memmap::index::FrameRange;
use crate::units::{Order, Pfn};

/// The largest block that can be allocated: 1 GiB of 4 KiB frames.
pub(crate) const ORDER_MAX: Order = Order::new(18);

/// Frames that one word of a bitmap stands for.
pub(crate) const WORD_FRAMES: u32 = u64::BITS;

/// The order of a word: of as many frames as it stands for.
pub(crate) const WORD_ORDER: u8 = 6;

/// By order: the bits of a word at which a block may begin. One entry more, so that an index of
/// three bits needs no check.
const PLACES: [u64; WORD_ORDER as usize + 2] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
    0,
];

/// The bits of a block of `order`, at most [`WORD_ORDER`], that begins at bit 0.
pub(crate) const fn ones(order: u8) -> u64 {
    if order >= WORD_ORDER { !0 } else { (1 << (1 << order)) - 1 }
}

/// The bits at which aligned runs of `2^order` set bits begin, for orders up to [`WORD_ORDER`].
#[inline(always)]
pub(crate) const fn starts(word: u64, order: u8) -> u64 {
    let mut starts = word;
    // Unrolled by hand: the compiler does not unroll a loop of so few steps.
    if order > 0 {
        starts &= starts >> 1;
    }
    if order > 1 {
        starts &= starts >> 2;
    }
    if order > 2 {
        starts &= starts >> 4;
    }
    if order > 3 {
        starts &= starts >> 8;
    }
    if order > 4 {
        starts &= starts >> 16;
    }
    if order > 5 {
        starts &= starts >> 32;
    }
    starts & PLACES[order as usize % PLACES.len()]
}

/// The bits at which aligned runs of twice as many set bits begin, of those at which runs of
/// `2^order` do.
#[inline(always)]
pub(crate) const fn longer(starts: u64, order: u8) -> u64 {
    starts & starts >> (1 << order) & PLACES[order as usize + 1]
}

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

/// Frames from the first one up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl Span {
    /// All frames of `count` pageblocks.
    pub(crate) const fn of(pageblock: PageblockIndex, count: u32) -> Self {
        Span { first: pageblock.frame(), end: pageblock.frame() + count * FRAMES }
    }

    /// The same frames as a range of the tables.
    pub(crate) const fn of_range(range: FrameRange) -> Self {
        Span { first: range.first.0, end: range.end.0 }
    }

    /// The parts of the span in each pageblock that it touches.
    pub(crate) fn pageblocks(self) -> impl Iterator<Item = (PageblockIndex, Span)> {
        (self.first / FRAMES..self.end.div_ceil(FRAMES)).map(move |pageblock| {
            let pageblock = PageblockIndex(pageblock);
            let (first, end) = (pageblock.frame(), pageblock.frame() + FRAMES);
            (pageblock, Span { first: first.max(self.first), end: end.min(self.end) })
        })
    }

    /// The words that the span touches, and its bits in each.
    pub(crate) fn words(self) -> impl Iterator<Item = (usize, u64)> {
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

/// The largest block that begins at a frame and has at most `frames` frames.
pub(crate) fn largest_block(pfn: Pfn, frames: u32) -> Order {
    let aligned = pfn.get().trailing_zeros().min(u32::from(ORDER_MAX.get()));
    Order::new(aligned.min(frames.ilog2()) as u8)
}

/// The lowest set bits of a word, at most `count`.
pub(crate) fn lowest(word: u64, count: u32) -> u64 {
    let mut left = word;
    for _ in 0..count {
        left &= left.wrapping_sub(1);
    }
    word & !left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bits_are_those_that_come_first() {
        assert_eq!(lowest(0b1011_0100, 2), 0b1_0100);
        assert_eq!(lowest(0b1011_0100, 9), 0b1011_0100);
        assert_eq!((lowest(0, 3), lowest(!0, 0), lowest(!0, 64)), (0, 0, !0));
    }
}

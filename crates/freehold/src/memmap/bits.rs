//! Bitmaps: frames as bits of words, and frames that lie side by side.

use crate::memmap::index::FrameRange;
use crate::units::Order;

/// Frames that one word of a bitmap stands for.
pub const WORD_FRAMES: u32 = u64::BITS;

/// The order of a word: of as many frames as it stands for.
pub const WORD_ORDER: u8 = 6;

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
pub const fn ones(order: u8) -> u64 {
    if order >= WORD_ORDER { !0 } else { (1 << (1 << order)) - 1 }
}

/// The bits at which aligned runs of `2^order` set bits begin, for orders up to [`WORD_ORDER`].
#[inline(always)]
pub const fn starts(word: u64, order: u8) -> u64 {
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
pub const fn longer(starts: u64, order: u8) -> u64 {
    starts & starts >> (1 << order) & PLACES[order as usize + 1]
}

/// The lowest set bits of a word, at most `count`.
pub fn lowest(word: u64, count: u32) -> u64 {
    let mut left = word;
    for _ in 0..count {
        left &= left.wrapping_sub(1);
    }
    word & !left
}

/// Frames from the first one up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: u32,
    pub end: u32,
}

impl Span {
    /// The same frames as a range of the tables.
    pub const fn of_range(range: FrameRange) -> Self {
        Span { first: range.first.0, end: range.end.0 }
    }

    /// The parts of the span in each pageblock that it touches, with the pageblock's index.
    pub fn by_pageblock(self) -> impl DoubleEndedIterator<Item = (u32, Span)> {
        const FRAMES: u32 = 1 << Order::PAGEBLOCK.get();
        (self.first / FRAMES..self.end.div_ceil(FRAMES)).map(move |pageblock| {
            let (first, end) = (pageblock * FRAMES, (pageblock + 1) * FRAMES);
            (pageblock, Span { first: first.max(self.first), end: end.min(self.end) })
        })
    }

    /// The words that the span touches, and its bits in each.
    pub fn words(self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        (self.first / WORD_FRAMES..self.end.div_ceil(WORD_FRAMES)).map(move |word| {
            let start = word * WORD_FRAMES;
            let skipped = self.first.saturating_sub(start);
            let behind = WORD_FRAMES.saturating_sub(self.end - start);
            (word as usize, !0 << skipped & !0 >> behind)
        })
    }
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

    #[test]
    fn runs_of_each_order_begin_where_all_their_bits_are_set() {
        let naive = |word: u64, order: u8| {
            let fits = |&at: &u32| ones(order) & !(word >> at) == 0;
            (0..64).step_by(1 << order).filter(fits).fold(0, |found, at| found | 1 << at)
        };
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..2000 {
            word = word.wrapping_mul(0xd134_2543_de82_ef95).rotate_left(29) ^ round;
            for word in [word, word | word << 7 | word >> 3, u64::MAX << (word % 64), !word & 1] {
                for order in 0..=WORD_ORDER {
                    assert_eq!(starts(word, order), naive(word, order), "{word:#x} {order}");
                }
            }
        }
    }
}

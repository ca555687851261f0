//! Blocks of less than a child, as bits of the words of its bitfield.

use core::ops::Range;

use crate::entry::CHILD_FRAMES;
use freehold::units::Order;

/// How many frames a word has.
pub(crate) const WORD_FRAMES: u32 = u64::BITS;

/// How many words a child has.
pub(crate) const WORDS: usize = (CHILD_FRAMES / WORD_FRAMES) as usize;

/// The order of the block that a word is.
pub(crate) const WORD: Order = Order::new(WORD_FRAMES.ilog2() as u8);

/// How many frames a block has that no table is too short for.
#[inline]
pub(crate) const fn frames_in(order: Order) -> u32 {
    order.frames().get() as u32
}

/// The child that a frame is of.
#[inline]
pub(crate) const fn child_of(frame: u32) -> u32 {
    frame / CHILD_FRAMES
}

/// A block: its words mean something if it is less than a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: u32,
    pub(crate) order: Order,
}

impl Block {
    pub(crate) const fn frame(first: u32) -> Self {
        Block { first, order: Order::ZERO }
    }

    /// The huge block of an order that a child is of.
    pub(crate) const fn huge(child: u32, order: Order) -> Self {
        let first = child * CHILD_FRAMES;
        Block { first: first & !(frames_in(order) - 1), order }
    }

    pub(crate) const fn frames(self) -> u32 {
        frames_in(self.order)
    }

    pub(crate) const fn end(self) -> u32 {
        self.first + self.frames()
    }

    pub(crate) const fn child(self) -> u32 {
        child_of(self.first)
    }

    /// The words that it has frames of.
    #[inline]
    pub(crate) fn words(self) -> Range<usize> {
        let first = (self.first / WORD_FRAMES) as usize;
        first..first + self.frames().div_ceil(WORD_FRAMES) as usize
    }

    /// Its frames in each of these.
    #[inline]
    pub(crate) const fn mask(self) -> u64 {
        match self.order.get() < WORD.get() {
            true => ((1 << self.frames()) - 1) << (self.first % WORD_FRAMES),
            false => u64::MAX,
        }
    }

    /// Its first frame in the first one.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.first % WORD_FRAMES)
    }
}

/// The lowest block of an order, up to that of a word, among the bits of a word.
#[inline]
pub(crate) fn find_in_word(free: u64, order: Order) -> Option<u32> {
    /// By order: where blocks may begin.
    const STARTS: [u64; 7] = {
        let (mut starts, mut order) = ([u64::MAX; 7], 1);
        while order < 7 {
            let (size, mut at) = (1 << order, 0);
            starts[order] = 0;
            while at < 64 {
                starts[order] |= 1 << at;
                at += size;
            }
            order += 1;
        }
        starts
    };
    let mut runs = free;
    for half in 0..order.get() {
        runs &= runs >> (1 << half);
    }
    let found = runs & STARTS[order.index() % STARTS.len()];
    (found != 0).then(|| found.trailing_zeros())
}

/// The largest block that begins at a frame, up to an order, and ends at or before another.
pub(crate) fn largest(first: u32, end: u32, most: Order) -> Order {
    let aligned = first.trailing_zeros().min(u32::from(most.get()));
    Order::new(aligned.min((end - first).ilog2()) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_block_of_each_order_is_found() {
        let naive = |free: u64, order: Order| {
            let fits = |&at: &u32| {
                free & Block { first: at, order }.mask() == Block { first: at, order }.mask()
            };
            (0..64).step_by(1 << order.get()).find(fits)
        };
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..2000 {
            word = word.wrapping_mul(0xd134_2543_de82_ef95).rotate_left(29) ^ round;
            for free in [word, word | word << 7 | word >> 3, u64::MAX << (word % 64), !word & 1] {
                for order in Order::ZERO.to(WORD) {
                    assert_eq!(find_in_word(free, order), naive(free, order), "{free:#x} {order}");
                }
            }
        }
    }
}

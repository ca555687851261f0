//! Blocks of less than a child, as bits of the words of its bitfield.

use core::iter::successors;
use core::ops::Range;

use crate::entry::CHILD_FRAMES;
use freehold::memmap::bits::{Span, WORD_FRAMES, WORD_ORDER, ones};
use freehold::memmap::index::FrameIndex;
use freehold::platform::{Platform, Word};
use freehold::units::Order;
use freehold::zeroable;

/// A record that is a word, of a table that begins as zero bytes.
pub(crate) struct Word32<P: Platform>(pub(crate) P::U32);

zeroable!(Word32 { 0: P::U32::ZERO_BYTES });

impl<P: Platform> Word32<P> {
    pub(crate) fn zero() -> Self {
        Word32(P::U32::new(0))
    }
}

/// How many words a child has.
pub(crate) const WORDS: usize = (CHILD_FRAMES / WORD_FRAMES) as usize;

/// The order of the block that a word is.
pub(crate) const WORD: Order = Order::new(WORD_ORDER);

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

/// The words of a child.
#[inline]
pub(crate) const fn words_of(child: u32) -> Range<usize> {
    child as usize * WORDS..(child as usize + 1) * WORDS
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
        ones(self.order.get()) << (self.first % WORD_FRAMES)
    }

    /// Its first frame in the first one.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.first % WORD_FRAMES)
    }
}

/// Adjacent frames in the largest blocks that fit, up to an order.
pub(crate) fn blocks(span: Span, most: Order) -> impl Iterator<Item = Block> {
    let order = move |first| FrameIndex(first).largest_before(FrameIndex(span.end)).min(most);
    let block = move |first| (first < span.end).then(|| Block { first, order: order(first) });
    successors(block(span.first), move |last| block(last.end()))
}

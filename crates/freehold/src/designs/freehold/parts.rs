//! The blocks that users hold in a pageblock in use frame by frame, as its bitmaps tell.
//!
//! A user holds aligned blocks of powers of two. Those that he frees parts of fall into the largest
//! such blocks that what is left has room for, so the marks say all: where an allocation begins,
//! and how many frames of it are left in a row.

use super::blocks::{BlockIndex, Blocks, FRAMES};
use super::runs::{Run, WORD_FRAMES};
use super::span::Span;
use crate::platform::Platform;
use crate::units::Order;

/// The largest block that is less than a pageblock.
const PART_MAX: u8 = Order::PAGEBLOCK.get() - 1;

impl Run {
    /// The first frame behind it.
    pub(super) const fn end(self) -> u32 {
        self.frame() + (1 << self.order.get())
    }
}

impl<P: Platform> Blocks<P> {
    /// Frames of a word that users hold. A frame that is free all the while is not among them,
    /// whoever gathers it meanwhile.
    pub(super) fn used(&self, word: usize) -> u64 {
        !self.free_or_remote(word)
    }

    /// The first frame of a span that a user holds.
    pub(super) fn next_used(&self, span: Span) -> Option<u32> {
        span.words().find_map(|(word, mask)| {
            let used = self.used(word) & mask;
            (used != 0).then(|| word as u32 * WORD_FRAMES + used.trailing_zeros())
        })
    }

    /// Whether a frame belongs to the same allocation as the one before.
    fn is_joined(&self, frame: u32) -> bool {
        let (word, bit) = ((frame / WORD_FRAMES) as usize, frame % WORD_FRAMES);
        !frame.is_multiple_of(FRAMES) && (self.tails(word) & !self.remote(word)) >> bit & 1 == 1
    }

    /// The block that a user holds in which a frame lies. A block that is just being freed may look
    /// like several; its owner knows nothing of them.
    pub(super) fn part_of(&self, frame: u32) -> Run {
        let (mut at, mut end) = (frame, frame + 1);
        while self.is_joined(at) {
            at -= 1;
        }
        while self.is_joined(end) {
            end += 1;
        }
        loop {
            let order = at.trailing_zeros().min((end - at).ilog2()).min(u32::from(PART_MAX));
            let part = Run::at(at, Order::new(order as u8));
            if frame < part.end() {
                return part;
            }
            at = part.end();
        }
    }

    /// The first block at or behind a frame of a pageblock that a user holds and whose content can
    /// move, as far as is known.
    pub(super) fn next_movable(&self, block: BlockIndex, from: u32, below: Order) -> Option<Run> {
        let mut at = Span { first: from, ..Span::of(block, 1) };
        while let Some(frame) = self.next_used(at) {
            let part = self.part_of(frame);
            if part.order < below && !self.is_fixed(part) {
                return Some(part);
            }
            at.first = part.end();
        }
        None
    }

    /// Separates frames of a word, which lie in a row and which their user frees, from those before
    /// and behind them.
    pub(super) fn cut(&self, word: usize, mask: u64) {
        self.unjoin(word, 0, mask | mask << 1);
        self.begin_behind(word);
    }
}

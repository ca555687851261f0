//! How a block in use becomes parts, or free: by one call, if others try at the same time.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{CHANGING_SHIFT, Lower};
use crate::block::{Block, frames_in};
use freehold::platform::{IrqsOff, Platform, Word};
use freehold::units::Order;

impl<P: Platform> Lower<P> {
    /// Changes a block of more than a word, unless it has changed or another call is changing it.
    /// Its tails and bits do not go in one step: `is_changing` tells others that they are on the
    /// way.
    fn change_long<T>(&self, platform: &P, of: Block, change: impl FnOnce() -> T) -> Option<T> {
        // No handler may come between that frees another part of the block, and waits.
        let _off = IrqsOff::new(platform);
        let marks = &self.zones.get(of.child() as usize).0;
        let mask = of.words().fold(0, |mask, word| mask | changing(word));
        let now = marks.load(Relaxed);
        // Acquire: the change before it comes before this one.
        let begins =
            now & mask == 0 && marks.compare_exchange(now, now | mask, Acquire, Relaxed).is_ok();
        let changed = begins.then(|| (self.block_of(of.first) == Some(of)).then(change)).flatten();
        if begins {
            // Release: who sees the end of the change sees it.
            marks.fetch_and(!mask, Release);
        }
        changed
    }

    /// Whether a frame, which looked allocated by itself, may be one of a block that a call has
    /// claimed and not freed yet.
    #[inline]
    pub(crate) fn is_changing(&self, frame: Block) -> bool {
        // Acquire: bits are looked at after it.
        let marks = self.zones.get(frame.child() as usize).0.load(Acquire);
        marks & changing(frame.words().start) != 0
    }

    /// Whether a call changes a block of more than a word of a child.
    pub(crate) fn has_changing(&self, child: u32) -> bool {
        self.zones.get(child as usize).0.load(Relaxed) >> CHANGING_SHIFT != 0
    }

    /// Makes two of a block of more than a word, unless it has changed.
    pub(crate) fn halve(&self, platform: &P, of: Block) {
        let upper = Block::frame(of.first + of.frames() / 2);
        self.change_long(platform, of, || self.clear_tail(upper));
    }

    /// Frees a block of more than a word; returns how many of its frames were allocated. `None`:
    /// look again.
    pub(crate) fn put_long(&self, platform: &P, block: Block) -> Option<u32> {
        self.change_long(platform, block, || {
            for word in block.words() {
                // Release: whoever sees it sees `is_changing`.
                self.marks.get(word).tails.store(0, Release);
            }
            self.put_bits(block)
        })
    }

    /// Claims a part of a block of at most a word, to free it, and makes the rest of it the largest
    /// blocks that fit: in one step, which of two calls only one can make.
    pub(crate) fn claim_part(&self, of: Block, part: Block) -> bool {
        let tails = &self.marks.get(of.words().start).tails;
        let now = tails.load(Relaxed);
        let (mut rest, mut at) = (now & !part.mask(), of.first);
        for half in (part.order.get()..of.order.get()).rev().map(Order::new) {
            let upper = at + frames_in(half);
            rest &= !Block::frame(upper).bit();
            at = if part.first >= upper { upper } else { at };
        }
        // Release: see `tails`.
        now & of.mask() == of.mask() & !of.bit()
            && tails.compare_exchange(now, rest, Release, Relaxed).is_ok()
    }
}

/// The mark of a word of a child that has a block which a call changes.
fn changing(word: usize) -> u32 {
    1 << (CHANGING_SHIFT + word as u32 % (u32::BITS - CHANGING_SHIFT))
}

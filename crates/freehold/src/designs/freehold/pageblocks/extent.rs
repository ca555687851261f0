//! Blocks of more than a word of frames, in a split pageblock: one word decides who frees them.
//!
//! Each word of such a block has an *extent* in place of tail bits: the order of the block that
//! begins there, as long as no block that begins before has the word. So all parts that can ever be
//! freed have an extent from the beginning, and the first word of the allocation has the whole
//! one's, as the head of a block of whole pageblocks has its order.
//!
//! * A free of the whole changes the first word: [`Extent::freed`]. From then on it owns all words.
//! * A free of a part first shortens the extents of the blocks that begin before and have its first
//!   word, the longest first ([`Pageblocks::separate`]). Each step leaves two allocations where one
//!   was. Then the part's first word decides. A part of a word gets tail bits first, and is one of
//!   several allocations in a word then.
//!
//! So of frees of a whole and of parts of it, at most one frees a frame, and one of them does.
//! There is no way back, except from a word that no other call changes: no tail bit is ever set for
//! a frame that may have been freed.
//!
//! A call that comes late, after all was freed and allocated again, may change a word that is not
//! separate. So it separates it afterwards as well. If it finds that the words are being freed by
//! another call by then, it has nothing, and that call overwrites what it has written.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::run::{Run, WORD_FRAMES, WORD_ORDER};
use super::{PageblockIndex, Pageblocks, TAILS};
use crate::Error;
use crate::platform::{Platform, Word};
use crate::units::Order;

/// The order of the largest block that is less than a pageblock.
const PART_MAX: u8 = Order::PAGEBLOCK.get() - 1;

/// The tail bits of a word of a block of more than a word: all but one, whose place is the order;
/// without [`Extent::HELD`], the block is being freed.
///
/// A word of other blocks has no tail bit for its first frame, unless that is a hole. And each
/// frame of the word looks like part of a block, or like the head of one that has no end in the
/// word, so that the fast paths leave it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent(u64);

impl Extent {
    /// At an odd place: only a single frame may begin there.
    const HELD: u64 = 1 << 61;

    /// An allocated block, or the part of one that begins at a word. The order is at least that of
    /// a word.
    const fn held(order: u8) -> Self {
        Extent(!(1 << (2 * (order - WORD_ORDER) + 2)))
    }

    /// The same while it is being freed.
    const fn freed(self) -> Self {
        Extent(self.0 & !Self::HELD)
    }

    const fn is_freed(self) -> bool {
        self.0 & Self::HELD == 0
    }

    const fn order(self) -> u8 {
        let place = (!self.0).trailing_zeros();
        (place / 2) as u8 + WORD_ORDER - 1
    }

    /// How many words it has.
    const fn words(self) -> usize {
        1 << (self.order() - WORD_ORDER)
    }

    /// The extent that tail bits are, if they are one.
    const fn of(tails: u64) -> Option<Self> {
        let place = (!(tails | Self::HELD)).trailing_zeros();
        // Of a word of holes, all bits are set.
        if place < 2 || place % 2 == 1 || place > 2 * (PART_MAX - WORD_ORDER) as u32 + 2 {
            return None;
        }
        let found = Extent(tails);
        if tails | Self::HELD == !(1 << place) { Some(found) } else { None }
    }
}

impl<P: Platform> Pageblocks<P> {
    /// The tail bits of a word; without those of holes; and its extent if it has one.
    pub(super) fn joined(&self, word: usize) -> (u64, u64, Option<Extent>) {
        let mut tails = self.tails(word);
        loop {
            // In this order: frames may become holes at any time. And holes may become memory: what
            // was one at the first look, and is none at the second, has no tail bit at the third.
            let joined = tails & !self.remote(word);
            let again = if joined == 0 { tails } else { self.tails(word) };
            if again == tails {
                return (tails, joined, if joined & 1 == 1 { Extent::of(tails) } else { None });
            }
            tails = again;
        }
    }

    fn extent(&self, word: usize) -> Option<Extent> {
        self.joined(word).2
    }

    /// Marks words as one block of `order`, more than a word, or as two of half a pageblock.
    pub(super) fn set_extents(&self, words: core::ops::Range<usize>, order: u8) {
        for (nth, word) in words.enumerate() {
            // As long as the place allows.
            let natural = u32::from(WORD_ORDER) + nth.trailing_zeros();
            let order = natural.min(u32::from(order.min(PART_MAX))) as u8;
            // A store: the words are all of the block, so no other tail bits can change meanwhile.
            // Release: a late call that finds a word sees those before it as well.
            self.map::<TAILS>(word).store(Extent::held(order).0, Release);
        }
    }

    /// The longest block of more than a word that has a word, or has had it until now; if it has
    /// been separated, the block that begins there.
    pub(super) fn long_block_of(&self, word: usize) -> Option<Run> {
        let own = self.extent(word)?;
        let heads = (WORD_ORDER + 1..=PART_MAX).rev().find_map(|order| {
            let head = word & !(Extent::held(order).words() - 1);
            self.extent(head).filter(|of| of.order() >= order).map(|of| (head, of))
        });
        let (head, of) = heads.unwrap_or((word, own));
        Some(Run::at(head as u32 * WORD_FRAMES, Order::new(of.order())))
    }

    /// Makes an allocation begin at a word, if one that begins before has it.
    ///
    /// # Errors
    ///
    /// [`Error::DoubleFree`] if a call is freeing one that has it.
    pub(super) fn separate(&self, word: usize) -> Result<(), Error> {
        // The longest first: from then on, no other call can free what has been separated.
        for order in (WORD_ORDER + 1..=PART_MAX).rev() {
            let head = word & !(Extent::held(order).words() - 1);
            while head != word
                && let Some(of) = self.extent(head)
                && head + of.words() > word
            {
                if of.is_freed() {
                    return Err(Error::DoubleFree);
                }
                let shorter = Extent::held(WORD_ORDER + (word - head).ilog2() as u8);
                self.try_set_tails(head, of.0, shorter.0);
            }
        }
        Ok(())
    }

    /// Makes a word an allocation of its own, if it is part of a larger one.
    ///
    /// # Errors
    ///
    /// As [`Pageblocks::separate`].
    pub(super) fn open(&self, word: usize) -> Result<(), Error> {
        loop {
            // Before, since a call that frees the whole owns all of it; and after, for what was
            // allocated meanwhile.
            self.separate(word)?;
            match self.extent(word) {
                None => return Ok(()),
                Some(of) if of.is_freed() => return Err(Error::DoubleFree),
                Some(of) => self.try_set_tails(word, of.0, !1),
            };
        }
    }

    /// Changes the tail bits of a word if they are still `before`; returns whether they were.
    pub(super) fn try_set_tails(&self, word: usize, before: u64, after: u64) -> bool {
        // Acquire: of a block that a late call finds, the words before; see `set_extents`. Release:
        // a call that finds what was separated sees what was before.
        self.map::<TAILS>(word).compare_exchange(before, after, AcqRel, Acquire).is_ok()
    }

    /// Claims a block of more than a word, or such a part of one, and ends its use. Of calls that
    /// claim the same frames at the same time, one succeeds.
    ///
    /// # Errors
    ///
    /// As [`Pageblocks::begin_free`].
    pub(super) fn begin_free_long(&self, run: Run) -> Result<(), Error> {
        let (word, order) = (run.word as usize, run.order.get());
        loop {
            let found = self.extent(word).filter(|of| of.order() >= order);
            let before = found.ok_or(Error::WrongOrder)?;
            if before.is_freed() {
                return Err(Error::DoubleFree);
            }
            // Before the claim, since a call that frees the whole would own what is claimed here.
            self.separate(word)?;
            if self.try_set_tails(word, before.0, Extent::held(order).freed().0) {
                break;
            }
        }
        // After it, for what was allocated meanwhile.
        self.separate(word)?;
        if !self.try_end_uses(run.words()) {
            // No other call changes the word while its block is being freed.
            self.map::<TAILS>(word).store(Extent::held(order).0, Release);
            return Err(Error::DoubleFree);
        }
        // The first word last: until then, other calls see by it that the others are being freed.
        // Release: one that does not sees that they have been.
        run.words().rev().for_each(|word| self.map::<TAILS>(word).store(0, Release));
        Ok(())
    }

    /// Whether the extent of a word, if it has one, is of words that have one.
    pub(crate) fn is_extent_valid(&self, word: usize) -> bool {
        let (_, joined, extent) = self.joined(word);
        let Some(extent) = extent else { return joined & 1 == 0 };
        let end = word + extent.words();
        word.is_multiple_of(extent.words())
            && (extent.is_freed()
                || (word..end).all(|word| self.extent(word).is_some())
                // It was shortened or freed meanwhile.
                || self.extent(word) != Some(extent))
    }

    /// Repairs extents in a copy of the tables, which may have part of a free or of an allocation.
    /// What was being freed is lost to the copy.
    pub(super) fn repair_extents(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            let (_, joined, extent) = self.joined(word);
            if joined & 1 == 0 {
                continue;
            }
            let repaired = extent.map_or(joined & !1, |of| {
                let is_whole = |&order: &u8| {
                    let end = word + Extent::held(order).words();
                    (word..end).all(|word| self.extent(word).is_some())
                };
                let longest = (WORD_ORDER..=of.order()).rev().find(is_whole);
                Extent::held(longest.unwrap_or(WORD_ORDER)).0
            });
            self.set_word::<TAILS>(word, repaired);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::freehold::pageblocks::run::ones;

    #[test]
    fn no_fast_path_takes_an_extent_for_a_block_of_its_own() {
        for order in WORD_ORDER..=PART_MAX {
            let held = Extent::held(order);
            for extent in [held, held.freed()] {
                assert_eq!(Extent::of(extent.0), Some(extent));
                assert_eq!((extent.order(), extent.words()), (order, 1 << (order - WORD_ORDER)));
                assert_eq!(extent.is_freed(), extent != held);
                for block in 0..=WORD_ORDER {
                    for bit in (0..WORD_FRAMES).step_by(1 << block) {
                        let mask = ones(block) << bit;
                        let inner = mask & mask << 1;
                        assert_ne!(extent.0 & (mask | mask << 1), inner, "{order} {block} {bit}");
                    }
                }
            }
        }
        for other in [0, !0, !1, !2, !(1 << 3), !Extent::HELD] {
            assert_eq!(Extent::of(other), None);
        }
    }
}

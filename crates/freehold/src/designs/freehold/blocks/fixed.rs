//! Which frames may hold content that cannot move.
//!
//! A pageblock is for one type of content, and if that cannot move, none of it does. In those for
//! movable content, frames that were handed out for another are marked: a bit a frame, and in the
//! record a bit a word that says whether its frames are worth a look. So nobody else touches these
//! marks, and whoever hands out movable content may leave them as they are: it is taken for what
//! cannot move, at worst, until somebody holds the pageblock as a walker while the frame is free.

use core::sync::atomic::Ordering::Relaxed;

use super::{BlockIndex, Blocks, FIXED};
use crate::designs::freehold::runs::Run;
use crate::platform::{Platform, Word};
use crate::units::MigrateType;

/// All words of a pageblock.
const ALL: u32 = (1 << super::WORDS) - 1;

// Relaxed: exact for whoever holds the pageblock; others ask again once they do.
impl<P: Platform> Blocks<P> {
    /// The words of a pageblock, from the lowest bit, some frames of which are marked.
    fn fixed_words(&self, block: BlockIndex) -> u32 {
        self.records.get(block.index()).fixed.load(Relaxed)
    }

    fn set_fixed_words(&self, block: BlockIndex, words: u32) {
        self.records.get(block.index()).fixed.store(words, Relaxed);
    }

    /// Frames of a word that may hold content that cannot move, if somebody uses them.
    pub(in super::super) fn fixed(&self, word: usize) -> u64 {
        let block = BlockIndex::of_word(word);
        match self.fixed_words(block) >> (word - block.words().start) & 1 {
            1 => self.maps.get::<FIXED>(word).load(Relaxed),
            _ => 0,
        }
    }

    /// Whether a run may hold content that cannot move.
    pub(in super::super) fn is_fixed(&self, run: Run) -> bool {
        run.words().any(|word| self.fixed(word) & run.mask() != 0)
    }

    /// Notes that no frame of a pageblock holds content that cannot move.
    pub(in super::super) fn unfix_all(&self, block: BlockIndex) {
        self.set_fixed_words(block, 0);
    }

    /// Notes that any frame of a pageblock may come to hold content that cannot move.
    pub(in super::super) fn fix_all(&self, block: BlockIndex) {
        for word in block.words() {
            self.maps.get::<FIXED>(word).store(!0, Relaxed);
        }
        self.set_fixed_words(block, ALL);
    }

    /// Notes that a run in a pageblock that the caller holds will hold content that cannot move.
    pub(in super::super) fn fix(&self, run: Run) {
        let block = BlockIndex::of_frame(run.frame());
        for word in run.words() {
            let bit = 1 << (word - block.words().start);
            let words = self.fixed_words(block);
            if words & bit == 0 {
                self.maps.get::<FIXED>(word).store(run.mask(), Relaxed);
                self.set_fixed_words(block, words | bit);
            } else {
                self.maps.get::<FIXED>(word).fetch_or(run.mask(), Relaxed);
            }
        }
    }

    /// Notes that frames of a word, which their user is about to free, will no longer hold content
    /// that cannot move, unless all of the pageblock is for such content.
    pub(in super::super) fn unfix(&self, word: usize, mask: u64) {
        let is_movable =
            self.state(BlockIndex::of_word(word)).migratetype() == MigrateType::Movable;
        if is_movable && self.fixed(word) & mask != 0 {
            self.maps.get::<FIXED>(word).fetch_and(!mask, Relaxed);
        }
    }

    /// Takes the marks off free frames, unless the pageblock is for content that cannot move. The
    /// caller holds it.
    pub(in super::super) fn review_fixed(&self, block: BlockIndex) {
        let fixed = self.fixed_words(block);
        if fixed == 0 || self.state(block).migratetype() != MigrateType::Movable {
            return;
        }
        let left = block.words().enumerate().filter(|&(nth, word)| {
            let free = self.free(word);
            fixed >> nth & 1 == 1
                && self.maps.get::<FIXED>(word).fetch_and(!free, Relaxed) & !free != 0
        });
        self.set_fixed_words(block, left.fold(0, |words, (nth, _)| words | 1 << nth));
    }
}

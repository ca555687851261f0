//! Which frames may hold content that cannot move.
//!
//! Frames are marked several at a time, eight in a pageblock of order 9: 64 marks in the record, so
//! that they cost no memory. (A pageblock above order 12 has 128, one for each word.) A slot that holds a pageblock for content that cannot move marks all of it beforehand; past the slots,
//! each block is marked as it is handed out, in a pageblock of whatever type. Whoever hands out
//! movable content leaves the marks as they are: it is taken for what cannot move, at worst, until
//! somebody holds the pageblock as a walker while all frames of a mark are free.

use core::sync::atomic::Ordering::Relaxed;

use super::{BlockIndex, Blocks, WORDS};
use crate::designs::freehold::runs::{Run, WORD_FRAMES};
use crate::platform::{Platform, Word};
use crate::units::MigrateType;

/// Frames with a mark in common.
const TOGETHER: u32 = WORD_FRAMES / MARKS;

/// Words of marks for one pageblock: at least one mark for each word of a bitmap.
pub(super) const MARK_WORDS: usize = WORDS.div_ceil(u64::BITS as usize);

/// Marks for one word.
const MARKS: u32 = MARK_WORDS as u32 * u64::BITS / WORDS as u32;

/// The frames of a word that one mark stands for.
const fn frames_of(mark: u32) -> u64 {
    (!0 >> (WORD_FRAMES - TOGETHER)) << (mark * TOGETHER)
}

/// Where the marks of a word begin, counted over all marks of its pageblock.
const fn first_mark(word: usize) -> usize {
    word % WORDS * MARKS as usize
}

/// The marks of those among the frames of a word that satisfy a condition, in their word of marks.
fn marks(word: usize, wanted: impl Fn(u64) -> bool) -> u64 {
    let marks = (0..MARKS).filter(|&mark| wanted(frames_of(mark)));
    marks.fold(0, |marks, mark| marks | 1 << mark) << (first_mark(word) % u64::BITS as usize)
}

// Relaxed: exact for whoever holds the pageblock; others ask again once they do. Changed by
// read-modify-writes, since a user who gives frames back takes marks off without holding it.
impl<P: Platform> Blocks<P> {
    fn all_marks(&self, block: BlockIndex) -> &[P::U64; MARK_WORDS] {
        &self.twins.first().get(block.index()).fixed
    }

    /// The word of marks that those of a word lie in.
    fn marks_of(&self, word: usize) -> &P::U64 {
        &self.all_marks(BlockIndex::of_word(word))[first_mark(word) / u64::BITS as usize]
    }

    /// Frames of a word that may hold content that cannot move, if somebody uses them.
    pub(in super::super) fn fixed(&self, word: usize) -> u64 {
        let of_word = self.marks_of(word).load(Relaxed) >> (first_mark(word) % u64::BITS as usize);
        let set = (0..MARKS).filter(|mark| of_word >> mark & 1 == 1);
        set.fold(0, |frames, mark| frames | frames_of(mark))
    }

    /// Whether a run may hold content that cannot move.
    pub(in super::super) fn is_fixed(&self, run: Run) -> bool {
        run.words().any(|word| self.fixed(word) & run.mask() != 0)
    }

    /// Notes that no frame of a pageblock holds content that cannot move.
    pub(in super::super) fn unfix_all(&self, block: BlockIndex) {
        self.all_marks(block).iter().for_each(|marks| marks.store(0, Relaxed));
    }

    /// Notes that any frame of a pageblock may come to hold content that cannot move.
    pub(in super::super) fn fix_all(&self, block: BlockIndex) {
        self.all_marks(block).iter().for_each(|marks| marks.store(!0, Relaxed));
    }

    /// Notes that a run in a pageblock that the caller holds will hold content that cannot move.
    pub(in super::super) fn fix(&self, run: Run) {
        // A run is less than a pageblock, so its marks lie in one word.
        let of_run = |word| marks(word, |frames| frames & run.mask() != 0);
        let marks = run.words().fold(0, |marks, word| marks | of_run(word));
        self.marks_of(run.word as usize).fetch_or(marks, Relaxed);
    }

    /// Notes that frames of a word, which their user is about to free, will no longer hold content
    /// that cannot move, unless all of the pageblock is for such content.
    pub(in super::super) fn unfix(&self, word: usize, mask: u64) {
        let block = BlockIndex::of_word(word);
        if self.state(block).migratetype() == MigrateType::Movable && self.fixed(word) & mask != 0 {
            // Where others use some of the frames, the mark stays.
            let marks = marks(word, |frames| frames & mask == frames);
            self.marks_of(word).fetch_and(!marks, Relaxed);
        }
    }

    /// Whether any frame of a pageblock may hold content that cannot move.
    pub(in super::super) fn is_all_fixed(&self, block: BlockIndex) -> bool {
        self.all_marks(block).iter().all(|marks| marks.load(Relaxed) == !0)
    }

    /// Takes the marks off free frames. The caller holds the pageblock as a walker.
    pub(in super::super) fn review_fixed(&self, block: BlockIndex) {
        let of_free = |word| marks(word, |frames| frames & self.free(word) == frames);
        let words = block.words().step_by(WORDS / MARK_WORDS);
        for (fixed, first) in self.all_marks(block).iter().zip(words) {
            if fixed.load(Relaxed) != 0 {
                let words = first..first + WORDS / MARK_WORDS;
                let free = words.fold(0, |free, word| free | of_free(word));
                fixed.fetch_and(!free, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_for_eight_frames_each() {
        assert_eq!(frames_of(0), 0xff);
        assert_eq!(frames_of(MARKS - 1), 0xff << 56);
        assert_eq!(marks(8 * WORDS, |frames| frames & 0x8001 != 0), 0b11);
        assert_eq!(marks(8 * WORDS + 7, |frames| frames & 0xfeff == frames), 1 << 56);
        assert_eq!(marks(3, |_| true), 0xff << 24);
    }
}

//! Which frames may hold content that cannot move.
//!
//! One mark stands for several frames, eight in a pageblock of order 9: the 64 marks fit in the
//! record, so they cost no memory. (A pageblock above order 12 has 128, one for each word.) A cache
//! that holds a pageblock for content that cannot move marks all of it beforehand. Past the caches,
//! each block for such content is marked when it is allocated, in a pageblock of any type. An
//! allocation of movable content leaves the marks as they are. At worst, it is taken for content
//! that cannot move, until a walker holds the pageblock while all frames of a mark are free.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::run::{Run, WORD_FRAMES};
use super::{PageblockIndex, Pageblocks, WORDS};
use crate::platform::{Platform, Word};
use crate::units::MigrateType;

/// Frames with a mark in common.
const TOGETHER: u32 = WORD_FRAMES / MARKS;

/// Words of marks for one pageblock: at least one mark for each word of a bitmap.
pub(super) const MARK_WORDS: usize = WORDS.div_ceil(u64::BITS as usize);

/// Marks for one word.
const MARKS: u32 = MARK_WORDS as u32 * u64::BITS / WORDS as u32;

/// All marks of a word.
const ALL: u64 = !0 >> (u64::BITS - MARKS);

/// The frames of a word that one mark stands for.
const fn frames_of(mark: u32) -> u64 {
    (!0 >> (WORD_FRAMES - TOGETHER)) << (mark * TOGETHER)
}

/// Where the marks of a word begin, counted over all marks of its pageblock.
const fn first_mark(word: usize) -> usize {
    word % WORDS * MARKS as usize
}

/// Whether some frames of a word have any of those of a mark.
const TOUCHED: fn(u64, u64) -> bool = |frames, all| frames & all != 0;

/// Whether they have all of them.
const COVERED: fn(u64, u64) -> bool = |frames, all| frames & all == all;

/// The marks of a word that some of its frames touch or cover, in their word of marks.
#[inline]
fn marks(word: usize, frames: u64, is_one: fn(u64, u64) -> bool) -> u64 {
    let set = (0..MARKS).filter(|&mark| is_one(frames, frames_of(mark)));
    let marks = match frames {
        0 => 0,
        u64::MAX => ALL,
        _ => set.fold(0, |marks, mark| marks | 1 << mark),
    };
    marks << (first_mark(word) % u64::BITS as usize)
}

// Relaxed: exact for the holder of the pageblock; other CPUs check again once they hold it. Changed
// by RMWs, since a user that frees frames clears marks without holding the pageblock.
impl<P: Platform> Pageblocks<P> {
    fn all_marks(&self, pageblock: PageblockIndex) -> &[P::U64; MARK_WORDS] {
        &self.record(pageblock).unmovable
    }

    /// The word of marks that those of a word lie in.
    fn marks_of(&self, word: usize) -> &P::U64 {
        &self.all_marks(PageblockIndex::of_word(word))[first_mark(word) / u64::BITS as usize]
    }

    /// Frames of a word that may hold content that cannot move, if they are allocated.
    pub(crate) fn unmovable(&self, word: usize) -> u64 {
        let marks = self.marks_of(word).load(Relaxed) >> (first_mark(word) % u64::BITS as usize);
        match marks & ALL {
            0 => 0,
            ALL => !0,
            _ => {
                let set = (0..MARKS).filter(|mark| marks >> mark & 1 == 1);
                set.fold(0, |frames, mark| frames | frames_of(mark))
            }
        }
    }

    /// Whether a run may hold content that cannot move.
    pub(crate) fn may_be_unmovable(&self, run: Run) -> bool {
        run.words().any(|word| self.unmovable(word) & run.mask() != 0)
    }

    /// Records that no frame of a pageblock holds content that cannot move.
    pub(crate) fn clear_all_unmovable(&self, pageblock: PageblockIndex) {
        self.all_marks(pageblock).iter().for_each(|marks| marks.store(0, Relaxed));
    }

    /// Records that any frame of a pageblock may come to hold content that cannot move.
    pub(crate) fn mark_all_unmovable(&self, pageblock: PageblockIndex) {
        self.all_marks(pageblock).iter().for_each(|marks| marks.store(!0, Relaxed));
    }

    /// Records that any frame of a pageblock may come to hold content of a type: a cache takes
    /// frames without marking each.
    pub(crate) fn mark_unmovable_for(&self, pageblock: PageblockIndex, migratetype: MigrateType) {
        if migratetype != MigrateType::Movable {
            self.mark_all_unmovable(pageblock);
        }
    }

    /// Records that a run in a pageblock that the caller holds will hold content that cannot move.
    pub(crate) fn mark_unmovable(&self, run: Run) {
        // A run is less than a pageblock, so its marks lie in one word.
        self.mark_unmovable_frames(run.words(), run.mask());
    }

    /// The same for frames in each of some words, whose marks lie in one word.
    pub(crate) fn mark_unmovable_frames(&self, words: Range<usize>, mask: u64) {
        let of_pageblock = self.marks_of(words.start);
        let of_frames = |word| marks(word, mask, TOUCHED);
        let marks = words.fold(0, |marks, word| marks | of_frames(word));
        // Of the frames of a mark that is set, these are some, so no user clears it now.
        if of_pageblock.load(Relaxed) & marks != marks {
            of_pageblock.fetch_or(marks, Relaxed);
        }
    }

    /// Records that frames of a word, which their user is about to free, will no longer hold
    /// content that cannot move, unless the whole pageblock is for such content.
    pub(crate) fn clear_unmovable(&self, word: usize, mask: u64) {
        let pageblock = PageblockIndex::of_word(word);
        if self.state(pageblock).migratetype() == MigrateType::Movable
            && self.unmovable(word) & mask != 0
        {
            // If other frames of the mark are not freed, the mark stays.
            let marks = marks(word, mask, COVERED);
            self.marks_of(word).fetch_and(!marks, Relaxed);
        }
    }

    /// Whether any frame of a pageblock may hold content that cannot move.
    pub(crate) fn is_all_unmovable(&self, pageblock: PageblockIndex) -> bool {
        self.all_marks(pageblock).iter().all(|marks| marks.load(Relaxed) == !0)
    }

    /// Clears the marks of free frames. The caller holds the pageblock as a walker.
    pub(crate) fn refresh_unmovable(&self, pageblock: PageblockIndex) {
        const WORDS_TOGETHER: usize = WORDS / MARK_WORDS;
        let of_free = |word| marks(word, self.free(word), COVERED);
        let firsts = pageblock.words().step_by(WORDS_TOGETHER);
        for (unmovable, first) in self.all_marks(pageblock).iter().zip(firsts) {
            if unmovable.load(Relaxed) != 0 {
                let words = first..first + WORDS_TOGETHER;
                let free = words.fold(0, |free, word| free | of_free(word));
                unmovable.fetch_and(!free, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::Run;
    use super::*;
    use crate::designs::freehold::tests::machine;
    use crate::units::Order;

    #[test]
    fn marks_are_set_for_all_and_cleared_for_free_frames() {
        let frames = machine(2);
        let (pageblocks, pageblock) = (&frames.design().zones.pageblocks, PageblockIndex(1));
        let marked = || -> u32 {
            pageblock.words().map(|word| pageblocks.unmovable(word).count_ones()).sum()
        };
        pageblocks.mark_all_unmovable(pageblock);
        assert_eq!((marked(), pageblocks.is_all_unmovable(pageblock)), (512, true));
        assert!(pageblocks.may_be_unmovable(Run::at(512 + 77, Order::ZERO)));
        // Eight frames a mark: it goes once all of them are free.
        pageblock.words().for_each(|word| pageblocks.set_free(word, 0xffff_007f));
        pageblocks.refresh_unmovable(pageblock);
        assert_eq!((marked(), pageblocks.is_all_unmovable(pageblock)), (512 - 8 * 16, false));
        pageblocks.clear_all_unmovable(pageblock);
        assert_eq!(marked(), 0);
    }

    #[test]
    fn marks_stand_for_eight_frames_each() {
        assert_eq!(frames_of(0), 0xff);
        assert_eq!(frames_of(MARKS - 1), 0xff << 56);
        assert_eq!(marks(8 * WORDS, 0x8001, TOUCHED), 0b11);
        assert_eq!(marks(8 * WORDS + 7, 0xfeff, COVERED), 1 << 56);
        let of_all = [TOUCHED, COVERED].map(|is_one| (marks(3, !0, is_one), marks(3, 0, is_one)));
        assert_eq!(of_all, [(0xff << 24, 0); 2]);
    }
}

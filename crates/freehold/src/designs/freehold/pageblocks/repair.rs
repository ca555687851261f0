//! What is put right of a pageblock in a copy of the tables, where no other thread runs.

// Relaxed throughout: there is no other thread.
use core::sync::atomic::Ordering::Relaxed;

use super::state::State;
use super::{PageblockIndex, Pageblocks, REMOTE, TAILS};
use crate::platform::{Platform, Word};

impl<P: Platform> Pageblocks<P> {
    /// Sets the state of a pageblock. What does not change is not written, so that the copy goes on
    /// sharing that memory with the original.
    pub(crate) fn set_state(&self, pageblock: PageblockIndex, state: State) {
        let word = &self.twins.first().get(pageblock.index()).state;
        if word.load(Relaxed) != state.0 {
            word.store(state.0, Relaxed);
        }
    }

    fn set_word<const MAP: usize>(&self, word: usize, bits: u64) {
        let word = self.map::<MAP>(word);
        if word.load(Relaxed) != bits {
            word.store(bits, Relaxed);
        }
    }

    /// Makes all frames of a pageblock free that has no holes.
    pub(crate) fn set_all_free(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            if self.free(word) != !0 {
                self.set_free(word, !0);
            }
            self.set_word::<TAILS>(word, 0);
            self.set_word::<REMOTE>(word, 0);
        }
    }

    /// Ends that frames of a pageblock without holes look like such: their being freed has been
    /// copied, and not the claim before that.
    pub(crate) fn fill_holes(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            self.set_word::<TAILS>(word, self.tails(word) & !self.holes(word));
        }
    }

    /// Ends half of a claim, or of an allocation: a free frame belongs to none, and what goes on
    /// behind a word has all of it, or begins there.
    pub(crate) fn end_claims(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            let kept = self.tails(word) & !self.free(word) | self.holes(word);
            self.set_word::<TAILS>(word, kept);
        }
        pageblock.words().filter(|&word| !self.ends_or_fills(word)).for_each(|word| {
            self.begin_behind(word);
        });
    }

    /// Moves what others have freed to the free frames of a pageblock without a holder. What is
    /// free in both was being moved just then.
    pub(crate) fn merge_remote(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            let (holes, tails) = (self.holes(word), self.tails(word));
            let free = self.free(word) | self.remote(word) & !tails;
            if free != self.free(word) {
                self.set_free(word, free);
            }
            self.set_word::<REMOTE>(word, holes);
        }
    }
}

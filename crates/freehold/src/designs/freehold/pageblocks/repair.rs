//! Repair of a pageblock in a copy of the tables, where no other thread runs.

// Relaxed throughout: there is no other thread.
use core::sync::atomic::Ordering::Relaxed;

use super::state::State;
use super::{PageblockIndex, Pageblocks, REMOTE, TAILS};
use crate::platform::{Platform, Word};

impl<P: Platform> Pageblocks<P> {
    /// Sets the state of a pageblock. A state that does not change is not written, so that the copy
    /// goes on sharing that memory with the original.
    pub(crate) fn repair_state(&self, pageblock: PageblockIndex, state: State) {
        let word = &self.record(pageblock).state;
        if word.load(Relaxed) != state.0 {
            word.store(state.0, Relaxed);
        }
    }

    pub(super) fn set_word<const MAP: usize>(&self, word: usize, bits: u64) {
        let word = self.map::<MAP>(word);
        if word.load(Relaxed) != bits {
            word.store(bits, Relaxed);
        }
    }

    /// Makes all frames of a pageblock without holes free.
    pub(crate) fn set_all_free(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            if self.free(word) != !0 {
                self.set_free(word, !0);
            }
            self.set_word::<TAILS>(word, 0);
            self.set_word::<REMOTE>(word, 0);
        }
    }

    /// Repairs frames of a pageblock without holes that look like holes: the copy has their being
    /// freed, but not the claim before it.
    pub(crate) fn fill_holes(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            self.set_word::<TAILS>(word, self.tails(word) & !self.holes(word));
        }
    }

    /// Repairs claims and allocations of which the copy has only a part: a free frame has no tail
    /// bit, and an allocation of more than a word has all of its words.
    pub(crate) fn end_claims(&self, pageblock: PageblockIndex) {
        for word in pageblock.words() {
            let left = self.tails(word) & !self.free(word) | self.holes(word);
            self.set_word::<TAILS>(word, left);
        }
        self.repair_extents(pageblock);
    }

    /// Moves remote frees to the free frames of a pageblock without a holder. A frame that is free
    /// in both bitmaps was being collected.
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

//! A set of pageblocks that all CPUs add to and remove from without a lock: a bitmap, with two
//! levels of summaries above it, so that a set bit is found in a few steps. A bitmap of one cache
//! line has no summaries: it is looked through as fast, and each of them would have to be kept.
//!
//! # Orderings
//!
//! A bit of the lowest level *is* the membership: one RMW sets or clears it, and the CPU that sees
//! it change owns the pageblock. That step acquires what the CPU that added the pageblock released.
//! So the CPU that removes it sees all that was written to it before.
//!
//! A summary bit is a hint that a word below it is not empty. It may be set in vain; it must not
//! stay clear above a word that has bits. Two rules ensure that. A CPU that sets a bit in an empty
//! word reads the summary afterwards and sets it if it is clear. A CPU that empties a word clears
//! the summary, and then re-checks the word, by an RMW. Either that RMW comes first in the
//! modification order of the word: then the setter, whose own step on the word acquires from it,
//! sees the summary cleared and sets it. Or the setter's step comes first: then the re-check finds
//! the bit, and the summary is set again.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::Error;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::memmap::zeroable::zeroable;
use crate::platform::{Platform, Word};

/// The bitmap and its summaries.
const LEVELS: usize = 3;

/// Bits in a word.
const BITS: usize = u64::BITS as usize;

/// Words in a cache line: levels begin on lines of their own.
const LINE: usize = 8;

/// The words of all trees.
pub(crate) struct Forest<P: Platform> {
    words: Table<TreeWord<P>>,
}

/// A word of a tree: no member at first.
struct TreeWord<P: Platform> {
    word: P::U64,
}

zeroable!(TreeWord { word: P::U64::ZERO_BYTES });

/// Where the words of a [`Forest`] will lie.
pub(crate) struct ForestPlan<P: Platform> {
    words: TablePlan<TreeWord<P>>,
}

/// Where the words of one tree lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The first word of each level.
    levels: [usize; LEVELS],
    /// How many bits the lowest level has.
    bits: usize,
    /// How many words it takes.
    words: usize,
}

/// How many words each level of a tree takes.
fn level_words(bits: usize) -> [usize; LEVELS] {
    let leaf = bits.div_ceil(BITS);
    let middle = if has_summaries(bits) { leaf.div_ceil(BITS) } else { 0 };
    [leaf, middle, middle.div_ceil(BITS)].map(|words| words.next_multiple_of(LINE))
}

/// Whether a tree of so many bits has more than its lowest level.
const fn has_summaries(bits: usize) -> bool {
    bits > LINE * BITS
}

impl Tree {
    /// A tree of so many bits whose words begin at `first`; also the first word behind it.
    pub(crate) fn new(first: usize, bits: usize) -> (Self, usize) {
        let (mut levels, mut next) = ([0; LEVELS], first);
        // Summaries come first: then those of low pageblocks share their page.
        for (level, words) in level_words(bits).into_iter().enumerate().rev() {
            levels[level] = next;
            next += words;
        }
        (Tree { levels, bits, words: next - first }, next)
    }

    /// The tree of the same size that is the `nth` after this one.
    #[inline]
    pub(crate) fn nth(&self, nth: usize) -> Self {
        Tree { levels: self.levels.map(|level| level + nth * self.words), ..*self }
    }

    /// Where a CPU begins to look, so that CPUs keep out of each other's way.
    pub(crate) const fn stretch(&self, cpu: usize, cpus: usize) -> usize {
        // The stretch is a number of whole cache lines, if there are enough bits, or at least of
        // whole words.
        let share = self.bits / cpus;
        let unit = match share {
            0..BITS => 1,
            BITS..512 => BITS,
            _ => LINE * BITS,
        };
        share / unit * unit * cpu
    }

    /// How many bits the lowest level has.
    pub(crate) const fn bits(&self) -> usize {
        self.bits
    }

    /// How many words a tree of so many bits takes.
    pub(crate) fn words(bits: usize) -> usize {
        level_words(bits).iter().sum()
    }
}

impl<P: Platform> Forest<P> {
    pub(crate) fn plan(words: usize, layout: &mut LayoutBuilder) -> Result<ForestPlan<P>, Error> {
        Ok(ForestPlan { words: layout.table(SectionKind::Bitmaps, words)? })
    }

    pub(crate) fn carve(plan: &ForestPlan<P>, carver: &mut Carver) -> Self {
        Forest { words: carver.zero_table(plan.words, |_| TreeWord { word: P::U64::new(0) }) }
    }

    #[inline]
    fn word(&self, tree: &Tree, level: usize, index: usize) -> &P::U64 {
        &self.words.get(tree.levels[level] + index).word
    }

    /// Whether a pageblock is in the set: a hint, unless no other CPU changes it.
    pub(crate) fn contains(&self, tree: &Tree, bit: usize) -> bool {
        // Acquire: a CPU that sees the pageblock in the set sees all that was written before it was
        // added.
        self.word(tree, 0, bit / BITS).load(Acquire) >> (bit % BITS) & 1 == 1
    }

    /// Adds a pageblock; returns whether it was not in the set yet.
    pub(crate) fn insert(&self, tree: &Tree, bit: usize) -> bool {
        let mask = 1 << (bit % BITS);
        self.insert_mask(tree, bit / BITS, mask) & mask == 0
    }

    /// Adds pageblocks of one word; returns the word before.
    pub(crate) fn insert_mask(&self, tree: &Tree, index: usize, mask: u64) -> u64 {
        // Release: for the CPU that removes them. Acquire: see the module.
        let before = self.word(tree, 0, index).fetch_or(mask, AcqRel);
        if before == 0 && has_summaries(tree.bits) {
            self.note(tree, 1, index);
        }
        before
    }

    /// Ensures that the summary of a word that has bits is set.
    fn note(&self, tree: &Tree, level: usize, below: usize) {
        let (summary, bit) = (self.word(tree, level, below / BITS), 1 << (below % BITS));
        // Acquire: see the module.
        if summary.load(Acquire) & bit == 0 {
            let before = summary.fetch_or(bit, AcqRel);
            if before == 0 && level + 1 < LEVELS {
                self.note(tree, level + 1, below / BITS);
            }
        }
    }

    /// Removes a pageblock; returns whether it was in the set, and is the caller's now.
    pub(crate) fn remove(&self, tree: &Tree, bit: usize) -> bool {
        let mask = 1 << (bit % BITS);
        self.clear(tree, bit / BITS, mask) & mask != 0
    }

    /// Clears a bit of a word of the lowest level; returns the word before.
    #[inline]
    fn clear(&self, tree: &Tree, index: usize, mask: u64) -> u64 {
        // Acquire: from the CPU that added it. Release: orders this step before that of a CPU that
        // adds one later.
        let before = self.word(tree, 0, index).fetch_and(!mask, AcqRel);
        if before == mask {
            self.note_emptied(tree, index);
        }
        before
    }

    /// Removes a pageblock, or if another CPU was faster, one that its word has then; returns
    /// which. `spread` differs between CPUs: those that were late together would meet again at the
    /// next one. Each step in vain is one in which another CPU succeeded.
    pub(crate) fn remove_or_other(&self, tree: &Tree, bit: usize, spread: usize) -> Option<usize> {
        let (index, mut bit) = (bit / BITS, bit % BITS);
        loop {
            let mask = 1 << bit;
            let before = self.clear(tree, index, mask);
            if before & mask != 0 {
                return Some(index * BITS + bit);
            }
            let mut left = before;
            for _ in 0..spread as u32 % before.count_ones().max(1) {
                left &= left - 1;
            }
            bit = if left == 0 { return None } else { left.trailing_zeros() as usize };
        }
    }

    /// Removes all these pageblocks of one word, or none; returns whether it did.
    pub(crate) fn remove_mask(&self, tree: &Tree, index: usize, mask: u64) -> bool {
        let word = self.word(tree, 0, index);
        // Relaxed: only a first guess.
        let mut before = word.load(Relaxed);
        while before & mask == mask {
            // Acquire and release: as in `clear`.
            match word.compare_exchange(before, before & !mask, AcqRel, Relaxed) {
                Ok(_) => {
                    if before == mask {
                        self.note_emptied(tree, index);
                    }
                    return true;
                }
                Err(now) => before = now,
            }
        }
        false
    }

    /// Clears the summary of a word of the lowest level that was emptied, if it has one.
    fn note_emptied(&self, tree: &Tree, index: usize) {
        if has_summaries(tree.bits) {
            self.note_empty(tree, 1, index);
        }
    }

    /// Clears the summary of a word that was emptied, unless it has bits again.
    fn note_empty(&self, tree: &Tree, level: usize, below: usize) {
        let (summary, bit) = (self.word(tree, level, below / BITS), 1 << (below % BITS));
        // Acquire and release: see the module.
        let before = summary.fetch_and(!bit, AcqRel);
        if before == bit && level + 1 < LEVELS {
            self.note_empty(tree, level + 1, below / BITS);
        }
        if self.word(tree, level - 1, below).fetch_or(0, AcqRel) != 0 {
            self.note(tree, level, below);
        }
    }

    /// Rebuilds so many trees, from `first` on, and their summaries, for bits in a range: others
    /// are clear. `members` has a bit for each that a pageblock is in. No other CPU reads or
    /// changes them. What is right already is not written.
    pub(crate) fn rebuild(
        &self,
        first: &Tree,
        trees: usize,
        bits: Range<usize>,
        members: impl Fn(usize) -> u64,
    ) {
        let words = level_words(first.bits);
        // The words of a level that stand for these bits.
        let of_level = |level: usize| {
            let bits_of_word = BITS.pow(level as u32 + 1);
            bits.start / bits_of_word..words[level].min(bits.end.div_ceil(bits_of_word))
        };
        for index in of_level(0) {
            let mut of_trees = [0; BITS];
            for bit in (0..BITS).take_while(|bit| index * BITS + bit < first.bits) {
                let mut of = members(index * BITS + bit);
                while of != 0 {
                    of_trees[of.trailing_zeros() as usize] |= 1 << bit;
                    of &= of - 1;
                }
            }
            for (nth, &members) in of_trees.iter().enumerate().take(trees) {
                self.set_word(self.word(&first.nth(nth), 0, index), members);
            }
        }
        for (nth, level) in (0..trees).flat_map(|nth| (1..LEVELS).map(move |level| (nth, level))) {
            let tree = first.nth(nth);
            for index in of_level(level) {
                // Relaxed: there is no other thread.
                let is_set = |bit| self.word(&tree, level - 1, bit).load(Relaxed) != 0;
                let below = index * BITS..words[level - 1].min((index + 1) * BITS);
                let set = below.filter(|&bit| is_set(bit)).map(|bit| 1 << (bit % BITS));
                let summary = set.fold(0, |summary, bit: u64| summary | bit);
                self.set_word(self.word(&tree, level, index), summary);
            }
        }
    }

    fn set_word(&self, word: &P::U64, value: u64) {
        // Relaxed: there is no other thread.
        if word.load(Relaxed) != value {
            word.store(value, Relaxed);
        }
    }

    /// The first pageblock in the set at or behind `from`, as the summaries say.
    #[inline(never)]
    pub(crate) fn next(&self, tree: &Tree, from: usize) -> Option<usize> {
        if from >= tree.bits {
            return None;
        }
        let bits = self.members(tree, from / BITS) & !0 << (from % BITS);
        match bits {
            0 if tree.bits <= BITS => None,
            0 => self.next_at(tree, 0, from),
            _ => Some(from / BITS * BITS + bits.trailing_zeros() as usize),
        }
    }

    fn next_at(&self, tree: &Tree, level: usize, from: usize) -> Option<usize> {
        let words = tree.bits.div_ceil(1 << ((level + 1) as u32 * BITS.ilog2()));
        let has_level_above = level + 1 < LEVELS && has_summaries(tree.bits);
        let (mut index, mut mask) = (from / BITS, !0 << (from % BITS));
        while index < words {
            // Acquire: for the read of the pageblock that may follow.
            let bits = self.word(tree, level, index).load(Acquire) & mask;
            if bits != 0 {
                return Some(index * BITS + bits.trailing_zeros() as usize);
            }
            mask = !0;
            index = match has_level_above {
                true => self.next_at(tree, level + 1, index + 1)?,
                false => index + 1,
            };
        }
        None
    }

    /// The first place at or behind `from` that is not in the set, or `most`: a hint.
    pub(crate) fn run_end(&self, tree: &Tree, from: usize, most: usize) -> usize {
        let (mut at, most) = (from, most.min(tree.bits));
        while at < most {
            let absent = !self.members(tree, at / BITS) & !0 << (at % BITS);
            at = at / BITS * BITS + absent.trailing_zeros() as usize;
            if absent != 0 {
                break;
            }
        }
        at.min(most)
    }

    /// The members of one word, all 64 of them: a hint.
    pub(crate) fn members(&self, tree: &Tree, index: usize) -> u64 {
        // Acquire: as in `contains`.
        self.word(tree, 0, index).load(Acquire)
    }
}

/// All places from `start` to the end, and from the beginning to `start`, in a set of which `next`
/// tells the first member at or behind a place.
pub(crate) fn around(
    start: usize,
    next: impl Fn(usize) -> Option<usize>,
) -> impl Iterator<Item = usize> {
    let (mut from, mut is_behind) = (start, true);
    core::iter::from_fn(move || {
        let mut found = next(from);
        if is_behind && found.is_none() {
            is_behind = false;
            found = next(0);
        }
        let bit = found.filter(|&bit| is_behind || bit < start)?;
        from = bit + 1;
        Some(bit)
    })
}

#[cfg(test)]
#[path = "../../../../tests/common/loom_platform.rs"]
#[expect(unsafe_code, reason = "loom checks each access to its cells")]
mod loom_platform;

#[cfg(test)]
#[path = "../../../../tests/common/loom_runs.rs"]
mod loom_runs;

#[cfg(test)]
mod tests;

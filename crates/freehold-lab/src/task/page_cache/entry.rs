//! What the index knows of a block, in one word.

use freehold::Pfn;
use freehold_lru::Shadow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It was never cached, or that was long ago.
    Nothing,
    Cached(Pfn),
    Evicted(Shadow),
}

/// Marks a shadow, which has 62 bits. The number of a frame is one more, so that 0 is nothing.
const SHADOW: u64 = 1;

impl Entry {
    pub(super) fn to_word(self) -> u64 {
        match self {
            Entry::Nothing => 0,
            Entry::Cached(frame) => (frame.get() + 1) << 1,
            Entry::Evicted(shadow) => shadow.to_bits() << 1 | SHADOW,
        }
    }

    pub(super) fn of_word(word: u64) -> Self {
        match word >> 1 {
            bits if word & SHADOW != 0 => Entry::Evicted(Shadow::from_bits(bits)),
            0 => Entry::Nothing,
            frame => Entry::Cached(Pfn::new(frame - 1)),
        }
    }

    pub(super) fn frame(self) -> Option<Pfn> {
        if let Entry::Cached(frame) = self { Some(frame) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_entry_that_it_was() {
        let shadows = [0, 5, (1 << 62) - 1].map(Shadow::from_bits).map(Entry::Evicted);
        let frames = [0, 1, (1 << 52) - 1].map(Pfn::new).map(Entry::Cached);
        for entry in [&shadows[..], &frames, &[Entry::Nothing]].concat() {
            assert_eq!(Entry::of_word(entry.to_word()), entry);
        }
        assert_eq!(Entry::Nothing.to_word(), 0);
    }
}

//! Which blocks of the allocator are one allocation.
//!
//! The allocator holds a range as several blocks, and knows of each, not that they belong together.
//! Here is a bit for each frame, set if a block begins there that continues the allocation before
//! it. With it, a range is freed by its first address alone, and never in part.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use freehold::Pfn;

/// The bits. All accesses are relaxed: the caller who has the pointer of an allocation has it from
/// the one that set the bits, and passing it on orders the two.
#[derive(Debug)]
pub(crate) struct Stretches {
    words: Box<[AtomicU64]>,
    /// Whether a bit was ever set: as long as not, calls look no further.
    is_used: AtomicBool,
}

impl Stretches {
    pub(crate) fn new(frames: usize) -> Self {
        let words = (0..frames.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Stretches { words, is_used: AtomicBool::new(false) }
    }

    #[inline]
    fn place(&self, pfn: Pfn) -> Option<(&AtomicU64, u64)> {
        let index = usize::try_from(pfn.get()).ok()?;
        Some((self.words.get(index / 64)?, 1 << (index % 64)))
    }

    /// Notes that the block at `pfn` continues the one before it.
    pub(crate) fn join(&self, pfn: Pfn) {
        if let Some((word, bit)) = self.place(pfn) {
            self.is_used.store(true, Relaxed);
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Whether the block at `pfn` continues the one before it.
    #[inline]
    pub(crate) fn continues(&self, pfn: Pfn) -> bool {
        self.is_used.load(Relaxed)
            && self.place(pfn).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    /// Makes the block at `pfn` an allocation of its own. `false` if it is one already: of two
    /// callers that do this, one gets `true`.
    #[inline]
    pub(crate) fn part(&self, pfn: Pfn) -> bool {
        self.continues(pfn)
            && self.place(pfn).is_some_and(|(word, bit)| word.fetch_and(!bit, Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_taken_once_and_nothing_lies_beyond_the_end() {
        let stretches = Stretches::new(65);
        assert!(!stretches.continues(Pfn::new(64)));
        stretches.join(Pfn::new(64));
        assert!(stretches.continues(Pfn::new(64)) && !stretches.continues(Pfn::new(63)));
        assert!(stretches.part(Pfn::new(64)) && !stretches.part(Pfn::new(64)));
        stretches.join(Pfn::new(128));
        assert!(!stretches.continues(Pfn::new(128)) && !stretches.part(Pfn::new(u64::MAX)));
    }
}

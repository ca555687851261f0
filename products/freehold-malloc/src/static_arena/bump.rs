//! Memory that is given out once, from its begin to its end.

use core::alloc::Layout;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::platform::Word;

/// How many bytes of some memory have been given out. `tests/models` runs it under loom.
#[derive(Debug)]
pub(super) struct Bump<W: Word<u64> = AtomicU64>(W);

impl Bump {
    pub(super) const fn new() -> Self {
        Bump::of(AtomicU64::new(0))
    }
}

impl<W: Word<u64>> Bump<W> {
    /// Counts in a word that holds zero.
    pub(super) const fn of(used: W) -> Self {
        Bump(used)
    }

    /// The place of an allocation, as an offset in memory of so many bytes that is aligned for it;
    /// `None` if there is no more.
    pub(super) fn take(&self, layout: Layout, bytes: usize) -> Option<usize> {
        // Relaxed: the exchange alone decides whose the bytes are.
        let mut used = self.0.load(Relaxed);
        loop {
            let start = usize::try_from(used).ok()?.checked_next_multiple_of(layout.align())?;
            let end = start.checked_add(layout.size()).filter(|end| *end <= bytes)?;
            match self.0.compare_exchange(used, end as u64, Relaxed, Relaxed) {
                Ok(_) => return Some(start),
                Err(now) => used = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_aligned_and_follow_each_other() {
        let bump = Bump::new();
        let take = |size, align| {
            let layout = Layout::from_size_align(size, align).unwrap();
            bump.take(layout, 64)
        };
        assert_eq!([take(3, 1), take(8, 8), take(1, 1)], [Some(0), Some(8), Some(16)]);
        assert_eq!([take(33, 32), take(usize::MAX >> 1, 1)], [None, None]);
        assert_eq!([take(32, 32), take(1, 1), take(0, 1)], [Some(32), None, Some(64)]);
    }
}

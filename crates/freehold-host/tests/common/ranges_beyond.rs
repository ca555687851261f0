//! Frames that an arena of 1,024 frames does not have.

use freehold_host::{FrameCount, Pfn};

/// Starts and lengths of which the end is beyond the arena, most of them beyond all numbers.
pub(crate) fn beyond() -> impl Iterator<Item = (Pfn, FrameCount)> {
    let counts = [1, 2, 1 << 20, 1 << 52, u64::MAX - 1023, u64::MAX - 1, u64::MAX];
    let firsts = [1, 1023, 1024, 1 << 51, 1 << 52, u64::MAX - 1, u64::MAX];
    let all = firsts.into_iter().flat_map(move |first| counts.map(|count| (first, count)));
    let is_beyond = |&(first, count): &(u64, u64)| first.saturating_add(count) > 1024;
    all.filter(is_beyond).map(|(first, count)| (Pfn::new(first), FrameCount::new(count)))
}

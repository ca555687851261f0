//! Compaction in the background: sparse pageblocks are emptied into fuller ones.
//!
//! The two scanners move half of all content, most of it out of pageblocks that would have drained
//! by themselves, and into others that then do not. Here, those with the least content are emptied
//! first, and only while that makes whole ones, as zsmalloc compacts its classes.

use super::Compactor;
use crate::compact::state::Scanners;
use crate::designs::freehold::pageblocks::run::Span;
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::platform::Platform;
use crate::units::Order;

impl<P: Platform> Compactor<'_, P> {
    /// Empties pageblocks into others with more content, those with the least first, until so many
    /// are whole, or the others have no free frame any more.
    pub(super) fn empty_sparse_pageblocks(&mut self, wanted: u64) {
        const STEP: u32 = FRAMES / 8;
        let mut gained = 0;
        for used_max in (STEP..FRAMES).step_by(STEP as usize) {
            self.used_max = Some(used_max);
            self.begin_at(Scanners::APART);
            while gained < wanted && self.free[Order::ZERO.index()] > PageblockIndex(0) {
                let Some(pageblock) = self.empty_next_pageblock() else { break };
                gained += u64::from(self.used(pageblock) == 0);
            }
        }
    }

    /// Whether a pageblock has some content, no more than this, and all of it can be moved.
    pub(super) fn is_sparse(&self, pageblock: PageblockIndex, used_max: u32) -> bool {
        (1..=used_max).contains(&self.used(pageblock)) && {
            let (span, below) = (Span::of(pageblock, 1), Some(self.order));
            self.design.behind_last_obstacle(self.zone, span, self.owner, below).is_none()
        }
    }

    /// How many frames of a pageblock are in use.
    pub(super) fn used(&self, pageblock: PageblockIndex) -> u32 {
        let pageblocks = self.design.pageblocks();
        pageblock.words().map(|word| pageblocks.used(word).count_ones()).sum()
    }
}

//! Free runs in a pageblock: found, looked for and taken.

use core::sync::atomic::Ordering::Acquire;

use super::{BlockIndex, Blocks, FREE};
use crate::designs::freehold::runs::{Run, WORD_FRAMES, WORD_ORDER, starts};
use crate::platform::{Platform, Word};
use crate::units::Order;

impl<P: Platform> Blocks<P> {
    /// Whether all frames of a pageblock are free.
    pub(in super::super) fn is_whole(&self, block: BlockIndex) -> bool {
        block.words().all(|word| self.free(word) == !0)
    }

    /// A free run of `order` in a pageblock that the caller holds, the lowest.
    pub(in super::super) fn find_run(&self, block: BlockIndex, order: Order) -> Option<Run> {
        self.run_among(block, order, |word| self.free(word))
    }

    /// Whether a pageblock that others may hold has a free run of `order`.
    pub(in super::super) fn has_run(&self, block: BlockIndex, order: Order) -> bool {
        // Acquire: the look that follows comes after this one; see `sections`.
        let free = |word| self.map::<FREE>(word).load(Acquire);
        self.run_among(block, order, free).is_some()
    }

    /// The lowest free run of `order` in a pageblock, of which these frames are free.
    fn run_among(
        &self,
        block: BlockIndex,
        order: Order,
        free: impl Fn(usize) -> u64,
    ) -> Option<Run> {
        let (in_word, step) = match order.get().checked_sub(WORD_ORDER) {
            None => (order.get(), 1),
            Some(up) => (WORD_ORDER, 1 << up),
        };
        block.words().step_by(step).find_map(|word| {
            let starts = starts(free(word), in_word);
            let rest = (word + 1..word + step).all(|word| free(word) == !0);
            let frame = word as u32 * WORD_FRAMES + starts.trailing_zeros();
            (starts != 0 && rest).then_some(Run::at(frame, order))
        })
    }

    /// Takes a free run. The caller holds the pageblock.
    pub(in super::super) fn take_run(&self, run: Run) {
        let mask = run.mask();
        for word in run.words() {
            self.set_free(word, self.free(word) & !mask);
        }
        self.join(run);
        run.words().for_each(|word| self.begin_use(word, mask));
    }
}

//! How long ago something was freed, for each pageblock.

use core::sync::atomic::Ordering::Relaxed;

use freehold::platform::Word;
use freehold::{FrameCount, Order, Pfn};

use super::bits::zeroed;

/// For each pageblock, or larger unit of purges, how many purges ago a frame of it was freed, the
/// first since it was purged, and one more; 0 if nothing of it is to be purged.
///
/// All relaxed: an age says where to look, and what is found there belongs to the call that the
/// allocator gives it to. So a purge that sees an age and not yet what was freed with it leaves
/// that to the one after the next free of the pageblock.
#[derive(Debug)]
pub(super) struct Ages<W> {
    ages: Box<[W]>,
    unit: Order,
}

impl<W: Word<u32>> Ages<W> {
    /// Nothing has been freed of so many frames, in units of this order.
    pub(super) fn new(frames: FrameCount, unit: Order) -> Self {
        let units = frames.get().div_ceil(unit.frames().get());
        Ages { ages: zeroed::<u32, W>(units as usize), unit }
    }

    /// What has an age of its own.
    pub(super) fn unit(&self) -> Order {
        self.unit
    }

    /// Those in which frames, at least one, lie.
    fn of(&self, first: Pfn, frames: FrameCount) -> &[W] {
        let last = first.get() + frames.get() - 1;
        let index = |frame: u64| (frame >> self.unit.get()) as usize;
        &self.ages[index(first.get())..=index(last)]
    }

    /// Notes that frames have come free.
    pub(super) fn note_free(&self, first: Pfn, frames: FrameCount) {
        for age in self.of(first, frames) {
            // The load leaves the cache line with other CPUs.
            if age.load(Relaxed) == 0 {
                age.store(1, Relaxed);
            }
        }
    }

    /// Makes a unit older by so many purges. If it is older than `whole` then, takes its age,
    /// which is returned: what is freed from here on counts anew. Of several callers at a time, one
    /// gets it.
    pub(super) fn pass(&self, nth: usize, purges: u8, whole: u8) -> Option<u32> {
        let age = &self.ages[nth];
        let before = age.load(Relaxed);
        if before == 0 {
            return None;
        }
        let older = before.saturating_add(purges.into());
        let is_due = older > whole.into();
        let next = if is_due { 0 } else { older };
        // Fails if another purge is at it.
        let is_ours = age.compare_exchange(before, next, Relaxed, Relaxed).is_ok();
        (is_ours && is_due).then_some(older)
    }

    /// Makes units at least this old: what a purge has left there is due again.
    pub(super) fn restore(&self, first: Pfn, frames: FrameCount, to: u32) {
        for age in self.of(first, frames) {
            let mut now = age.load(Relaxed);
            while now < to
                && let Err(other) = age.compare_exchange(now, to, Relaxed, Relaxed)
            {
                now = other;
            }
        }
    }
}

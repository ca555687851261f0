//! What groups ask for, as Linux's cgroup v2 names it: `min` is not reclaimed, `low` only if
//! nothing else can be, and what a group has beyond `high` is reclaimed from it.

use core::sync::atomic::Ordering::Relaxed;

use super::slot::Slot;
use super::table::Groups;
use super::tree::TreeGuard;
use crate::error::LruError;
use crate::id::GroupId;
use freehold::platform::{Platform, Word};
use freehold::units::FrameCount;

/// How many frames of a group reclaim leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    /// In any case.
    pub(crate) min: u64,
    /// Unless nothing else can be reclaimed.
    pub(crate) low: u64,
}

impl Protection {
    /// No more than so many frames of each.
    pub(crate) fn up_to(self, frames: u64) -> Self {
        Protection { min: self.min.min(frames), low: self.low.min(frames) }
    }
}

impl<P: Platform> Slot<P> {
    /// What the group asks for.
    pub(crate) fn wanted(&self) -> Protection {
        // Relaxed: recent values will do, here and below.
        Protection { min: self.min.load(Relaxed), low: self.low.load(Relaxed) }
    }

    /// What the group asked for and used when it was last counted.
    pub(crate) fn used(&self) -> Protection {
        Protection { min: self.min_used.load(Relaxed), low: self.low_used.load(Relaxed) }
    }

    /// The sum of that over the groups below.
    pub(crate) fn used_below(&self) -> Protection {
        Protection { min: self.min_below.load(Relaxed), low: self.low_below.load(Relaxed) }
    }
}

impl<P: Platform> Groups<P> {
    /// The `min`, `low` and `high` of a group.
    pub(crate) fn bounds(&self, slot: u16) -> (FrameCount, FrameCount, Option<FrameCount>) {
        let record = self.get(slot);
        let Protection { min, low } = record.wanted();
        // Relaxed: a recent value will do.
        let high = record.high.load(Relaxed);
        let high = (high != u64::MAX).then(|| FrameCount::new(high));
        (FrameCount::new(min), FrameCount::new(low), high)
    }

    /// Whether a group is protected from reclaim.
    pub(crate) fn is_any_protected(&self) -> bool {
        // Relaxed: recent values will do.
        self.uses().protected.load(Relaxed) != 0
    }

    /// Whether a group has a `high`.
    pub(crate) fn is_any_high(&self) -> bool {
        // Relaxed: recent values will do.
        self.uses().high.load(Relaxed) != 0
    }

    /// The lowest of a group and those above it that has more than its `high`, and by how much.
    pub(crate) fn over_high(&self, slot: u16) -> Option<(u16, u64)> {
        if !self.is_any_high() {
            return None;
        }
        // Relaxed: recent values will do.
        let over = |at| self.charged(at).saturating_sub(self.get(at).high.load(Relaxed));
        self.chain(slot).take(self.len()).map(|at| (at, over(at))).find(|&(_, over)| over > 0)
    }
}

impl<P: Platform> TreeGuard<'_, P> {
    /// Sets bounds of a group; returns its slot.
    pub(crate) fn set_bounds(
        &self,
        group: GroupId,
        set: impl FnOnce(&Slot<P>),
    ) -> Result<u16, LruError> {
        let slot = self.groups().slot_of(group)?;
        if slot == 0 {
            return Err(LruError::GroupInUse);
        }
        self.change_bounds(slot, set);
        Ok(slot)
    }

    /// Takes the bounds of a group that was removed.
    pub(crate) fn clear_bounds(&self, slot: u16) {
        self.change_bounds(slot, |record| {
            // Relaxed: recent values will do.
            record.min.store(0, Relaxed);
            record.low.store(0, Relaxed);
            record.high.store(u64::MAX, Relaxed);
        });
    }

    /// Changes the bounds of a group, and counts those that use them.
    fn change_bounds(&self, slot: u16, set: impl FnOnce(&Slot<P>)) {
        let (uses, record) = (self.groups().uses(), self.groups().get(slot));
        let count = || {
            // Relaxed: only holders of this lock write bounds.
            let has_high = record.high.load(Relaxed) != u64::MAX;
            (u32::from(record.wanted() != Protection::default()), u32::from(has_high))
        };
        let before = count();
        set(record);
        let after = count();
        // Relaxed: hints.
        uses.protected.fetch_add(after.0.wrapping_sub(before.0), Relaxed);
        uses.high.fetch_add(after.1.wrapping_sub(before.1), Relaxed);
    }
}

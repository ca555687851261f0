//! Memory protection and pressure of groups, as Linux's cgroup v2 names them: `min` is not
//! reclaimed, `low` only if nothing else can be, and what a group has beyond `high` is reclaimed
//! from it.

use core::sync::atomic::Ordering::Relaxed;

use super::error::LruError;
use super::group::{GroupId, Groups, NO_SLOT, Slot};
use super::reclaim::Hunt;
use super::tree::TreeGuard;
use super::{BATCH_MAX, Lru, Owner, Reclaimed};
use freehold::platform::{Platform, Word};
use freehold::units::{FrameCount, ZoneKind};

/// How many frames of a group reclaim leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Protection {
    /// In any case.
    pub(super) min: u64,
    /// Unless nothing else can be reclaimed.
    pub(super) low: u64,
}

/// How many groups use what, so that the others need not look.
#[repr(C, align(64))]
pub(super) struct Uses<P: Platform> {
    /// Groups with a `min` or `low`.
    protected: P::U32,
    /// Groups with a `high`.
    high: P::U32,
}

impl<P: Platform> Uses<P> {
    pub(super) fn new() -> Self {
        Uses { protected: P::U32::new(0), high: P::U32::new(0) }
    }
}

impl<P: Platform> Slot<P> {
    /// What the group asks for.
    fn wanted(&self) -> Protection {
        // Relaxed: recent values will do, here and below.
        Protection { min: self.min.load(Relaxed), low: self.low.load(Relaxed) }
    }

    /// What the group asked for and used when it was last counted.
    fn used(&self) -> Protection {
        Protection { min: self.min_used.load(Relaxed), low: self.low_used.load(Relaxed) }
    }

    /// The sum of that over the groups below.
    fn used_below(&self) -> Protection {
        Protection { min: self.min_below.load(Relaxed), low: self.low_below.load(Relaxed) }
    }
}

impl<P: Platform> Groups<P> {
    /// How many frames of a group a reclaim in `above` leaves alone. A group has at most its part
    /// of what the group above it has, if the groups there ask for more than that; those right
    /// below `above` have what they ask for (Linux's `effective_protection`, without recursive
    /// protection).
    ///
    /// Cost: with the square of the depth, once a group is protected.
    pub(super) fn protection(&self, slot: u16, above: u16) -> Protection {
        let mut effective = Protection::default();
        if slot == above || !self.is_any_protected() {
            return effective;
        }
        let chain = || self.chain(slot).take(self.len()).take_while(|&at| at != above);
        // From the top down.
        for (nth, height) in (0..chain().count()).rev().enumerate() {
            let Some(at) = chain().nth(height) else { break };
            let (record, usage) = (self.get(at), self.charged(at));
            let mine = match nth {
                0 => record.wanted(),
                _ => {
                    let (used, all) = (record.used(), self.get(self.parent(at)).used_below());
                    let wanted = record.wanted();
                    Protection {
                        min: part(wanted.min, used.min, all.min, effective.min),
                        low: part(wanted.low, used.low, all.low, effective.low),
                    }
                }
            };
            effective = Protection { min: mine.min.min(usage), low: mine.low.min(usage) };
        }
        effective
    }

    /// The `min`, `low` and `high` of a group.
    pub(super) fn bounds(&self, slot: u16) -> (FrameCount, FrameCount, Option<FrameCount>) {
        let record = self.get(slot);
        let Protection { min, low } = record.wanted();
        // Relaxed: a recent value will do.
        let high = record.high.load(Relaxed);
        let high = (high != u64::MAX).then(|| FrameCount::new(high));
        (FrameCount::new(min), FrameCount::new(low), high)
    }

    /// Whether a group is protected from reclaim.
    pub(super) fn is_any_protected(&self) -> bool {
        // Relaxed: recent values will do.
        self.uses().protected.load(Relaxed) != 0
    }

    /// The lowest of a group and those above it that has more than its `high`, and by how much.
    pub(super) fn over_high(&self, slot: u16) -> Option<(u16, u64)> {
        // Relaxed: recent values will do.
        if self.uses().high.load(Relaxed) == 0 {
            return None;
        }
        let over = |at| self.charged(at).saturating_sub(self.get(at).high.load(Relaxed));
        self.chain(slot).take(self.len()).map(|at| (at, over(at))).find(|&(_, over)| over > 0)
    }
}

/// A group's part of what the group above it has: as much as it asks for, if there is enough for
/// all; or else in proportion to what it asked for and used when that was last counted.
fn part(wanted: u64, used: u64, used_by_all: u64, shared: u64) -> u64 {
    match used_by_all > shared {
        // All are numbers of frames: below 2^32, as indexes of frames are.
        true => used * shared / used_by_all,
        false => wanted.min(shared),
    }
}

impl<P: Platform> TreeGuard<'_, P> {
    /// Counts what the groups below each group ask for and use.
    pub(super) fn count_protected(&self, above: u16) {
        let groups = self.groups();
        for slot in groups.walk(above) {
            let (mut min, mut low) = (0, 0);
            // Relaxed: only holders of this lock write links; recent values will do for the rest.
            let mut at = groups.get(slot).first_below.load(Relaxed) as u16;
            while at != NO_SLOT {
                let (record, usage) = (groups.get(at), groups.charged(at));
                let wanted = record.wanted();
                let used = Protection { min: wanted.min.min(usage), low: wanted.low.min(usage) };
                record.min_used.store(used.min, Relaxed);
                record.low_used.store(used.low, Relaxed);
                min += used.min;
                low += used.low;
                at = groups.get(at).next.load(Relaxed) as u16;
            }
            groups.get(slot).min_below.store(min, Relaxed);
            groups.get(slot).low_below.store(low, Relaxed);
        }
    }

    fn set_bounds(&self, group: GroupId, set: impl FnOnce(&Slot<P>)) -> Result<(), LruError> {
        let groups = self.groups();
        let slot = groups.slot_of(group)?;
        if slot == 0 {
            return Err(LruError::GroupInUse);
        }
        self.change_bounds(slot, set);
        // Reclaim counts anew what is protected.
        groups.chain(slot).for_each(|at| groups.spend_reach(at, u64::MAX));
        Ok(())
    }

    /// Takes the bounds of a group that was removed.
    pub(super) fn clear_bounds(&self, slot: u16) {
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

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Sets how many frames of a group, and of those below, are never reclaimed for the sake of
    /// others (Linux's `memory.min`). It holds within what the groups above have: a group without
    /// protection shares none with those below. By default none. Reclaim within the group itself
    /// does not heed it.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`], or [`LruError::GroupInUse`] for the root.
    pub fn set_min(&self, group: GroupId, frames: FrameCount) -> Result<(), LruError> {
        let tree = self.groups.tree(&self.platform);
        // Relaxed: recent values will do, here and below.
        tree.set_bounds(group, |record| record.min.store(frames.get(), Relaxed))
    }

    /// As [`Lru::set_min`], but the frames are reclaimed if nothing else can be (Linux's
    /// `memory.low`).
    ///
    /// # Errors
    ///
    /// As [`Lru::set_min`].
    pub fn set_low(&self, group: GroupId, frames: FrameCount) -> Result<(), LruError> {
        let tree = self.groups.tree(&self.platform);
        tree.set_bounds(group, |record| record.low.store(frames.get(), Relaxed))
    }

    /// Sets how many frames a group and those below should not exceed (Linux's `memory.high`).
    /// Nothing is refused beyond it: [`Lru::add_reclaiming`] reclaims a batch from the group before
    /// it returns, and [`Lru::balance_groups`] the rest.
    ///
    /// # Errors
    ///
    /// As [`Lru::set_min`].
    pub fn set_high(&self, group: GroupId, frames: Option<FrameCount>) -> Result<(), LruError> {
        let high = frames.map_or(u64::MAX, FrameCount::get);
        let tree = self.groups.tree(&self.platform);
        tree.set_bounds(group, |record| record.high.store(high, Relaxed))?;
        // As for `set_max`.
        self.drain_stocks(group.slot());
        Ok(())
    }

    /// Reclaims from each group that has more than its [`high`](Lru::set_high), until it no longer
    /// has, or nothing more can be reclaimed. A thread in the background may call it now and then.
    /// It stops if [too many reclaims](LruError::TooManyReclaims) are under way.
    ///
    /// Cost: besides reclaim, visits all groups, if one of them has a `high`.
    pub fn balance_groups(&self) -> Reclaimed {
        let mut done = Reclaimed::default();
        if self.groups.uses().high.load(Relaxed) > 0 {
            // What CPUs have charged ahead is not used yet.
            self.drain_all();
            for slot in self.groups.walk(0) {
                if let Some((_, over)) = self.groups.over_high(slot).filter(|&(at, _)| at == slot) {
                    match self.reclaim_within(slot, over) {
                        Ok(round) => done.add(&round),
                        Err(_) => break,
                    }
                }
            }
        }
        done
    }

    /// Reclaims a batch from the lowest group that has more than its `high`, after frames were
    /// charged to this one.
    pub(super) fn reclaim_high(&self, group: GroupId) {
        if let Some((slot, over)) = self.groups.over_high(group.slot()) {
            // The frames were added; should too many reclaims be under way, others follow.
            let _done = self.reclaim_within(slot, over.min(BATCH_MAX as u64));
        }
    }

    /// Reclaims so many frames of a group and of those below.
    pub(super) fn reclaim_within(&self, slot: u16, frames: u64) -> Result<Reclaimed, LruError> {
        self.hunt(&self.hunt_within(slot, frames))
    }

    /// The reclaim of so many frames of a group and of those below.
    pub(super) fn hunt_within(&self, slot: u16, frames: u64) -> Hunt {
        let (nodes, zone) = (0..self.vecs.nodes(), ZoneKind::Movable);
        Hunt { above: slot, nodes, zone, wanted: frames, heeds_low: true }
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn groups_that_ask_for_too_much_share_what_there_is() {
        assert_eq!((part(30, 30, 50, 50), part(30, 30, 60, 40), part(30, 30, 60, 0)), (30, 20, 0));
        assert_eq!(part(u64::MAX, u32::MAX.into(), u32::MAX.into(), 7), 7);
        assert_eq!((part(0, 0, 0, 0), part(9, 0, 0, 5)), (0, 5));
    }
}

//! What is charged to groups: frames, within limits, up to the root; frames that CPUs charge ahead;
//! pins.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::slot::GroupState;
use super::table::Groups;
use crate::error::LruError;
use crate::frames::state::State;
use crate::id::GroupId;
use freehold::platform::{Platform, Word};
use freehold::units::FrameCount;

/// The most frames that a CPU charges ahead at a time: where the group has many, the more.
const STOCK_MIN: u64 = 32;
const STOCK_MAX: u64 = 512;

/// The most charges that a CPU keeps of what it has evicted at a limit: two batches. With fewer
/// than half a batch, that is not worth it.
const KEPT_MAX: u64 = 64;
const KEPT_MIN: u64 = 16;

/// Which CPUs are asked for what they have charged ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    All,
    /// Those that have not used it since they were last asked.
    Idle,
}

impl<P: Platform> Groups<P> {
    /// The frames charged to a slot and, except for the root, below.
    pub(crate) fn charged(&self, slot: u16) -> u64 {
        self.state(slot).charged()
    }

    pub(crate) fn limit(&self, slot: u16) -> Option<FrameCount> {
        // Relaxed: a charge compares itself with a recent level.
        let limit = self.get(slot).limit.load(Relaxed);
        (limit != u64::MAX).then(|| FrameCount::new(limit))
    }

    /// The lowest limit of a slot and those above.
    pub(crate) fn least_limit(&self, slot: u16) -> FrameCount {
        let limits = self.chain(slot).take(self.len()).filter_map(|at| self.limit(at));
        limits.min().unwrap_or(FrameCount::new(u64::MAX))
    }

    /// Charges frames to a group and to those above it, except the root: that has no limit, and
    /// would be a counter that all CPUs share.
    pub(crate) fn charge(&self, group: GroupId, frames: u32) -> Result<(), LruError> {
        let slot = group.slot();
        if usize::from(slot) >= self.len() {
            return Err(LruError::UnknownGroup);
        }
        self.charge_one(slot, frames, |state| state.is_live() && self.is_of_slot(group))?;
        // From here on the slot has frames, so neither it nor those above can be freed.
        for above in self.above(slot) {
            if let Err(refused) = self.charge_one(above, frames, |_| true) {
                self.uncharge_below(slot, frames, above);
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Adds first and checks then, as Linux's page counters do: a compare-exchange would be retried
    /// over and over if many CPUs share the counter. A group that is full is only read. A
    /// concurrent charge may see frames that are about to be subtracted again, and be refused
    /// because of them.
    fn charge_one(
        &self,
        slot: u16,
        frames: u32,
        is_right: impl Fn(GroupState) -> bool,
    ) -> Result<(), LruError> {
        let record = self.get(slot);
        let check = |state: GroupState| {
            if !is_right(state) {
                return Err(LruError::UnknownGroup);
            }
            // Relaxed: as in `limit`.
            match state.charged() + u64::from(frames) > record.limit.load(Relaxed) {
                // Relaxed: constant while the group has frames.
                true => {
                    Err(LruError::GroupLimit(GroupId::new(slot, record.generation.load(Relaxed))))
                }
                false => Ok(()),
            }
        };
        check(self.state(slot))?;
        // Acquire: a CPU that charges a group sees its parent and limit. Release: as in
        // `uncharge_one`.
        let before = GroupState(record.state.fetch_add(u64::from(frames), AcqRel));
        check(before).inspect_err(|_| self.uncharge_one(slot, frames))
    }

    /// The slots above one, except the root, which is not charged for what is below it.
    pub(crate) fn above(&self, slot: u16) -> impl Iterator<Item = u16> + '_ {
        self.chain(slot).skip(1).take_while(|&above| above != 0)
    }

    /// Uncharges frames from a slot and from all above.
    pub(crate) fn uncharge(&self, slot: u16, frames: u32) {
        self.uncharge_below(slot, frames, 0);
    }

    /// Uncharges frames from a slot and from those between it and `above`.
    fn uncharge_below(&self, slot: u16, frames: u32, above: u16) {
        for between in self.above(slot).take_while(|&slot| slot != above) {
            self.uncharge_one(between, frames);
        }
        // Last, since until then the slot has frames, and its chain does not change.
        self.uncharge_one(slot, frames);
    }

    fn uncharge_one(&self, slot: u16, frames: u32) {
        // Release: a CPU that finds a slot without frames is ordered after the one that removed the
        // last frame. Adding the negative subtracts from the lowest bits.
        let negative = u64::from(frames).wrapping_neg();
        let before = GroupState(self.get(slot).state.fetch_add(negative, AcqRel));
        debug_assert!(before.charged() >= u64::from(frames), "frames were charged");
    }

    /// Charges a frame or block of a removed group to the group above that inherited it, and which
    /// `state` names already.
    pub(crate) fn inherit(&self, removed: u16, state: State) {
        let (heir, frames) = (state.slot(), state.frames());
        if state.pins() > 0 {
            self.unpin(removed, frames);
            self.pin(heir, frames);
        }
        if heir == 0 {
            // The root is charged for its own frames only. Release: as in `uncharge_one`.
            self.get(heir).state.fetch_add(u64::from(frames), AcqRel);
        }
        self.uncharge_below(removed, frames, heir);
    }

    /// How many frames a CPU may charge ahead for a slot: less the more CPUs do, and less the
    /// closer a limit or `high` is. So what idle CPUs hold is a small part of it, and no CPU
    /// charges ahead for a group that is at its limit, where each would have to ask all others for
    /// theirs.
    pub(crate) fn stock_max(&self, slot: u16) -> u32 {
        let most = self.chain(slot).take(self.len()).map(|at| {
            let (limit, stocks) = self.bound_and_stocks(at);
            let charged = self.charged(at);
            let of_charged = (charged / 32 / (stocks + 1)).clamp(STOCK_MIN, STOCK_MAX);
            (limit / 32 / (stocks + 1)).min(limit.saturating_sub(charged) / 64).min(of_charged)
        });
        most.min().unwrap_or(0) as u32
    }

    /// How many charges of frames evicted at a limit a CPU may keep: as for those charged ahead, a
    /// small part of each limit for all CPUs.
    pub(crate) fn kept_max(&self, slot: u16) -> u32 {
        let most = self.chain(slot).take(self.len()).map(|at| {
            let (limit, stocks) = self.bound_and_stocks(at);
            limit / 8 / (stocks + 1)
        });
        let most = most.min().unwrap_or(0).min(KEPT_MAX);
        if most < KEPT_MIN { 0 } else { most as u32 }
    }

    /// What a slot may have without reclaim, and how many CPUs charge ahead for it.
    fn bound_and_stocks(&self, slot: u16) -> (u64, u64) {
        let record = self.get(slot);
        // Relaxed: recent values will do.
        let limit = record.limit.load(Relaxed).min(record.high.load(Relaxed));
        (limit, record.stocks.load(Relaxed).into())
    }

    /// Counts a CPU that charges ahead for a slot, there and above.
    pub(crate) fn add_stock(&self, slot: u16) {
        self.note_stock(slot, 1);
    }

    /// Counts a CPU that no longer does.
    pub(crate) fn remove_stock(&self, slot: u16) {
        self.note_stock(slot, 1u32.wrapping_neg());
    }

    fn note_stock(&self, slot: u16, step: u32) {
        for at in core::iter::once(slot).chain(self.above(slot)) {
            // Relaxed: a hint. A group that is removed has no stocks, so each step up the chain
            // finds the same slots as the step down.
            self.get(at).stocks.fetch_add(step, Relaxed);
        }
    }

    /// Whether CPUs are to be asked for what they have charged ahead for a slot that is full, or
    /// for those below it, and which of them: the first time, and again after so many evictions.
    pub(crate) fn asks(&self, slot: u16, evictions: u64) -> Option<Asked> {
        let left = &self.get(slot).ask_left;
        let (limit, stocks) = self.bound_and_stocks(slot);
        if stocks == 0 {
            return None;
        }
        // Relaxed: a count of its own, here and below.
        let before = left.load(Relaxed);
        let asked = match before {
            0 => Asked::All,
            1 => Asked::Idle,
            _ => return None,
        };
        let evictions = evictions.max(limit / 16).max(KEPT_MAX * stocks);
        let evictions = evictions.clamp(2, u32::MAX.into()) as u32;
        // Of two calls, one asks: to the second one, all would seem to be idle.
        left.compare_exchange(before, evictions, Relaxed, Relaxed).is_ok().then_some(asked)
    }

    /// Notes evictions at the limit of a slot.
    pub(crate) fn note_evictions(&self, slot: u16, frames: u64) {
        let left = &self.get(slot).ask_left;
        let rest = u64::from(left.load(Relaxed)).saturating_sub(frames);
        left.store(rest.max(1) as u32, Relaxed);
    }

    /// Counts frames of this slot as pinned.
    pub(crate) fn pin(&self, slot: u16, frames: u32) {
        // Relaxed: a count.
        self.get(slot).pinned.fetch_add(frames.into(), Relaxed);
    }

    /// Counts frames of this slot as no longer pinned.
    pub(crate) fn unpin(&self, slot: u16, frames: u32) {
        // Relaxed: a count. Adding the negative subtracts.
        self.get(slot).pinned.fetch_add(u64::from(frames).wrapping_neg(), Relaxed);
    }
}

//! Room in groups: at a limit it is made before a frame is added, and what a group has beyond its
//! `high` is reclaimed after that, or in the background.

use super::attempts::Attempts;
use crate::error::LruError;
use crate::groups::charge::Asked;
use crate::id::GroupId;
use crate::kind::Kind;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::reclaim::hunt::Reclaimed;
use crate::settings::BATCH_MAX;
use freehold::platform::Platform;
use freehold::units::{FrameCount, Order, Pfn};

impl<P: Platform, O: Owner> Lru<P, O> {
    /// As [`Lru::add`], but reclaims within the group, or the one above it whose limit was hit,
    /// until it may have the frame. If then one of them has more than its
    /// [`high`](Lru::set_high), reclaims a batch from it. The caller holds no lock that the owner
    /// takes.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add`]; [`LruError::GroupLimit`] if nothing more can be reclaimed;
    /// [`LruError::TooManyReclaims`], as [`Lru::reclaim`].
    pub fn add_reclaiming(&self, pfn: Pfn, group: GroupId, kind: Kind) -> Result<(), LruError> {
        self.add_block_reclaiming(pfn, Order::ZERO, group, kind)
    }

    /// As [`Lru::add_reclaiming`], for a [block](Lru::add_block). A block that is larger than a
    /// limit is refused at once.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::add_block`] and [`Lru::add_reclaiming`].
    pub fn add_block_reclaiming(
        &self,
        pfn: Pfn,
        order: Order,
        group: GroupId,
        kind: Kind,
    ) -> Result<(), LruError> {
        let (frames, mut attempts) = (order.frames(), Attempts::default());
        // A single frame is worth the excess over a limit that was lowered, a block is not.
        let can_fit = || order == Order::ZERO || self.groups.least_limit(group.slot()) >= frames;
        loop {
            match self.try_add(pfn, order, group, kind) {
                // What other CPUs have charged ahead, or kept of what they evicted, may be unused.
                Err(LruError::GroupLimit(full)) if self.has_asked(full) => {
                    if !attempts.again() {
                        break;
                    }
                }
                Err(LruError::GroupLimit(full)) if can_fit() => {
                    let slot = full.slot();
                    // As many as Linux takes, but from a small group only a part; plus the excess
                    // over a limit that was lowered.
                    let limit = self.groups.limit(slot).map_or(0, FrameCount::get);
                    let excess = (self.groups.charged(slot) + frames.get()).saturating_sub(limit);
                    let part = limit / self.policy.reclaim_part();
                    let wanted = part.clamp(1, BATCH_MAX as u64).max(excess);
                    self.keep_charges(group);
                    let hunt = self.hunt_within(slot, wanted);
                    let done = self.hunt(&hunt)?;
                    self.groups.note_evictions(slot, done.reclaimed);
                    if !self.may_try_again(&hunt, Ok(done), &mut attempts) {
                        break;
                    }
                }
                done => {
                    if done.is_ok() {
                        self.reclaim_high(group);
                    }
                    return done;
                }
            }
        }
        // The last reclaim may not have been followed by an attempt, or other CPUs may have charged
        // ahead what is missing.
        self.add_block(pfn, order, group, kind)
    }

    /// Asks other CPUs for what they have charged to a group that is full, unless they were asked
    /// not long ago: the first time, and those that are idle, when a sixteenth of the limit was
    /// evicted since, or so many frames that asking costs little for each, and that CPUs which are
    /// at work have used theirs. Returns whether it did.
    fn has_asked(&self, full: GroupId) -> bool {
        let asked = self.groups.asks(full.slot(), 4 * self.cpus.len() as u64);
        match asked {
            Some(Asked::All) => self.drain_stocks(full.slot()),
            Some(Asked::Idle) => self.drain_idle_stocks(full.slot()),
            None => {}
        }
        asked.is_some()
    }

    /// Reclaims from each group that has more than its [`high`](Lru::set_high), until it no longer
    /// has, or nothing more can be reclaimed. A thread in the background may call it now and then.
    /// It stops if [too many reclaims](LruError::TooManyReclaims) are under way.
    ///
    /// Cost: besides reclaim, visits all groups, if one of them has a `high`.
    pub fn balance_groups(&self) -> Reclaimed {
        let mut done = Reclaimed::default();
        if self.groups.is_any_high() {
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
    pub(crate) fn reclaim_high(&self, group: GroupId) {
        if let Some((slot, over)) = self.groups.over_high(group.slot()) {
            // The frames were added; should too many reclaims be under way, others follow.
            let _done = self.reclaim_within(slot, over.min(BATCH_MAX as u64));
        }
    }

    /// Reclaims so many frames of a group and of those below.
    fn reclaim_within(&self, slot: u16, frames: u64) -> Result<Reclaimed, LruError> {
        self.hunt(&self.hunt_within(slot, frames))
    }
}

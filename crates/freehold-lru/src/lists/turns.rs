//! Which shard reclaim takes from next: each CPU from its own one first, but all in proportion to
//! their sizes.
//!
//! # The rule
//!
//! Each list of each shard counts its *turns*: how often reclaim went through all of it, so that
//! k frames taken of n are k/n of a turn. If all lists of a kind have had the same turns, all bear
//! in proportion to their sizes, and frames that came at one time go at one time.
//!
//! 1. A CPU takes from its own shard unless that is ahead: by more than two batches, but by a 128th
//!    of a turn at least, and a 64th at most.
//! 2. It compares with one other shard at a time, each in its turn. If its own is ahead of that, it
//!    takes from the other, and compares with it again until that has caught up. No CPU waits for
//!    the lock of another shard: if it is held, the CPU takes from its own.
//! 3. A list that had no frames begins with the most turns that any shard has had.
//!
//! So where all CPUs add and reclaim alike, each reclaims what it added itself and shares nothing
//! but a look at one other shard. Where they do not, as when one CPU reads a large file, or
//! reclaims for all, the others bear their part.

use core::sync::atomic::Ordering::Relaxed;

use super::lruvec::Lruvecs;
use super::shard::Shard;
use crate::id::{Place, ShardId};
use crate::kind::List;
use crate::settings::BATCH_MAX;
use freehold::platform::{Platform, Word};

/// A turn.
const TURN: u32 = 1 << 20;

/// A shard is ahead of another one by so much of a turn at least, and at most.
const AHEAD_MIN: u32 = TURN / 128;
const AHEAD_MAX: u32 = TURN / 64;

/// A part of a list to be taken.
pub(crate) struct Portion {
    pub(crate) id: ShardId,
    pub(crate) frames: usize,
    /// Whether it is not the CPU's own shard.
    pub(crate) is_distant: bool,
}

impl<P: Platform> Shard<P> {
    /// How many turns a list has had, as a number that wraps.
    fn had(&self, list: List) -> u32 {
        // Relaxed: hints, here and below.
        self.turns[list as usize].load(Relaxed)
    }

    /// By how much a list has had more turns than that of another shard; negative if it had fewer.
    fn lead(&self, other: &Self, list: List) -> i32 {
        self.had(list).wrapping_sub(other.had(list)) as i32
    }

    /// By how much its own CPUs may be ahead.
    fn tolerance(&self, list: List) -> u32 {
        let batches = 2 * BATCH_MAX as u32 * TURN / self.size(list).max(1);
        batches.clamp(AHEAD_MIN, AHEAD_MAX)
    }

    /// The most frames to take at a time, so that a short list is not taken as a whole.
    fn portion(&self, list: List, wanted: usize) -> usize {
        wanted.min((self.size(list) / 4).max(1) as usize)
    }
}

impl<P: Platform> Lruvecs<P> {
    /// Which shard to take frames of a list from next, and how many: for a CPU of shard `near`.
    /// None if no shard has any.
    pub(crate) fn portion(
        &self,
        place: Place,
        list: List,
        near: usize,
        wanted: usize,
    ) -> Option<Portion> {
        let portion = |id: ShardId| {
            let frames = self.shard(id).portion(list, wanted);
            Portion { id, frames, is_distant: usize::from(id.shard) != near }
        };
        if !self.extents.is_divided(self.index(place)) {
            return Some(Portion { id: place.shard(0), frames: wanted, is_distant: false });
        }
        let (own, shards) = (self.shard(place.shard(near)), self.extents.sharding.shards());
        let next = own.neighbour.load(Relaxed) as usize;
        let has_frames = |&id: &ShardId| self.shard(id).size(list) > 0;
        let others = (0..shards).map(|step| place.shard((next + step) % shards));
        let mut others = others.filter(|id| usize::from(id.shard) != near).filter(has_frames);
        let (first, tolerance) = match own.size(list) {
            0 => (others.next()?, 0),
            _ => (place.shard(near), own.tolerance(list)),
        };
        let Some(second) = others.next() else { return Some(portion(first)) };
        let lead = self.shard(first).lead(self.shard(second), list);
        let takes_second = lead > tolerance as i32;
        // One that is behind is looked at again.
        own.neighbour.store(u32::from(second.shard) + u32::from(!takes_second), Relaxed);
        Some(portion(if takes_second { second } else { first }))
    }

    /// Counts the turns of a list of a shard of which so many frames are taken. The caller holds
    /// the lock of the shard.
    pub(crate) fn note_turns(&self, id: ShardId, list: List, frames: usize) {
        let Some(turns) = self.shard(id).turns.get(list as usize) else { return };
        if let Some(extent) = self.extents.of(self.index(id.place)) {
            let size = self.shard(id).size(list).max(1);
            let part = (u64::from(TURN) * frames as u64).div_ceil(size.into());
            let had = turns.load(Relaxed).wrapping_add(part.min(TURN.into()) as u32);
            turns.store(had, Relaxed);
            let most = extent.turns(list as usize);
            if had.wrapping_sub(most.load(Relaxed)) as i32 > (TURN / 8) as i32 {
                most.store(had, Relaxed);
            }
        }
    }

    /// Lets a list of a shard that had no frames begin with the most turns. The caller holds the
    /// lock of the shard.
    pub(super) fn begin_turns(&self, id: ShardId, list: usize) {
        let Some(turns) = self.shard(id).turns.get(list) else { return };
        if let Some(extent) = self.extents.of(self.index(id.place)) {
            let most = extent.turns(list).load(Relaxed);
            if most.wrapping_sub(turns.load(Relaxed)) as i32 > 0 {
                turns.store(most, Relaxed);
            }
        }
    }
}

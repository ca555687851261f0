//! A hunt: what a reclaim is to get, within which reach, and how far it has come.

use core::ops::Range;

use crate::frames::few::Few;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::Platform;
use freehold::units::{FrameCount, ZoneKind};

/// The results of a reclaim, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Inactive frames scanned.
    pub scanned: u64,
    /// Of these, frames returned to their owner.
    pub reclaimed: u64,
    /// Frames that the owner wrote back for that.
    pub written: u64,
    /// Frames that stay because they are in use, or because the owner wants to keep them.
    pub kept: u64,
    /// Frames that stay because they could not be written back.
    pub failed: u64,
    /// Active frames that were moved to an inactive list.
    pub deactivated: u64,
}

impl Reclaimed {
    /// The frames that are free now.
    pub fn frames(&self) -> FrameCount {
        FrameCount::new(self.reclaimed)
    }

    /// Adds what another reclaim has done.
    pub(crate) fn add(&mut self, other: &Reclaimed) {
        self.scanned += other.scanned;
        self.reclaimed += other.reclaimed;
        self.written += other.written;
        self.kept += other.kept;
        self.failed += other.failed;
        self.deactivated += other.deactivated;
    }
}

/// The goal of a reclaim.
#[derive(Clone, Debug)]
pub(crate) struct Hunt {
    /// The slot of the group whose frames it may take, along with those of the groups below.
    pub(crate) above: u16,
    pub(crate) nodes: Range<u16>,
    /// Frames of zones of a higher kind are skipped (Linux's `reclaim_idx`).
    pub(crate) zone: ZoneKind,
    /// How many frames to reclaim.
    pub(crate) wanted: u64,
    /// Whether it spares what groups have up to their `low`.
    pub(crate) heeds_low: bool,
}

/// A round of a hunt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) pass: usize,
    pub(crate) priority: u32,
    /// Whether it scans no more of a list than what its owner has not just refused.
    pub(crate) skips_refused: bool,
    /// Whether it passes by places whose lock another call holds.
    pub(crate) passes_by: bool,
}

/// The progress of a reclaim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) done: Reclaimed,
    /// Active frames whose mark of use was cleared: they can be reclaimed later.
    pub(crate) unmarked: u64,
    /// Whether frames were spared because of a `low`.
    pub(crate) spared: bool,
    /// Whether a place was passed by.
    pub(crate) is_missed: bool,
}

/// What was taken off a list.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) few: Few,
    /// How many frames stay, since they were used.
    pub(crate) spared: u32,
    /// Whether the lock was held, and nothing was taken.
    pub(crate) is_missed: bool,
}

impl Progress {
    /// Notes what was found where frames were taken.
    pub(super) fn note_taken(&mut self, taken: &Taken) {
        self.unmarked += u64::from(taken.spared);
        self.is_missed |= taken.is_missed;
    }

    /// Increases with every pass that made progress.
    pub(crate) fn gains(&self) -> u64 {
        self.done.reclaimed + self.done.deactivated + self.unmarked
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// The reclaim of so many frames of a group and of those below.
    pub(crate) fn hunt_within(&self, slot: u16, frames: u64) -> Hunt {
        let (nodes, zone) = (0..self.vecs.nodes(), ZoneKind::Movable);
        Hunt { above: slot, nodes, zone, wanted: frames, heeds_low: true }
    }
}

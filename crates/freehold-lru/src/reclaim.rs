//! Reclaim: evicts frames that were not recently used, if their owner agrees.

use super::error::LruError;
use core::ops::Range;

use super::cpu::Few;
use super::group::GroupId;
use super::kind::List;
use super::policy::LruPolicy;
use super::state::State;
use super::turns::Round;
use super::vec::Place;
use super::{Lru, Owner};
use freehold::ZoneLevel;
use freehold::platform::Platform;
use freehold::units::{FrameCount, NodeId, ZoneKind};

/// The maximum number of passes over all priorities. Frames that are all active and recently used
/// need three: one clears the mark of use, one deactivates, one reclaims. With an owner that
/// activates every frame it is asked for, passes would never end.
const PASSES: usize = 4;

/// The most frames of a list that are looked at during one hold of its lock.
const LOOKS_MAX: usize = 512;

/// Where frames are to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    All,
    /// On one node.
    Node(NodeId),
    /// In a group and those below it.
    Group(GroupId),
}

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
    pub(super) fn add(&mut self, other: &Reclaimed) {
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
pub(super) struct Hunt {
    /// The slot of the group whose frames it may take, along with those of the groups below.
    pub(super) above: u16,
    pub(super) nodes: Range<usize>,
    /// Frames of zones of a higher kind are skipped (Linux's `reclaim_idx`).
    pub(super) zone: ZoneKind,
    /// How many frames to reclaim.
    pub(super) wanted: u64,
    /// Whether it spares what groups have up to their `low`.
    pub(super) heeds_low: bool,
}

impl Hunt {
    /// Whether frames of a zone are within its reach.
    pub(super) fn may_use(&self, zone: &ZoneLevel) -> bool {
        self.nodes.contains(&zone.node.index()) && zone.kind <= self.zone
    }
}

/// The progress of a reclaim.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) done: Reclaimed,
    /// Active frames whose mark of use was cleared: they can be reclaimed later.
    pub(super) unmarked: u64,
    /// Whether frames were spared because of a `low`.
    pub(super) spared: bool,
}

impl Progress {
    /// Increases with every pass that made progress.
    fn gains(&self) -> u64 {
        self.done.reclaimed + self.done.deactivated + self.unmarked
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Reclaims frames until there are so many, or nothing more can be reclaimed: first those that
    /// have been on inactive lists longest, a small part of each group, then larger and larger
    /// parts. Frames that wait in batches are put on their lists if the others do not suffice.
    /// Groups take turns, and bear in proportion to their size beyond what is
    /// [protected](Lru::set_min).
    ///
    /// Cost: besides the frames scanned, visits about one group for two frames, and counts the
    /// frames of all groups within the scope again whenever a quarter as many frames as there are
    /// groups were reclaimed. If that does not suffice, visits them all up to 13 times, or 52 times
    /// if frames are active.
    ///
    /// If the owner refuses all of n inactive frames, it is asked about once for each, which takes
    /// 0.1 s for a million besides what it does itself. That is remembered until it gives one of
    /// the list, or until others put frames at the list's front: meanwhile a call asks for at most
    /// max(n / 256, 1024, 2 * `frames`, 4 * lists) of them, and about 512 calls come to each frame.
    /// [`Lru::rotate`] puts a frame where the next call asks first.
    ///
    /// # Errors
    ///
    /// [`LruError::UnknownGroup`] or [`LruError::UnknownNode`]; [`LruError::TooManyReclaims`] if 32
    /// that began on this CPU are under way, as when the owner reclaims from within
    /// [`Owner::reclaim`].
    pub fn reclaim(&self, scope: Scope, frames: FrameCount) -> Result<Reclaimed, LruError> {
        let (mut above, mut nodes) = (0, 0..self.vecs.nodes());
        match scope {
            Scope::All => {}
            Scope::Node(node) if !nodes.contains(&node.index()) => {
                return Err(LruError::UnknownNode);
            }
            Scope::Node(node) => nodes = node.index()..node.index() + 1,
            Scope::Group(group) => above = self.groups.slot_of(group)?,
        }
        let (zone, wanted) = (ZoneKind::Movable, frames.get());
        self.hunt(&Hunt { above, nodes, zone, wanted, heeds_low: true })
    }

    /// Runs a reclaim, unless too many are under way.
    pub(super) fn hunt(&self, hunt: &Hunt) -> Result<Reclaimed, LruError> {
        let _counted = self.cpus.begin_hunt(&self.platform)?;
        Ok(self.pursue(hunt))
    }

    fn pursue(&self, hunt: &Hunt) -> Reclaimed {
        let mut progress = Progress::default();
        if !hunt.nodes.is_empty() {
            self.run(hunt, &mut progress);
            // As in Linux: rather than nothing, what is protected up to `low`.
            if progress.done.reclaimed == 0 && progress.spared {
                self.run(&Hunt { heeds_low: false, ..hunt.clone() }, &mut progress);
            }
        }
        let done = progress.done;
        // Without success, what is within reach is not what it was when it was counted.
        let spent = if done.reclaimed < hunt.wanted { u64::MAX } else { done.reclaimed };
        self.groups.spend_reach(hunt.above, spent);
        done
    }

    /// Runs a reclaim until there are enough, or nothing more can be reclaimed.
    fn run(&self, hunt: &Hunt, progress: &mut Progress) {
        // As in Linux: what the CPU has just added is scanned like the rest.
        self.settle_here();
        let (first, last_for_refused) = self.priorities(hunt);
        for pass in 0..PASSES {
            let (before, mut priority) = (progress.gains(), first);
            loop {
                let had = progress.done.reclaimed;
                let skips_refused = pass > 0 || priority < last_for_refused;
                if self.round(hunt, Round { pass, priority, skips_refused }, progress) {
                    return;
                }
                // Another round like this one, if that may well do.
                let (got, missing) =
                    (progress.done.reclaimed - had, hunt.wanted - progress.done.reclaimed);
                if got < missing / 4 || got == 0 {
                    match priority {
                        0 => break,
                        _ => priority -= 1,
                    }
                }
            }
            match pass {
                0 => self.drain_all(),
                _ if progress.gains() == before => break,
                // What the last round deactivated can be reclaimed in the next pass.
                _ => {}
            }
        }
    }

    /// Scans so many frames of each list of an lruvec, until there are enough; returns how many it
    /// has not scanned then.
    pub(super) fn shrink(
        &self,
        place: Place,
        targets: [u64; List::COUNT],
        hunt: &Hunt,
        pass: usize,
        progress: &mut Progress,
    ) -> u64 {
        let _scan = self.vecs.begin_scan(place);
        match self.policy {
            LruPolicy::TwoLists => self.shrink_two_lists(place, targets, hunt, pass, progress),
            LruPolicy::ScanResistant => self.shrink_resistant(place, targets, hunt, progress),
        }
    }

    /// Isolates up to `count` of the frames that have been on a list longest, or somewhat more if
    /// the last one is a block. Frames that another call is isolating or releasing go to the other
    /// end, and so do those of zones that do not help, which are not counted (as in Linux), up to a
    /// bound for one hold of the lock.
    pub(super) fn take(&self, place: Place, list: List, zone: ZoneKind, count: usize) -> Few {
        let (lock, mut few) = (self.vecs.lock_at(&self.platform, place), Few::new());
        let (mut counted, mut looked) = (0, 0);
        while counted < count && looked < LOOKS_MAX {
            let Some(frame) = lock.oldest(list) else { break };
            looked += 1;
            let state = self.frames.state(frame);
            if !state.is_within(zone) {
                lock.rotate(&self.frames, frame, list);
                continue;
            }
            counted += state.frames() as usize;
            match self.frames.change(frame, State::isolate) {
                Ok((before, _)) => {
                    lock.unlink_oldest(&self.frames, frame, before);
                    few.push(frame);
                }
                Err(_) => lock.rotate(&self.frames, frame, list),
            }
        }
        if counted > count {
            self.vecs.add_debt(place, list, (counted - count) as u32);
        }
        few
    }
}

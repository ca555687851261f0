//! The passes of a reclaim: rounds over the groups, in which more and more is scanned until there
//! is enough.

use core::mem;

use super::hunt::{Hunt, Progress, Reclaimed, Round};
use crate::error::LruError;
use crate::id::GroupId;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::LruLock;
use freehold::platform::Platform;
use freehold::units::{FrameCount, NodeId, ZoneKind};

/// The maximum number of passes over all priorities. Frames that are all active and recently used
/// need three: one clears the mark of use, one deactivates, one reclaims. With an owner that
/// activates every frame it is asked for, passes would never end.
const PASSES: usize = 4;

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
            Scope::Node(node) if !nodes.contains(&node.get()) => {
                return Err(LruError::UnknownNode);
            }
            Scope::Node(node) => nodes = node.get()..node.get() + 1,
            Scope::Group(group) => above = self.groups.slot_of(group)?,
        }
        let (zone, wanted) = (ZoneKind::Movable, frames.get());
        self.hunt(&Hunt { above, nodes, zone, wanted, heeds_low: true })
    }

    /// Runs a reclaim, unless too many are under way.
    pub(crate) fn hunt(&self, hunt: &Hunt) -> Result<Reclaimed, LruError> {
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

    /// Runs a reclaim until there are enough, or nothing more can be reclaimed: by rounds, as
    /// `share` describes, and passes.
    fn run(&self, hunt: &Hunt, progress: &mut Progress) {
        // As in Linux: what the CPU has just added is scanned like the rest.
        self.settle_here();
        let (first, last_for_refused) = self.priorities(hunt);
        for pass in 0..PASSES {
            let (before, mut priority) = (progress.gains(), first);
            let mut passes_by = pass == 0 && priority > 0 && self.vecs.lock == LruLock::Shards;
            loop {
                let had = progress.done.reclaimed;
                let skips_refused = pass > 0 || priority < last_for_refused;
                if self.round(hunt, Round { pass, priority, skips_refused, passes_by }, progress) {
                    return;
                }
                if mem::take(&mut passes_by) && mem::take(&mut progress.is_missed) {
                    continue;
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
}

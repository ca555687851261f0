//! Refaults: content that comes back after it was evicted.

use super::resistant::Return;
use crate::error::LruError;
use crate::frames::state::State;
use crate::id::Place;
use crate::kind::{Kind, List};
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::owner::shadow::Shadow;
use crate::settings::LruPolicy;
use freehold::platform::Platform;
use freehold::units::Pfn;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Notes that a frame has content which was evicted with this shadow. If that was not long ago,
    /// by the number of evictions since, the frame is activated: with a few frames more the content
    /// would have stayed. Call it once the frame was [added](Lru::add), with a reference. Returns
    /// whether the frame was activated.
    ///
    /// A shadow of another group, or of one that is gone, says nothing: the result is `false`.
    ///
    /// # Errors
    ///
    /// As [`Lru::mark_accessed`].
    pub fn refault(&self, pfn: Pfn, shadow: Shadow) -> Result<bool, LruError> {
        let frame = self.frames.index_of(pfn)?;
        let state = self.frames.state(frame);
        if state.refs() == 0 {
            return Err(LruError::NotAdded);
        }
        let (place, kind) = (shadow.place(), shadow.kind());
        if place.slot != state.slot() || kind != state.kind() || !self.is_known(shadow) {
            return Ok(false);
        }
        let history = self.vecs.history(place, kind);
        let distance = shadow.distance(history.clock(self.policy, shadow.was_active(), [0; 2]));
        let verdict = match self.policy {
            LruPolicy::TwoLists => self.judge_two_lists(place, kind, state.frames(), distance),
            LruPolicy::ScanResistant => {
                self.judge_resistant(place, kind, shadow.was_active(), distance)
            }
        };
        let is_restored = verdict == Return::Activate;
        self.vecs.shard(place.shard(self.near())).note_refault(is_restored, state.frames());
        if is_restored {
            history.challenge();
        }
        match verdict {
            Return::Activate => {
                let (before, _) = self.frames.change(frame, State::restored_content)?;
                match before.is_listed() {
                    true => self.activate(pfn)?,
                    false => history.note_activation(before.frames()),
                }
            }
            Return::Mark => _ = self.frames.update(frame, State::more_marked),
            Return::New => {}
        }
        Ok(verdict == Return::Activate)
    }

    /// Whether the group of a shadow is still there.
    fn is_known(&self, shadow: Shadow) -> bool {
        let place = shadow.place();
        place.node < self.vecs.nodes()
            && self.groups.short_generation(place.slot) == shadow.generation()
            && !self.vecs.is_joined(place)
    }

    /// As in Linux: content that would have stayed if the active list had been inactive competes
    /// with what is active, on equal terms. Its return counts as a cost of reclaim from its kind.
    fn judge_two_lists(&self, place: Place, kind: Kind, frames: u32, distance: u64) -> Return {
        self.vecs.note_cost(place, kind, frames.into());
        match distance <= self.vecs.size(place, List::of(kind, true)).into() {
            true => Return::Activate,
            false => Return::New,
        }
    }
}

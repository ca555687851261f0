//! The policy of Linux's two lists: content used twice is active, and active content that was not
//! used for long becomes inactive while the inactive list is the shorter one.

use super::hunt::{Hunt, Progress, Round, Taken};
use crate::frames::few::Few;
use crate::frames::state::Motion;
use crate::id::Place;
use crate::kind::{Kind, List, PerList};
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::BATCH_MAX;
use freehold::platform::Platform;
use freehold::units::FrameSize;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Scans so many frames of each list of an lruvec, until there are enough; returns how many it
    /// has not scanned then. From the second pass on, active frames are scanned even if enough are
    /// inactive (Linux's `force_deactivate`).
    pub(super) fn shrink_two_lists(
        &self,
        place: Place,
        mut targets: PerList<u64>,
        hunt: &Hunt,
        round: Round,
        progress: &mut Progress,
    ) -> u64 {
        let mut chunk = |list: List, most: u64| {
            let chunk = targets[list as usize].min(most);
            targets[list as usize] -= chunk;
            chunk as usize
        };
        // As in Linux: content that came back soon is a reason to doubt what is active.
        let is_challenged = |kind| self.vecs.history(place, kind).take_challenge();
        let is_challenged = [is_challenged(Kind::Anon), is_challenged(Kind::File)];
        loop {
            let mut looked = 0;
            for kind in Kind::ALL {
                let (active, inactive) = (List::of(kind, true), List::of(kind, false));
                let due = chunk(active, BATCH_MAX as u64);
                let is_low = || {
                    let sizes = self.vecs.sizes(place, hunt.zone);
                    inactive_is_low(&sizes, kind, self.frame_size)
                };
                if due > 0 && (round.pass > 0 || is_challenged[kind as usize] || is_low()) {
                    let taken = self.take(place, active, hunt.zone, round, due);
                    self.age(place, kind, &taken, progress);
                }
                let missing = hunt.wanted.saturating_sub(progress.done.reclaimed);
                let due_inactive = chunk(inactive, missing.min(BATCH_MAX as u64));
                if due_inactive > 0 {
                    let taken = self.take(place, inactive, hunt.zone, round, due_inactive);
                    progress.note_taken(&taken);
                    progress.done.add(&self.evict(place, kind, taken.few));
                }
                looked += due + due_inactive;
            }
            if looked == 0 {
                return 0;
            }
            if progress.done.reclaimed >= hunt.wanted {
                return targets.iter().sum();
            }
        }
    }

    /// Moves frames that were taken off an active list to the inactive one.
    fn age(&self, place: Place, kind: Kind, taken: &Taken, progress: &mut Progress) {
        let mut gone = Few::new();
        let aged = taken.few.iter().map(|frame| {
            progress.done.deactivated += u64::from(self.frames.state(frame).frames());
            (frame, Motion::Deactivate)
        });
        self.put_back_all(aged, &mut gone);
        progress.note_taken(taken);
        self.vecs.note_cost(place, kind, taken.spared.into());
        self.release_few(&gone);
    }
}

/// Whether so many frames of a kind are active that some should be deactivated, by the sizes of the
/// lists. Frames that are used twice stay while the inactive list is long enough for them to be
/// used twice on it.
fn inactive_is_low(sizes: &PerList<u32>, kind: Kind, frame_size: FrameSize) -> bool {
    const GIB: usize = 1 << 30;
    let frames_per_gib = (GIB / frame_size.bytes()) as u64;
    let size = |active| u64::from(sizes[List::of(kind, active) as usize]);
    let (inactive, active) = (size(false), size(true));
    let ratio = (10 * ((inactive + active) / frames_per_gib)).isqrt().max(1);
    inactive * ratio < active
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_lists_may_be_more_active() {
        let low = |inactive, active, frame_kib: usize| {
            let size = FrameSize::new(frame_kib << 10).unwrap();
            inactive_is_low(&[0, 0, inactive, active, 0], Kind::File, size)
        };
        assert!(low(49, 50, 4) && !low(50, 50, 4));
        // A GiB: three active ones for each inactive one.
        assert!(!low(80_000, 200_000, 4) && low(60_000, 210_000, 4));
        // With larger frames, fewer are a GiB.
        assert!(!low(20_000, 50_000, 16) && low(15_000, 52_500, 16));
        assert!(!low(5000, 12_500, 64) && low(5000, 12_500, 16));
    }
}

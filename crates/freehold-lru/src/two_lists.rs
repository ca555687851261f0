//! The policy of Linux's two lists: content used twice is active, and active content that was not
//! used for long becomes inactive while the inactive list is the shorter one.

use super::balance::inactive_is_low;
use super::cpu::{BATCH_MAX, Few};
use super::kind::List;
use super::reclaim::{Hunt, Progress};
use super::state::{Motion, State};
use super::vec::Place;
use super::{Kind, Lru, Owner};
use freehold::platform::Platform;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Scans so many frames of each list of an lruvec, until there are enough; returns how many it
    /// has not scanned then. From the second pass on, active frames are scanned even if enough are
    /// inactive (Linux's `force_deactivate`).
    pub(super) fn shrink_two_lists(
        &self,
        place: Place,
        mut targets: [u64; List::COUNT],
        hunt: &Hunt,
        pass: usize,
        progress: &mut Progress,
    ) -> u64 {
        let mut chunk = |list: List, most: u64| {
            let chunk = targets[list as usize].min(most);
            targets[list as usize] -= chunk;
            chunk as usize
        };
        // As in Linux: content that came back soon is a reason to doubt what is active.
        let is_challenged = Kind::ALL.map(|kind| self.vecs.history(place, kind).take_challenge());
        loop {
            let mut looked = 0;
            for kind in Kind::ALL {
                let (active, inactive) = (List::of(kind, true), List::of(kind, false));
                let due = chunk(active, BATCH_MAX as u64);
                let is_low = || {
                    let sizes = self.vecs.sizes(place, hunt.zone);
                    inactive_is_low(&sizes, kind, self.frame_size)
                };
                if due > 0 && (pass > 0 || is_challenged[kind as usize] || is_low()) {
                    let few = self.take(place, active, hunt.zone, due);
                    self.age(place, &few, progress);
                }
                let missing = hunt.wanted.saturating_sub(progress.done.reclaimed);
                let due_inactive = chunk(inactive, missing.min(BATCH_MAX as u64));
                if due_inactive > 0 {
                    let few = self.take(place, inactive, hunt.zone, due_inactive);
                    progress.done.add(&self.evict(place, kind, few));
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

    /// Moves frames off an active list to the inactive one, except those used since they came
    /// there: they get another turn.
    fn age(&self, place: Place, few: &Few, progress: &mut Progress) {
        let (mut gone, mut rotated, mut kind) = (Few::new(), 0, Kind::File);
        let aged = few.iter().map(|frame| {
            let state = self.frames.state(frame);
            kind = state.kind();
            if state.is_referenced() {
                self.frames.update(frame, State::unreferenced);
                rotated += u64::from(state.frames());
                return (frame, Motion::Keep);
            }
            progress.done.deactivated += u64::from(state.frames());
            (frame, Motion::Deactivate)
        });
        self.put_back_all(aged, &mut gone);
        progress.unmarked += rotated;
        self.vecs.note_cost(place, kind, rotated);
        self.release_few(&gone);
    }
}

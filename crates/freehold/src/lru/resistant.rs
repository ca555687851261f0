//! The scan-resistant policy: a short inactive list, and shadows that tell where it is too short.

use super::cpu::{BATCH_MAX, Few};
use super::history::History;
use super::kind::List;
use super::reclaim::{Hunt, Progress};
use super::state::{Motion, State};
use super::vec::Place;
use super::{Kind, Lru, Owner};
use crate::platform::Platform;

/// Uses of an inactive frame that activate it.
const ACTIVATES: u8 = 2;

/// A refault that says the inactive list was too short lengthens it by this part of the capacity.
const GROW_PART: u64 = 64;
const GROW_MIN: u64 = 8;

/// How many times that a refault takes off which says that the active list was too short. Such
/// content misses twice until it is active again.
const SHRINK: u64 = 20;

/// What is to become of content that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// It should have stayed.
    Activate,
    /// One more use activates it.
    Mark,
    /// As if it were new.
    New,
}

/// The sizes by which an lruvec decides, for frames of one kind.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    inactive: u64,
    active: u64,
}

impl Sizes {
    fn capacity(self) -> u64 {
        self.inactive + self.active
    }

    /// The least length of the inactive list.
    fn floor(self) -> u64 {
        (self.capacity() / 10).max(1)
    }

    fn target<P: Platform>(self, history: &History<P>) -> u64 {
        self.floor() + history.excess()
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    fn sizes_of(&self, place: Place, kind: Kind) -> Sizes {
        let size = |active| self.vecs.size(place, List::of(kind, active)).into();
        Sizes { inactive: size(false), active: size(true) }
    }

    /// Scans so many frames of each kind, until there are enough; returns how many it has not
    /// scanned then.
    pub(super) fn shrink_resistant(
        &self,
        place: Place,
        targets: [u64; List::COUNT],
        hunt: &Hunt,
        progress: &mut Progress,
    ) -> u64 {
        let target = |kind, active| targets[List::of(kind, active) as usize];
        let mut due = Kind::ALL.map(|kind| target(kind, false) + target(kind, true));
        while due != [0; Kind::COUNT] {
            for kind in Kind::ALL {
                if due[kind as usize] == 0 {
                    continue;
                }
                let missing = hunt.wanted.saturating_sub(progress.done.reclaimed);
                if missing == 0 {
                    return due.iter().sum();
                }
                let (sizes, history) = (self.sizes_of(place, kind), self.vecs.history(place, kind));
                // Few at a time, so that a small list is not emptied before it is judged again.
                let few = (sizes.capacity() / GROW_PART).clamp(1, BATCH_MAX as u64);
                let few = few.min(missing).min(due[kind as usize]);
                let over = sizes.inactive.saturating_sub(sizes.target(history));
                let active = over == 0 && sizes.active > 0;
                let few = if active || over == 0 { few } else { few.min(over) };
                due[kind as usize] -= few;
                let taken = self.take(place, List::of(kind, active), hunt.zone, few as usize);
                let going = self.sift(taken, active, history, sizes, progress);
                progress.done.add(&self.evict(place, kind, going));
            }
        }
        0
    }

    /// Puts frames that were used back on the active list; returns the others.
    fn sift(
        &self,
        taken: Few,
        active: bool,
        history: &History<P>,
        sizes: Sizes,
        progress: &mut Progress,
    ) -> Few {
        let (mut gone, mut going) = (Few::new(), Few::new());
        let staying = taken.iter().filter_map(|frame| {
            let state = self.frames.state(frame);
            let mark = state.mark();
            if active {
                history.note_scan(mark > 0, state.frames(), sizes.capacity() / 2);
            }
            let motion = match active {
                true if mark > 0 => {
                    self.frames.update(frame, State::less_marked);
                    Motion::Keep
                }
                false if mark >= ACTIVATES => Motion::Activate,
                _ => {
                    going.push(frame);
                    return None;
                }
            };
            progress.unmarked += u64::from(state.frames());
            Some((frame, motion))
        });
        self.put_back_all(staying, &mut gone);
        self.release_few(&gone);
        going
    }

    /// What is to become of content that came back at this distance.
    pub(super) fn judge_resistant(
        &self,
        place: Place,
        kind: Kind,
        was_active: bool,
        distance: u64,
    ) -> Return {
        let (sizes, history) = (self.sizes_of(place, kind), self.vecs.history(place, kind));
        let capacity = sizes.capacity();
        let step = (capacity / GROW_PART).max(GROW_MIN);
        if was_active {
            if distance <= capacity {
                history.set_excess(history.excess().saturating_sub(SHRINK * step));
            }
            // To activate it would let loops push each other out.
            return Return::New;
        }
        if distance <= capacity / 4 && history.is_cold() {
            history.set_excess((history.excess() + step).min(capacity * 8 / 10));
        }
        match distance {
            _ if distance <= capacity - sizes.floor().min(capacity) => Return::Activate,
            _ if distance <= 2 * capacity => Return::Mark,
            _ => Return::New,
        }
    }
}

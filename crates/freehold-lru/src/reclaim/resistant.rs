//! The scan-resistant policy: a short inactive list, and shadows that tell where it is too short.

use super::hunt::{Hunt, Progress, Round, Taken};
use crate::frames::few::Few;
use crate::frames::state::Motion;
use crate::id::Place;
use crate::kind::{Kind, List, PerList};
use crate::lists::history::History;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::BATCH_MAX;
use freehold::platform::Platform;

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
pub(crate) enum Return {
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
        targets: PerList<u64>,
        hunt: &Hunt,
        round: Round,
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
                let is_refused = |active| self.vecs.not_refused(place, List::of(kind, active)) == 0;
                let active = match (is_refused(false), is_refused(true)) {
                    (true, true) => due[kind as usize] <= target(kind, true),
                    (true, false) => true,
                    (false, true) => false,
                    (false, false) => over == 0,
                };
                let few = if active || over == 0 { few } else { few.min(over) };
                due[kind as usize] -= few;
                let taken =
                    self.take(place, List::of(kind, active), hunt.zone, round, few as usize);
                let going = self.sift(taken, active, history, sizes, progress);
                progress.done.add(&self.evict(place, kind, going));
            }
        }
        0
    }

    /// Puts inactive frames that were used on the active list; returns those that go.
    fn sift(
        &self,
        taken: Taken,
        active: bool,
        history: &History<P>,
        sizes: Sizes,
        progress: &mut Progress,
    ) -> Few {
        progress.note_taken(&taken);
        if active {
            let cold = taken.few.iter().map(|frame| self.frames.state(frame).frames()).sum();
            history.note_scan(taken.spared, cold, sizes.capacity() / 2);
            return taken.few;
        }
        let (mut gone, mut going) = (Few::new(), Few::new());
        let staying = taken.few.iter().filter(|&frame| {
            let state = self.frames.state(frame);
            let stays = state.mark() >= ACTIVATES;
            match stays {
                true => progress.unmarked += u64::from(state.frames()),
                false => going.push(frame),
            }
            stays
        });
        self.put_back_all(staying.map(|frame| (frame, Motion::Activate)), &mut gone);
        self.release_few(&gone);
        going
    }

    /// What is to become of content that came back at this distance.
    pub(crate) fn judge_resistant(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;
    use crate::tests::{ROOT_0, ROUND, Says, fill, lru};
    use crate::{GroupId, LruPolicy, LruSettings, Scope, Verdict};
    use freehold::units::{FrameCount, Pfn};

    const FILE: Kind = Kind::File;

    /// So many frames on each list, none of which was used since.
    fn with(inactive: u64, active: u64) -> Lru<TestPlatform, Says> {
        let settings = LruSettings::default().policy(LruPolicy::ScanResistant);
        let lru = lru(Says(Verdict::Drop), settings);
        fill(&lru, 0..inactive + active, GroupId::ROOT);
        (0..active).for_each(|frame| lru.activate(Pfn::new(frame)).expect("it is there"));
        lru.drain_all();
        lru
    }

    fn sizes(lru: &Lru<TestPlatform, Says>) -> (u64, u64) {
        let Sizes { inactive, active } = lru.sizes_of(ROOT_0, FILE);
        (inactive, active)
    }

    #[test]
    fn content_is_judged_by_its_distance() {
        let lru = with(600, 400);
        let judge = |was_active, distance| lru.judge_resistant(ROOT_0, FILE, was_active, distance);
        // All but the least length of the inactive list.
        assert_eq!([900, 901].map(|at| judge(false, at)), [Return::Activate, Return::Mark]);
        assert_eq!([2000, 2001].map(|at| judge(false, at)), [Return::Mark, Return::New]);
        assert_eq!([1, 5000].map(|at| judge(true, at)), [Return::New; 2]);
        assert_eq!(
            (lru.sizes_of(ROOT_0, FILE).floor(), with(3, 0).sizes_of(ROOT_0, FILE).floor()),
            (100, 1)
        );
    }

    #[test]
    fn the_inactive_list_grows_where_active_frames_are_cold() {
        let lru = with(600, 400);
        let history = lru.vecs.history(ROOT_0, FILE);
        let after = |was_active, distance| {
            lru.judge_resistant(ROOT_0, FILE, was_active, distance);
            history.excess()
        };
        assert_eq!(after(false, 1), 0, "as far as is known, all are warm");
        history.note_scan(0, 1, 100);
        // By a 64th, for content of at most a quarter of the capacity ago.
        assert_eq!((after(false, 251), after(false, 250), after(false, 1)), (0, 15, 30));
        (0..100).for_each(|_| _ = after(false, 1));
        assert_eq!(after(false, 1), 800, "four fifths at most");
        assert_eq!((after(true, 1001), after(true, 1000), after(true, 1)), (800, 500, 200));
        assert_eq!(after(true, 1), 0);
        // In small lruvecs by eight at least.
        let lru = with(60, 40);
        lru.vecs.history(ROOT_0, FILE).note_scan(0, 1, 100);
        lru.judge_resistant(ROOT_0, FILE, false, 1);
        assert_eq!(lru.vecs.history(ROOT_0, FILE).excess(), 8);
    }

    #[test]
    fn inactive_frames_go_until_there_are_as_many_as_should_be() {
        let lru = with(105, 895);
        let mut progress = Progress::default();
        let hunt = lru.hunt_within(0, 50);
        let left = lru.shrink_resistant(ROOT_0, [0, 0, 500, 500, 0], &hunt, ROUND, &mut progress);
        assert_eq!((progress.done.reclaimed, left), (50, 950));
        // The target is a tenth of what there is: 100 at first, and fewer as frames go.
        assert_eq!(sizes(&lru), (96, 854));
        assert!(lru.vecs.history(ROOT_0, FILE).is_cold(), "none was used");
        lru.validate().expect("the books are in order");
    }

    #[test]
    fn the_last_frame_goes_too() {
        let lru = with(1, 0);
        let done = lru.reclaim(Scope::All, FrameCount::new(1)).expect("it is the only one");
        assert_eq!((done.reclaimed, sizes(&lru)), (1, (0, 0)));
    }

    #[test]
    fn frames_that_were_used_stay_and_are_told_apart() {
        let lru = with(0, 100);
        (0..20).for_each(|frame| lru.mark_accessed(Pfn::new(frame)).expect("it is there"));
        let hunt = lru.hunt_within(0, 1);
        let (mut progress, history) = (Progress::default(), lru.vecs.history(ROOT_0, FILE));
        let mut sift = |count| {
            let taken = lru.take(ROOT_0, List::ActiveFile, hunt.zone, ROUND, count);
            lru.sift(taken, true, history, lru.sizes_of(ROOT_0, FILE), &mut progress)
        };
        assert_eq!((sift(20).iter().count(), history.is_cold()), (0, false));
        let going = sift(5);
        assert_eq!((going.iter().count(), progress.unmarked), (5, 20));
        assert!(history.is_cold(), "five of 25 were not used");
        assert_eq!(lru.evict(ROOT_0, FILE, going).reclaimed, 5);
        assert_eq!(sizes(&lru), (0, 95));
    }
}

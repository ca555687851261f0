//! What reclaim remembers of evicted content: counts of what became of it (Linux's `workingset.c`).

use core::sync::atomic::Ordering::Relaxed;

use crate::settings::LruPolicy;
use freehold::platform::{Platform, Word};

/// The history of the frames of one kind in an lruvec. All are counts on which no other memory
/// depends, so all accesses are relaxed, and two calls at once may lose a step.
pub(crate) struct History<P: Platform> {
    /// Evictions from the inactive and from the active list.
    evicted: [P::U32; 2],
    /// Frames that became active.
    activated: P::U32,
    /// Whether content came back that should have stayed, since reclaim last asked.
    challenged: P::U32,
    /// By how many frames the target of the inactive list exceeds its floor.
    excess: P::U32,
    /// Active frames scanned recently that were used since, and that were not.
    warm: P::U32,
    cold: P::U32,
}

impl<P: Platform> History<P> {
    pub(crate) fn new() -> Self {
        let zero = || P::U32::new(0);
        History {
            evicted: [zero(), zero()],
            activated: zero(),
            challenged: zero(),
            excess: zero(),
            warm: zero(),
            cold: zero(),
        }
    }

    /// Begins anew, for another group. The clocks go on.
    pub(crate) fn clear(&self) {
        let counts = [&self.challenged, &self.excess, &self.warm, &self.cold];
        counts.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// The clock that distances of refaults are measured by. In Linux it advances with activations
    /// as well, since those shorten the inactive list, too.
    /// `untold` are evictions from the inactive and from the active list that are noted later.
    pub(crate) fn clock(&self, policy: LruPolicy, active: bool, untold: [u32; 2]) -> u32 {
        let evicted = |list: usize| self.evicted[list].load(Relaxed).wrapping_add(untold[list]);
        match policy {
            LruPolicy::TwoLists => {
                let all = evicted(0).wrapping_add(evicted(1));
                all.wrapping_add(self.activated.load(Relaxed))
            }
            LruPolicy::ScanResistant => evicted(usize::from(active)),
        }
    }

    pub(crate) fn note_eviction(&self, active: bool, frames: u32) {
        self.evicted[usize::from(active)].fetch_add(frames, Relaxed);
    }

    pub(crate) fn note_activation(&self, frames: u32) {
        self.activated.fetch_add(frames, Relaxed);
    }

    /// Notes that content came back that should have stayed.
    pub(crate) fn challenge(&self) {
        // Most often it is noted already.
        if self.challenged.load(Relaxed) == 0 {
            self.challenged.store(1, Relaxed);
        }
    }

    /// Whether content came back that should have stayed, since this was last asked.
    pub(crate) fn take_challenge(&self) -> bool {
        self.challenged.load(Relaxed) != 0 && self.challenged.swap(0, Relaxed) != 0
    }

    pub(crate) fn excess(&self) -> u64 {
        self.excess.load(Relaxed).into()
    }

    pub(crate) fn set_excess(&self, frames: u64) {
        self.excess.store(frames.min(u64::from(u32::MAX)) as u32, Relaxed);
    }

    /// Counts scanned active frames that were used since, and that were not; those counted before
    /// count half once there are many.
    pub(crate) fn note_scan(&self, more_warm: u32, more_cold: u32, most: u64) {
        let (warm, cold) = (self.warm.load(Relaxed), self.cold.load(Relaxed));
        let is_full = u64::from(warm) + u64::from(cold) > most;
        let (warm, cold) = if is_full { (warm / 2, cold / 2) } else { (warm, cold) };
        self.warm.store(warm.saturating_add(more_warm), Relaxed);
        self.cold.store(cold.saturating_add(more_cold), Relaxed);
    }

    /// Whether at least one in eight active frames was not used between two scans.
    pub(crate) fn is_cold(&self) -> bool {
        let [warm, cold] = [&self.warm, &self.cold].map(|count| u64::from(count.load(Relaxed)));
        cold * 8 > warm + cold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;

    #[test]
    fn what_was_scanned_recently_says_whether_active_frames_are_cold() {
        let history = History::<TestPlatform>::new();
        let scan = |warm, cold| history.note_scan(warm, cold, 100);
        assert!(!history.is_cold());
        scan(7, 0);
        scan(0, 1);
        assert!(!history.is_cold(), "one in eight is not more than that");
        scan(0, 1);
        assert!(history.is_cold());
        scan(91, 0);
        assert_eq!([&history.warm, &history.cold].map(|of| of.load(Relaxed)), [98, 2]);
        scan(1, 0);
        assert_eq!([&history.warm, &history.cold].map(|of| of.load(Relaxed)), [99, 2]);
        scan(0, 3);
        assert_eq!([&history.warm, &history.cold].map(|of| of.load(Relaxed)), [49, 4]);
        history.set_excess(u64::MAX);
        assert_eq!(history.excess(), u32::MAX.into());
    }

    #[test]
    fn the_policies_have_clocks_of_their_own() {
        let history = History::<TestPlatform>::new();
        history.note_eviction(true, 3);
        history.note_eviction(false, 5);
        history.note_activation(7);
        let clock = |policy, active| history.clock(policy, active, [0; 2]);
        assert_eq!([true, false].map(|list| clock(LruPolicy::ScanResistant, list)), [3, 5]);
        assert_eq!([true, false].map(|list| clock(LruPolicy::TwoLists, list)), [15, 15]);
    }
}

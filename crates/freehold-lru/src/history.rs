//! What reclaim remembers of evicted content: a word for each, a shadow, and counts of what became
//! of them (Linux's `workingset.c`).

use core::sync::atomic::Ordering::Relaxed;

use super::kind::Kind;
use super::policy::LruPolicy;
use super::vec::Place;
use freehold::platform::{Platform, Word};

/// What is left of content that was evicted, for its owner to keep in the index in place of the
/// frame: which list it was on, and how much was evicted before. When the content is read again,
/// [`Lru::refault`](super::Lru::refault) tells from it whether the content should have stayed.
///
/// A word of 62 bits. Owners that keep all of them forget the oldest at some point: those of as
/// many frames as the group may have are useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shadow(u64);

const CLOCK_BITS: u32 = 28;
const CLOCK: u32 = (1 << CLOCK_BITS) - 1;

impl Shadow {
    /// A shadow of nothing, which refaults from nowhere.
    pub(super) const NONE: Self = Shadow((1 << 62) - 1);

    /// The word, whose two highest bits are clear.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The shadow of this word. Any word is safe: a wrong one is no shadow, or makes a wrong guess.
    pub const fn from_bits(bits: u64) -> Self {
        Shadow(bits)
    }

    pub(super) fn new(place: Place, generation: u8, kind: Kind, active: bool, clock: u32) -> Self {
        let marks = (kind as u64) << 1 | u64::from(active);
        let place = u64::from(place.slot) << 8 | place.node as u64;
        let clock = u64::from(clock & CLOCK);
        Shadow(((place << 8 | u64::from(generation)) << 2 | marks) << CLOCK_BITS | clock)
    }

    pub(super) fn place(self) -> Place {
        let place = self.0 >> (CLOCK_BITS + 10);
        Place { slot: (place >> 8) as u16, node: (place & 0xff) as usize }
    }

    pub(super) fn generation(self) -> u8 {
        (self.0 >> (CLOCK_BITS + 2)) as u8
    }

    pub(super) fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> (CLOCK_BITS + 1) & 1) as usize]
    }

    pub(super) fn was_active(self) -> bool {
        self.0 >> CLOCK_BITS & 1 != 0
    }

    /// The evictions, up to this reading of the clock.
    pub(super) fn distance(self, clock: u32) -> u64 {
        u64::from(clock.wrapping_sub(self.0 as u32) & CLOCK)
    }
}

/// The history of the frames of one kind in an lruvec. All are counts on which no other memory
/// depends, so all accesses are relaxed, and two calls at once may lose a step.
pub(super) struct History<P: Platform> {
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
    /// Content that came back, and of this, content that should have stayed.
    refaulted: P::U64,
    restored: P::U64,
}

impl<P: Platform> History<P> {
    pub(super) fn new() -> Self {
        let zero = || P::U32::new(0);
        History {
            evicted: [zero(), zero()],
            activated: zero(),
            challenged: zero(),
            excess: zero(),
            warm: zero(),
            cold: zero(),
            refaulted: P::U64::new(0),
            restored: P::U64::new(0),
        }
    }

    /// Begins anew, for another group. The clocks go on.
    pub(super) fn clear(&self) {
        let counts = [&self.challenged, &self.excess, &self.warm, &self.cold];
        counts.iter().for_each(|count| count.store(0, Relaxed));
        [&self.refaulted, &self.restored].iter().for_each(|count| count.store(0, Relaxed));
    }

    /// The clock that distances of refaults are measured by. In Linux it advances with activations
    /// as well, since those shorten the inactive list, too.
    pub(super) fn clock(&self, policy: LruPolicy, active: bool) -> u32 {
        let [inactive_evicted, active_evicted] =
            [0, 1].map(|list| self.evicted[list].load(Relaxed));
        match policy {
            LruPolicy::TwoLists => {
                let evicted = inactive_evicted.wrapping_add(active_evicted);
                evicted.wrapping_add(self.activated.load(Relaxed))
            }
            LruPolicy::ScanResistant if active => active_evicted,
            LruPolicy::ScanResistant => inactive_evicted,
        }
    }

    pub(super) fn note_eviction(&self, active: bool, frames: u32) {
        self.evicted[usize::from(active)].fetch_add(frames, Relaxed);
    }

    pub(super) fn note_activation(&self, frames: u32) {
        self.activated.fetch_add(frames, Relaxed);
    }

    pub(super) fn note_refault(&self, is_restored: bool, frames: u32) {
        self.refaulted.fetch_add(frames.into(), Relaxed);
        if is_restored {
            self.restored.fetch_add(frames.into(), Relaxed);
            self.challenged.store(1, Relaxed);
        }
    }

    /// Whether content came back that should have stayed, since this was last asked.
    pub(super) fn take_challenge(&self) -> bool {
        self.challenged.load(Relaxed) != 0 && self.challenged.swap(0, Relaxed) != 0
    }

    pub(super) fn refaults(&self) -> (u64, u64) {
        (self.refaulted.load(Relaxed), self.restored.load(Relaxed))
    }

    pub(super) fn excess(&self) -> u64 {
        self.excess.load(Relaxed).into()
    }

    pub(super) fn set_excess(&self, frames: u64) {
        self.excess.store(frames.min(u64::from(u32::MAX)) as u32, Relaxed);
    }

    /// Counts scanned active frames; those counted before count half once there are many.
    pub(super) fn note_scan(&self, is_warm: bool, frames: u32, most: u64) {
        let (warm, cold) = (self.warm.load(Relaxed), self.cold.load(Relaxed));
        let is_full = u64::from(warm) + u64::from(cold) > most;
        let (warm, cold) = if is_full { (warm / 2, cold / 2) } else { (warm, cold) };
        let (more_warm, more_cold) = if is_warm { (frames, 0) } else { (0, frames) };
        self.warm.store(warm.saturating_add(more_warm), Relaxed);
        self.cold.store(cold.saturating_add(more_cold), Relaxed);
    }

    /// Whether at least one in eight active frames was not used between two scans.
    pub(super) fn is_cold(&self) -> bool {
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
        let scan = |is_warm, frames| history.note_scan(is_warm, frames, 100);
        assert!(!history.is_cold());
        scan(true, 7);
        scan(false, 1);
        assert!(!history.is_cold(), "one in eight is not more than that");
        scan(false, 1);
        assert!(history.is_cold());
        scan(true, 91);
        assert_eq!([&history.warm, &history.cold].map(|of| of.load(Relaxed)), [98, 2]);
        scan(true, 1);
        assert_eq!([&history.warm, &history.cold].map(|of| of.load(Relaxed)), [99, 2]);
        scan(false, 3);
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
        let clock = |policy, active| history.clock(policy, active);
        assert_eq!([true, false].map(|list| clock(LruPolicy::ScanResistant, list)), [3, 5]);
        assert_eq!([true, false].map(|list| clock(LruPolicy::TwoLists, list)), [15, 15]);
    }

    #[test]
    fn a_shadow_keeps_what_it_is_told() {
        for (slot, node, generation, active) in [(65_534, 255, 255, true), (1, 0, 7, false)] {
            let place = Place { slot, node };
            for kind in Kind::ALL {
                let shadow = Shadow::new(place, generation, kind, active, u32::MAX - 3);
                assert_eq!((shadow.place(), shadow.generation()), (place, generation));
                assert_eq!((shadow.kind(), shadow.was_active()), (kind, active));
                assert_eq!((shadow.to_bits() >> 62, shadow.distance(6)), (0, 10));
                assert_eq!(Shadow::from_bits(shadow.to_bits()), shadow);
            }
        }
        assert_eq!(usize::from(Shadow::NONE.place().slot), super::super::group::SLOTS_MAX);
    }
}

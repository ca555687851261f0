//! The reach of a hunt: how many frames there are that it may take, at how many places.

use core::sync::atomic::Ordering::Relaxed;

use super::hunt::Hunt;
use crate::groups::table::Groups;
use crate::id::Place;
use crate::kind::{List, PerList};
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::{Platform, Word};

/// What is within reach is counted again once so many frames for each place, or this part of them,
/// were reclaimed, but at least one for four places: so counting costs little for each frame, and
/// the count is not old.
const REACH_PLACES: u32 = 4;
const REACH_PART: u32 = 16;

/// What there is within reach of a hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) frames: u32,
    /// Lruvecs, empty ones included.
    pub(super) places: u32,
}

/// How many frames are on lists that reclaim takes from.
pub(super) fn evictable(sizes: &PerList<u32>) -> u64 {
    List::EVICTABLE.iter().map(|&list| u64::from(sizes[list as usize])).sum()
}

impl<P: Platform> Groups<P> {
    /// What was within reach of hunts of a kind when it was last counted, unless much was reclaimed
    /// since then, or hunts of another kind came between.
    fn reach(&self, slot: u16, kind: u32) -> Option<Reach> {
        let record = self.get(slot);
        // Relaxed: an estimate. Should another CPU be changing it, the next hunt finds a better
        // one.
        if record.reach_left.load(Relaxed) == 0 || record.reach_of.load(Relaxed) != kind {
            return None;
        }
        let bits = record.reach.load(Relaxed);
        Some(Reach { frames: bits as u32, places: (bits >> 32) as u32 })
    }

    /// Remembers what is within reach: for as many reclaimed frames as the count is worth.
    fn set_reach(&self, slot: u16, kind: u32, reach: Reach) {
        let record = self.get(slot);
        // Relaxed: as in `reach`.
        record.reach.store(u64::from(reach.places) << 32 | u64::from(reach.frames), Relaxed);
        record.reach_of.store(kind, Relaxed);
        let most = reach.places.saturating_mul(REACH_PLACES);
        record.reach_left.store(most.min(reach.frames / REACH_PART).max(reach.places / 4), Relaxed);
    }

    /// Notes that frames within reach were reclaimed.
    pub(crate) fn spend_reach(&self, slot: u16, frames: u64) {
        let left = &self.get(slot).reach_left;
        // Relaxed: as in `reach`.
        let rest = u64::from(left.load(Relaxed)).saturating_sub(frames);
        left.store(rest as u32, Relaxed);
    }
}

impl Hunt {
    /// Tells hunts apart that have different frames within reach.
    fn kind(&self) -> u32 {
        (self.nodes.start as u32) << 12 | (self.nodes.end as u32) << 2 | self.zone as u32
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// What is within reach of a hunt, if need be counted anew.
    pub(super) fn reach(&self, hunt: &Hunt) -> Reach {
        let kind = hunt.kind();
        self.groups.reach(hunt.above, kind).unwrap_or_else(|| {
            let reach = self.count_reach(hunt);
            self.groups.set_reach(hunt.above, kind, reach);
            reach
        })
    }

    fn count_reach(&self, hunt: &Hunt) -> Reach {
        // If the lock is held, another call is most likely counting, or will before long.
        if self.groups.is_any_protected()
            && let Some(tree) = self.groups.try_tree(&self.platform)
        {
            tree.count_protected(hunt.above);
        }
        let (mut frames, mut places) = (0, 0);
        for slot in self.groups.walk(hunt.above) {
            for node in hunt.nodes.clone() {
                let place = Place { slot, node };
                self.vecs.join_small(&self.platform, &self.frames, place);
                frames += evictable(&self.vecs.sizes(place, hunt.zone));
                places += 1;
            }
        }
        Reach { frames: frames.min(u32::MAX.into()) as u32, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Says, lru};
    use crate::{LruSettings, Verdict};
    use freehold::units::ZoneKind;

    #[test]
    fn what_is_within_reach_is_counted_again_after_a_part_of_it() {
        let lru = lru(Says(Verdict::Drop), LruSettings::default());
        let groups = &lru.groups;
        // Four for each place, but at most a sixteenth, and at least one for four places.
        for (frames, places, left) in [(160_000, 10, 40), (320, 10, 20), (1600, 1000, 250)] {
            let reach = Reach { frames, places };
            groups.set_reach(0, 7, reach);
            groups.spend_reach(0, left - 1);
            assert_eq!((groups.reach(0, 7), groups.reach(0, 8)), (Some(reach), None));
            groups.spend_reach(0, 1);
            assert_eq!(groups.reach(0, 7), None, "{frames} frames, {places} places");
        }
    }

    #[test]
    fn hunts_of_other_nodes_and_zones_have_another_reach() {
        let mut kinds: [u32; 12] = core::array::from_fn(|nth| {
            let nodes = [0..1, 1..2, 0..2, 1..256][nth / 3].clone();
            let zone = [ZoneKind::Dma, ZoneKind::Normal, ZoneKind::Movable][nth % 3];
            Hunt { above: 0, nodes, zone, wanted: 1, heeds_low: true }.kind()
        });
        kinds.sort_unstable();
        assert!(kinds.windows(2).all(|pair| pair[0] != pair[1]), "{kinds:?}");
    }
}

//! How much each kind of content is scanned: by the user's preference, and by what reclaim from it
//! has cost of late. After Linux 6.12's `get_scan_count`.

use crate::kind::{Kind, List, PerList};

/// The open frames of the lists of a place, and the recent cost of reclaim from each kind there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) open: PerList<u32>,
    pub(super) costs: [u64; Kind::COUNT],
}

impl Level {
    fn open(&self, kind: Kind, active: bool) -> u64 {
        u64::from(self.open[List::of(kind, active) as usize])
    }

    /// The open frames of each list that can be reclaimed from, weighed by kind. In the last round
    /// all count in full, unless the user excludes one kind.
    pub(super) fn weighed(&self, swappiness: u32, is_last: bool) -> PerList<u64> {
        let mut weighed = [0; List::COUNT];
        let (weights, even) = self.weights(swappiness);
        for kind in Kind::ALL {
            for active in [false, true] {
                let frames = self.open(kind, active);
                weighed[List::of(kind, active) as usize] = match weights[kind as usize] {
                    _ if is_last && swappiness > 0 => frames,
                    weight => frames.min(frames * weight / even),
                };
            }
        }
        weighed
    }

    /// The weight of each kind, and which weight is an even one: below 2^31.
    fn weights(&self, swappiness: u32) -> ([u64; Kind::COUNT], u64) {
        let frames = |kind| self.open(kind, false) + self.open(kind, true);
        let swappiness = u64::from(swappiness);
        // With frames of only one kind there is nothing to weight.
        if frames(Kind::Anon) == 0 || swappiness == 0 {
            return ([0, 1], 1);
        }
        if frames(Kind::File) == 0 {
            return ([1, 0], 1);
        }
        let total = self.costs.iter().sum::<u64>();
        let [anon, file] = self.costs.map(|cost| total + cost + 1);
        let sum = anon + file;
        let weights = [swappiness * sum / anon, (200 - swappiness) * sum / file];
        let shift = (u64::BITS - (weights[0] | weights[1]).leading_zeros()).saturating_sub(30);
        let weights = weights.map(|weight| weight >> shift);
        (weights, (weights.iter().sum::<u64>() / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level([a, b, c, d]: [u32; 4], costs: [u64; 2]) -> Level {
        Level { open: [a, b, c, d, 1000], costs }
    }

    #[test]
    fn at_one_hundred_and_no_cost_both_kinds_bear_alike() {
        let level = level([4096, 0, 4096, 2048], [0, 0]);
        assert_eq!(level.weighed(100, false), [4096, 0, 4096, 2048, 0]);
    }

    #[test]
    fn what_costs_more_is_looked_at_less() {
        let weighed = |costs| level([8192, 0, 8192, 0], costs).weighed(100, false);
        let [anon, _, file, ..] = weighed([1000, 0]);
        assert!(anon < file && anon > 0, "{anon} {file}");
        let [anon, _, file, ..] = weighed([0, 1000]);
        assert!(anon > file && file > 0, "{anon} {file}");
    }

    #[test]
    fn weights_leave_room_for_any_number_of_frames() {
        for costs in [[0, 1 << 50], [1 << 50, 0], [1 << 40, 1 << 50]] {
            let (weights, _) = level([1, 0, 1, 0], costs).weights(100);
            assert!(weights.iter().all(|&weight| weight < 1 << 31), "{weights:?}");
        }
    }

    #[test]
    fn swappiness_leans_to_either_side() {
        let weighed = |swappiness, is_last| {
            let weighed = level([1024, 0, 1024, 0], [5, 5]).weighed(swappiness, is_last);
            [weighed[0], weighed[2]]
        };
        assert_eq!([false, true].map(|is_last| weighed(0, is_last)), [[0, 1024]; 2]);
        assert_eq!((weighed(200, false), weighed(200, true)), ([1024, 0], [1024, 1024]));
        assert_eq!(weighed(60, true), [1024, 1024], "in the last round both are looked at");
    }

    #[test]
    fn anonymous_frames_alone_are_looked_at_in_full() {
        let level = level([64, 0, 0, 0], [0, 0]);
        assert_eq!(level.weighed(60, true), [64, 0, 0, 0, 0]);
        assert_eq!(level.weighed(0, true), [0; 5]);
    }
}

//! How many frames of each list reclaim scans. After Linux 6.12's `get_scan_count` and
//! `inactive_is_low`.

use super::Kind;
use super::kind::List;
use freehold::units::FrameSize;

/// The priority that reclaim starts with: it scans one frame in 2 to the power of it.
pub(super) const PRIORITY: u32 = 12;

/// The state of an lruvec.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Frames on each list.
    pub(super) sizes: [u32; List::COUNT],
    /// The recent cost of reclaim from each kind.
    pub(super) costs: [u64; Kind::COUNT],
}

impl Level {
    fn size(&self, kind: Kind, active: bool) -> u64 {
        u64::from(self.sizes[List::of(kind, active) as usize])
    }

    /// How many frames of each list to scan: its share by size, weighted by the user's preference
    /// and by the recent cost of reclaim from its kind. `carry` has what earlier calls have left
    /// over, and gets what this one does.
    pub(super) fn targets(
        &self,
        swappiness: u32,
        priority: u32,
        carry: &mut Carry,
    ) -> [u64; List::COUNT] {
        let mut targets = [0; List::COUNT];
        let (weights, one) = self.weights(swappiness);
        for kind in Kind::ALL {
            for active in [false, true] {
                let list = List::of(kind, active);
                let frames = self.size(kind, active);
                // In the last round everything counts, unless the user excludes one kind.
                let share = match weights[kind as usize] {
                    weight if priority > 0 || swappiness == 0 => {
                        frames.min(frames * weight / one) //
                    }
                    _ => frames,
                };
                targets[list as usize] = carry.part(list, share, priority);
            }
        }
        targets
    }

    /// The weight of each kind in the scan, and which weight is an even one: below 2^31.
    fn weights(&self, swappiness: u32) -> ([u64; Kind::COUNT], u64) {
        let frames = |kind| self.size(kind, false) + self.size(kind, true);
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

/// Whether so many frames of a kind are active that some should be deactivated, by the sizes of the
/// lists. Frames that are used twice stay while the inactive list is long enough for them to be
/// used twice on it.
pub(super) fn inactive_is_low(
    sizes: &[u32; List::COUNT],
    kind: Kind,
    frame_size: FrameSize,
) -> bool {
    const GIB: usize = 1 << 30;
    let frames_per_gib = (GIB / frame_size.bytes()) as u64;
    let size = |active| u64::from(sizes[List::of(kind, active) as usize]);
    let (inactive, active) = (size(false), size(true));
    let ratio = (10 * ((inactive + active) / frames_per_gib)).isqrt().max(1);
    inactive * ratio < active
}

/// What is left over where the part of a list to scan is no whole number of frames: 16 bits for
/// each list that can be reclaimed from, in units of a frame divided by 2 to the power of
/// [`PRIORITY`]. So each list bears in proportion to its size, however small that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Carry(pub(super) u64);

impl Carry {
    /// The part of `frames` at this priority, with what was left over.
    pub(super) fn part(&mut self, list: List, frames: u64, priority: u32) -> u64 {
        let shift = list as u32 * 16;
        let sum = (frames << (PRIORITY - priority)) + (self.0 >> shift & 0xffff);
        let left = sum & ((1 << PRIORITY) - 1);
        self.0 = self.0 & !(0xffff << shift) | left << shift;
        sum >> PRIORITY
    }
}

const _: () = assert!(PRIORITY <= 16 && List::EVICTABLE.len() <= 4, "four lists in one word");

#[cfg(test)]
mod tests {
    use super::*;

    fn level(sizes: [u32; 4], costs: [u64; 2]) -> Level {
        let [a, b, c, d] = sizes;
        Level { sizes: [a, b, c, d, 1000], costs }
    }

    fn targets_of(level: &Level, swappiness: u32, priority: u32) -> [u64; List::COUNT] {
        level.targets(swappiness, priority, &mut Carry::default())
    }

    #[test]
    fn what_is_left_over_counts_later() {
        let mut carry = Carry::default();
        let mut sum = |list, frames, priority| -> u64 {
            (0..4096).map(|_| carry.part(list, frames, priority)).sum()
        };
        assert_eq!(sum(List::InactiveAnon, 1, 12), 1);
        assert_eq!(sum(List::ActiveFile, 4097, 12), 4097);
        assert_eq!(sum(List::InactiveAnon, 3, 10), 12);
        assert_eq!(sum(List::ActiveFile, u64::from(u32::MAX), 0), 4096 * u64::from(u32::MAX));
        let mut carry = Carry(0);
        carry.part(List::InactiveFile, 1, 1);
        assert_eq!(
            (carry.part(List::ActiveFile, 1, 1), carry.part(List::InactiveFile, 1, 1)),
            (0, 1)
        );
    }

    #[test]
    fn at_one_hundred_and_no_cost_both_kinds_bear_alike() {
        let level = level([4096, 0, 4096, 4096], [0, 0]);
        assert_eq!(targets_of(&level, 100, 2), [1024, 0, 1024, 1024, 0]);
    }

    #[test]
    fn what_costs_more_is_looked_at_less() {
        let targets = |costs| targets_of(&level([8192, 0, 8192, 0], costs), 100, 1);
        let [anon, _, file, ..] = targets([1000, 0]);
        assert!(anon < file && anon > 0, "{anon} {file}");
        let [anon, _, file, ..] = targets([0, 1000]);
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
        let targets = |swappiness, priority| {
            let targets = targets_of(&level([1024, 0, 1024, 0], [5, 5]), swappiness, priority);
            [targets[0], targets[2]]
        };
        assert_eq!((targets(0, 1), targets(0, 0)), ([0, 512], [0, 1024]));
        assert_eq!((targets(200, 1), targets(200, 0)), ([512, 0], [1024, 1024]));
        assert_eq!(targets(60, 0), [1024, 1024], "in the last round both are looked at");
    }

    #[test]
    fn anonymous_frames_alone_are_looked_at_in_full() {
        let level = level([64, 0, 0, 0], [0, 0]);
        assert_eq!(targets_of(&level, 60, 0), [64, 0, 0, 0, 0]);
        assert_eq!(targets_of(&level, 0, 0), [0; 5]);
    }

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

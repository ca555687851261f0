//! A sum of which each CPU keeps its last changes to itself, so that the word that everybody reads
//! is written rarely.
//!
//! After Linux 6.12 `mm/vmstat.c` (`__mod_zone_page_state`, `__inc_zone_state`,
//! `calculate_normal_threshold`, `calculate_pressure_threshold`, `refresh_zone_stat_thresholds`).

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{Platform, Word};
use crate::units::FrameCount;
use crate::zone::watermark::Marks;

/// The largest difference of a CPU: Linux keeps it in a signed byte.
const THRESHOLD_MAX: u64 = 125;

/// The changes that one CPU has not yet told. Written under the lock that guards the sum; read by
/// anybody.
pub(crate) struct Difference<P: Platform>(P::U32);

impl<P: Platform> Difference<P> {
    pub(crate) fn new() -> Self {
        Difference(P::U32::new(0))
    }

    /// The changes.
    pub(crate) fn get(&self) -> i64 {
        // Relaxed: a level as of a moment ago, unless the reader holds the lock.
        i64::from(self.0.load(Relaxed).cast_signed())
    }

    /// Takes the changes, to add them to the sum. The caller holds the lock.
    pub(crate) fn take(&self) -> i64 {
        let changes = self.get();
        // Relaxed: as in `get`.
        self.0.store(0, Relaxed);
        changes
    }

    /// Adds a change; returns what is to be added to the sum now, if anything. The caller holds the
    /// lock.
    #[inline]
    pub(crate) fn add(&self, change: i64, threshold: u64) -> i64 {
        let (threshold, sum) = (threshold.min(THRESHOLD_MAX).cast_signed(), self.get() + change);
        let (kept, told) = if sum.abs() <= threshold {
            (sum, 0)
        } else if change.abs() == 1 {
            // Half the way to the other side, so that the next steps in this direction are quiet.
            let overstep = threshold / 2 * sum.signum();
            (-overstep, sum + overstep)
        } else {
            (0, sum)
        };
        // Relaxed: as in `get`. What is kept is at most the threshold, and fits.
        self.0.store((kept as i32).cast_unsigned(), Relaxed);
        told
    }
}

/// Through whom a change of a zone's level goes.
pub(crate) struct LevelOfCpu<'a, P: Platform> {
    pub(crate) difference: &'a Difference<P>,
    /// How far the CPU may be behind.
    pub(crate) threshold: u64,
}

impl<P: Platform> LevelOfCpu<'_, P> {
    /// Adds a change; returns what is to be added to the word that all read. The caller holds the
    /// zone lock.
    #[inline]
    pub(super) fn add(&self, change: i64) -> i64 {
        self.difference.add(change, self.threshold)
    }
}

/// How far each CPU of a machine may be behind for a zone of `managed` frames: the more, the larger
/// the machine is.
pub(crate) fn normal_threshold(managed: FrameCount, cpus: usize) -> u64 {
    /// 128 MiB in frames, as a power of two.
    const UNIT: u32 = 15;
    let bits = |number: u64| u64::from(u64::BITS - number.leading_zeros());
    (2 * bits(cpus as u64) * (1 + bits(managed.get() >> UNIT))).min(THRESHOLD_MAX)
}

/// How far each CPU may be behind while the zone runs low: all of them together may not hide the
/// way from one watermark to the next.
pub(crate) fn pressure_threshold(marks: &Marks, cpus: usize) -> u64 {
    let gap = marks.low.get().saturating_sub(marks.min.get());
    (gap / cpus.max(1) as u64).clamp(1, THRESHOLD_MAX)
}

/// How far all CPUs together may be behind. Linux derives one mark for each zone from it
/// (`percpu_drift_mark`), below which it adds up all differences; here every comparison that so
/// many frames could turn does so, and none other.
pub(crate) fn drift_max(managed: FrameCount, marks: &Marks, cpus: usize) -> u64 {
    let threshold = normal_threshold(managed, cpus).max(pressure_threshold(marks, cpus));
    cpus as u64 * threshold
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;

    fn marks(min: u64, low: u64, high: u64) -> Marks {
        let [min, low, high] = [min, low, high].map(FrameCount::new);
        Marks { min, low, high, ..Marks::default() }
    }

    #[test]
    fn thresholds_are_those_of_the_kernel() {
        // By its formula: CPUs, MiB, threshold.
        for (cpus, mib, threshold) in
            [(1, 4096, 14), (2, 128, 8), (4, 1024, 30), (8, 8192, 64), (64, 1024, 70)]
        {
            let managed = FrameCount::new((mib << 20) >> 12);
            assert_eq!(normal_threshold(managed, cpus), threshold, "{cpus} CPUs, {mib} MiB");
        }
        assert_eq!(normal_threshold(FrameCount::new(1 << 24), 512), 125);
    }

    #[test]
    fn under_pressure_the_drift_stays_below_the_gap() {
        assert_eq!(pressure_threshold(&marks(1000, 1250, 1500), 8), 31);
        assert_eq!(pressure_threshold(&marks(10, 12, 14), 8), 1);
        assert_eq!(pressure_threshold(&marks(0, 1 << 20, 1 << 21), 1), 125);
    }

    #[test]
    fn the_drift_is_that_of_the_larger_threshold() {
        let gib = FrameCount::new(1 << 18);
        assert_eq!(drift_max(gib, &marks(1000, 1250, 1500), 8), 8 * 40);
        assert_eq!(drift_max(gib, &marks(1000, 1800, 2600), 8), 8 * 100);
    }

    #[test]
    fn single_steps_overstep_and_larger_ones_do_not() {
        let difference: Difference<TestPlatform> = Difference::new();
        let told: i64 = (0..9).map(|_| difference.add(1, 8)).sum();
        assert_eq!((told, difference.get()), (13, -4), "nine steps and four to come");
        assert_eq!((difference.add(-20, 8), difference.get()), (-24, 0));
        assert_eq!((difference.add(-8, 8), difference.get()), (0, -8));
        assert_eq!((difference.add(-1, 8), difference.get()), (-13, 4));
    }
}

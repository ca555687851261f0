//! How sure a ratio of two medians is: a percentile bootstrap.

use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics};

use crate::report::summary::Summary;

/// The share of intervals that hold the true ratio.
pub(super) const CONFIDENCE: f64 = 0.99;

/// The fewest rounds on each side. With fewer, rounds of two equal programs are all apart, each of
/// one above each of the other, more often than once in a hundred times.
pub(super) const ROUNDS_MIN: usize = 5;

/// How often rounds are drawn again: ten ratios lie beyond each end.
const RESAMPLES: usize = 2000;

/// One seed, one verdict.
const SEED: u64 = 1;

/// Where a ratio lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Interval {
    /// The interval of B's median in multiples of A's. `None` if there are too few rounds, or
    /// samples that are not positive.
    ///
    /// Rounds are drawn as a whole, since what disturbs one task disturbs the others of its round.
    pub(super) fn of(a: &[Vec<f64>], b: &[Vec<f64>]) -> Option<Self> {
        let positive = a.iter().chain(b).flatten().all(|sample| *sample > 0.0);
        if a.len().min(b.len()) < ROUNDS_MIN || !positive {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(SEED);
        let ratio = |_| drawn_median(b, &mut random) / drawn_median(a, &mut random);
        let mut ratios = Data::new((0..RESAMPLES).map(ratio).collect::<Vec<_>>());
        let beyond = (1.0 - CONFIDENCE) / 2.0;
        Some(Interval { low: ratios.quantile(beyond), high: ratios.quantile(1.0 - beyond) })
    }

    /// Whether no change is unlikely.
    pub(super) fn excludes_1(self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The median of as many rounds, drawn at random.
fn drawn_median(rounds: &[Vec<f64>], random: &mut fastrand::Rng) -> f64 {
    let drawn = (0..rounds.len()).flat_map(|_| &rounds[random.usize(..rounds.len())]);
    Summary::of(&drawn.copied().collect::<Vec<_>>()).median
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(samples: impl IntoIterator<Item = f64>) -> Vec<Vec<f64>> {
        samples.into_iter().map(|sample| vec![sample]).collect()
    }

    /// Samples around a middle, most of them close to it and some far above, as times are.
    fn times(count: usize, middle: f64, random: &mut fastrand::Rng) -> Vec<Vec<f64>> {
        rounds((0..count).map(|_| middle * (1.0 + 0.05 * -random.f64().max(1e-9).ln())))
    }

    #[test]
    fn a_change_beyond_the_noise_is_outside() {
        let a = rounds([10.0, 10.1, 9.9, 10.2, 9.8, 10.0, 10.1]);
        let twice = Interval::of(&a, &rounds([20.0, 20.2, 19.8, 20.4, 19.6])).unwrap();
        assert!(1.9 < twice.low && twice.low < 2.0 && 2.0 < twice.high && twice.high < 2.1);
        assert!(twice.excludes_1());
        let noisy = rounds([8.0, 14.0, 9.0, 13.0, 10.9, 9.5, 12.0]);
        assert!(!Interval::of(&a, &noisy).unwrap().excludes_1());
        assert!(!Interval::of(&a, &a).unwrap().excludes_1());
    }

    #[test]
    fn few_or_impossible_samples_have_no_interval() {
        let enough = rounds([1.0, 1.1, 1.2, 1.3, 1.4]);
        assert!(Interval::of(&enough, &enough).is_some());
        assert_eq!(Interval::of(&enough[..4], &enough), None);
        assert_eq!(Interval::of(&enough, &[]), None);
        assert_eq!(Interval::of(&enough, &rounds([1.0, 1.1, 0.0, 1.3, 1.4])), None);
    }

    #[test]
    fn what_does_not_differ_is_rarely_said_to() {
        const PAIRS: usize = 300;
        let mut random = fastrand::Rng::with_seed(7);
        for count in [ROUNDS_MIN, 9, 15] {
            let differ = |_: &usize| {
                let (a, b) = (times(count, 10.0, &mut random), times(count, 10.0, &mut random));
                Interval::of(&a, &b).unwrap().excludes_1()
            };
            let wrong = (0..PAIRS).filter(differ).count();
            assert!(wrong <= PAIRS * 3 / 100, "{wrong} of {PAIRS} with {count} rounds");
        }
    }

    /// Eight tasks that are fast or slow together say no more than one.
    #[test]
    fn tasks_of_a_round_are_not_rounds() {
        let (a, b) = ([10.0, 12.0, 11.0, 13.0, 10.5], [12.5, 13.0, 10.9, 12.9, 13.5]);
        let of_eight = |rounds: [f64; 5]| rounds.map(|sample| vec![sample; 8]).to_vec();
        let flat = |rounds: [f64; 5]| of_eight(rounds).concat().into_iter();
        assert!(!Interval::of(&of_eight(a), &of_eight(b)).unwrap().excludes_1());
        assert!(Interval::of(&rounds(flat(a)), &rounds(flat(b))).unwrap().excludes_1());
    }
}

//! Samples in three numbers.

use serde::Serialize;
use statrs::statistics::{Data, Max, Min, OrderStatistics};

/// The median of some samples, and their spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Requires at least one sample.
    pub(crate) fn of(samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "a summary needs a sample");
        let mut data = Data::new(samples.to_vec());
        Summary { min: data.min(), max: data.max(), median: data.median() }
    }

    /// The distance between the extremes, as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// Some times in four numbers, in ns; all 0 if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

impl Quantiles {
    /// The smallest of the times that so many of 1000 of them do not exceed.
    pub(crate) fn of(times_ns: impl Iterator<Item = u64>) -> Self {
        let mut times: Vec<_> = times_ns.collect();
        times.sort_unstable();
        let at = |permille: usize| {
            let rank = (times.len() * permille).div_ceil(1000);
            rank.checked_sub(1).map_or(0, |index| times[index])
        };
        Quantiles { p50_ns: at(500), p99_ns: at(990), p999_ns: at(999), max_ns: at(1000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_samples() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 3.0, 5.0]);
        assert_eq!(summary, Summary { median: 3.0, min: 1.0, max: 5.0 });
        assert!((summary.spread() - 4.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_times_that_occurred() {
        let quantiles = Quantiles::of((1..=200).rev());
        let of_200 = Quantiles { p50_ns: 100, p99_ns: 198, p999_ns: 200, max_ns: 200 };
        assert_eq!(quantiles, of_200);
        assert_eq!(Quantiles::of([7].into_iter()).p50_ns, 7);
        assert_eq!(Quantiles::of([].into_iter()), Quantiles::default());
    }
}

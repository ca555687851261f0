//! Samples in three numbers.

use serde::Serialize;
use statrs::statistics::{Data, Max, Min, OrderStatistics};

/// The median of some samples, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one sample.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_samples() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 3.0, 5.0]);
        assert_eq!(summary, Summary { median: 3.0, min: 1.0, max: 5.0 });
        assert!((summary.spread() - 4.0 / 3.0).abs() < 1e-12);
    }
}

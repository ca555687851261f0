//! Times of a block in one pass or one round, and their median.

use super::course::Times;
use crate::report::summary::Summary;

/// A block's time, in ns; only the pair if allocating and freeing cannot be timed separately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Allocating and freeing, which add up to the pair.
    pub(super) apart: Option<(f64, f64)>,
    pub(super) pair: f64,
}

impl Sample {
    pub(super) fn apart(get: f64, put: f64) -> Self {
        Sample { apart: Some((get, put)), pair: get + put }
    }

    pub(super) fn together(pair: f64) -> Self {
        Sample { apart: None, pair }
    }

    /// One round: the median of its passes.
    pub(super) fn of(times: &Times) -> Option<Self> {
        let apart = times.get_ns.iter().zip(&times.put_ns);
        let apart = apart.map(|(&get, &put)| Sample::apart(get, put));
        let together = times.pair_ns.iter().map(|&pair| Sample::together(pair));
        Sample::middle(apart.chain(together))
    }

    /// The median by pair, with the get and put of the same sample, so that they add up; for an
    /// even number of samples the mean of the two in the middle.
    pub(super) fn middle(samples: impl Iterator<Item = Sample>) -> Option<Self> {
        let mut samples: Vec<_> = samples.collect();
        samples.sort_by(|a, b| a.pair.total_cmp(&b.pair));
        let (low, high) = (samples.len().checked_sub(1)? / 2, samples.len() / 2);
        Some(samples[low].mean(samples[high]))
    }

    /// The same in another unit, given in the present one.
    pub(super) fn in_units_of(self, unit: f64) -> Self {
        match self.apart {
            Some((get, put)) => Sample::apart(get / unit, put / unit),
            None => Sample::together(self.pair / unit),
        }
    }

    fn mean(self, other: Sample) -> Self {
        let mean = |a: f64, b: f64| (a + b) / 2.0;
        match (self.apart, other.apart) {
            (Some(a), Some(b)) => Sample::apart(mean(a.0, b.0), mean(a.1, b.1)),
            _ => Sample::together(mean(self.pair, other.pair)),
        }
    }
}

/// How many times as long as the others these samples take, round by round; `None` if there is
/// nothing to compare.
pub(super) fn ratio(samples: &[Sample], others: &[Sample]) -> Option<Summary> {
    let each = samples.iter().zip(others).map(|(sample, other)| sample.pair / other.pair);
    let ratios: Vec<_> = each.collect();
    (!ratios.is_empty()).then(|| Summary::of(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_its_middle_pass() {
        // The median of each alone would be 11 and 6.
        let (get_ns, put_ns) = (vec![10.0, 900.0, 11.0], vec![8.0, 5.0, 6.0]);
        let times = Times { get_ns, put_ns, ..Times::default() };
        assert_eq!(Sample::of(&times), Some(Sample::apart(10.0, 8.0)));
        let times = Times { pair_ns: vec![15.0, 14.0, 99.0], ..Times::default() };
        assert_eq!(Sample::of(&times), Some(Sample::together(15.0)));
        assert_eq!(Sample::of(&Times::default()), None);
    }

    #[test]
    fn get_and_put_add_up_to_the_pair() {
        // Rounds in which sometimes one way is slow, sometimes the other: their medians would be
        // 100 and 30.
        let rounds = [(100.0, 30.0), (104.0, 315.0), (383.0, 36.0), (40.0, 31.0), (390.0, 29.0)];
        let samples = rounds.map(|(get, put)| Sample::apart(get, put));
        for count in 1..=samples.len() {
            let middle = Sample::middle(samples[..count].iter().copied()).unwrap();
            let (get, put) = middle.apart.unwrap();
            assert_eq!(get + put, middle.pair);
            let pairs: Vec<_> = samples[..count].iter().map(|sample| sample.pair).collect();
            assert_eq!(middle.pair, Summary::of(&pairs).median, "of {count}");
            let locks = middle.in_units_of(3.0);
            let (get, put) = locks.apart.unwrap();
            assert_eq!(get + put, locks.pair);
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let of = |pairs: [f64; 3]| pairs.map(Sample::together);
        // Twice as slow in the second round, and so is everything else.
        let ratio = ratio(&of([30.0, 60.0, 33.0]), &of([10.0, 20.0, 10.0])).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (3.0, 3.0, 3.3));
        assert_eq!(super::ratio(&of([1.0; 3]), &[]), None);
    }
}

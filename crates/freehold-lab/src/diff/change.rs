//! What has changed between two readings of a figure, and whether that counts.

use serde::Serialize;

use super::cell::{Cell, Matched, Reading};
use super::interval::Interval;
use crate::report::figure::Worse;

/// A figure that both documents have.
pub(super) struct Change<'c> {
    pub(super) cell: &'c Cell,
    pub(super) a: &'c Reading,
    pub(super) b: &'c Reading,
    /// B in multiples of A; infinite if A is 0 and B is not.
    pub(super) ratio: f64,
    pub(super) chance: Chance,
    pub(super) verdict: Verdict,
}

/// What is known of how far a change is chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chance {
    /// It is none: the figures are simulated.
    None,
    Within(Interval),
    /// There are no samples, or too few.
    Unknown,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Worse,
    Better,
    /// It is small, or may be chance.
    Same,
    /// Nobody knows whether it is chance.
    Unknown,
}

impl<'c> Change<'c> {
    pub(super) fn of(cell: &'c Cell, a: &'c Reading, b: &'c Reading, threshold: f64) -> Self {
        let ratio = if a.value == b.value { 1.0 } else { b.value / a.value };
        let chance = match cell.simulated {
            true => Chance::None,
            false => Interval::of(&a.rounds, &b.rounds).map_or(Chance::Unknown, Chance::Within),
        };
        let is_real = match chance {
            Chance::None => ratio != 1.0,
            Chance::Within(interval) => interval.excludes_1(),
            Chance::Unknown => false,
        };
        let verdict = match (chance, a.worse) {
            (Chance::Unknown, _) => Verdict::Unknown,
            _ if !is_real || (ratio - 1.0).abs() < threshold => Verdict::Same,
            (_, Worse::Lower) if ratio > 1.0 => Verdict::Better,
            (_, Worse::Higher) if ratio < 1.0 => Verdict::Better,
            _ => Verdict::Worse,
        };
        Change { cell, a, b, ratio, chance, verdict }
    }
}

/// A cell, or a figure of one, that only one document has.
#[derive(Clone, Copy)]
pub(super) struct Lone<'c> {
    pub(super) cell: &'c Cell,
    /// Absent if the other document lacks the whole cell.
    pub(super) reading: Option<&'c Reading>,
}

/// All that differs.
pub(super) struct Changes<'c> {
    pub(super) all: Vec<Change<'c>>,
    pub(super) only_a: Vec<Lone<'c>>,
    pub(super) only_b: Vec<Lone<'c>>,
}

impl<'c> Changes<'c> {
    pub(super) fn of(matched: &Matched<'c>, threshold: f64) -> Self {
        let lone = |cells: &[&'c Cell]| -> Vec<_> {
            cells.iter().map(|&cell| Lone { cell, reading: None }).collect()
        };
        let (only_a, only_b) = (lone(&matched.only_a), lone(&matched.only_b));
        let mut changes = Changes { all: Vec::new(), only_a, only_b };
        for &(of_a, of_b) in &matched.both {
            for a in &of_a.readings {
                match reading(of_b, a.name) {
                    Some(b) => changes.all.push(Change::of(of_a, a, b, threshold)),
                    None => changes.only_a.push(Lone { cell: of_a, reading: Some(a) }),
                }
            }
            let new = of_b.readings.iter().filter(|b| reading(of_a, b.name).is_none());
            changes.only_b.extend(new.map(|b| Lone { cell: of_b, reading: Some(b) }));
        }
        changes
    }

    /// How many figures have a verdict.
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.all.iter().filter(|change| change.verdict == verdict).count()
    }
}

fn reading<'c>(cell: &'c Cell, name: &str) -> Option<&'c Reading> {
    cell.readings.iter().find(|reading| reading.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(worse: Worse, simulated: bool, a: f64, b: f64, spread: Option<f64>) -> Verdict {
        let reading = |value: f64| Reading {
            name: "x_ns",
            unit: "ns".to_owned(),
            worse,
            value,
            rounds: spread.map_or(Vec::new(), |spread| {
                (-3..=3).map(|at| vec![value * (1.0 + spread * f64::from(at))]).collect()
            }),
        };
        let cell = Cell {
            key: Vec::new(),
            settings: [].into(),
            title: String::new(),
            contestant: String::new(),
            simulated,
            readings: Vec::new(),
        };
        Change::of(&cell, &reading(a), &reading(b), 0.05).verdict
    }

    #[test]
    fn a_change_counts_if_it_is_large_and_no_chance() {
        use Verdict::{Better, Same, Unknown, Worse as Slower};
        let (steady, noisy) = (Some(0.001), Some(0.2));
        for (worse, up, down) in [(Worse::Higher, Slower, Better), (Worse::Lower, Better, Slower)] {
            assert_eq!(verdict(worse, false, 10.0, 11.0, steady), up);
            assert_eq!(verdict(worse, false, 10.0, 9.0, steady), down);
            assert_eq!(verdict(worse, false, 10.0, 11.0, noisy), Same, "may be chance");
            assert_eq!(verdict(worse, false, 10.0, 10.3, steady), Same, "below the threshold");
            assert_eq!(verdict(worse, false, 10.0, 20.0, None), Unknown);
            assert_eq!(verdict(worse, true, 10.0, 11.0, None), up);
            assert_eq!(verdict(worse, true, 10.0, 10.3, None), Same);
            assert_eq!(verdict(worse, true, 0.0, 3.0, None), up);
            assert_eq!(verdict(worse, true, 0.0, 0.0, None), Same);
        }
    }
}

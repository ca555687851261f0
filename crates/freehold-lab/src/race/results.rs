//! What a race says: medians over rounds, and ratios that are taken round by round.

use serde::Serialize;

use super::course::Times;
use super::heat::{Heat, Runner, Yards};
use crate::catalog::name_of;
use crate::report::summary::Summary;

/// The version of the format.
pub(super) const SCHEMA: &str = "freehold.race/1";

/// The contestant that the others are compared with.
const REFERENCE: &str = "freehold";

/// What the referee says of a contestant without a fault.
pub(super) const OK: &str = "ok";

/// Everything that a race has measured. Fields that do not apply are absent.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) schema: &'static str,
    pub(super) machine: &'static str,
    /// The cargo profile of this program.
    pub(super) profile: &'static str,
    pub(super) rounds: usize,
    /// Frames that a thread takes in a pass.
    pub(super) frames: usize,
    pub(super) lock_pair_ns: f64,
    pub(super) vec_pair_ns: f64,
    pub(super) results: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<Skipped>,
}

/// One contestant in one bench with so many threads: medians, for one block and thread.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) bench: String,
    pub(super) contestant: String,
    pub(super) threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) get_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) put_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pair_ns: Option<f64>,
    /// The same as multiples of the lock pair of their round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) get_lock_pairs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) put_lock_pairs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lock_pairs: Option<f64>,
    /// How many times as long as the reference a pair takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_freehold: Option<f64>,
    /// The distance between the extremes of that, as a share of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_spread: Option<f64>,
    /// `ok`, or what the referee has seen.
    pub(super) referee: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
}

/// What was not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Skipped {
    pub(super) bench: String,
    pub(super) threads: usize,
    /// Absent if nobody ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) contestant: Option<String>,
    pub(super) reason: String,
}

/// A block's time in one round, in ns; nothing where only both ways together have one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    apart: Option<(f64, f64)>,
    pair_ns: f64,
}

impl Sample {
    fn of(times: &Times) -> Self {
        let median = |ns: &[f64]| Summary::of(ns).median;
        if !times.pair_ns.is_empty() {
            return Sample { apart: None, pair_ns: median(&times.pair_ns) };
        }
        let (get_ns, put_ns) = (median(&times.get_ns), median(&times.put_ns));
        Sample { apart: Some((get_ns, put_ns)), pair_ns: get_ns + put_ns }
    }
}

impl Results {
    /// Sums up all heats. Each has had a round at least.
    pub(super) fn of(
        heats: &[Heat<'_>],
        rounds: usize,
        frames: usize,
        skipped: Vec<Skipped>,
    ) -> Self {
        let yard = |of: fn(&Yards) -> f64| {
            let all: Vec<_> = heats.iter().flat_map(|heat| &heat.yards).map(of).collect();
            Summary::of(&all).median
        };
        Results {
            schema: SCHEMA,
            machine: crate::machine::HOST,
            profile: crate::report::profile::PROFILE,
            rounds,
            frames,
            lock_pair_ns: yard(|yards| yards.lock_pair_ns),
            vec_pair_ns: yard(|yards| yards.vec_pair_ns),
            results: heats.iter().flat_map(rows).collect(),
            skipped,
        }
    }

    /// The rows of contestants that the referee has found at fault.
    pub(super) fn failed(&self) -> impl Iterator<Item = &Row> {
        self.results.iter().filter(|row| row.referee != OK)
    }
}

fn rows(heat: &Heat<'_>) -> Vec<Row> {
    let samples = |runner: &Runner<'_>| -> Vec<_> {
        // Who failed in the end has no figures: what it did instead of its work may be fast.
        let rounds = if runner.failure().is_none() { &runner.rounds[..] } else { &[] };
        rounds.iter().map(Sample::of).collect()
    };
    let reference = heat.runners.iter().find(|runner| runner.contestant.name() == REFERENCE);
    let reference = reference.map(samples).unwrap_or_default();
    let locks: Vec<_> = heat.yards.iter().map(|yards| yards.lock_pair_ns).collect();
    let row = |runner: &Runner<'_>| Row {
        bench: name_of(&heat.course.bench),
        contestant: runner.contestant.name(),
        threads: heat.course.threads,
        referee: runner.failure().map_or(OK.to_owned(), ToString::to_string),
        note: runner.note,
        ..figures(&samples(runner), &locks, &reference)
    };
    heat.runners.iter().map(row).collect()
}

/// The figures of a row, each from what was measured in one and the same round.
fn figures(samples: &[Sample], locks: &[f64], reference: &[Sample]) -> Row {
    let summary = |of: &dyn Fn(usize, &Sample) -> Option<f64>| {
        let values: Vec<_> =
            samples.iter().enumerate().filter_map(|(round, sample)| of(round, sample)).collect();
        (!values.is_empty()).then(|| Summary::of(&values))
    };
    let median = |of: &dyn Fn(usize, &Sample) -> Option<f64>| summary(of).map(|of| of.median);
    let get = |sample: &Sample| sample.apart.map(|(get_ns, _)| get_ns);
    let put = |sample: &Sample| sample.apart.map(|(_, put_ns)| put_ns);
    let ratio = summary(&|round, sample| {
        reference.get(round).map(|reference| sample.pair_ns / reference.pair_ns)
    });
    Row {
        get_ns: median(&|_, sample| get(sample)),
        put_ns: median(&|_, sample| put(sample)),
        pair_ns: median(&|_, sample| Some(sample.pair_ns)),
        get_lock_pairs: median(&|round, sample| Some(get(sample)? / locks[round])),
        put_lock_pairs: median(&|round, sample| Some(put(sample)? / locks[round])),
        lock_pairs: median(&|round, sample| Some(sample.pair_ns / locks[round])),
        ratio_to_freehold: ratio.map(|of| of.median),
        ratio_spread: ratio.map(|of| of.spread()),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(pair_ns: f64) -> Sample {
        Sample { apart: None, pair_ns }
    }

    #[test]
    fn a_sample_is_the_median_of_its_passes() {
        let (get_ns, put_ns) = (vec![10.0, 900.0, 11.0], vec![5.0]);
        let times = Times { get_ns, put_ns, ..Times::default() };
        assert_eq!(Sample::of(&times), Sample { apart: Some((11.0, 5.0)), pair_ns: 16.0 });
        let times = Times { pair_ns: vec![15.0], ..Times::default() };
        assert_eq!(Sample::of(&times), together(15.0));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // Twice as slow in the second round, and so is everything else.
        let samples = [together(30.0), together(60.0), together(33.0)];
        let reference = [together(10.0), together(20.0), together(10.0)];
        let row = figures(&samples, &[5.0, 10.0, 5.0], &reference);
        assert_eq!(row.pair_ns, Some(33.0));
        assert_eq!(row.lock_pairs, Some(6.0));
        assert_eq!(row.ratio_to_freehold, Some(3.0));
        assert!((row.ratio_spread.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!((row.get_ns, row.put_lock_pairs), (None, None));
    }

    #[test]
    fn what_does_not_apply_is_absent() {
        let apart = Sample { apart: Some((10.0, 5.0)), pair_ns: 15.0 };
        let row = figures(&[apart], &[5.0], &[]);
        assert_eq!((row.get_lock_pairs, row.put_lock_pairs), (Some(2.0), Some(1.0)));
        let json = serde_json::to_value(Row { referee: OK.to_owned(), ..row }).unwrap();
        assert!(json.get("ratio_to_freehold").is_none() && json.get("note").is_none());
        let nothing = figures(&[], &[], &[]);
        assert!(nothing.pair_ns.is_none() && nothing.ratio_spread.is_none());
    }
}

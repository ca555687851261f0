//! The results of a race: medians over rounds, and ratios that are taken round by round.

use serde::Serialize;

use super::course::Course;
use super::heat::{Heat, Runner, Yards};
use super::sample::{Sample, ratio};
use super::standing::{Lost, Standing};
use crate::catalog::{PeerName, name_of};
use crate::report::summary::Summary;

/// The version of the format.
pub(crate) const SCHEMA: &str = "freehold.race/2";

/// The contestant that the others are compared with.
const REFERENCE: &str = "freehold";

/// The referee's verdict on a contestant without a fault.
pub(super) const OK: &str = "ok";

/// All measurements of a race. Fields that do not apply are absent.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) schema: &'static str,
    pub(super) machine: &'static str,
    /// The cargo profile of this program.
    pub(super) profile: &'static str,
    pub(super) rounds: usize,
    /// Frames that a thread allocates in a pass.
    pub(super) frames: usize,
    pub(super) lock_pair_ns: f64,
    pub(super) vec_pair_ns: f64,
    pub(super) results: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) metadata: Vec<MetadataRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<Skipped>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) standing: Vec<Standing>,
}

/// One contestant in one heat: medians, for one block and thread.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) bench: String,
    pub(super) contestant: String,
    pub(super) threads: usize,
    /// How many times as much memory there is as all threads hold.
    pub(super) memory: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) get_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) put_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pair_ns: Option<f64>,
    /// What `pair_ns` is the median of, round by round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) samples_pair_ns: Vec<f64>,
    /// The times as multiples of the lock pair of their round.
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
    /// The fastest of the heat's contestants that are not Freehold's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) best_peer: Option<String>,
    /// How many times as long as that peer a pair takes, and the spread of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_best_peer: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) best_peer_spread: Option<f64>,
    /// `ok`, or the referee's finding.
    pub(super) referee: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<&'static str>,
}

/// The size of a contestant's metadata, if known: in the heat with the most frames.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MetadataRow {
    pub(super) contestant: String,
    pub(super) memory: f64,
    pub(super) managed_frames: u64,
    pub(super) metadata_bytes: usize,
    /// For one frame.
    pub(super) frame_metadata_bytes: f64,
}

/// What was not run, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Skipped {
    pub(super) bench: String,
    pub(super) threads: usize,
    pub(super) memory: f64,
    /// Absent if nothing ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) contestant: Option<String>,
    pub(super) reason: String,
}

impl Skipped {
    /// A whole heat.
    pub(super) fn of(course: Course, reason: &str) -> Self {
        let Course { bench, threads, memory, .. } = course;
        let (bench, reason) = (name_of(&bench), reason.to_owned());
        Skipped { bench, threads, memory, contestant: None, reason }
    }
}

impl Results {
    /// Sums up all heats. Each has had at least one round.
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
        let lines: Vec<_> = heats.iter().flat_map(lines).collect();
        Results {
            schema: SCHEMA,
            machine: crate::machine::HOST,
            profile: crate::report::profile::PROFILE,
            rounds,
            frames,
            lock_pair_ns: yard(|yards| yards.lock_pair_ns),
            vec_pair_ns: yard(|yards| yards.vec_pair_ns),
            standing: standing(&lines),
            results: lines.into_iter().map(|line| line.row).collect(),
            metadata: metadata(heats),
            skipped,
        }
    }

    /// The rows of contestants with a fault found by the referee.
    pub(super) fn failed(&self) -> impl Iterator<Item = &Row> {
        self.results.iter().filter(|row| row.referee != OK)
    }
}

/// A row, and its ratios in all rounds.
struct Line {
    row: Row,
    to_freehold: Option<Summary>,
    to_best_peer: Option<Summary>,
}

fn lines(heat: &Heat<'_>) -> Vec<Line> {
    let samples = |runner: &Runner<'_>| -> Vec<_> {
        // One that failed in the end has no figures: what it did instead of its work may be fast.
        let rounds = if runner.failure().is_none() { &runner.rounds[..] } else { &[] };
        rounds.iter().filter_map(Sample::of).collect()
    };
    let all: Vec<_> = heat.runners.iter().map(|runner| (runner, samples(runner))).collect();
    let reference = all.iter().find(|(runner, _)| runner.contestant.name() == REFERENCE);
    let reference = reference.map_or(&[][..], |(_, samples)| samples);
    let peers = all.iter().filter(|(runner, _)| runner.contestant.is_peer());
    let best_peer = fastest(peers.map(|(runner, samples)| (runner, &samples[..])));
    let locks: Vec<_> = heat.yards.iter().map(|yards| yards.lock_pair_ns).collect();
    let line = |(runner, samples): &(&Runner<'_>, Vec<Sample>)| {
        let to_freehold = ratio(samples, reference);
        let to_best_peer = best_peer.and_then(|(_, peer)| ratio(samples, peer));
        let row = Row {
            bench: name_of(&heat.course.bench),
            contestant: runner.contestant.name(),
            threads: heat.course.threads,
            memory: heat.course.memory,
            ratio_to_freehold: to_freehold.map(|ratio| ratio.median),
            ratio_spread: to_freehold.map(|ratio| ratio.spread()),
            best_peer: best_peer.map(|(peer, _)| peer.contestant.name()),
            ratio_to_best_peer: to_best_peer.map(|ratio| ratio.median),
            best_peer_spread: to_best_peer.map(|ratio| ratio.spread()),
            referee: runner.failure().map_or(OK.to_owned(), ToString::to_string),
            notes: runner.notes.clone(),
            ..times(samples, &locks)
        };
        Line { row, to_freehold, to_best_peer }
    };
    all.iter().map(line).collect()
}

/// The one with the least median, among those that have one.
fn fastest<'a, C>(all: impl Iterator<Item = (C, &'a [Sample])>) -> Option<(C, &'a [Sample])> {
    let timed = all.filter_map(|(one, samples)| {
        let middle = Sample::middle(samples.iter().copied())?;
        Some((middle.pair, one, samples))
    });
    let least = timed.min_by(|(a, ..), (b, ..)| a.total_cmp(b));
    least.map(|(_, one, samples)| (one, samples))
}

/// The times of a row, and as multiples of the lock pair of one and the same round.
fn times(samples: &[Sample], locks: &[f64]) -> Row {
    let ns = Sample::middle(samples.iter().copied());
    let in_locks = samples.iter().zip(locks).map(|(sample, &lock)| sample.in_units_of(lock));
    let in_locks = Sample::middle(in_locks);
    let get = |of: Option<Sample>| Some(of?.apart?.0);
    let put = |of: Option<Sample>| Some(of?.apart?.1);
    Row {
        get_ns: get(ns),
        put_ns: put(ns),
        pair_ns: ns.map(|ns| ns.pair),
        samples_pair_ns: samples.iter().map(|sample| sample.pair).collect(),
        get_lock_pairs: get(in_locks),
        put_lock_pairs: put(in_locks),
        lock_pairs: in_locks.map(|locks| locks.pair),
        ..Row::default()
    }
}

/// The reference against the best peer of each row, and its lease against the reference.
fn standing(lines: &[Line]) -> Vec<Standing> {
    let lease = name_of(&PeerName::Lease);
    let mut leased = Standing::new("freehold-lease", REFERENCE);
    let mut best = Standing::new(REFERENCE, "the best peer");
    for Line { row, to_freehold, to_best_peer } in lines {
        let Row { bench, threads, memory, best_peer, .. } = row;
        let lost = |to: &str, ratio: &Summary| Lost {
            bench: bench.clone(),
            threads: *threads,
            memory: *memory,
            to: to.to_owned(),
            ratio: ratio.median,
        };
        if row.contestant == lease
            && let Some(ratio) = to_freehold
        {
            leased.count(ratio, || lost(REFERENCE, ratio));
        } else if row.contestant == REFERENCE
            && let (Some(ratio), Some(peer)) = (to_best_peer, best_peer)
        {
            best.count(ratio, || lost(peer, ratio));
        }
    }
    [leased, best].into_iter().filter_map(Standing::if_any).collect()
}

/// The metadata of each contestant and size of memory, in the heat with the most frames.
fn metadata(heats: &[Heat<'_>]) -> Vec<MetadataRow> {
    let mut rows: Vec<MetadataRow> = Vec::new();
    for heat in heats {
        for runner in &heat.runners {
            let Some(of) = runner.metadata else { continue };
            let row = MetadataRow {
                contestant: runner.contestant.name(),
                memory: heat.course.memory,
                managed_frames: of.managed_frames,
                metadata_bytes: of.bytes,
                frame_metadata_bytes: of.bytes as f64 / of.managed_frames as f64,
            };
            let same = |known: &&mut MetadataRow| {
                known.contestant == row.contestant && known.memory == row.memory
            };
            match rows.iter_mut().find(same) {
                Some(known) if known.managed_frames >= row.managed_frames => (),
                Some(known) => *known = row,
                None => rows.push(row),
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(contestant: &str, bench: &str, freehold: [f64; 2], peer: Option<[f64; 2]>) -> Line {
        Line {
            row: Row {
                contestant: contestant.to_owned(),
                bench: bench.to_owned(),
                best_peer: peer.map(|_| "mimalloc".to_owned()),
                ..Row::default()
            },
            to_freehold: Some(Summary::of(&freehold)),
            to_best_peer: peer.map(|ratios| Summary::of(&ratios)),
        }
    }

    #[test]
    fn the_reference_stands_against_peers_and_the_lease_against_the_reference() {
        let [same, faster, slower, both] = [[1.0, 1.0], [0.5, 0.6], [1.2, 1.4], [0.9, 1.1]];
        let lines = [
            line("freehold", "pair", same, Some(faster)),
            line("freehold-lease", "pair", slower, Some(faster)),
            line("zone-lock", "pair", slower, Some(slower)),
            line("freehold", "fill", same, Some(both)),
            line("freehold", "huge", same, Some(slower)),
            line("freehold", "bulk", same, None),
        ];
        let [lease, freehold] = <[Standing; 2]>::try_from(standing(&lines)).unwrap();
        assert_eq!((freehold.won, freehold.tied, freehold.lost.len()), (1, 1, 1));
        assert_eq!((&*freehold.lost[0].bench, &*freehold.lost[0].to), ("huge", "mimalloc"));
        assert!((freehold.lost[0].ratio - 1.3).abs() < 1e-9);
        assert_eq!((lease.won, lease.tied, &*lease.lost[0].to), (0, 0, "freehold"));
        // Without peers or without the reference there is nothing to say.
        assert_eq!(standing(&lines[5..]), []);
        assert_eq!(standing(&lines[2..3]), []);
    }

    #[test]
    fn the_best_peer_is_that_of_the_least_median() {
        let of = |pairs: [f64; 3]| pairs.map(Sample::together);
        let (steady, lucky) = (of([10.0, 11.0, 12.0]), of([1.0, 13.0, 14.0]));
        let all = [("steady", &steady[..]), ("lucky", &lucky[..]), ("failed", &[])];
        assert_eq!(fastest(all.into_iter()).map(|(name, _)| name), Some("steady"));
        assert_eq!(fastest(all[2..].iter().copied()), None);
    }

    #[test]
    fn times_are_in_ns_and_in_lock_pairs() {
        let samples = [30.0, 60.0, 33.0].map(|pair| Sample::apart(pair / 3.0, pair * 2.0 / 3.0));
        // Twice as slow in the second round, and so is the lock.
        let row = times(&samples, &[5.0, 10.0, 5.0]);
        assert_eq!(row.pair_ns, Some(33.0));
        assert_eq!((row.get_ns, row.put_ns), (Some(11.0), Some(22.0)));
        assert_eq!(row.lock_pairs, Some(6.0));
        assert_eq!((row.get_lock_pairs, row.put_lock_pairs), (Some(2.0), Some(4.0)));
    }

    #[test]
    fn what_does_not_apply_is_absent() {
        let row = times(&[Sample::together(15.0)], &[5.0]);
        assert_eq!((row.get_ns, row.put_lock_pairs), (None, None));
        let json = serde_json::to_value(Row { referee: OK.to_owned(), ..row }).unwrap();
        for absent in ["get_ns", "ratio_to_freehold", "best_peer", "ratio_to_best_peer", "notes"] {
            assert!(json.get(absent).is_none(), "{absent}");
        }
        assert!(times(&[], &[]).pair_ns.is_none());
    }
}

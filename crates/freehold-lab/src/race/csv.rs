//! The results of a race as a CSV table: a row a contestant and heat.

use super::results::{Results, Row};
use crate::report::csv::{Csv, or_empty};

/// The columns of figures.
type Number = fn(&Row) -> Option<f64>;
const NUMBERS: &[(&str, Number)] = &[
    ("get_ns", |row| row.get_ns),
    ("put_ns", |row| row.put_ns),
    ("pair_ns", |row| row.pair_ns),
    ("get_lock_pairs", |row| row.get_lock_pairs),
    ("put_lock_pairs", |row| row.put_lock_pairs),
    ("lock_pairs", |row| row.lock_pairs),
    ("ratio_to_freehold", |row| row.ratio_to_freehold),
    ("ratio_spread_share", |row| row.ratio_spread),
    ("ratio_to_best_peer", |row| row.ratio_to_best_peer),
    ("best_peer_spread_share", |row| row.best_peer_spread),
];

/// All rows. What was left out has none.
pub(super) fn table(results: &Results) -> Csv {
    let before = ["bench", "contestant", "threads", "memory_ratio", "frames", "profile"];
    let numbers = NUMBERS.iter().map(|(name, _)| *name);
    let mut table = Csv::new(before.into_iter().chain(numbers).chain(["best_peer", "referee"]));
    for row in &results.results {
        let before = [
            row.bench.clone(),
            row.contestant.clone(),
            row.threads.to_string(),
            row.memory.to_string(),
            results.frames.to_string(),
            results.profile.to_owned(),
        ];
        let numbers = NUMBERS.iter().map(|(_, number)| or_empty(number(row)));
        let after = [or_empty(row.best_peer.as_ref()), row.referee.clone()];
        table.row(before.into_iter().chain(numbers).chain(after));
    }
    table
}

//! The page of a race: pairs by contestant.

use super::results::{Results, Row};
use crate::report::document::threads_in_words;
use crate::report::html::chart::{Series, bars};
use crate::report::html::page::{Figure, Section};

/// Bars that are longer than so many of the shortest would leave nothing to see of the others.
const DRAWN_MAX: f64 = 30.0;

/// A section for each bench.
pub(super) fn sections(results: &Results) -> Vec<Section> {
    let benches = results.results.chunk_by(|one, other| one.bench == other.bench);
    let section = |rows: &[Row]| {
        let heat = |row: &Row| (row.threads, row.memory.to_bits());
        let heats = rows.chunk_by(|one, other| heat(one) == heat(other));
        let heading = rows[0].bench.clone();
        Section { heading, text: Vec::new(), figures: heats.map(pairs).collect() }
    };
    benches.map(section).collect()
}

/// The contestants of one heat.
fn pairs(rows: &[Row]) -> Figure {
    let timed = rows.iter().filter_map(|row| Some((row, row.pair_ns?)));
    let fastest_ns = timed.clone().map(|(_, pair_ns)| pair_ns).fold(f64::INFINITY, f64::min);
    let timed: Vec<_> = timed.filter(|(_, ns)| *ns <= DRAWN_MAX * fastest_ns).collect();
    let labels: Vec<_> = timed.iter().map(|(row, _)| row.contestant.clone()).collect();
    let values = timed.iter().map(|(_, pair_ns)| *pair_ns).collect();
    let series = [Series { name: "pair".to_owned(), values }];
    let number = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    let numbers = rows.iter().map(|row| {
        vec![
            row.contestant.clone(),
            number(row.lock_pairs),
            number(row.ratio_to_freehold),
            number(row.ratio_spread),
            row.referee.clone(),
            number(row.pair_ns),
        ]
    });
    let headings = ["contestant", "lock pairs", "to freehold", "spread", "referee", "pair ns"];
    let (threads, memory) = (threads_in_words(rows[0].threads), rows[0].memory);
    Figure {
        title: format!("{}: {threads}, memory {memory}x", rows[0].bench),
        caption: format!(
            "ns for a block and thread, get and put; shorter is better. What takes {DRAWN_MAX} \
             times as long as the fastest is among the numbers only"
        ),
        svg: bars(&labels, &series, "ns"),
        headings: headings.map(str::to_owned).to_vec(),
        rows: numbers.collect(),
    }
}

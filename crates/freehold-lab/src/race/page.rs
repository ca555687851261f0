//! The page of a race: pairs by contestant, and what they cost in metadata.

use anyhow::Result;

use super::results::{Results, Row};
use crate::report::document::threads_in_words;
use crate::report::html::chart::{Series, bars, scatter};
use crate::report::html::page::{Figure, Section};
use crate::report::words::shown;

/// Bars that are longer than so many of the shortest would leave nothing to see of the others.
const DRAWN_MAX: f64 = 30.0;

/// A section for each bench, and one for metadata.
pub(super) fn sections(results: &Results) -> Result<Vec<Section>> {
    let mut benches: Vec<&str> = Vec::new();
    for row in &results.results {
        if !benches.contains(&row.bench.as_str()) {
            benches.push(&row.bench);
        }
    }
    let mut sections = Vec::new();
    for bench in benches {
        let rows: Vec<_> = results.results.iter().filter(|row| row.bench == bench).collect();
        let heats = rows.chunk_by(|one, other| heat(one) == heat(other));
        let figures = heats.map(pairs).collect::<Result<Vec<_>>>()?;
        sections.push(Section { heading: bench.to_owned(), text: Vec::new(), figures });
    }
    sections.extend(metadata(results)?);
    Ok(sections)
}

fn heat(row: &Row) -> (usize, u64) {
    (row.threads, row.memory.to_bits())
}

/// The contestants of one heat.
fn pairs(rows: &[&Row]) -> Result<Figure> {
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
    Ok(Figure {
        title: format!("{}: {threads}, memory {memory}x", rows[0].bench),
        caption: format!(
            "ns for a block and thread, get and put; shorter is better. What takes {DRAWN_MAX} \
             times as long as the fastest is among the numbers only"
        ),
        svg: bars(&labels, &series, false, "ns")?,
        headings: headings.map(str::to_owned).to_vec(),
        rows: numbers.collect(),
    })
}

/// Pairs of the first heat against metadata.
fn metadata(results: &Results) -> Result<Option<Section>> {
    let Some(first) = results.results.first() else { return Ok(None) };
    let of_heat = results
        .results
        .iter()
        .filter(|row| (row.bench.as_str(), heat(row)) == (first.bench.as_str(), heat(first)));
    let mut points = Vec::new();
    for row in of_heat {
        let bytes = results.metadata.iter().find(|of| of.contestant == row.contestant);
        let bytes = bytes.map(|of| of.frame_metadata_bytes);
        points.extend(bytes.zip(row.pair_ns).map(|(x, y)| (row.contestant.clone(), x, y)));
    }
    if points.is_empty() {
        return Ok(None);
    }
    let row = |(name, x, y): &(String, f64, f64)| vec![name.clone(), shown(*x, ""), y.to_string()];
    let figure = Figure {
        title: format!("Metadata and {}", first.bench),
        caption: "of the first heat; down and to the left is better. Unknown for some".to_owned(),
        svg: scatter(&points, ("bytes a frame", "pair ns"))?,
        headings: ["contestant", "bytes a frame", "pair ns"].map(str::to_owned).to_vec(),
        rows: points.iter().map(row).collect(),
    };
    Ok(Some(Section { heading: "Metadata".to_owned(), text: Vec::new(), figures: vec![figure] }))
}

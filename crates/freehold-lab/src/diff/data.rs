//! Changes as a JSON document and as a CSV table.

use serde::Serialize;
use serde_json::{Map, Value};

use super::cell::{Cell, Reading};
use super::change::{Chance, Changes, Lone, Verdict};
use super::document::Document;
use super::interval::{CONFIDENCE, Interval};
use crate::report::csv::{Csv, or_empty};
use crate::report::figure::Worse;

/// The version of the format.
const SCHEMA: &str = "freehold.diff/1";

/// The JSON document. Fields that do not apply are absent.
#[derive(Serialize)]
pub(super) struct Diff<'c> {
    schema: &'static str,
    /// The schema of both documents.
    of: &'c str,
    a: &'c str,
    b: &'c str,
    /// The least change that counts, as a share of A.
    threshold_share: f64,
    confidence_share: f64,
    worse: usize,
    better: usize,
    same: usize,
    unknown: usize,
    figures: Vec<Figure<'c>>,
    only_in_a: Vec<Missing<'c>>,
    only_in_b: Vec<Missing<'c>>,
}

/// A figure that both documents have.
#[derive(Serialize)]
struct Figure<'c> {
    /// What was run.
    cell: Map<String, Value>,
    figure: &'static str,
    unit: &'c str,
    a: f64,
    b: f64,
    /// B in multiples of A.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<Interval>,
    /// Whether it is simulated, so that no change is chance.
    exact: bool,
    worse_if: &'static str,
    verdict: Verdict,
}

/// What one document lacks.
#[derive(Serialize)]
struct Missing<'c> {
    cell: Map<String, Value>,
    /// Absent if it lacks the whole cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    figure: Option<&'c str>,
}

impl<'c> Diff<'c> {
    pub(super) fn of(
        a: &'c Document,
        b: &'c Document,
        changes: &Changes<'c>,
        threshold: f64,
    ) -> Self {
        let figure = |change: &super::change::Change<'c>| Figure {
            cell: named(change.cell),
            figure: change.a.name,
            unit: &change.a.unit,
            a: change.a.value,
            b: change.b.value,
            ratio: Some(change.ratio).filter(|ratio| ratio.is_finite()),
            interval: interval(change.chance),
            exact: change.chance == Chance::None,
            worse_if: worse_if(change.a),
            verdict: change.verdict,
        };
        let missing = |lone: &Lone<'c>| Missing {
            cell: named(lone.cell),
            figure: lone.reading.map(|reading| reading.name),
        };
        Diff {
            schema: SCHEMA,
            of: &a.schema,
            a: &a.name,
            b: &b.name,
            threshold_share: threshold,
            confidence_share: CONFIDENCE,
            worse: changes.count(Verdict::Worse),
            better: changes.count(Verdict::Better),
            same: changes.count(Verdict::Same),
            unknown: changes.count(Verdict::Unknown),
            figures: changes.all.iter().map(figure).collect(),
            only_in_a: changes.only_a.iter().map(missing).collect(),
            only_in_b: changes.only_b.iter().map(missing).collect(),
        }
    }
}

/// A row a figure, those of one document alone included.
pub(super) fn table(a: &Document, b: &Document, changes: &Changes<'_>) -> Csv {
    let mut keys: Vec<&str> = Vec::new();
    for (name, _) in a.cells.iter().chain(&b.cells).flat_map(|cell| &cell.key) {
        if !keys.contains(name) {
            keys.push(name);
        }
    }
    let after = [
        "settings",
        "figure",
        "unit",
        "a",
        "b",
        "ratio",
        "ratio_low",
        "ratio_high",
        "worse_if",
        "verdict",
    ];
    let mut table = Csv::new(keys.iter().copied().chain(after));
    let mut row = |cell: &Cell, after: [String; 9]| {
        let value = |name: &&str| cell.key.iter().find(|(own, _)| own == name);
        let before = keys.iter().map(|name| or_empty(value(name).map(|(_, value)| value)));
        let settings = cell.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let settings = settings.collect::<Vec<_>>().join(" ");
        table.row(before.chain([settings]).chain(after));
    };
    for change in &changes.all {
        let interval = interval(change.chance);
        row(
            change.cell,
            [
                change.a.name.to_owned(),
                change.a.unit.clone(),
                change.a.value.to_string(),
                change.b.value.to_string(),
                or_empty(Some(change.ratio).filter(|ratio| ratio.is_finite())),
                or_empty(interval.map(|interval| interval.low)),
                or_empty(interval.map(|interval| interval.high)),
                worse_if(change.a).to_owned(),
                word(change.verdict).to_owned(),
            ],
        );
    }
    for (lone, is_a) in [(&changes.only_a, true), (&changes.only_b, false)] {
        for Lone { cell, reading } in lone {
            let own = reading.map_or(&cell.readings[..], std::slice::from_ref);
            for reading in own {
                let value = |is_its: bool| or_empty(is_its.then_some(reading.value));
                let (name, unit) = (reading.name.to_owned(), reading.unit.clone());
                let [ratio, low, high] = [const { String::new() }; 3];
                let (worse_if, verdict) = (worse_if(reading).to_owned(), "only".to_owned());
                let (a, b) = (value(is_a), value(!is_a));
                row(cell, [name, unit, a, b, ratio, low, high, worse_if, verdict]);
            }
        }
    }
    table
}

/// What was run, by name.
fn named(cell: &Cell) -> Map<String, Value> {
    let settings = cell.settings.iter().map(|(name, value)| (name.clone(), value.clone().into()));
    let key = cell.key.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
    key.chain([("settings".to_owned(), Value::Object(settings.collect()))]).collect()
}

fn interval(chance: Chance) -> Option<Interval> {
    match chance {
        Chance::Within(interval) => Some(interval),
        Chance::None | Chance::Unknown => None,
    }
}

fn worse_if(reading: &Reading) -> &'static str {
    match reading.worse {
        Worse::Lower => "lower",
        Worse::Higher => "higher",
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "worse",
        Verdict::Better => "better",
        Verdict::Same => "same",
        Verdict::Unknown => "unknown",
    }
}

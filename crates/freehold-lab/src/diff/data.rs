//! Changes as a JSON document.

use serde_json::{Map, Value, json};

use super::cell::Cell;
use super::change::{Chance, Change, Changes, Lone, Verdict};
use super::document::Document;
use super::interval::CONFIDENCE;
use crate::report::figure::Worse;

/// The version of the format.
const SCHEMA: &str = "freehold.diff/1";

/// The document. Fields that do not apply are absent.
pub(super) fn document(a: &Document, b: &Document, changes: &Changes<'_>, threshold: f64) -> Value {
    let missing = |lone: &[Lone<'_>]| lone.iter().map(missing).collect::<Vec<_>>();
    json!({
        "schema": SCHEMA,
        // The schema of both documents.
        "of": a.schema,
        "a": a.name,
        "b": b.name,
        // The least change that counts, as a share of A.
        "threshold_share": threshold,
        "confidence_share": CONFIDENCE,
        "worse": changes.count(Verdict::Worse),
        "better": changes.count(Verdict::Better),
        "same": changes.count(Verdict::Same),
        "unknown": changes.count(Verdict::Unknown),
        "figures": changes.all.iter().map(figure).collect::<Vec<_>>(),
        "only_in_a": missing(&changes.only_a),
        "only_in_b": missing(&changes.only_b),
    })
}

/// A figure that both documents have.
fn figure(change: &Change<'_>) -> Value {
    let mut figure = json!({
        "cell": named(change.cell),
        "figure": change.a.name,
        "unit": change.a.unit,
        "a": change.a.value,
        "b": change.b.value,
    });
    // B in multiples of A.
    if change.ratio.is_finite() {
        figure["ratio"] = json!(change.ratio);
    }
    if let Chance::Within(interval) = change.chance {
        figure["interval"] = json!(interval);
    }
    // Whether it is simulated, so that no change is chance.
    figure["exact"] = json!(change.chance == Chance::None);
    figure["worse_if"] = match change.a.worse {
        Worse::Lower => json!("lower"),
        Worse::Higher => json!("higher"),
    };
    figure["verdict"] = json!(change.verdict);
    figure
}

/// What one document lacks: a figure, or a whole cell.
fn missing(lone: &Lone<'_>) -> Value {
    let mut missing = json!({ "cell": named(lone.cell) });
    if let Some(reading) = lone.reading {
        missing["figure"] = json!(reading.name);
    }
    missing
}

/// What was run, by name.
fn named(cell: &Cell) -> Map<String, Value> {
    let key = cell.key.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    key.chain([("settings".to_owned(), json!(cell.settings))]).collect()
}

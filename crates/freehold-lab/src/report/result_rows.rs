//! Results of runs as a CSV table: a row a cell, or a row a part of one.

use anyhow::Result;
use serde_json::Value;

use super::csv::{Csv, or_empty};
use super::document::RunResult;
use super::figure::{Figures, text};

/// What every result has, by the name of its column, and where that is in a result.
const COLUMNS: &[(&str, &str)] = &[
    ("workload", "/workload"),
    ("design", "/design"),
    ("machine", "/machine"),
    ("cpus", "/cpus"),
    ("profile", "/profile"),
    ("seed", "/seed"),
    ("settings", "/settings"),
    ("options", "/workload_specific/options"),
    ("unit", "/work/unit"),
    ("count", "/work/count"),
    ("elapsed_s", "/work/seconds"),
];

/// A column that a command has besides, before the figures.
pub(crate) struct Further<'a> {
    pub(crate) name: &'static str,
    pub(crate) of: &'a dyn Fn(&RunResult) -> String,
}

/// The table of results of one workload.
pub(crate) fn result_rows(
    results: &[RunResult],
    figures: Figures,
    further: &[Further<'_>],
) -> Result<Csv> {
    let headings = COLUMNS.iter().map(|(name, _)| *name);
    let headings = headings.chain(further.iter().map(|column| column.name));
    let headings = headings.chain(figures.part_names());
    let names = figures.of_whole().chain(figures.of_part()).map(|figure| figure.name);
    let mut table = Csv::new(headings.chain(names));
    for result in results {
        let value = serde_json::to_value(result)?;
        let own: Vec<_> = COLUMNS.iter().map(|(_, at)| cell(value.pointer(at))).collect();
        let own = own.into_iter().chain(further.iter().map(|column| (column.of)(result)));
        let own: Vec<_> = own.collect();
        let of_whole: Vec<_> = figures.of_whole().map(|of| or_empty(of.value(&value))).collect();
        let parts = figures.parts(&value);
        for part in &parts {
            let names = part.names.iter().map(|(_, name)| name.clone());
            let of_part = figures.of_part().iter().map(|of| or_empty(of.value(part.value)));
            table.row(own.iter().cloned().chain(names).chain(of_whole.clone()).chain(of_part));
        }
        if figures.parts.is_none() {
            table.row(own.into_iter().chain(of_whole));
        }
    }
    Ok(table)
}

/// A value as one cell: settings as they are written on the command line.
fn cell(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::Object(settings)) => {
            let all = settings.iter().map(|(name, value)| format!("{name}={}", text(value)));
            all.collect::<Vec<_>>().join(" ")
        }
        Some(value) => text(value),
    }
}

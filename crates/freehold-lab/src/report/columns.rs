//! Tables of results: a line a cell, with columns that the workload names.

use anyhow::Result;

use super::document::RunResult;
use super::out;
use super::table::Table;
use crate::machine::Machine;

/// One column of a table of results.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) cell: fn(&RunResult) -> String,
}

/// Prints results: design and CPUs, then the workload's columns, then, of simulated runs, the share
/// of time that went into waiting for zone locks. Below stands what the figures are.
pub(crate) fn print_columns(
    results: &[RunResult],
    machine: &Machine,
    columns: &[Column],
    legend: &[&str],
) -> Result<()> {
    let simulated = matches!(machine, Machine::Sim(_));
    let headings = ["design", "cpus"].into_iter().chain(columns.iter().map(|c| c.heading));
    let headings = headings.chain(simulated.then_some("zone lock"));
    let mut table = Table::new(headings).numbers_from(1);
    for result in results {
        let mut cells = vec![result.design.clone(), result.cpus.to_string()];
        cells.extend(columns.iter().map(|column| (column.cell)(result)));
        if let Some(fields) = &result.simulated {
            let share = fields.time_share.get("zone_lock").copied().unwrap_or_default();
            cells.push(format!("{:.1} %", share * 100.0));
        }
        table.row(cells);
    }
    out!("{table}");
    for line in legend {
        out!("{line}");
    }
    match machine {
        Machine::Host => out!("Measured on this host."),
        Machine::Sim(spec) => out!(
            "Simulated on {}: a prediction. zone lock: share of all CPU time spent waiting for it.",
            spec.name()
        ),
    }
    Ok(())
}

/// A number among a result's own fields, found by a path such as `exit.ns`, as it is printed; a
/// dash if it does not apply.
pub(crate) fn number(result: &RunResult, path: &str, decimals: usize) -> String {
    scaled(result, path, 1.0, decimals)
}

/// As [`number`], as a share of one hundred.
pub(crate) fn percent(result: &RunResult, path: &str) -> String {
    match find(result, path) {
        Some(share) => format!("{:.1} %", share * 100.0),
        None => "-".to_owned(),
    }
}

/// As [`number`], in a unit that is so much larger.
pub(crate) fn scaled(result: &RunResult, path: &str, unit: f64, decimals: usize) -> String {
    match find(result, path) {
        Some(value) => format!("{:.decimals$}", value / unit),
        None => "-".to_owned(),
    }
}

fn find(result: &RunResult, path: &str) -> Option<f64> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let field = result.workload_specific.get(first)?;
    let mut parts = rest.split('.').filter(|part| !part.is_empty());
    parts.try_fold(field, |field, part| field.get(part))?.as_f64()
}

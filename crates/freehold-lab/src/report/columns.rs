//! Tables of results: a line per cell, with columns defined by the workload.

use anyhow::Result;

use super::document::RunResult;
use super::out;
use super::profile::MEASURED;
use super::table::Table;
use super::waits::{most_waited_for, percent as in_percent, wait_share};
use crate::machine::Machine;

/// One column of a table of results: its heading, and what a cell says.
pub(crate) struct Column(pub(crate) &'static str, pub(crate) fn(&RunResult) -> String);

/// A workload's own number that a comparison mentions: the text, with `{}` for the number; and the
/// number, or a dash if it does not apply.
pub(crate) struct Telling(pub(crate) &'static str, pub(crate) fn(&RunResult) -> String);

/// Waiting for all locks, and for the most contended one.
const LOCKS: [Column; 2] = [
    LOCK_WAIT,
    Column("most of it", |r| r.simulated.as_ref().map(most_waited_for).unwrap_or_default()),
];

/// The same for narrow tables.
const LOCKS_IN_SHORT: [Column; 2] =
    [LOCK_WAIT, Column("zone lock", |r| lock_share(r, "zone_lock"))];

const LOCK_WAIT: Column =
    Column("lock wait", |r| in_percent(r.simulated.as_ref().map(wait_share).unwrap_or_default()));

/// Waiting for the locks over LRU lists.
pub(crate) const LRU_LOCK: Column = Column("LRU lock", |r| lock_share(r, "lru_lock"));

/// The share of CPU time outside barriers that was spent waiting for the locks of a class; a dash
/// if that was not simulated.
fn lock_share(result: &RunResult, class: &str) -> String {
    let shares = result.simulated.as_ref().map(|simulated| &simulated.time_share);
    shares.map_or("-".to_owned(), |of| in_percent(of.get(class).copied().unwrap_or_default()))
}

/// Prints results: design and CPUs, then the workload's columns, then, for simulated runs, the
/// share of time spent waiting for locks. The kind of the figures is stated below.
pub(crate) fn print_columns(
    results: &[RunResult],
    machine: &Machine,
    columns: &[Column],
    legend: &[&str],
) -> Result<()> {
    let (table, origin) = match machine {
        Machine::Host => (table(results, columns, &[]), format!("{MEASURED}.")),
        Machine::Sim(spec) => {
            let whole = table(results, columns, &LOCKS);
            let table = if whole.fits() { whole } else { table(results, columns, &LOCKS_IN_SHORT) };
            let name = spec.name();
            let waits = "lock wait: share of CPU time outside barriers.";
            let replayed = results.iter().any(RunResult::is_replayed);
            let how = if replayed { "Replayed, simulated" } else { "Simulated" };
            (table, format!("{how} on {name}: a prediction. {waits}"))
        }
    };
    out!("{table}");
    for line in legend {
        out!("{line}");
    }
    out!("{origin}");
    Ok(())
}

/// A line for each result: its design and CPUs, these columns, and more of them.
pub(crate) fn table(results: &[RunResult], columns: &[Column], more: &[Column]) -> Table {
    let all = || columns.iter().chain(more);
    let headings = ["design", "cpus"].into_iter().chain(all().map(|Column(heading, _)| *heading));
    let mut table = Table::new(headings).numbers_from(1);
    for result in results {
        let own = [result.design.clone(), result.cpus.to_string()];
        table.row(own.into_iter().chain(all().map(|Column(_, cell)| cell(result))));
    }
    table
}

/// A number among a result's own fields, found by a path such as `exit.ns`, formatted; a dash if it
/// does not apply.
pub(crate) fn number(result: &RunResult, path: &str, decimals: usize) -> String {
    scaled(result, path, 1.0, decimals)
}

/// As [`number`], as a percentage.
pub(crate) fn percent(result: &RunResult, path: &str) -> String {
    find(result, path).map_or("-".to_owned(), in_percent)
}

/// As [`number`], in a larger unit.
pub(crate) fn scaled(result: &RunResult, path: &str, unit: f64, decimals: usize) -> String {
    match find(result, path) {
        Some(value) => format!("{:.decimals$}", value / unit),
        None => "-".to_owned(),
    }
}

/// A count and the number of attempts, such as `2 of 4`.
pub(crate) fn of(result: &RunResult, count: &str, attempts: &str) -> String {
    match (find(result, count), find(result, attempts)) {
        (Some(count), Some(attempts)) => format!("{count:.0} of {attempts:.0}"),
        _ => "-".to_owned(),
    }
}

/// The share of whole pageblocks in the free memory at the end, after a drain.
pub(crate) fn free_pageblocks(result: &RunResult) -> String {
    let share = result.fragmentation.as_ref().map(|of| of.after_drain.pageblock_share());
    share.map_or("-".to_owned(), in_percent)
}

fn find(result: &RunResult, path: &str) -> Option<f64> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let field = result.workload_specific.get(first)?;
    let mut parts = rest.split('.').filter(|part| !part.is_empty());
    parts.try_fold(field, |field, part| field.get(part))?.as_f64()
}

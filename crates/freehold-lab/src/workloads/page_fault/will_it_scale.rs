//! The table that will-it-scale's `runtest.py` prints, for those who have tools that read it.
//!
//! Source: antonblanchard/will-it-scale, `runtest.py`.

use crate::report::csv::Csv;
use crate::report::document::RunResult;

const HEADINGS: [&str; 6] =
    ["tasks", "processes", "processes_idle", "threads", "threads_idle", "linear"];

/// Without tasks nothing is done and all is idle: the first row, as `runtest.py` has it.
const NO_TASKS: [&str; 6] = ["0", "0", "100", "0", "100", "0"];

/// The table of results of one design with several numbers of CPUs, among them 1.
///
/// Tasks share nothing but the allocator, as processes do. Nothing runs as threads that share an
/// address space, which is a 0, and nobody has measured how idle CPUs were, which is an empty cell.
pub(crate) fn table(results: &[RunResult]) -> Csv {
    let alone = results.iter().find(|result| result.cpus == 1);
    let alone = alone.map(|result| result.work.per_second.round());
    let mut table = Csv::new(HEADINGS);
    table.row(NO_TASKS);
    for RunResult { cpus, work, .. } in results {
        let linear = alone.map(|rate| (rate * f64::from(*cpus)).to_string());
        let rate = work.per_second.round().to_string();
        let (none, unknown) = ("0".to_owned(), String::new());
        let row = [cpus.to_string(), rate, unknown, none.clone(), none, linear.unwrap_or_default()];
        table.row(row);
    }
    table
}

//! The progress of a command, on stderr: a bar if that is a terminal, and rows of what is known.

use std::io::{self, Write};
use std::sync::Mutex;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::document::RunResult;

/// Makes a row of a result.
type Row = Box<dyn Fn(&RunResult) -> Result<String> + Send + Sync>;

/// Reports what a command is doing and how far it has got.
pub(crate) struct Progress {
    bar: ProgressBar,
    row: Option<Row>,
    /// The rows that a terminal shows above the bar, until all is done.
    rows: Mutex<String>,
}

impl Progress {
    /// A bar of so many steps. indicatif hides it if stderr is not a terminal.
    pub(crate) fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{prefix}{bar:30} {pos}/{len} {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        Progress { bar, ..Self::hidden() }
    }

    /// Shows nothing: for one of several parts of a command, which has a bar for all of them.
    pub(crate) fn hidden() -> Self {
        Progress { bar: ProgressBar::hidden(), row: None, rows: Mutex::default() }
    }

    /// The same, which also shows each result as soon as it is known: on a terminal until all is
    /// done, elsewhere as a line.
    pub(crate) fn with_rows(
        self,
        row: impl Fn(&RunResult) -> Result<String> + Send + Sync + 'static,
    ) -> Self {
        Progress { row: Some(Box::new(row)), ..self }
    }

    /// A result is known.
    pub(crate) fn known(&self, result: &RunResult) -> Result<()> {
        let Some(row) = &self.row else { return Ok(()) };
        let row = row(result)?;
        if self.bar.is_hidden() {
            // Nobody may be reading.
            let _ = writeln!(io::stderr(), "{row}");
        } else {
            let mut rows = self.rows.lock().expect("no row panics");
            *rows += &format!("{row}\n");
            self.bar.set_prefix(rows.clone());
        }
        Ok(())
    }

    /// Describes the next steps.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Everything is done: removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

//! The output of a run: a JSON document or a table on stdout, progress on stderr.

#[cfg(test)]
pub(crate) mod by_hand;
pub(crate) mod columns;
pub(crate) mod comparison;
pub(crate) mod comparison_text;
pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod figure;
pub(crate) mod goal;
pub(crate) mod html;
pub(crate) mod profile;
pub(crate) mod progress;
mod ranking;
pub(crate) mod reasons;
pub(crate) mod result_rows;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod waits;
pub(crate) mod words;

use std::fmt;
use std::io::{self, Write};

use anyhow::Result;

/// Prints a line of a result to stdout. If the reader has closed the pipe, as `head` does, the
/// command ends successfully.
///
/// # Errors
///
/// Any other error of stdout.
pub(crate) fn print_line(line: fmt::Arguments<'_>) -> Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => Ok(outcome?),
    }
}

/// As `println!`, by way of [`print_line`].
macro_rules! out {
    ($($argument:tt)*) => { $crate::report::print_line(format_args!($($argument)*))? };
}
pub(crate) use out;

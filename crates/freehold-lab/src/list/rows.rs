//! The rows of a list, in any format.

use anyhow::Result;
use serde::Serialize;

use crate::cli::Format;
use crate::report::csv::Csv;
use crate::report::out;
use crate::report::table::Table;

/// Prints rows as text or as CSV.
pub(super) fn print_rows<const COLUMNS: usize>(
    format: Format,
    headings: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> Result<()> {
    if format == Format::Csv {
        let mut table = Csv::new(headings);
        rows.for_each(|row| table.row(row));
        return table.print();
    }
    let mut table = Table::new(headings);
    rows.for_each(|row| table.row(row));
    out!("{table}");
    Ok(())
}

/// Prints rows as JSON.
pub(super) fn print_json(rows: &impl Serialize) -> Result<()> {
    out!("{}", serde_json::to_string_pretty(rows)?);
    Ok(())
}

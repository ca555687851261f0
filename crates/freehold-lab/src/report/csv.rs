//! Tables as CSV: a line of headings, numbers in full, an empty cell where nothing applies.

use std::fmt;

use anyhow::{Context, Result};
use csv::{Terminator, WriterBuilder};

use super::out;

/// A table with a line of headings.
pub(crate) struct Csv {
    rows: Vec<Vec<String>>,
}

impl Csv {
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        Csv { rows: vec![headings.into_iter().map(Into::into).collect()] }
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Prints the table to stdout.
    pub(crate) fn print(&self) -> Result<()> {
        out!("{}", self.text()?.trim_end_matches('\n'));
        Ok(())
    }

    /// Fails if a row has more or fewer cells than there are headings.
    fn text(&self) -> Result<String> {
        // Line ends as other commands have them.
        let terminator = Terminator::Any(b'\n');
        let mut writer = WriterBuilder::new().terminator(terminator).from_writer(Vec::new());
        for row in &self.rows {
            writer.write_record(row).context("cannot write a row of the CSV table")?;
        }
        let bytes = writer.into_inner().context("cannot write the CSV table")?;
        String::from_utf8(bytes).context("the CSV table is not text")
    }
}

/// What a cell shows of a value that may not apply.
pub(crate) fn or_empty(value: Option<impl fmt::Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut csv = Csv::new(["name", "pair_ns"]);
        csv.row(["a, \"b\"".to_owned(), or_empty(Some(0.1 + 0.2))]);
        csv.row(["c".to_owned(), or_empty(None::<f64>)]);
        let text = csv.text().unwrap();
        assert_eq!(text, "name,pair_ns\n\"a, \"\"b\"\"\",0.30000000000000004\nc,\n");
        csv.row(["d"]);
        assert!(csv.text().is_err(), "a cell is missing");
    }
}

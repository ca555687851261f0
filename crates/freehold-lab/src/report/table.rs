//! Tables of at most 100 columns.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

/// The widest that a report gets, on whatever terminal.
pub(crate) const WIDTH: u16 = 100;

/// One line below the headings and no other.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with a line of headings.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
        table.set_header(headings.into_iter().map(Into::into));
        Table(table)
    }

    /// Sets numbers flush right, from this column on.
    pub(crate) fn numbers_from(mut self, column: usize) -> Self {
        for column in self.0.column_iter_mut().skip(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.0.add_row(cells.into_iter().map(Into::into));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the blanks that pad the last column.
        f.write_str(&self.0.trim_fmt())
    }
}

//! Tables of at most 100 columns.

use std::fmt;
use std::ops::Range;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

/// The maximum width of a report, on any terminal.
pub(crate) const WIDTH: u16 = 100;

/// One line below the headings and no other.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// How many spaces are left and right of a cell, and how many in narrow tables.
const WIDE: (u16, u16) = (1, 1);
const NARROW: (u16, u16) = (1, 0);

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

    /// Right-aligns numbers, from this column on.
    pub(crate) fn numbers_from(self, column: usize) -> Self {
        self.numbers_in(column..usize::MAX)
    }

    /// Right-aligns numbers, which are in these columns.
    pub(crate) fn numbers_in(mut self, columns: Range<usize>) -> Self {
        for column in self.0.column_iter_mut().take(columns.end).skip(columns.start) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }

    /// Whether all columns fit side by side, so that no cell must be broken.
    pub(crate) fn fits(&self) -> bool {
        self.fits_with(NARROW)
    }

    /// The same for columns that are padded by so many spaces in all.
    fn fits_with(&self, (left, right): (u16, u16)) -> bool {
        // There is one more between two columns.
        let contents = self.0.column_max_content_widths();
        contents.iter().map(|content| content + left + right + 1).sum::<u16>() <= WIDTH + 1
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.0.add_row(cells.into_iter().map(Into::into));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = self.0.clone();
        if !self.fits_with(WIDE) {
            table.column_iter_mut().for_each(|column| {
                column.set_padding(NARROW);
            });
        }
        // Without the spaces that pad the last column.
        f.write_str(&table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve columns of so many characters.
    fn table(width: usize) -> Table {
        let row = || vec!["x".repeat(width); 12];
        let mut table = Table::new(row());
        table.row(row());
        table
    }

    fn lines(width: usize) -> Vec<usize> {
        table(width).to_string().lines().map(|line| line.chars().count()).collect()
    }

    #[test]
    fn columns_stand_closer_before_a_cell_is_broken() {
        assert!(table(5).fits());
        assert_eq!(lines(5)[0], 12 * 5 + 11 * 3 + 1, "with three blanks between them");
        assert!(table(6).fits());
        assert_eq!(lines(6)[0], 12 * 6 + 11 * 2 + 1, "with two");
        assert_eq!(lines(6).len(), 3);
        assert!(!table(7).fits());
        assert!(lines(7).len() > 3 && lines(7).into_iter().all(|length| length <= 100));
    }
}

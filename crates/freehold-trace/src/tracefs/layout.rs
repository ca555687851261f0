//! Where the fields of an event lie, read from the kernel's `format` files.

use super::expression::named_values;
use crate::gfp::GfpLayout;

/// A field of an event: a little number in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: usize,
    size: usize,
}

impl Field {
    /// The value in a record; none if the record ends before it, or if it is no number.
    pub(super) fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut number = [0; 8];
        number.get_mut(..self.size)?.copy_from_slice(bytes);
        // Recordings are made on the machine itself, and the machines with tracefs that this
        // program runs on are little-endian, as is its format.
        Some(u64::from_le_bytes(number))
    }
}

/// The layout of the records of one event.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The number that begins its records.
    pub(super) id: u16,
    pub(super) fields: Fields,
    /// The bits of GFP flags, as its `print fmt` names them.
    pub(super) gfp: GfpLayout,
}

impl Layout {
    /// Reads a `format` file.
    ///
    /// # Errors
    ///
    /// What is missing in it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let line = |key: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(key));
        let id = line("ID:").and_then(|number| number.trim().parse().ok()).ok_or("it has no ID")?;
        let gfp = GfpLayout::new(named_values(line("print fmt:").unwrap_or_default()));
        Ok(Layout { id, fields: Fields::parse(text), gfp })
    }
}

/// Fields by their names.
#[derive(Clone, Debug)]
pub(super) struct Fields(Vec<(String, Field)>);

impl Fields {
    /// The lines of a text that describe fields.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("field:"));
        Fields(lines.filter_map(field_of).collect())
    }

    /// A field by its name.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub(super) fn get(&self, name: &str) -> Result<Field, String> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, field)| *field).ok_or_else(|| format!("it has no field `{name}`"))
    }
}

/// A field from `unsigned long pfn; offset:8; size:8; signed:0;`.
fn field_of(text: &str) -> Option<(String, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?.rsplit([' ', '*']).next()?;
    let mut number = |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.parse().ok() };
    Some((name.to_owned(), Field { offset: number("offset:")?, size: number("size:")? }))
}

//! Files with recordings.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result};
use freehold_trace::Reader;

/// This program, as the files it writes name it.
pub(super) const WRITER: &str = concat!("freehold ", env!("CARGO_PKG_VERSION"));

/// A recording, and its name for errors.
pub(crate) fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Reader::new(BufReader::new(file)).with_context(|| path.display().to_string())
}

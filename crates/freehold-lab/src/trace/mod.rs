//! Recordings of real kernels: making them, importing them, and showing what is in them.

mod import;
mod info;
mod record;

use std::fs::{File, Permissions};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use freehold_trace::Reader;
use tempfile::NamedTempFile;

pub(crate) use import::import;
pub(crate) use info::info;
pub(crate) use record::{EventsLost, record};

/// This program, as the files it writes name it.
const WRITER: &str = concat!("freehold ", env!("CARGO_PKG_VERSION"));

/// A recording, and its name for errors.
pub(crate) fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Reader::new(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// A file that appears under its name when it is complete.
struct Output {
    path: PathBuf,
    file: NamedTempFile,
}

impl Output {
    fn new(path: &Path) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix(".freehold-")
            // As for any file, the umask is taken off.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder(path))
            .with_context(|| path.display().to_string())?;
        Ok(Output { path: path.to_owned(), file })
    }

    fn writer(&self) -> BufWriter<&File> {
        BufWriter::with_capacity(1 << 18, self.file.as_file())
    }

    /// Gives the file its name; returns its size.
    fn keep(self) -> Result<u64> {
        let name = || self.path.display().to_string();
        let bytes = self.file.as_file().metadata().with_context(name)?.len();
        self.file.persist(&self.path).map_err(|error| error.error).with_context(name)?;
        Ok(bytes)
    }
}

/// The folder that a file is in, or will be.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

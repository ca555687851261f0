//! Files that appear under their names when they are complete.

use std::fs::{File, Permissions};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// A file that appears under its name when it is complete.
pub(crate) struct Output {
    path: PathBuf,
    file: NamedTempFile,
}

impl Output {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix(".freehold-")
            // As for any file, the umask is taken off.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder(path))
            .with_context(|| path.display().to_string())?;
        Ok(Output { path: path.to_owned(), file })
    }

    pub(crate) fn writer(&self) -> BufWriter<&File> {
        BufWriter::with_capacity(1 << 18, self.file.as_file())
    }

    /// Gives the file its name; returns its size.
    pub(crate) fn keep(self) -> Result<u64> {
        let name = || self.path.display().to_string();
        let bytes = self.file.as_file().metadata().with_context(name)?.len();
        self.file.persist(&self.path).map_err(|error| error.error).with_context(name)?;
        Ok(bytes)
    }
}

/// The folder that a file is in, or will be.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

//! Texts that a command reads: files, and `-` for standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// What errors call an input.
pub(crate) fn name_of(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Opens an input.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    match is_stdin(path) {
        true => Ok(Box::new(io::stdin().lock())),
        false => Ok(Box::new(BufReader::new(File::open(path)?))),
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

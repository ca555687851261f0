//! The files, which are sparse: real ones on the host. A simulated machine has no content to read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};

use super::Files;
use crate::machine::FRAME_BYTES;
use crate::task::Content;

/// One of so many blocks of a file has its number written in it; the others are holes.
const WRITTEN_EVERY: u64 = 64;

/// Files with content.
pub(crate) struct Disk {
    content: Vec<File>,
    files: Files,
}

impl Disk {
    /// These files: without content on a simulated machine, which reads none.
    pub(crate) fn new(files: Files, simulated: bool) -> Result<Self> {
        let on_host = if simulated { 0 } else { files.count() };
        let content = (0..on_host).map(|file| sparse_file(file, files.size(file)));
        Ok(Disk { content: content.collect::<Result<_>>()?, files })
    }

    /// Reads a block, whose number is one over all files.
    pub(super) fn read(&self, block: u64, content: &mut Content) -> Result<()> {
        let (file, block) = self.files.place(block);
        self.content[file].read_exact_at(content, block * FRAME_BYTES).context("reading")
    }

    /// Checks that this is what is in a block.
    pub(super) fn check(&self, block: u64, content: &Content) -> Result<()> {
        let (file, block) = self.files.place(block);
        let found = u64::from_le_bytes(content[..8].try_into().expect("eight bytes"));
        let expected = stamp(file, block).unwrap_or(0);
        ensure!(found == expected, "block {block} of file {file} has another's content in it");
        Ok(())
    }
}

/// What is written in a block.
fn stamp(file: usize, block: u64) -> Option<u64> {
    block.is_multiple_of(WRITTEN_EVERY).then_some((file as u64 + 1) << 40 | (block + 1))
}

/// Makes a sparse file that has no name any more.
fn sparse_file(number: usize, blocks: u64) -> Result<File> {
    let name = format!("freehold-file-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let make = || {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        file.set_len(blocks * FRAME_BYTES)?;
        for block in (0..blocks).step_by(WRITTEN_EVERY as usize) {
            let stamp = stamp(number, block).unwrap_or(0);
            file.write_all_at(&stamp.to_le_bytes(), block * FRAME_BYTES)?;
        }
        Ok::<_, std::io::Error>(file)
    };
    make().with_context(|| format!("cannot make {}", path.display()))
}

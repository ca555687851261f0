//! What it takes until many dirty blocks are on a disk.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use freehold_cache::{Block, CachedFile, IoEngine, Limits};

use crate::disk::{cache, file_on_disk};
use crate::{SIZE, blocks, from_env, spread};

/// How many blocks are dirty.
const DIRTY: u64 = 1000;

/// In a file of so many.
const FILE_BLOCKS: u64 = 64 * DIRTY;

fn dirtied(file: &CachedFile, step: u64) {
    for nth in 0..DIRTY {
        file.overwrite(Block(nth * step)).expect("a block").fill(nth as u8);
    }
}

/// Times of `sync` with dirty blocks that are adjacent, and with such that are not.
pub(crate) fn write_back() -> io::Result<()> {
    assert!(DIRTY < blocks() / 2, "BLOCKS is too small");
    let path = file_on_disk(FILE_BLOCKS)?;
    println!("\nms until {DIRTY} dirty blocks are on storage (measured, host):\n");
    println!("| writer | adjacent | each 64th |\n|---|---|---|");
    // A file for each way to write, all of whose blocks are where they stay.
    let copy = path.with_extension("kernel");
    fs::copy(&path, &copy)?;
    let kernel = OpenOptions::new().write(true).open(&copy)?;
    kernel.sync_all()?;
    let mut files = Vec::new();
    for cache in [IoEngine::Pread, IoEngine::Uring].into_iter().filter_map(|of| cache(of, 0)) {
        let tenant = cache.tenant("all", Limits::new()).expect("the first");
        let file = cache.open(&tenant, &path).expect("a file system with direct I/O");
        files.push((format!("freehold-cache, {}", cache.engine()), file));
    }
    let mut times = vec![[vec![], vec![]]; files.len() + 1];
    for _ in 0..from_env("ROUNDS", 7) {
        for (nth, times) in times.iter_mut().enumerate() {
            for (step, times) in [1, 64].into_iter().zip(times) {
                let start = match files.get(nth) {
                    Some((_, file)) => {
                        dirtied(file, step);
                        let start = Instant::now();
                        file.sync().expect("sync");
                        start
                    }
                    None => {
                        for nth in 0..DIRTY {
                            kernel.write_all_at(&[nth as u8; SIZE], nth * step * SIZE as u64)?;
                        }
                        let start = Instant::now();
                        kernel.sync_data()?;
                        start
                    }
                };
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    let names = files.iter().map(|(name, _)| name.as_str()).chain(["kernel's page cache"]);
    for (name, times) in names.zip(times) {
        let [adjacent, apart] = times.map(|times| {
            let (median, lowest, highest) = spread(times);
            format!("{median:.1} ({lowest:.1} to {highest:.1})")
        });
        println!("| {name} | {adjacent} | {apart} |");
    }
    drop(files);
    fs::remove_file(copy)?;
    fs::remove_file(path)
}

//! On the real machine: sparse files are really read, into frames of an arena.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use freehold::lru::GroupId;
use freehold::{Order, Pfn, Request};
use freehold_host::{FrameArena, Host, HostLru, Snapshot};
use serde_json::json;

use super::cache::{Files, Ground, finish, make_groups, read, settings};
use super::{Options, fields, files_of};
use crate::books::check_all_back;
use crate::cell::{HostCell, Measured};
use crate::designs::with_design;
use crate::host::tasks::bind;
use crate::host::{HostDesign, arena, check_memory};
use crate::machine::FRAME_BYTES;
use crate::report::document::Work;

const BLOCK: usize = FRAME_BYTES as usize;

/// One of so many blocks of a file has its number written in it; the others are holes.
const WRITTEN_EVERY: u64 = 64;

/// Runs one cell on the real machine.
pub(super) fn run(cell: &HostCell<'_>) -> Result<Measured> {
    with_design!(cell.design, Host, D => run_on::<D>(cell))
}

/// What the readers share.
struct Shared<'a, D: HostDesign> {
    arena: &'a FrameArena<D>,
    files: Vec<File>,
    options: Options,
    hits: AtomicU64,
}

impl<D: HostDesign> Shared<'_, D> {
    fn place(&self, block: u64) -> (usize, u64) {
        ((block / self.options.file_blocks) as usize, block % self.options.file_blocks)
    }
}

impl<D: HostDesign> Ground for Shared<'_, D> {
    fn alloc(&self) -> Result<Pfn, freehold::Error> {
        self.arena.allocator().alloc(Request::default())
    }

    fn fill(&self, frame: Pfn, block: u64) -> Result<()> {
        let (file, block) = self.place(block);
        let mut content = [0; BLOCK];
        self.files[file].read_exact_at(&mut content, block * FRAME_BYTES).context("reading")?;
        self.arena.write_frame(frame, &content);
        Ok(())
    }

    fn copy(&self, frame: Pfn, block: u64) -> Result<()> {
        let mut content = [0; BLOCK];
        self.arena.read_frame(frame, &mut content);
        let (file, block) = self.place(block);
        let found = u64::from_le_bytes(content[..8].try_into().expect("eight bytes"));
        let expected = stamp(file, block).unwrap_or(0);
        ensure!(found == expected, "block {block} of file {file} has another's content in it");
        Ok(())
    }

    fn pause(&self) {
        thread::yield_now();
    }
}

/// What is written in a block.
fn stamp(file: usize, block: u64) -> Option<u64> {
    block.is_multiple_of(WRITTEN_EVERY).then_some((file as u64 + 1) << 40 | (block + 1))
}

/// Makes a sparse file that has no name any more.
fn sparse_file(number: usize, blocks: u64) -> Result<File> {
    let name = format!("freehold-read-twice-{}-{number}", std::process::id());
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

fn run_on<D: HostDesign>(cell: &HostCell<'_>) -> Result<Measured> {
    let options = Options::parse(cell.assignments)?;
    let cpus = cell.cpus.len();
    let bytes = options.memory_bytes(cpus) + (64 << 20);
    check_memory(cpus, bytes, "--cpus or --set share_bytes")?;
    let builder = arena::<D>().bytes(usize::try_from(bytes)?);
    let arena = builder.settings(cell.assignments.of_design()?).build_frames()?;
    let files: Result<Vec<_>> =
        (0..cpus).map(|number| sparse_file(number, options.file_blocks)).collect();
    let shared = Shared { arena: &arena, files: files?, options, hits: AtomicU64::new(0) };
    let free = |freed: &[Pfn]| {
        let freed = arena.allocator().free_bulk(freed, Order::ZERO);
        freed.expect("the frames were allocated for the cache");
    };
    let index = Files::new(options.file_blocks * cpus as u64, arena.total_frames(), free);
    let lru = arena.lru(&settings(&options, cpus), index)?;
    let groups = make_groups(&lru, &options, cpus)?;
    let (barrier, error) = (Barrier::new(cpus), Mutex::new(None));
    let rates: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> = (0..cpus)
            .map(|number| {
                let (shared, lru, groups) = (&shared, &lru, &groups[..]);
                let (barrier, error, cpu) = (&barrier, &error, cell.cpus[number]);
                scope.spawn(move || {
                    // Every reader reaches the barrier, so that none waits for one that failed.
                    let bound = bind(cpu);
                    barrier.wait();
                    let began = Instant::now();
                    let read = bound.and_then(|()| read_files(shared, lru, groups, number, cpus));
                    if let Err(failed) = read {
                        let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
                        error.get_or_insert(failed);
                    }
                    2.0 * options.file_blocks as f64 / began.elapsed().as_secs_f64()
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().expect("no reader panics")).collect()
    });
    if let Some(error) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.context("a reader could not go on"));
    }
    let state = Snapshot::of(arena.allocator());
    finish(&lru)?;
    check_all_back(&arena.allocator(), arena.total_frames())?;
    let (per_second, count) = (rates.iter().sum(), 2 * options.file_blocks * cpus as u64);
    let work = Work { unit: "reads", count, seconds: count as f64 / per_second, per_second };
    let mut specific = fields(&options, cpus, shared.hits.load(Relaxed), count);
    specific.insert("read_ns".to_owned(), json!(cpus as f64 * 1e9 / per_second));
    Ok(Measured { work, simulated: None, fragmentation: None, state, specific })
}

/// Reads the two files of one CPU, in turns.
fn read_files<D: HostDesign, F: Fn(&[Pfn])>(
    shared: &Shared<'_, D>,
    lru: &HostLru<Files<F>>,
    groups: &[GroupId],
    number: usize,
    cpus: usize,
) -> Result<()> {
    let mut hits = 0;
    for block in 0..shared.options.file_blocks {
        for file in files_of(number, cpus) {
            let group = groups[file % groups.len()];
            let block = file as u64 * shared.options.file_blocks + block;
            hits += u64::from(read(lru, group, block, shared)?);
        }
    }
    shared.hits.fetch_add(hits, Relaxed);
    Ok(())
}

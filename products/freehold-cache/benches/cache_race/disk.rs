//! Misses that go to a disk: no block is read twice, and the kernel's count of what was read from
//! devices is looked at after each turn.
//!
//! All but the kernel's page cache read with `O_DIRECT`. What lies below the machine's own block
//! device, such as the memory of a host that serves a virtual disk, is not known.

use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use freehold_cache::{Block, Cache, IoEngine, Limits};
use rustix::fs::{Advice, fadvise, statfs};

use crate::{SIZE, blocks, data_file, from_env, kernel, open, spread};

const TMPFS: u64 = 0x0102_1994;

const ENGINES: [IoEngine; 2] = [IoEngine::Pread, IoEngine::Uring];

/// How many blocks a reader knows in advance.
const BATCH: usize = 32;

/// How much a sequential reader reads in a turn, in blocks.
const STRETCH: usize = 4096;

/// A page of memory, as direct I/O wants it.
#[repr(align(4096))]
struct Page([u8; SIZE]);

type Announce = Box<dyn Fn(&[u64]) + Sync>;

/// Who reads, and how.
struct Reader {
    name: String,
    /// Reads a block and looks at it.
    read: Box<dyn Fn(u64) + Sync>,
    /// Announces blocks.
    announce: Option<Announce>,
    /// Called before each turn.
    prepare: Box<dyn Fn() + Sync>,
}

fn check(content: &[u8], block: u64) {
    assert_eq!(black_box(content)[..8], block.to_le_bytes());
}

/// A cache with an engine; `None` if the kernel, or this build, does not have that.
pub(crate) fn cache(engine: IoEngine, read_ahead_bytes: usize) -> Option<Cache> {
    let builder = Cache::builder().memory_bytes(blocks() * SIZE as u64).engine(engine).direct(true);
    let builder = builder.read_ahead_bytes(read_ahead_bytes).dirty_percent(90, 90);
    let cache = builder.write_back_every(None).build().expect("memory");
    let report = cache.engine();
    if report.engine == engine {
        return Some(cache);
    }
    let reason = report.reason.as_deref().unwrap_or("not the engine that was asked for");
    println!("SKIPPED: {engine:?}: {reason}\n");
    None
}

fn freehold(path: &Path, engine: IoEngine, read_ahead_bytes: usize) -> Option<Reader> {
    let cache = cache(engine, read_ahead_bytes)?;
    let tenant = cache.tenant("all", Limits::new()).expect("the first");
    let file = cache.open(&tenant, path).expect("a file system with direct I/O");
    let same = file.clone();
    let announce = move |list: &[u64]| {
        let read = same.prefetch(list.iter().map(|&block| Block(block)));
        assert_eq!(read, list.len() as u64, "there is room for a batch");
    };
    Some(Reader {
        name: format!("freehold-cache, {}", cache.engine()),
        read: Box::new(move |block| check(&file.read(Block(block)).expect("read"), block)),
        announce: Some(Box::new(announce)),
        prepare: Box::new(|| {}),
    })
}

fn quick(path: &Path) -> Reader {
    let cache = quick_cache::sync::Cache::<u64, Arc<Page>>::new(blocks() as usize);
    let file = open(path, true);
    let load = move |block: u64| {
        let mut page = Arc::new(Page([0; SIZE]));
        let bytes = &mut Arc::get_mut(&mut page).expect("not shared yet").0;
        file.read_exact_at(bytes, block * SIZE as u64)?;
        Ok::<_, io::Error>(page)
    };
    let read = move |block| {
        let page = cache.get_or_insert_with(&block, || load(block)).expect("read");
        check(&page.0, block);
    };
    let name = "quick_cache, pread".into();
    Reader { name, read: Box::new(read), announce: None, prepare: Box::new(|| {}) }
}

/// The kernel's page cache, which has nothing of the file at the start of a turn.
fn page_cache(path: &Path, advice: Advice) -> Reader {
    let files = [(); 3].map(|()| open(path, false));
    fadvise(&files[0], 0, None, advice).expect("advice");
    let [file, announced, dropped] = files;
    let read = move |block| {
        let mut content = [0; SIZE];
        file.read_exact_at(&mut content, block * SIZE as u64).expect("read");
        check(&content, block);
    };
    let announce = move |list: &[u64]| {
        let size = std::num::NonZeroU64::new(SIZE as u64);
        for &block in list {
            fadvise(&announced, block * SIZE as u64, size, Advice::WillNeed).expect("advice");
        }
    };
    Reader {
        name: "kernel's page cache".into(),
        read: Box::new(read),
        announce: Some(Box::new(announce)),
        prepare: Box::new(move || fadvise(&dropped, 0, None, Advice::DontNeed).expect("advice")),
    }
}

fn no_cache(path: &Path) -> Reader {
    let file: File = open(path, true);
    let read = move |block| {
        let mut page = Box::new(Page([0; SIZE]));
        file.read_exact_at(&mut page.0, block * SIZE as u64).expect("read");
        check(&page.0, block);
    };
    let name = "no cache, pread".into();
    Reader { name, read: Box::new(read), announce: None, prepare: Box::new(|| {}) }
}

/// Blocks in no order, each once.
struct Fresh {
    order: Vec<u64>,
    taken: usize,
}

impl Fresh {
    fn new(blocks: u64) -> Self {
        let mut order: Vec<_> = (0..blocks).collect();
        let mut state = 42_u64;
        for last in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(last, (state >> 33) as usize % (last + 1));
        }
        Fresh { order, taken: 0 }
    }

    fn take(&mut self, count: usize) -> &[u64] {
        let start = self.taken;
        self.taken += count;
        assert!(self.taken <= self.order.len(), "more DISK_BLOCKS are needed");
        &self.order[start..self.taken]
    }
}

/// Reads a second of a turn, all of which came from a device.
fn rate(reader: &Reader, count: usize, turn: impl FnOnce()) -> f64 {
    (reader.prepare)();
    let before = kernel::read_bytes();
    let start = Instant::now();
    turn();
    let seconds = start.elapsed().as_secs_f64();
    let read = kernel::read_bytes() - before;
    assert!(read >= (count * SIZE) as u64, "{}: {read} bytes from a device", reader.name);
    count as f64 / seconds
}

/// Turns of all readers, round by round; prints the median, the lowest and the highest of each.
fn race(readers: &[Reader], scale: f64, mut turn: impl FnMut(&Reader) -> f64) {
    let mut figures = vec![vec![]; readers.len()];
    for _ in 0..from_env("ROUNDS", 7) {
        for (reader, figures) in readers.iter().zip(&mut figures) {
            figures.push(turn(reader) * scale);
        }
    }
    for (reader, figures) in readers.iter().zip(figures) {
        let (median, lowest, highest) = spread(figures);
        println!("| {} | {median:.1} ({lowest:.1} to {highest:.1}) |", reader.name);
    }
}

/// A file on a disk, of which nothing is in memory; or why there is none.
pub(crate) fn file_on_disk(blocks: u64) -> io::Result<PathBuf> {
    let path = data_file(blocks)?;
    fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
    if statfs(&path)?.f_type as u64 == TMPFS {
        fs::remove_file(path)?;
        return Err(io::Error::other("a tmpfs is no disk: name a folder of one with FOLDER"));
    }
    Ok(path)
}

/// Random misses by threads and in batches, and a sequential reader.
pub(crate) fn misses() -> io::Result<()> {
    let requests = from_env("DISK_REQUESTS", 2000) as usize;
    let all = from_env("DISK_BLOCKS", 300_000);
    let path = file_on_disk(all)?;
    let mut fresh = Fresh::new(all);
    let mut readers: Vec<_> =
        ENGINES.into_iter().filter_map(|engine| freehold(&path, engine, 0)).collect();
    readers.extend([quick(&path), page_cache(&path, Advice::Random), no_cache(&path)]);
    for threads in [1, 2, 16] {
        println!("\nThousand misses a second, {threads} threads (measured, host):\n");
        println!("| reader | misses |\n|---|---|");
        race(&readers, 1e-3, |reader| {
            let (list, next) = (fresh.take(requests), AtomicUsize::new(0));
            rate(reader, requests, || {
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            while let Some(&block) = list.get(next.fetch_add(1, Relaxed)) {
                                (reader.read)(block);
                            }
                        });
                    }
                });
            })
        });
    }
    println!("\nThe same, one thread that knows {BATCH} blocks in advance:\n");
    println!("| reader | misses |\n|---|---|");
    readers.retain(|reader| reader.announce.is_some());
    race(&readers, 1e-3, |reader| {
        let list = fresh.take(requests / BATCH * BATCH);
        rate(reader, list.len(), || {
            for batch in list.chunks(BATCH) {
                reader.announce.iter().for_each(|announce| announce(batch));
                batch.iter().for_each(|&block| (reader.read)(block));
            }
        })
    });
    println!("\nMiB a second, one thread that reads block after block:\n");
    println!("| reader | MiB/s |\n|---|---|");
    let ahead = [0, 128 << 10, 512 << 10, 2 << 20];
    let mut readers = Vec::new();
    for (bytes, engine) in ahead.into_iter().flat_map(|bytes| ENGINES.map(|engine| (bytes, engine)))
    {
        readers.extend(freehold(&path, engine, bytes).map(|reader| {
            let name = format!("{}, {} KiB ahead", reader.name, bytes >> 10);
            Reader { name, ..reader }
        }));
    }
    readers.extend([quick(&path), page_cache(&path, Advice::Normal)]);
    let mut turns = 0;
    race(&readers, SIZE as f64 / f64::from(1 << 20), |reader| {
        // Another stretch of the file each time.
        let first = turns * STRETCH as u64;
        turns += 1;
        assert!(first + STRETCH as u64 <= all, "more DISK_BLOCKS are needed");
        rate(reader, STRETCH, || {
            (first..first + STRETCH as u64).for_each(|block| (reader.read)(block));
        })
    });
    fs::remove_file(path)
}

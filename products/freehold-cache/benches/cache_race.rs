//! Races the cache against quick_cache and against the kernel's page cache, on real files.
//!
//! ```text
//! cargo bench -p freehold-cache --bench cache_race -- [ratio|speed|memory|tenants] ...
//! cargo bench -p freehold-cache --features io-uring --bench cache_race -- disk
//! ```
//!
//! `BLOCKS=4000` (the size of the caches), `REQUESTS=400000`, `ROUNDS=7`, `FOLDER=` change it.
//!
//! quick_cache (S3-FIFO, sharded, each value loaded once) is what a Rust program would use
//! otherwise: it keeps values of any type, so a block is an `Arc<[u8]>` of its own. Both read the
//! same blocks by `pread`. The kernel's page cache has no size of its own. It is held to one by a
//! memory cgroup, which the program makes for a child that runs alone in it, if it may; where it
//! may not, the column says why.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use freehold_cache::{Block, Cache, CachedFile, Limits};

#[path = "cache_race/disk.rs"]
mod disk;

#[path = "cache_race/sync.rs"]
mod sync;

#[path = "cache_race/trace.rs"]
mod trace;

#[path = "cache_race/kernel.rs"]
mod kernel;

use trace::Trace;

const SIZE: usize = 4096;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The size of the caches, in blocks.
fn blocks() -> u64 {
    from_env("BLOCKS", 4000)
}

/// A file of this many blocks, with the number of each in it.
fn data_file(blocks: u64) -> io::Result<PathBuf> {
    let folder = std::env::var_os("FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("freehold-cache-race-{}-{blocks}", std::process::id()));
    let file = File::create(&path)?;
    let mut block = [0; 256 * SIZE];
    for first in (0..blocks).step_by(256) {
        for (nth, block) in block.chunks_mut(SIZE).enumerate() {
            block[..8].copy_from_slice(&(first + nth as u64).to_le_bytes());
        }
        file.write_all_at(&block, first * SIZE as u64)?;
    }
    file.sync_all()?;
    Ok(path)
}

/// Opens the file as contestants read it.
fn open(path: &Path, direct: bool) -> File {
    let mut options = OpenOptions::new();
    if direct {
        options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
    }
    options.read(true).open(path).expect("the file was just made")
}

/// What is raced.
enum Contestant {
    Freehold(Cache, CachedFile),
    Quick(quick_cache::sync::Cache<u64, Arc<[u8]>>, File, AtomicU64),
}

impl Contestant {
    fn all(path: &Path, direct: bool) -> [Self; 2] {
        let cache = Cache::builder().memory_bytes(blocks() * SIZE as u64).build().expect("memory");
        let tenant = cache.tenant("all", Limits::new()).expect("the first");
        let file = cache.open_file(&tenant, open(path, direct)).expect("a file");
        let quick = quick_cache::sync::Cache::new(blocks() as usize);
        [
            Contestant::Freehold(cache, file),
            Contestant::Quick(quick, open(path, direct), AtomicU64::new(0)),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Contestant::Freehold(..) => "freehold-cache",
            Contestant::Quick(..) => "quick_cache",
        }
    }

    /// Reads a block and looks at it.
    fn read(&self, block: u64) {
        let number = match self {
            Contestant::Freehold(_, file) => {
                let guard = file.read(Block(block)).expect("read");
                u64::from_le_bytes(guard[..8].try_into().expect("eight bytes"))
            }
            Contestant::Quick(cache, file, misses) => {
                let load = || {
                    misses.fetch_add(1, Relaxed);
                    load(file, block)
                };
                let content = cache.get_or_insert_with(&block, load).expect("read");
                u64::from_le_bytes(content[..8].try_into().expect("eight bytes"))
            }
        };
        assert_eq!(black_box(number), block);
    }

    fn misses(&self) -> u64 {
        match self {
            Contestant::Freehold(cache, _) => cache.stats().tenants[0].misses,
            Contestant::Quick(_, _, misses) => misses.load(Relaxed),
        }
    }
}

/// A block in memory of its own. Not aligned, so a file that is read into it is not opened with
/// `O_DIRECT`.
fn load(file: &File, block: u64) -> io::Result<Arc<[u8]>> {
    let mut content: Arc<[u8]> = std::iter::repeat_n(0, SIZE).collect();
    let bytes = Arc::get_mut(&mut content).expect("not shared yet");
    file.read_exact_at(bytes, block * SIZE as u64)?;
    Ok(content)
}

/// The median, and the lowest and highest, of some figures.
fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    (figures[figures.len() / 2], figures[0], figures[figures.len() - 1])
}

/// Hit ratios, one thread.
fn ratios() -> io::Result<()> {
    let requests = from_env("REQUESTS", 400_000) as usize;
    println!("\nHit ratios in percent, {} blocks, {requests} requests, one thread:\n", blocks());
    println!("| trace | freehold-cache | quick_cache | kernel, cgroup |\n|---|---|---|---|");
    let path = data_file(Trace::span(blocks()))?;
    for trace in Trace::ALL {
        let requests = trace.requests(blocks(), requests, 42);
        let ratio = |misses: u64| 100.0 * (1.0 - misses as f64 / requests.len() as f64);
        let ours = Contestant::all(&path, false).map(|contestant| {
            requests.iter().for_each(|&block| contestant.read(block));
            ratio(contestant.misses())
        });
        let kernel = kernel::misses(&path, trace, blocks(), requests.len());
        let kernel = kernel.map_or_else(|reason| reason, |misses| format!("{:.1}", ratio(misses)));
        println!("| {} | {:.1} | {:.1} | {kernel} |", trace.name(), ours[0], ours[1]);
    }
    fs::remove_file(path)
}

/// Times in turns: the time of a read, with all blocks cached, and with misses that the kernel's
/// page cache serves, so that what is measured is the caches' own.
fn speeds() -> io::Result<()> {
    let (rounds, requests) = (from_env("ROUNDS", 7), from_env("REQUESTS", 400_000) as usize);
    println!(
        "\nns a read (measured, host), {rounds} rounds in turns, median (lowest to highest):\n"
    );
    println!(
        "| trace | threads | freehold-cache | quick_cache | pread, all cached | quick/freehold |"
    );
    println!("|---|---|---|---|---|---|");
    let path = data_file(Trace::span(blocks()))?;
    let file = open(&path, false);
    for trace in [Trace::Hits, Trace::Zipf09, Trace::ZipfScan] {
        for threads in [1, 2] {
            let lists: Vec<_> = (0..threads)
                .map(|thread| trace.requests(blocks(), requests, 42 + thread))
                .collect();
            let contestants = Contestant::all(&path, false);
            let mut times = [vec![], vec![], vec![]];
            // The first round warms up.
            for round in 0..=rounds {
                for (nth, times) in times.iter_mut().enumerate() {
                    let time = timed(&lists, |block| match contestants.get(nth) {
                        Some(contestant) => contestant.read(block),
                        None => {
                            let mut content = [0; SIZE];
                            file.read_exact_at(&mut content, block * SIZE as u64).expect("read");
                            assert_eq!(black_box(content)[..8], block.to_le_bytes());
                        }
                    });
                    if round > 0 {
                        times.push(time);
                    }
                }
            }
            let [ours, quick, kernel] = times.map(spread);
            let show = |of: (f64, f64, f64)| format!("{:.0} ({:.0} to {:.0})", of.0, of.1, of.2);
            let ratio = quick.0 / ours.0;
            let (name, [ours, quick, kernel]) = (trace.name(), [ours, quick, kernel].map(show));
            println!("| {name} | {threads} | {ours} | {quick} | {kernel} | {ratio:.2} |");
        }
    }
    fs::remove_file(path)
}

/// ns a request of one thread, while all threads work through their lists.
fn timed(lists: &[Vec<u64>], read: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for list in lists {
            scope.spawn(|| list.iter().for_each(|&block| read(block)));
        }
    });
    start.elapsed().as_nanos() as f64 / lists[0].len() as f64
}

/// Two tenants on one cache: one with a hot set, one that scans.
fn tenants() -> io::Result<()> {
    let requests = from_env("REQUESTS", 400_000) / 2;
    let path = data_file(Trace::span(blocks()))?;
    println!(
        "\nTwo tenants, {} blocks: zipf 0.9 over ten times the cache, and a scan at",
        blocks()
    );
    println!("twice its rate. Hits of the first in percent, and its blocks at the end:\n");
    println!("| cache | limits | hits | blocks |\n|---|---|---|---|");
    let half = blocks() * SIZE as u64 * 3 / 4;
    let rows = [
        ("none", Limits::new(), Limits::new()),
        ("3/4 protected", Limits::new().protected_bytes(half), Limits::new()),
        ("the scan has at most 1/4", Limits::new(), Limits::new().max_bytes(half / 3)),
    ];
    let zipf = Trace::Zipf09.requests(blocks(), requests as usize, 42);
    let scan_start = Trace::span(blocks()) / 2;
    let scan = |nth: u64| scan_start + nth % (Trace::span(blocks()) / 2);
    for policy in [freehold_cache::LruPolicy::ScanResistant, freehold_cache::LruPolicy::TwoLists] {
        for (name, quiet, noisy) in rows {
            let builder = Cache::builder().memory_bytes(blocks() * SIZE as u64).policy(policy);
            let cache = builder.build().expect("memory");
            let quiet = cache.tenant("quiet", quiet).expect("a tenant");
            let noisy = cache.tenant("noisy", noisy).expect("a tenant");
            let quiet = cache.open_file(&quiet, open(&path, false)).expect("a file");
            // The same file twice would be refused, so the second one is opened as plain storage.
            let storage = freehold_cache::FileStorage::new(open(&path, false));
            let noisy = cache.open_storage(&noisy, Box::new(storage)).expect("a file");
            for (nth, &block) in zipf.iter().enumerate() {
                drop(quiet.read(Block(block)).expect("read"));
                // Most of these miss, so the scan brings in more than the other.
                for scanned in 0..2 {
                    drop(noisy.read(Block(scan(2 * nth as u64 + scanned))).expect("read"));
                }
            }
            let stats = cache.stats();
            let of = stats.tenant("quiet").expect("created above");
            let ratio = 100.0 * of.hit_ratio();
            println!("| freehold-cache, {policy:?} | {name} | {ratio:.1} | {} |", of.cached);
        }
    }
    let quick = quick_cache::sync::Cache::<u64, Arc<[u8]>>::new(blocks() as usize);
    let (file, mut misses) = (open(&path, false), 0);
    for (nth, &block) in zipf.iter().enumerate() {
        let read = |block: u64, misses: &mut u64| {
            let content = quick.get_or_insert_with(&block, || {
                *misses += 1;
                load(&file, block)
            });
            black_box(content.expect("read"));
        };
        read(block, &mut misses);
        for scanned in 0..2 {
            read(scan(2 * nth as u64 + scanned), &mut 0);
        }
    }
    let ratio = 100.0 * (1.0 - misses as f64 / zipf.len() as f64);
    println!("| quick_cache | none: it has no tenants | {ratio:.1} | |");
    fs::remove_file(path)
}

/// The memory that this process has, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Bytes beside the blocks themselves, a block, in a process of its own each.
fn memory(only: Option<&str>) -> io::Result<()> {
    if let Some(only) = only {
        let path = data_file(4 * blocks())?;
        let before = resident();
        let contestants = Contestant::all(&path, false);
        let contestant = contestants.into_iter().find(|of| of.name() == only).expect("a name");
        // Many more than fit, so that it is full, and has all the shadows that it may have.
        let requests = Trace::Zipf09.requests(blocks(), 12 * blocks() as usize, 7);
        requests.iter().for_each(|&block| contestant.read(block % (4 * blocks())));
        drop(requests);
        let beside = resident().saturating_sub(before + blocks() * SIZE as u64);
        println!("{}", beside as f64 / blocks() as f64);
        return fs::remove_file(path);
    }
    println!("\nResident memory beside the blocks, bytes a block (measured, host):\n");
    println!("| blocks | freehold-cache | quick_cache |\n|---|---|---|");
    for blocks in [16_000, 64_000] {
        let figures = ["freehold-cache", "quick_cache"].map(|name| {
            let mut child = Command::new(std::env::current_exe()?);
            let output =
                child.args(["memory-of", name]).env("BLOCKS", blocks.to_string()).output()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Ok::<_, io::Error>(text.parse::<f64>().unwrap_or(f64::NAN))
        });
        let [ours, quick] = figures;
        println!("| {blocks} | {:.0} | {:.0} |", ours?, quick?);
    }
    Ok(())
}

fn main() -> io::Result<()> {
    // `cargo bench` adds an argument of its own.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [what, rest @ ..] = &arguments[..] {
        match (what.as_str(), rest) {
            ("memory-of", [name]) => return memory(Some(name)),
            ("kernel-child", rest) => return kernel::child(rest),
            _ => {}
        }
    }
    let run = |name: &str, part: fn() -> io::Result<()>| {
        let is_wanted = arguments.is_empty() || arguments.iter().any(|of| of == name);
        if is_wanted { part() } else { Ok(()) }
    };
    run("ratio", ratios)?;
    run("speed", speeds)?;
    run("tenants", tenants)?;
    run("memory", || memory(None))?;
    run("disk", disk::misses)?;
    run("disk", sync::write_back)
}

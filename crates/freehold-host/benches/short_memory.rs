//! Threads that together want no more frames than there are, but nearly all of them: no allocation
//! of a single frame may fail.
//!
//! `cargo bench -p freehold-host --bench short_memory -- [SECONDS]`; by default 2 seconds
//! for each of 4 sizes of memory, with 4 to 8 threads. Exits with 1 if an allocation failed.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use freehold::designs::{Design, Freehold};
use freehold::{Order, Pfn, Request};
use freehold_host::{ArenaBuilder, FrameArena, Host};
use freehold_linux::ZoneLock;

const MIB: [usize; 4] = [1, 2, 4, 8];
const THREADS: std::ops::RangeInclusive<u64> = 4..=8;

/// The results of the threads of a run.
#[derive(Default)]
struct Counts {
    allocated: AtomicU64,
    failed: AtomicU64,
    alloc_us_max: AtomicU64,
}

/// A step of a xorshift generator (Marsaglia 2003).
fn xorshift(mut number: u64) -> u64 {
    number ^= number << 13;
    number ^= number >> 7;
    number ^ number << 17
}

/// Allocates and frees at random, with up to `quota` frames at a time.
fn work<D: Design<Host>>(arena: &FrameArena<D>, mut random: u64, quota: usize, counts: &Counts) {
    let allocator = arena.allocator();
    let mut held: Vec<Pfn> = Vec::new();
    for _ in 0..1000 {
        random = xorshift(random);
        if held.is_empty() || held.len() < quota && !(random >> 40).is_multiple_of(3) {
            let began = Instant::now();
            let got = allocator.alloc(Request::default());
            counts.alloc_us_max.fetch_max(began.elapsed().as_micros() as u64, Relaxed);
            match got {
                Ok(pfn) => held.push(pfn),
                Err(_) => {
                    counts.failed.fetch_add(1, Relaxed);
                }
            }
            counts.allocated.fetch_add(1, Relaxed);
        } else {
            let pfn = held.swap_remove((random >> 8) as usize % held.len());
            allocator.free(pfn, Order::ZERO).expect("it is held");
        }
    }
    for pfn in held {
        allocator.free(pfn, Order::ZERO).expect("it is held");
    }
}

/// Runs threads side by side and returns how many allocations failed.
fn run<D: Design<Host> + Sync>(
    mib: usize,
    threads: u64,
    time: Duration,
) -> Result<u64, Box<dyn Error>> {
    let arena = ArenaBuilder::<D>::new().bytes(mib << 20).cpus(2).nodes(1).build_frames()?;
    let zone = arena.allocator().zones().next().ok_or("there is a zone")?;
    let quota = (zone.managed.get() - zone.marks.min.get()) / threads;
    let (counts, stop) = (Counts::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 1..=threads {
            let (arena, counts, stop) = (&arena, &counts, &stop);
            scope.spawn(move || {
                let mut random = thread;
                while !stop.load(Relaxed) {
                    random = xorshift(random);
                    work(arena, random, quota as usize, counts);
                }
            });
        }
        thread::sleep(time);
        stop.store(true, Relaxed);
    });
    let (allocated, failed) = (counts.allocated.into_inner(), counts.failed.into_inner());
    println!(
        "{:<10} {mib:>3} MiB {threads} threads: {allocated:>11} allocations, {failed} failed, \
         longest {} us",
        D::NAME,
        counts.alloc_us_max.into_inner(),
    );
    Ok(failed)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let seconds = arguments.next().map_or(Ok(2.0), |word| word.parse::<f64>())?;
    let time = Duration::from_secs_f64(seconds);
    let mut failed = 0;
    for mib in MIB {
        for threads in THREADS {
            failed += run::<Freehold<Host>>(mib, threads, time)?;
        }
        run::<ZoneLock<Host>>(mib, *THREADS.end(), time)?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

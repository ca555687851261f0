//! The benefit of automatic leases on this machine, for long-lived threads and for threads that
//! make only a few calls.
//!
//! `cargo bench -p freehold-host --bench leases -- [THREADS]`; by default as many threads as
//! there are CPUs. Rounds with and without leases take turns; the median of each is shown.

use std::error::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn, Request};
use freehold_host::{Arena, FrameArena, Leases};

const BYTES: usize = 256 << 20;
const ROUNDS: usize = 15;

/// Pairs of calls of each long-lived thread in a round.
const PAIRS_LONG: usize = 2_000_000;
/// Calls of each short-lived thread, and pairs of calls of all of them in a round.
const CALLS_SHORT: [usize; 3] = [100, 1000, 100_000];
const PAIRS_SHORT: usize = 200_000;

/// So many frames are held at a time.
const HELD: usize = 32;

fn arena(leases: Leases) -> Result<FrameArena, Box<dyn Error>> {
    Ok(Arena::builder().bytes(BYTES).leases(leases).build_frames()?)
}

/// Allocates and frees frames, some of which are held at a time.
fn work(frames: &FrameArena, pairs: usize) {
    let mut held = [Pfn::default(); HELD];
    for _ in 0..pairs.div_ceil(HELD) {
        for pfn in &mut held {
            *pfn = frames.alloc(Request::default()).expect("memory is free");
        }
        for &pfn in &held {
            frames.free(pfn, Order::ZERO).expect("it is held");
        }
    }
}

/// The same with the allocator itself, without an arena around it.
fn work_bare(frames: &FrameArena, pairs: usize) {
    let (allocator, mut held) = (frames.allocator(), [Pfn::default(); HELD]);
    for _ in 0..pairs.div_ceil(HELD) {
        for pfn in &mut held {
            *pfn = allocator.alloc(Request::default()).expect("memory is free");
        }
        for &pfn in &held {
            allocator.free(pfn, Order::ZERO).expect("it is held");
        }
    }
}

/// Nanoseconds for a pair of calls of threads that work at the same time.
fn long_lived(frames: &FrameArena, threads: usize, work: fn(&FrameArena, usize)) -> f64 {
    let barrier = Barrier::new(threads);
    let times: Vec<Duration> = thread::scope(|scope| {
        let run = || {
            work(frames, 4096);
            barrier.wait();
            let began = Instant::now();
            work(frames, PAIRS_LONG);
            began.elapsed()
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it is well")).collect()
    });
    times.iter().map(Duration::as_secs_f64).sum::<f64>() / threads as f64 / PAIRS_LONG as f64 * 1e9
}

/// Nanoseconds for a pair of calls of threads that make a few and end, one after the other on each
/// CPU; without the cost of starting and ending a thread, as far as it is outside the calls.
fn short_lived(frames: &FrameArena, threads: usize, calls: usize) -> f64 {
    let pairs = calls / 2;
    let rounds = (PAIRS_SHORT / threads).div_ceil(pairs);
    let run = || {
        let began = Instant::now();
        work(frames, pairs);
        began.elapsed()
    };
    let spent: Duration = thread::scope(|scope| {
        let starters: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let one = || thread::scope(|scope| scope.spawn(run).join());
                    (0..rounds).map(|_| one().expect("it is well")).sum::<Duration>()
                })
            })
            .collect();
        starters.into_iter().map(|thread| thread.join().expect("it is well")).sum()
    });
    let pairs = pairs.div_ceil(HELD) * HELD;
    spent.as_secs_f64() / (rounds * threads * pairs) as f64 * 1e9
}

/// Nanoseconds to renew a lease that was revoked, and to revoke one while another thread runs.
fn take_back(frames: &FrameArena) -> Result<(f64, f64), Box<dyn Error>> {
    const TIMES: u32 = 10_000;
    let cpu = CpuId::new(0);
    let mut lease = frames.allocator().lease(cpu)?;
    let (mut renewing, mut revoking) = (Duration::ZERO, Duration::ZERO);
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<(), freehold::Error> {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        for _ in 0..TIMES {
            let began = Instant::now();
            lease.renew();
            let renewed = Instant::now();
            let drained = frames.allocator().drain(cpu);
            revoking += renewed.elapsed();
            renewing += renewed - began;
            drained.inspect_err(|_| done.store(true, Relaxed))?;
        }
        done.store(true, Relaxed);
        Ok(())
    })?;
    let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(TIMES);
    Ok((each(renewing), each(revoking)))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Prints the medians of rounds with leases off and auto, which take turns.
fn compare(what: &str, measure: impl Fn(Leases) -> f64) {
    let (mut off, mut auto) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        off.push(measure(Leases::Off));
        auto.push(measure(Leases::Auto));
    }
    let (off, auto) = (median(off), median(auto));
    println!("{what:<34} {off:>8.2} {auto:>8.2} {:>8.2}", auto / off);
}

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = thread::available_parallelism()?.get();
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let threads = arguments.next().map_or(Ok(cpus), |text| text.parse())?;
    let (off, auto) = (arena(Leases::Off)?, arena(Leases::Auto)?);
    let of = |leases| if leases == Leases::Auto { &auto } else { &off };
    println!("measured (host): ns a pair of calls, order 0, {threads} threads on {cpus} CPUs,");
    println!("medians of {ROUNDS} rounds; leases=auto has become leases={}", auto.leases());
    println!("{:<34} {:>8} {:>8} {:>8}", "", "off", "auto", "auto/off");
    compare("one thread that lives long", |leases| long_lived(of(leases), 1, work));
    compare("threads that live long", |leases| long_lived(of(leases), threads, work));
    compare("the same, by the front door", |leases| long_lived(of(leases), threads, work_bare));
    let (begin, revoke) = take_back(&off)?;
    println!("to take slots again that others took: {begin:.0} ns; to take them: {revoke:.0} ns");
    for calls in CALLS_SHORT {
        let what = format!("threads of {calls} calls each");
        compare(&what, |leases| short_lived(of(leases), threads, calls));
    }
    Ok(())
}

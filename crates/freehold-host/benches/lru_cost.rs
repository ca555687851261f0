//! What the LRU's calls cost on this machine, with few groups and with many.
//!
//! `cargo bench -p freehold-host --bench lru_cost`, or with ` -- calls` without groups
//!
//! The times are medians of rounds, in ns. Frames have no content here, so an owner's own work is
//! not part of them.

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use freehold_host::freehold::{CpuId, FrameCount, Order, Pfn};
use freehold_host::lru::{
    Claim, Claimed, GroupId, Kind, LruError, LruLock, LruSettings, Owner, Scope, Verdict,
};
use freehold_host::{Arena, HostLru, bind_current_thread};

const FRAMES: u64 = 1 << 17;
const ROUNDS: usize = 9;

/// Drops whatever it is asked for.
struct Nothing;

impl Owner for Nothing {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, _frame: Pfn, claim: Claim<'_>) {
        claim.take().map(Claimed::commit);
    }

    fn release(&self, _frames: &[Pfn], _order: Order) {}
}

type Cache = HostLru<Nothing>;

fn cache(settings: LruSettings) -> Result<Cache, Box<dyn Error>> {
    let arena = Arena::builder().bytes(FRAMES as usize * 4096).build_frames()?;
    // The LRU has frame numbers of its own; the arena may go.
    Ok(arena.lru(&settings, Nothing)?)
}

/// The median over rounds of what `work` returns.
fn median(mut work: impl FnMut() -> Result<f64, LruError>) -> Result<f64, LruError> {
    let mut all = (0..ROUNDS).map(|_| work()).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[ROUNDS / 2])
}

/// Runs `work`, and returns its time for each of so many steps.
fn per_step(steps: u64, work: impl FnOnce() -> Result<(), LruError>) -> Result<f64, LruError> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_nanos() as f64 / steps as f64)
}

/// Adds frames to a group and puts them, 1024 at a time.
fn add_and_put(
    cache: &Cache,
    group: GroupId,
    frames: std::ops::Range<u64>,
) -> Result<f64, LruError> {
    // Of the last round, some may wait in the batch of a CPU on which the thread ran then.
    cache.drain_all();
    per_step(frames.end - frames.start, || {
        let mut left = frames;
        while !left.is_empty() {
            let some = left.start..(left.start + 1024).min(left.end);
            left.start = some.end;
            some.clone().try_for_each(|frame| cache.add(Pfn::new(frame), group, Kind::File))?;
            some.clone().try_for_each(|frame| cache.put(Pfn::new(frame)))?;
        }
        Ok(())
    })
}

/// Adds pageblocks to a group, and puts them.
fn add_and_put_blocks(cache: &Cache, group: GroupId) -> Result<f64, LruError> {
    let order = Order::PAGEBLOCK;
    cache.drain_all();
    let blocks = || (0..FRAMES).step_by(order.frames().get() as usize).map(Pfn::new);
    per_step(blocks().count() as u64, || {
        blocks().try_for_each(|block| cache.add_block(block, order, group, Kind::File))?;
        blocks().try_for_each(|block| cache.put(block))
    })
}

/// The mean of two threads at the same time, each on its own CPU.
fn by_two(cache: &Cache, groups: [GroupId; 2]) -> Result<f64, LruError> {
    let barrier = Barrier::new(2);
    let work = |nth: usize| {
        // A machine with one CPU runs both in turn.
        let _bound = bind_current_thread(&[CpuId::new(nth as u32)]);
        barrier.wait();
        let start = nth as u64 * FRAMES / 2;
        add_and_put(cache, groups[nth], start..start + FRAMES / 2)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        let one = scope.spawn(|| work(0));
        let times = [one, other].map(|thread| thread.join().expect("it does not panic"));
        let [one, other] = times;
        Ok((one? + other?) / 2.0)
    })
}

/// Uses cached frames, each so many frames after the one before.
fn hit(cache: &Cache, step: u64) -> Result<f64, LruError> {
    per_step(FRAMES, || {
        (0..FRAMES).try_for_each(|nth| {
            let pfn = Pfn::new(nth * step % FRAMES);
            cache.get(pfn)?;
            cache.mark_accessed(pfn)?;
            cache.put(pfn)
        })
    })
}

/// Work on an LRU with two groups; returns its time for a page.
type Work = dyn Fn(&Cache, [GroupId; 2]) -> Result<f64, LruError>;

fn calls() -> Result<(), Box<dyn Error>> {
    println!("{:<40} {:>8} {:>8}", "ns a page", "group", "node");
    let both = [LruLock::Group, LruLock::Node].map(|lock| cache(LruSettings::default().lock(lock)));
    let [group, node] = both;
    let caches = [group?, node?];
    let mut groups = Vec::new();
    for cache in &caches {
        let make = |_| cache.create_group(GroupId::ROOT, None);
        groups.push([make(0)?, make(1)?]);
    }
    let row = |name: &str, work: &Work| {
        let mut times = [0.0; 2];
        for nth in 0..2 {
            times[nth] = median(|| work(&caches[nth], groups[nth]))?;
        }
        println!("{name:<40} {:>8.1} {:>8.1}", times[0], times[1]);
        Ok::<_, LruError>(())
    };
    row("add and put, one thread", &|cache, [one, _]| add_and_put(cache, one, 0..FRAMES))?;
    row("add and put, two threads, own groups", &by_two)?;
    row("add and put, two threads, one group", &|cache, [one, _]| by_two(cache, [one; 2]))?;
    row("add and put a pageblock, one thread", &|cache, [one, _]| add_and_put_blocks(cache, one))?;
    for cache in &caches {
        cache.drain_all();
        (0..FRAMES).try_for_each(|frame| cache.add(Pfn::new(frame), GroupId::ROOT, Kind::File))?;
        cache.drain_all();
    }
    row("hit (get, mark, put), one frame", &|cache, _| hit(cache, FRAMES))?;
    row("hit (get, mark, put), random frames", &|cache, _| hit(cache, 7919))?;
    Ok(())
}

/// Reclaim and creation of groups, with so many slots, of which some have groups.
fn groups(slots: u32, count: u64) -> Result<(), Box<dyn Error>> {
    let cache = cache(LruSettings::default().groups(slots))?;
    let begin = Instant::now();
    let make = |_| cache.create_group(GroupId::ROOT, None);
    let groups = (0..count).map(make).collect::<Result<Vec<_>, _>>()?;
    let create_us = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
    for frame in 0..FRAMES {
        cache.add(Pfn::new(frame), groups[(frame % count) as usize], Kind::File)?;
    }
    cache.drain_all();
    let mut calls_us = Vec::new();
    let mut done = 0;
    while done < FRAMES / 2 {
        let begin = Instant::now();
        done += cache.reclaim(Scope::All, FrameCount::new(31))?.reclaimed;
        calls_us.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let page_ns = calls_us.iter().sum::<f64>() * 1e3 / done as f64;
    calls_us.sort_by(f64::total_cmp);
    let (half, most) = (calls_us[calls_us.len() / 2], calls_us[calls_us.len() * 99 / 100]);
    let begin = Instant::now();
    const MISSES: u64 = 1000;
    // A group at its limit, that reclaims from itself.
    cache.remove_group(groups[0])?;
    let small = cache.create_group(GroupId::ROOT, Some(FrameCount::new(16)))?;
    let free = (0..FRAMES).filter(|&frame| cache.frame_stats(Pfn::new(frame)).is_err());
    let free: Vec<_> = free.take(MISSES as usize).collect();
    let began = begin.elapsed();
    for frame in free {
        cache.add_reclaiming(Pfn::new(frame), small, Kind::File)?;
    }
    let miss_us = (begin.elapsed() - began).as_secs_f64() * 1e6 / MISSES as f64;
    println!(
        "{slots:>6} {count:>7} {page_ns:>10.0} {half:>9.1} {most:>9.1} {miss_us:>12.2} \
         {create_us:>10.2}"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    calls()?;
    if std::env::args().nth(1).is_some_and(|part| part == "calls") {
        return Ok(());
    }
    println!();
    println!(
        "{:>6} {:>7} {:>10} {:>9} {:>9} {:>12} {:>10}",
        "slots", "groups", "ns a page", "us a call", "99 %", "us a miss", "us a group"
    );
    for (slots, count) in [(64, 1), (64, 63), (4097, 1), (4097, 4095), (65535, 1), (65535, 4096)] {
        groups(slots, count)?;
    }
    groups(65535, 65_533)
}

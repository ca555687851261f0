//! What accesses cost on this machine, as the figures of simulated machines are defined.
//!
//! A latency is that of a load whose address the load before it has returned, from memory of the
//! size in question, in an order that no prefetcher guesses. A transfer is the same over lines that
//! another core has just written.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use anyhow::Result;
use freehold::designs::Freehold;
use freehold::geometry::FRAME_BYTES;
use freehold::{CpuId, FrameCount, Order, RangeRequest, Request};
use freehold_host::{Arena, Host, Numa, Topology};
use freehold_sim::Key;

use super::places::{CacheBytes, Place};
use crate::host::tasks::{bind, start};
use crate::report::summary::Summary;

const LINE_BYTES: usize = 64;

/// How often each figure is taken: the median counts.
const ROUNDS: usize = 9;

/// The most memory that a latency of memory is taken from: beyond, it would be pages that miss.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// How much is measured: all, or hardly anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    rounds: usize,
    loads: usize,
    memory_bytes_max: usize,
    stream: Duration,
}

impl Effort {
    pub(super) fn of(is_quick: bool) -> Self {
        let (rounds, loads) = if is_quick { (1, 1 << 10) } else { (ROUNDS, 1 << 20) };
        let memory_bytes_max = if is_quick { 8 << 20 } else { MEMORY_BYTES_MAX };
        let stream = Duration::from_millis(if is_quick { 1 } else { 300 });
        Effort { rounds, loads, memory_bytes_max, stream }
    }
}

/// A figure of this machine, in the unit of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) key: Key,
    pub(super) figure: Summary,
}

/// Measures all that this machine has. `say` is told what comes next.
pub(super) fn measure(
    places: &[Place],
    caches: CacheBytes,
    effort: Effort,
    say: &dyn Fn(&str),
) -> Result<Vec<Cost>> {
    let here = &places[0];
    let mut costs = Vec::new();
    let mut add = |key: Key, samples: Vec<f64>| {
        say(&format!("{}.{}", key.section(), key.name()));
        costs.push(Cost { key, figure: Summary::of(&samples) });
    };
    let l1_ns = latency_ns(here, here, half(caches.l1, 16 << 10), effort)?;
    let load_ns = Summary::of(&l1_ns).median;
    add(Key::L1Ns, l1_ns);
    add(Key::L2Ns, latency_ns(here, here, half(caches.l2, 128 << 10), effort)?);
    if caches.llc > 2 * caches.l2 {
        // Half of it, or a CPU's part of a very large one; but never what the private cache holds.
        let bytes = (caches.llc / 2).min(16 << 20).max(2 * caches.l2);
        add(Key::LlcNs, latency_ns(here, here, bytes, effort)?);
    }
    let memory_bytes = (4 * caches.llc).max(256 << 20).min(effort.memory_bytes_max);
    add(Key::DramLocalNs, latency_ns(here, here, memory_bytes, effort)?);
    let other = |differs: &dyn Fn(&Place) -> bool| places.iter().find(|place| differs(place));
    let same_socket = |place: &Place| place.socket == here.socket;
    if let Some(there) = other(&|of| same_socket(of) && of.node != here.node) {
        add(Key::DramSameSocketNs, latency_ns(there, here, memory_bytes, effort)?);
    }
    let remote = other(&|of| !same_socket(of));
    if let Some(there) = remote {
        add(Key::DramRemoteNs, latency_ns(there, here, memory_bytes, effort)?);
    }
    if let Some(writer) = other(&|of| of.core != here.core && of.llc == here.llc) {
        add(Key::SameLlcNs, transfer_ns(here, writer, here, effort)?);
    }
    if let Some(writer) = other(&|of| same_socket(of) && of.llc != here.llc) {
        add(Key::SameSocketNs, transfer_ns(here, writer, here, effort)?);
    }
    if let Some(writer) = remote {
        add(Key::RemoteHomeWriterNs, transfer_ns(writer, writer, here, effort)?);
        add(Key::RemoteHomeReaderNs, transfer_ns(here, writer, here, effort)?);
    }
    add(Key::RmwNs, rmw_ns(here.cpu, load_ns, effort)?);
    add(Key::PauseNs, on(here.cpu, || repeated_ns(effort, spin_loop))?);
    if let Some(sibling) = other(&|of| of.core == here.core && of.cpu != here.cpu) {
        add(Key::SmtSlowdown, smt_slowdown(here.cpu, sibling.cpu, effort)?);
    }
    let (cached_ns, memory_ns) = clear_ns(here, memory_bytes, effort)?;
    add(Key::ClearCachedNs, cached_ns);
    add(Key::ClearMemoryNs, memory_ns);
    let near: Vec<_> = places.iter().filter(|of| of.node == here.node).map(|of| of.cpu).collect();
    add(Key::NodeGbPerS, stream_gb_per_s(&near, memory_bytes, effort)?);
    Ok(costs)
}

/// Half of a cache, or of one that is usual.
fn half(cache_bytes: usize, usual_bytes: usize) -> usize {
    if cache_bytes > 0 { cache_bytes / 2 } else { usual_bytes }
}

/// Runs some work on a thread that is bound to a CPU.
fn on<R: Send>(cpu: CpuId, work: impl FnOnce() -> R + Send) -> Result<R> {
    std::thread::scope(|scope| {
        let working = start(scope, || bind(cpu).map(|()| work()));
        working.join().expect("measuring does not panic")
    })
}

/// The mean time of a step, in each round.
fn repeated_ns(effort: Effort, mut step: impl FnMut()) -> Vec<f64> {
    let round = |_| {
        let begin = Instant::now();
        (0..effort.loads).for_each(|_| step());
        begin.elapsed().as_nanos() as f64 / effort.loads as f64
    };
    (0..effort.rounds).map(round).collect()
}

/// Memory in huge pages, where the machine has any, of the node of whoever touches it first.
fn memory(bytes: usize) -> Result<Arena<Freehold<Host>>> {
    // An eighth more, for what an arena keeps back.
    let arena = Arena::builder().bytes(bytes + bytes / 8 + (4 << 20)).huge_pages(true);
    Ok(arena.numa(Numa::Machine).topology(Topology::flat(1)).build()?)
}

/// Calls `then` with the links of a random cycle through so many lines: of each, its own place and
/// that of the next.
fn link(lines: usize, mut then: impl FnMut(usize, usize)) {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    for (nth, &line) in order.iter().enumerate() {
        then(line as usize, order[(nth + 1) % lines] as usize);
    }
}

/// A load from memory that a CPU of `home` has touched first.
fn latency_ns(home: &Place, reader: &Place, bytes: usize, effort: Effort) -> Result<Vec<f64>> {
    let arena = memory(bytes)?;
    let frames = FrameCount::new(bytes.div_ceil(FRAME_BYTES) as u64);
    let mut range = arena.allocate_range(RangeRequest::new(frames))?;
    on(home.cpu, || {
        link(bytes / LINE_BYTES, |line, next| {
            let next = (next * LINE_BYTES) as u64;
            range[line * LINE_BYTES..][..8].copy_from_slice(&next.to_ne_bytes());
        });
    })?;
    let load = |at: usize| {
        let bytes: [u8; 8] = range[at..at + 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes) as usize
    };
    on(reader.cpu, || {
        // Once round, as far as caches can hold it; then on from where the last round ended.
        let mut at = (0..bytes / LINE_BYTES).fold(0, |at, _| load(at));
        let round = |_| {
            let begin = Instant::now();
            at = (0..effort.loads).fold(at, |at, _| load(at));
            black_box(at);
            begin.elapsed().as_nanos() as f64 / effort.loads as f64
        };
        (0..effort.rounds).map(round).collect()
    })
}

/// A line to itself, which holds the number of another one.
#[repr(align(64))]
struct Line(AtomicU64);

/// A load of a line that `writer` has just written, whose memory `home` has touched first.
fn transfer_ns(home: &Place, writer: &Place, reader: &Place, effort: Effort) -> Result<Vec<f64>> {
    const LINES: usize = 2048;
    let lines = on(home.cpu, || {
        // More than is used, so that it is fresh memory of the machine's.
        let mut lines = Vec::with_capacity((40 << 20) / LINE_BYTES);
        lines.extend((0..LINES).map(|_| Line(AtomicU64::new(0))));
        link(LINES, |line, next| *lines[line].0.get_mut() = next as u64);
        lines
    })?;
    // Even: the writer's turn; odd: the reader's. Release and acquire: whoever has a turn sees what
    // the other one has done before.
    let turn = AtomicUsize::new(0);
    let wait_for = |wanted| {
        while turn.load(Acquire) != wanted {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        let writing = start(scope, || {
            let bound = bind(writer.cpu);
            for round in 0..effort.rounds {
                wait_for(2 * round);
                for line in &lines {
                    // Relaxed: the turn orders it.
                    line.0.store(line.0.load(Relaxed), Relaxed);
                }
                turn.store(2 * round + 1, Release);
            }
            bound
        });
        let reading = start(scope, || {
            let bound = bind(reader.cpu);
            let round = |round| {
                wait_for(2 * round + 1);
                let begin = Instant::now();
                // Relaxed: as above.
                let at = (0..LINES).fold(0, |at, _| lines[at].0.load(Relaxed) as usize);
                let time = begin.elapsed();
                black_box(at);
                turn.store(2 * round + 2, Release);
                time.as_nanos() as f64 / LINES as f64
            };
            bound.map(|()| (0..effort.rounds).map(round).collect())
        });
        writing.join().expect("writing does not panic")?;
        reading.join().expect("reading does not panic")
    })
}

/// An atomic step on a line of the core's own, less a load of it.
fn rmw_ns(cpu: CpuId, load_ns: f64, effort: Effort) -> Result<Vec<f64>> {
    let counter = AtomicU64::new(0);
    // Relaxed: nothing else is ordered by it.
    let step = || _ = black_box(counter.fetch_add(1, Relaxed));
    let all_ns = on(cpu, || repeated_ns(effort, step))?;
    Ok(all_ns.into_iter().map(|ns| (ns - load_ns).max(0.0)).collect())
}

/// How much longer a pair of an allocation and a free takes while the sibling makes such, too.
fn smt_slowdown(cpu: CpuId, sibling: CpuId, effort: Effort) -> Result<Vec<f64>> {
    let alone_ns = Summary::of(&on(cpu, || pair_ns(effort))??).median;
    let (started, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let both_ns = std::thread::scope(|scope| {
        let beside = start(scope, || {
            bind(sibling)?;
            // Relaxed: they only say when.
            started.store(1, Relaxed);
            while ended.load(Relaxed) == 0 {
                pair_ns(effort)?;
            }
            anyhow::Ok(())
        });
        while started.load(Relaxed) == 0 && !beside.is_finished() {
            spin_loop();
        }
        let both_ns = on(cpu, || pair_ns(effort));
        ended.store(1, Relaxed);
        beside.join().expect("pairs do not panic")?;
        both_ns?
    })?;
    Ok(both_ns.into_iter().map(|ns| (ns / alone_ns).max(1.0)).collect())
}

fn pair_ns(effort: Effort) -> Result<Vec<f64>> {
    let arena = Arena::<Freehold<Host>>::builder().bytes(16 << 20);
    let arena = arena.topology(Topology::flat(1)).build_frames()?;
    Ok(repeated_ns(effort, || {
        if let Ok(frame) = arena.allocator().alloc(Request::default()) {
            let _ = arena.allocator().free(black_box(frame), Order::ZERO);
        }
    }))
}

/// Clearing a frame that the private cache has; and frames here and there in memory.
fn clear_ns(here: &Place, bytes: usize, effort: Effort) -> Result<(Vec<f64>, Vec<f64>)> {
    let arena = memory(bytes)?;
    let frames = bytes / FRAME_BYTES;
    let mut range = arena.allocate_range(RangeRequest::new(FrameCount::new(frames as u64)))?;
    on(here.cpu, || {
        range.fill(1);
        let (mut clear, mut order) = (Effort { loads: frames, ..effort }, Vec::new());
        link(frames, |frame, _| order.push(frame));
        let mut nth = order.into_iter().cycle();
        let memory_ns = repeated_ns(clear, || {
            let frame = nth.next().unwrap_or_default();
            black_box(&mut range[frame * FRAME_BYTES..][..FRAME_BYTES]).fill(0);
        });
        clear.loads = effort.loads / 16;
        let cached_ns = repeated_ns(clear, || black_box(&mut range[..FRAME_BYTES]).fill(0));
        (cached_ns, memory_ns)
    })
}

/// What all CPUs of a node read from its memory together.
fn stream_gb_per_s(cpus: &[CpuId], bytes: usize, effort: Effort) -> Result<Vec<f64>> {
    // What one CPU reads is more than its part of the caches.
    let words = (bytes / 8 / cpus.len()).max(1 << 17);
    let samples = std::thread::scope(|scope| {
        let streams: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                start(scope, move || {
                    bind(cpu)?;
                    let memory: Vec<u64> = (0..words as u64).collect();
                    let round = |_| {
                        let (begin, mut read) = (Instant::now(), 0);
                        while read == 0 || begin.elapsed() < effort.stream {
                            black_box(memory.iter().fold(0, |sum: u64, word| sum ^ word));
                            read += words * 8;
                        }
                        read as f64 / begin.elapsed().as_nanos() as f64
                    };
                    anyhow::Ok((0..effort.rounds).map(round).collect::<Vec<_>>())
                })
            })
            .collect();
        let all = streams.into_iter().map(|stream| stream.join().expect("reading does not panic"));
        all.collect::<Result<Vec<_>>>()
    })?;
    // Rounds of all begin within the time that one takes to fill its memory.
    Ok((0..effort.rounds).map(|round| samples.iter().map(|of| of[round]).sum()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_passes_each_line_once() {
        let mut next_of = vec![usize::MAX; 100];
        link(100, |line, next| next_of[line] = next);
        let mut at = 0;
        let mut seen = [false; 100];
        for _ in 0..100 {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = next_of[at];
        }
        assert_eq!(at, 0);
    }
}

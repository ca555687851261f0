//! What the policies of a page heap are worth: purging in batches, by age with whole pageblocks
//! first, not clearing what is zero, placing spans so that whole pageblocks come free, and not
//! searching again at once.
//!
//!     cargo bench -p freehold-malloc --bench heap_policies [-- rounds]
//!
//! Each pair of contestants runs in turns on the same pattern; medians, measured (host).

use std::time::{Duration, Instant};

use freehold_host::designs::Freehold;
use freehold_host::{ArenaBuilder, Design, FrameCount, Host, HostError, Pfn};
use freehold_linux::ZoneLock;
use freehold_malloc::{HeapSettings, PageHeap, PurgeAges};

const MIB: usize = 1 << 20;
const HEAP_BYTES: usize = 256 * MIB;

fn frames(count: u64) -> FrameCount {
    FrameCount::new(count)
}

/// A heap of which a part is there at first.
fn heap<D: Design<Host>>(
    start_bytes: usize,
    huge_pages: bool,
    settings: HeapSettings,
) -> Result<PageHeap<D>, HostError> {
    let builder = ArenaBuilder::<D>::new().bytes(start_bytes).capacity_bytes(HEAP_BYTES);
    PageHeap::build(builder.huge_pages(huge_pages).min_free(FrameCount::ZERO), settings)
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Bytes of this process that are resident, and of these in huge pages.
fn resident() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    };
    (of("Rss:").unwrap_or(0) << 10, of("AnonHugePages:").unwrap_or(0) << 10)
}

fn touch<D: Design<Host>>(heap: &PageHeap<D>, first: Pfn, count: FrameCount) {
    (0..count.get()).for_each(|nth| heap.arena().store_byte(first + frames(nth), 1));
}

/// The spans of the sizes that mallocs ask for: mostly 1 to 16 frames, some up to 128.
fn span_frames(random: u64) -> FrameCount {
    frames(if random.is_multiple_of(8) { 1 + random / 8 % 128 } else { 1 + random / 8 % 16 })
}

type Spans = Vec<(Pfn, FrameCount)>;

/// A heap after a program has filled it by half and freed and allocated at random for a while; the
/// spans that are left.
fn churned<D: Design<Host>>(
    start_bytes: usize,
    huge_pages: bool,
    seed: u64,
) -> Result<(PageHeap<D>, Spans), HostError> {
    churned_with(start_bytes, huge_pages, seed, HeapSettings::default())
}

fn churned_with<D: Design<Host>>(
    start_bytes: usize,
    huge_pages: bool,
    seed: u64,
    settings: HeapSettings,
) -> Result<(PageHeap<D>, Spans), HostError> {
    let heap = heap::<D>(start_bytes, huge_pages, settings)?;
    let (mut random, mut spans, mut used) = (seed, Vec::new(), 0);
    let half = HEAP_BYTES as u64 / 4096 / 2;
    for _ in 0..60_000 {
        let choice = next_random(&mut random);
        let count = span_frames(choice >> 8);
        if used + count.get() <= half {
            let span = heap.alloc(count, frames(1))?;
            touch(&heap, span.first, count);
            used += count.get();
            spans.push((span.first, count));
        } else {
            for _ in 0..4 {
                let nth = next_random(&mut random) as usize % spans.len();
                let (first, count): (Pfn, FrameCount) = spans.swap_remove(nth);
                heap.free(first, count)?;
                used -= count.get();
            }
        }
    }
    Ok((heap, spans))
}

/// One call for many stretches, against one for each.
fn batches(rounds: u64) -> Result<(), HostError> {
    let (mut batched, mut single, mut calls) = (Vec::new(), Vec::new(), 0);
    let mut stretches = 0;
    for round in 0..rounds {
        let (heap, _spans) = churned::<Freehold<Host>>(HEAP_BYTES, false, 77 + round)?;
        let start = Instant::now();
        let purged = heap.purge(PurgeAges::ALL)?;
        batched.push(start.elapsed().as_secs_f64() * 1e3);
        (calls, stretches) = (purged.calls, purged.stretches);
        let (heap, _spans) = churned::<Freehold<Host>>(HEAP_BYTES, false, 77 + round)?;
        let start = Instant::now();
        heap.arena().purge()?;
        single.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let (batched, single) = (median(&mut batched), median(&mut single));
    println!("purge of {stretches} stretches, half of a fragmented heap of 256 MiB:");
    println!("  {calls} calls, as the heap does         {batched:8.2} ms");
    println!("  a call for each stretch          {single:8.2} ms    ratio {:.2}", batched / single);
    Ok(())
}

/// Whole pageblocks only, against all that is free: what it gives back, and what it costs later.
fn whole_first(rounds: u64) -> Result<(), HostError> {
    println!("purge of a fragmented heap in huge pages, and the use of what was free after it:");
    for (name, part) in [("whole pageblocks only", None), ("all that is free", Some(0))] {
        let (mut purge_ms, mut back, mut huge, mut reuse) = (vec![], vec![], vec![], vec![]);
        for round in 0..rounds {
            let (heap, _spans) = churned::<Freehold<Host>>(HEAP_BYTES, true, 99 + round)?;
            let (before, _) = resident();
            let start = Instant::now();
            heap.purge(PurgeAges { whole: 0, part })?;
            purge_ms.push(start.elapsed().as_secs_f64() * 1e3);
            let (after, in_huge_pages) = resident();
            back.push(before.saturating_sub(after) as f64 / MIB as f64);
            huge.push(in_huge_pages as f64 / MIB as f64);
            let start = Instant::now();
            for _ in 0..4000 {
                let span = heap.alloc(frames(4), frames(1))?;
                touch(&heap, span.first, frames(4));
            }
            reuse.push(start.elapsed().as_secs_f64() * 1e9 / 16_000.0);
        }
        println!(
            "  {name:<22} {:8.2} ms  {:6.0} MiB back  {:6.0} MiB in huge pages  {:6.0} ns a page",
            median(&mut purge_ms),
            median(&mut back),
            median(&mut huge),
            median(&mut reuse),
        );
    }
    Ok(())
}

/// Zeroed spans: cleared only where it is needed, against always.
fn zeroes(rounds: u64) -> Result<(), HostError> {
    println!("a zeroed span of 64 frames, all of it written by its user, in ns a page:");
    for (name, is_fresh) in [("never used, or purged", true), ("freed before", false)] {
        let (mut known, mut always) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            for clears_always in [false, true] {
                let heap = heap::<Freehold<Host>>(HEAP_BYTES, false, HeapSettings::default())?;
                let count = frames(64);
                if !is_fresh {
                    let all = heap.arena().total_frames();
                    let first = heap.alloc(all, frames(1))?.first;
                    touch(&heap, first, all);
                    heap.free(first, all)?;
                }
                let zeroes = vec![0; heap.arena().frame_size().bytes()];
                let start = Instant::now();
                for _ in 0..500 {
                    let span = heap.alloc(count, frames(1))?;
                    if clears_always || !span.is_zeroed {
                        let pages = (0..count.get()).map(|nth| span.first + frames(nth));
                        pages.for_each(|page| heap.arena().write_frame(page, &zeroes));
                    }
                    touch(&heap, span.first, count);
                }
                let ns = start.elapsed().as_secs_f64() * 1e9 / (500.0 * 64.0);
                if clears_always { &mut always } else { &mut known }.push(ns);
            }
        }
        let (known, always) = (median(&mut known), median(&mut always));
        println!(
            "  {name:<22} known {known:6.0}   always cleared {always:6.0}   ratio {:.2}",
            known / always
        );
    }
    Ok(())
}

/// How much memory a heap has taken after churn, for what is in use: all of it at hand from the
/// start, or added when it is full.
fn placement(rounds: u64) -> Result<(), HostError> {
    fn over<D: Design<Host>>(start_bytes: usize, rounds: u64) -> Result<f64, HostError> {
        let mut over = Vec::new();
        for round in 0..rounds {
            let (before, _) = resident();
            let (heap, spans) = churned::<D>(start_bytes, false, 55 + round)?;
            let (after, _) = resident();
            let used: u64 = spans.iter().map(|(_, count)| count.get()).sum();
            drop(heap);
            over.push((after - before) as f64 / (used * 4096) as f64);
        }
        Ok(median(&mut over))
    }
    println!("resident memory over memory in use, after churn:");
    for (name, start_bytes) in [("all memory at once", HEAP_BYTES), ("added when full", 8 * MIB)] {
        println!(
            "  {name:<22} freehold {:5.2}   zone-lock {:5.2}",
            over::<Freehold<Host>>(start_bytes, rounds)?,
            over::<ZoneLock<Host>>(start_bytes, rounds)?
        );
    }
    Ok(())
}

/// Spans that do not fit into a heap that is full but for holes, while small ones come and go.
fn refusals(rounds: u64) -> Result<(), HostError> {
    const CALLS: usize = 1000;
    println!("a span that a full heap of 256 MiB does not have, and a small one, in us:");
    for wanted in [40, 256] {
        let (mut times, mut found) = ([Vec::new(), Vec::new()], [0, 0]);
        for round in 0..rounds {
            for refuses in [false, true] {
                let refuse_for = refuses.then_some(Duration::from_millis(10));
                let settings = HeapSettings { refuse_for, ..Default::default() };
                let (heap, mut spans) =
                    churned_with::<Freehold<Host>>(HEAP_BYTES, false, 33 + round, settings)?;
                while let Ok(span) = heap.alloc(frames(32), frames(1)) {
                    spans.push((span.first, frames(32)));
                }
                let start = Instant::now();
                for span in &mut spans[..CALLS] {
                    if let Ok(wide) = heap.alloc(frames(wanted), frames(1)) {
                        heap.free(wide.first, frames(wanted))?;
                        found[usize::from(refuses)] += 1;
                    }
                    heap.free(span.0, span.1)?;
                    span.0 = heap.alloc(span.1, frames(1))?.first;
                }
                let us = start.elapsed().as_secs_f64() * 1e6 / CALLS as f64;
                times[usize::from(refuses)].push(us);
            }
        }
        let [searched, refused] = times.map(|mut times| median(&mut times));
        println!(
            "  {wanted:>3} frames: searched {searched:8.2} ({} found)   refused for 10 ms \
             {refused:8.2} ({} found)   of {}",
            found[0],
            found[1],
            rounds * CALLS as u64
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let rounds = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    if rounds < 1 {
        return Err("rounds: 1 or more".into());
    }
    batches(rounds)?;
    whole_first(rounds)?;
    zeroes(rounds)?;
    placement(rounds)?;
    refusals(rounds)?;
    Ok(())
}

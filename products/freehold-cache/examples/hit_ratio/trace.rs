//! Synthetic traces. All sizes are in proportion to the capacity they are made for.

use crate::rng::{Rng, Zipf};
use std::collections::HashMap;

/// Accesses to keys; of some of them, hits count.
pub(crate) struct Trace {
    pub(crate) name: &'static str,
    pub(crate) keys: Vec<u32>,
    pub(crate) counts: Vec<bool>,
}

/// Keys above this are read by scans.
const COLD: u64 = 1 << 40;

struct Recorder {
    names: HashMap<u64, u32>,
    keys: Vec<u32>,
    counts: Vec<bool>,
    length: usize,
}

impl Recorder {
    fn push(&mut self, key: u64, counts: bool) {
        let next = self.names.len() as u32;
        self.keys.push(*self.names.entry(key).or_insert(next));
        self.counts.push(counts);
    }

    fn now(&self) -> u64 {
        self.keys.len() as u64
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= self.length
    }
}

type Step<'a> = Box<dyn FnMut(&mut Recorder, &mut Rng) + 'a>;

/// Runs a step until the trace is complete. The first quarter warms up.
fn record(name: &'static str, seed: u64, length: u64, mut step: Step<'_>) -> Trace {
    let length = length as usize;
    let (names, keys, counts) = (HashMap::new(), Vec::new(), Vec::new());
    let (mut recorder, mut rng) = (Recorder { names, keys, counts, length }, Rng(seed));
    while !recorder.is_full() {
        step(&mut recorder, &mut rng);
    }
    let Recorder { keys, mut counts, .. } = recorder;
    counts[..length / 4].fill(false);
    Trace { name, keys, counts }
}

/// All traces for a capacity.
pub(crate) fn all(cap: u64, seed: u64) -> Vec<Trace> {
    let mut traces = Vec::new();
    let length = cap * 50 + 40_000;
    let (z9, z11) = (Zipf::new(cap * 10, 0.9), Zipf::new(cap * 10, 1.1));
    let mut add = |name, step: Step<'_>| traces.push(record(name, seed, length, step));
    popularity(cap, &z9, &z11, &mut add);
    reread(cap, &z9, &mut add);
    loops(cap, &z9, &mut add);
    published(cap, &mut add);
    abuse(cap, &z9, &mut add);
    let mut add = |name, step: Step<'_>| traces.push(record(name, seed, cap * 180 + 40_000, step));
    shifts(cap, &z9, &mut add);
    traces
}

type Add<'a, 'b> = &'a mut dyn FnMut(&'static str, Step<'b>);

/// Zipf alone and against scans, and hot sets against scans.
fn popularity<'b>(cap: u64, z9: &'b Zipf, z11: &'b Zipf, add: Add<'_, 'b>) {
    add("zipf 0.9", Box::new(|to, rng| to.push(z9.draw(rng), true)));
    add("zipf 1.1", Box::new(|to, rng| to.push(z11.draw(rng), true)));
    let mut against = |name, share| {
        let mut at = COLD;
        let step = move |to: &mut Recorder, rng: &mut Rng| {
            at += 1;
            match rng.chance(share) {
                true => to.push(at, false),
                false => to.push(z9.draw(rng), true),
            }
        };
        add(name, Box::new(step));
    };
    against("zipf 0.9 + 50% scan", 0.5);
    against("zipf 0.9 + 90% scan", 0.9);
    let burst = move |to: &mut Recorder, rng: &mut Rng| match to.now() / (2 * cap) % 4 {
        3 => to.push(COLD + to.now(), false),
        _ => to.push(z9.draw(rng), true),
    };
    add("zipf 0.9 + bursts of 2 cap", Box::new(burst));
    let mut hot = |name, size, share| {
        let step = move |to: &mut Recorder, rng: &mut Rng| match rng.chance(share) {
            true => to.push(COLD + to.now(), false),
            false => to.push(rng.below(size), true),
        };
        add(name, Box::new(step));
    };
    hot("hot 0.6 + 50% scan", cap * 6 / 10, 0.5);
    hot("hot 0.8 + 50% scan", cap * 8 / 10, 0.5);
    hot("hot 0.8 + 80% scan", cap * 8 / 10, 0.8);
}

/// Scans that read each block twice, beside zipf.
fn reread<'b>(cap: u64, z9: &'b Zipf, add: Add<'_, 'b>) {
    let mut twice = |name, gap: u64, share| {
        let mut nth = 0;
        let step = move |to: &mut Recorder, rng: &mut Rng| {
            if !rng.chance(share) {
                return to.push(z9.draw(rng), true);
            }
            // Alternately a new block, and the one `gap` blocks before it again.
            let block = if nth % 2 == 0 { nth / 2 + gap } else { nth / 2 };
            nth += 1;
            to.push(COLD + block, false);
        };
        add(name, Box::new(step));
    };
    twice("twice in a row, 50%", 0, 0.5);
    twice("twice, gap 50, 50%", 12, 0.5);
    twice("twice, gap 0.2 cap, 50%", cap / 20, 0.5);
}

/// Loops.
fn loops<'b>(cap: u64, z9: &'b Zipf, add: Add<'_, 'b>) {
    let mut cycle = |name, size| {
        let step = move |to: &mut Recorder, _: &mut Rng| to.push(to.now() % size, true);
        add(name, Box::new(step));
    };
    cycle("loop 0.95", cap * 95 / 100);
    cycle("loop 1.1", cap * 11 / 10);
    cycle("loop 1.5", cap * 3 / 2);
    cycle("loop 2", cap * 2);
    let after = move |to: &mut Recorder, rng: &mut Rng| match to.now() < 10 * cap {
        true => to.push(z9.draw(rng), true),
        false => to.push(COLD + to.now() % (cap * 95 / 100), true),
    };
    add("zipf 0.9, then loop 0.95", Box::new(after));
}

/// Shapes of published traces.
fn published<'b>(cap: u64, add: Add<'_, 'b>) {
    msr(cap, add);
    key_values(cap, add);
    oltp(cap, add);
    lirs(cap, add);
}

/// Narayanan and others, "Write off-loading" (FAST 2008), the MSR Cambridge traces: hot blocks,
/// sequential runs of which some are read again much later, and blocks that are written again soon.
fn msr<'b>(cap: u64, add: Add<'_, 'b>) {
    let hot = Zipf::new(cap * 3, 0.8);
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut written = Vec::new();
    let step = move |to: &mut Recorder, rng: &mut Rng| match rng.below(100) {
        0..50 => to.push(hot.draw(rng), true),
        50..54 => {
            let again = rng.chance(0.5) && !runs.is_empty();
            let (start, length) = match again {
                true => {
                    runs[runs.len() - 1 - rng.exponential(cap as f64 / 24.0) as usize % runs.len()]
                }
                false => (COLD + rng.below(cap * 30), 8 + rng.below(24)),
            };
            runs.push((start, length));
            (start..start + length).for_each(|key| to.push(key, true));
        }
        54..80 => {
            let block = 2 * COLD + rng.below(cap * 20);
            written.push(block);
            to.push(block, true);
        }
        _ if written.is_empty() => {}
        _ => {
            let back = rng.exponential(cap as f64 / 10.0) as usize % written.len();
            to.push(written[written.len() - 1 - back], true);
        }
    };
    add("MSR-like", Box::new(step));
}

/// Yang and others, "Twitter" (OSDI 2020), and Berg and others, "CacheLib" (OSDI 2020): zipf whose
/// ranks drift, and many keys that are used only once.
fn key_values<'b>(cap: u64, add: Add<'_, 'b>) {
    let mut drift = |name, exponent, once, per_step: u64| {
        let zipf = Zipf::new(cap * 8, exponent);
        // Keys that are born become the most popular, and then lose rank slowly.
        let mut places: Vec<u64> = (0..cap * 8).collect();
        let mut born = cap * 8;
        let step = move |to: &mut Recorder, rng: &mut Rng| {
            if to.now().is_multiple_of(per_step) {
                let place = zipf.draw(rng);
                places[place as usize] = born;
                born += 1;
            }
            match rng.chance(once) {
                true => to.push(COLD + to.now(), true),
                false => to.push(places[zipf.draw(rng) as usize], true),
            }
        };
        add(name, Box::new(step));
    };
    drift("Twitter-like, zipf 1.0", 1.0, 0.2, 20);
    drift("CacheLib-like, zipf 1.2", 1.2, 0.1, 5);
}

/// The OLTP trace in the ARC paper (FAST 2003) and the LRU-K paper (SIGMOD 1993): skewed pages,
/// recently used pages, and appended ones.
fn oltp<'b>(cap: u64, add: Add<'_, 'b>) {
    let zipf = Zipf::new(cap * 20, 0.9);
    let step = move |to: &mut Recorder, rng: &mut Rng| match rng.below(10) {
        0..6 => to.push(zipf.draw(rng), true),
        6..9 if to.now() > 0 => {
            let back = rng.exponential(cap as f64) % to.now();
            let key = to.keys[(to.now() - 1 - back) as usize];
            to.push(2 * COLD + u64::from(key), true);
        }
        _ => (0..2).for_each(|nth| to.push(COLD + (to.now() - nth), true)),
    };
    add("OLTP-like", Box::new(step));
}

/// The patterns of the LIRS paper (SIGMETRICS 2002).
fn lirs<'b>(cap: u64, add: Add<'_, 'b>) {
    let pools = move |to: &mut Recorder, rng: &mut Rng| {
        to.push(rng.below(cap / 2), true);
        to.push(COLD + rng.below(cap * 50), true);
    };
    add("2-pools-like", Box::new(pools));
    // Index files are read at each query, and a part of the others.
    let glimpse = move |to: &mut Recorder, rng: &mut Rng| {
        (0..cap * 3 / 10).for_each(|key| to.push(key, true));
        let part = rng.below(4) * rng.below(4);
        let start = COLD + part * cap;
        (start..start + cap * 4 / 10).for_each(|key| to.push(key, true));
    };
    add("glimpse-like", Box::new(glimpse));
    // A loop through sources, with queries that read some of them again.
    let mut at = 0;
    let cscope = move |to: &mut Recorder, rng: &mut Rng| match rng.chance(0.01) {
        true => {
            let start = rng.below(cap * 13 / 10);
            (start..start + 20).for_each(|key| to.push(key, true));
        }
        false => {
            at = (at + 1) % (cap * 13 / 10);
            to.push(at, true);
        }
    };
    add("cscope-like", Box::new(cscope));
    // What was used recently is used again: stack distances of sprite.
    let sprite = move |to: &mut Recorder, rng: &mut Rng| match rng.chance(0.9) && to.now() > 0 {
        true => {
            let back = rng.exponential(cap as f64 * 1.5) % to.now();
            let key = u64::from(to.keys[(to.now() - 1 - back) as usize]);
            to.push(3 * COLD + key, true);
        }
        false => to.push(COLD + to.now(), true),
    };
    add("sprite-like", Box::new(sprite));
}

/// Patterns that mislead policies that trust ghosts.
fn abuse<'b>(cap: u64, z9: &'b Zipf, add: Add<'_, 'b>) {
    let mut again = |name, gap: u64, times: u64| {
        let mut nth = 0;
        let step = move |to: &mut Recorder, rng: &mut Rng| {
            to.push(z9.draw(rng), true);
            let block = (nth / times + gap * times) - nth % times * gap;
            nth += 1;
            to.push(COLD + block, true);
        };
        add(name, Box::new(step));
    };
    again("ghosts: again after 0.4 cap", cap / 5, 2);
    again("ghosts: again after 1.2 cap", cap * 6 / 10, 2);
    again("ghosts: thrice, 1 cap apart", cap / 3, 3);
    // Half of the keys are looped over three times and then never again.
    let rounds = move |to: &mut Recorder, rng: &mut Rng| match to.now() % 2 {
        0 => to.push(z9.draw(rng), true),
        _ => {
            let (size, nth) = (cap * 6 / 10, to.now() / 2);
            to.push(COLD + nth / (3 * size) * size + nth % size, true);
        }
    };
    add("ghosts: 0.6 cap thrice", Box::new(rounds));
}

/// Working sets that change.
fn shifts<'b>(cap: u64, z9: &'b Zipf, add: Add<'_, 'b>) {
    let permuted = move |to: &mut Recorder, rng: &mut Rng| {
        let phase = to.now() / (30 * cap);
        let rank = z9.draw(rng);
        to.push(Rng(rank ^ phase << 32).next() % (cap * 10), true);
    };
    add("zipf 0.9, new every 30 cap", Box::new(permuted));
    let sets = move |to: &mut Recorder, rng: &mut Rng| {
        let phase = to.now() / (10 * cap);
        to.push(phase * cap + rng.below(cap * 7 / 10), true);
    };
    add("hot 0.7, new every 10 cap", Box::new(sets));
}

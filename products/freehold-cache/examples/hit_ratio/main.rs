//! Hit ratios of the LRU's policies, and of others from the literature, on synthetic traces, as
//! Markdown tables.
//!
//! `cargo run --release -p freehold-cache --example hit_ratio [shards] [SEED [CAPACITY...]]`; by
//! default seed 42 and 200, 1000 and 4000 frames. With `shards`, the LRU's policies alone, with one
//! list and in shards, when each access comes from any of 16 CPUs. The traces are shapes of our own
//! after what publications say of theirs: see `trace.rs`. Replayed: no time is measured.

mod lists;
mod policy;
mod rng;
#[cfg(test)]
mod tests;
mod trace;

use freehold_lru::{LruLock, LruPolicy};
use policy::arc::Arc;
use policy::clock::Clock;
use policy::lirs::Lirs;
use policy::lru::Lru;
use policy::ours::Ours;
use policy::s3_fifo::S3Fifo;
use policy::two_q::TwoQ;
use policy::{Policy, opt};
use trace::Trace;

/// The first two are what the last two are held against.
const NAMES: [&str; 9] =
    ["2Q", "S3-FIFO", "LRU", "CLOCK", "ARC", "LIRS", "OPT", "two lists", "scan-resistant"];

fn percent(trace: &Trace, hits: impl Iterator<Item = bool>) -> f64 {
    let (mut good, mut all) = (0, 0);
    for (hit, &counts) in hits.zip(&trace.counts) {
        good += u64::from(hit && counts);
        all += u64::from(counts);
    }
    100.0 * good as f64 / all as f64
}

fn run(trace: &Trace, mut policy: impl Policy) -> f64 {
    percent(trace, trace.keys.iter().map(|&key| policy.access(key.into())))
}

/// The hit ratios, in the order of the names.
fn row(trace: &Trace, capacity: usize) -> [f64; NAMES.len()] {
    [
        run(trace, TwoQ::new(capacity)),
        run(trace, S3Fifo::new(capacity)),
        run(trace, Lru::new(capacity)),
        run(trace, Clock::new(capacity)),
        run(trace, Arc::new(capacity)),
        run(trace, Lirs::new(capacity)),
        percent(trace, opt::hits(&trace.keys, capacity).into_iter()),
        run(trace, Ours::new(capacity, LruPolicy::TwoLists)),
        run(trace, Ours::new(capacity, LruPolicy::ScanResistant)),
    ]
}

/// Compares lists in shards with one list, for both policies.
fn compare_shards(capacity: u64, seed: u64) {
    const CPUS: u32 = 16;
    let names = "two lists | in shards | scan-resistant | in shards";
    println!("\n| capacity {capacity}, seed {seed} | {names} |");
    println!("|---|---|---|---|---|");
    for trace in trace::all(capacity, seed) {
        let of = |policy| {
            [LruLock::Group, LruLock::Shards]
                .map(|lock| run(&trace, Ours::on(CPUS, lock, capacity as usize, policy)))
        };
        let rows = [of(LruPolicy::TwoLists), of(LruPolicy::ScanResistant)];
        let cells: Vec<_> = rows.iter().flatten().map(|ratio| format!("{ratio:.1}")).collect();
        println!("| {} | {} |", trace.name, cells.join(" | "));
    }
}

fn main() {
    let compares = std::env::args().nth(1).is_some_and(|word| word == "shards");
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let seed = numbers.first().copied().unwrap_or(42);
    let capacities = if numbers.len() > 1 { &numbers[1..] } else { &[200, 1000, 4000] };
    for &capacity in capacities {
        if compares {
            compare_shards(capacity, seed);
            continue;
        }
        println!("\n| capacity {capacity}, seed {seed} | {} | margin |", NAMES.join(" | "));
        println!("|---|{}---|", "---|".repeat(NAMES.len()));
        let (mut worst, mut sum) = (f64::MAX, 0.0);
        for trace in trace::all(capacity, seed) {
            let row = row(&trace, capacity as usize);
            let margin = row[8] - row[0].max(row[1]);
            (worst, sum) = (margin.min(worst), sum + margin.min(0.0));
            let cells = row.map(|ratio| format!("{ratio:.1}")).join(" | ");
            println!("| {} | {cells} | {margin:+.1} |", trace.name);
        }
        println!("\nworst margin {worst:+.1}, sum of shortfalls {sum:.1}");
    }
}

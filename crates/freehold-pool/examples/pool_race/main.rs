//! Instances a second: this pool against one lock around the free list, in turns within one run.
//!
//! `cargo run --release -p freehold-pool --example pool_race [ROUNDS [MILLISECONDS]]`
//!
//! An instance takes a slot, makes it as large as its module's memory, writes to some pages, and
//! goes. Each thread has a few at a time, and is bound to a CPU.

use std::time::{Duration, Instant};

use freehold_host::{allowed_cpus, bind_current_thread};
use freehold_pool::{Pool, PoolBuilder, PoolStats};

use contestants::{Contestant, Locked, Ours};

mod contestants;
#[path = "../common/index.rs"]
mod index;

const SLOTS: u32 = 1000;
const WARM_SLOTS: usize = 100;
const BATCH_SLOTS: usize = 16;
const PAGE: usize = 4096;

/// What instances do.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    /// So many modules in random order; 0 is none.
    modules: u64,
    pages_accessible: usize,
    pages_written: usize,
    keep_resident_bytes: usize,
    /// Whether slots go back as they are, for the next instance of the module.
    keeps: bool,
}

const MIXES: [Mix; 8] = [
    mix("one module", 1, 16),
    mix("many modules", 500, 16),
    mix("cold", 0, 16),
    mix("small", 1, 2),
    Mix { keep_resident_bytes: 16 * PAGE, ..mix("resident", 1, 16) },
    Mix { keeps: true, ..mix("kept", 1, 2) },
    Mix { pages_accessible: 0, ..mix("nothing accessible", 0, 0) },
    Mix { pages_accessible: 0, ..mix("nothing accessible, one module", 1, 0) },
];

const fn mix(name: &'static str, modules: u64, pages_written: usize) -> Mix {
    Mix { name, modules, pages_accessible: 16, pages_written, keep_resident_bytes: 0, keeps: false }
}

/// How many instances a thread has at a time.
const LIVE: usize = 4;

impl Mix {
    /// Whether a slot that comes back needs no system call.
    fn is_reset_by_writing(&self) -> bool {
        self.keep_resident_bytes >= self.pages_accessible * PAGE
    }
}

fn builder(mix: &Mix) -> PoolBuilder {
    Pool::builder()
        .slots(SLOTS)
        .slot_bytes(16 << 20)
        .guard_bytes(1 << 20)
        .batch_slots(BATCH_SLOTS)
        .max_unused_warm_slots(if mix.modules == 0 { 0 } else { WARM_SLOTS })
        .keep_resident_bytes(mix.keep_resident_bytes)
}

/// Instances of one thread for some time; returns how many a second there were.
fn work<'p>(contestant: &impl Contestant<'p>, mix: &Mix, thread: u64, time: Duration) -> f64 {
    let mut rng = fastrand::Rng::with_seed(thread);
    let mut live = std::collections::VecDeque::with_capacity(LIVE);
    let (began, mut count) = (Instant::now(), 0);
    loop {
        for _ in 0..64 {
            let module = (mix.modules > 0).then(|| rng.u64(..mix.modules));
            let mut instance = contestant.take(module);
            let slot = &mut instance.slot;
            slot.set_accessible(mix.pages_accessible * PAGE).expect("memory");
            let written = slot.bytes_mut().chunks_mut(PAGE).take(mix.pages_written);
            written.for_each(|page| page[0] = 1);
            live.push_back((instance, module));
            if live.len() == LIVE {
                let (instance, module) = live.pop_front().expect("there are some");
                contestant.put(instance, module, mix.keeps);
            }
        }
        count += 64;
        let elapsed = began.elapsed();
        if elapsed >= time {
            live.into_iter().for_each(|(instance, module)| {
                contestant.put(instance, module, mix.keeps);
            });
            return f64::from(count) / elapsed.as_secs_f64();
        }
    }
}

/// Instances a second of all threads together.
fn measure<'p>(contestant: &impl Contestant<'p>, mix: &Mix, threads: usize, time: Duration) -> f64 {
    let cpus = allowed_cpus().expect("the affinity is known");
    std::thread::scope(|scope| {
        let each = |thread: usize| {
            let cpu = cpus[thread % cpus.len()];
            scope.spawn(move || {
                bind_current_thread(cpu).expect("the CPU is allowed");
                work(contestant, mix, thread as u64, time)
            })
        };
        let running: Vec<_> = (0..threads).map(each).collect();
        running.into_iter().map(|thread| thread.join().expect("it did not panic")).sum()
    })
}

/// Median, least and most.
fn spread(mut rates: Vec<f64>) -> [f64; 3] {
    rates.sort_by(f64::total_cmp);
    [rates[rates.len() / 2], rates[0], rates[rates.len() - 1]]
}

fn print(name: &str, rates: [f64; 3], to: f64, stats: Option<PoolStats>) {
    let [median, least, most] = rates.map(|rate| rate / 1000.0);
    print!("  {name:22}{median:9.1}  {least:8.1} to {most:8.1}  {:5.2}", rates[0] / to);
    if let Some(stats) = stats {
        let part = |count: u64| 100.0 * count as f64 / stats.taken as f64;
        let per_instance = stats.system_calls as f64 / stats.taken as f64;
        print!(
            "    {:5.1} %  {:5.1}  {per_instance:.3}",
            part(stats.warm_hits),
            stats.slots_per_batch()
        );
    }
    println!();
}

fn race(mix: &Mix, threads: usize, rounds: usize, time: Duration) {
    let pools = [builder(mix), builder(mix).single_calls(true), builder(mix)];
    let [batched, single, of_locked] = pools.map(|builder| builder.build().expect("a pool"));
    let warm_slots_max = if mix.modules == 0 { 0 } else { WARM_SLOTS };
    let locked = Locked::new(&of_locked, SLOTS, warm_slots_max, BATCH_SLOTS, mix);
    let (batched, single) = (Ours(&batched), Ours(&single));
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..=rounds {
        let of_round = [
            measure(&locked, mix, threads, time),
            measure(&single, mix, threads, time),
            measure(&batched, mix, threads, time),
        ];
        // The first is a warm-up.
        if round > 0 {
            rates.iter_mut().zip(of_round).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let [of_locked, of_single, of_batched] = rates.map(spread);
    println!("{}, {threads} thread{}", mix.name, if threads == 1 { "" } else { "s" });
    print("one lock", of_locked, of_locked[0], None);
    print("pool, single calls", of_single, of_locked[0], Some(single.0.stats()));
    print("pool", of_batched, of_locked[0], Some(batched.0.stats()));
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let rounds = arguments.next().unwrap_or(9);
    let time = Duration::from_millis(arguments.next().unwrap_or(100) as u64);
    println!(
        "measured (host): thousand instances a second, median of {rounds} rounds of {} ms, \
         least to most, ratio to one lock; warm hits, slots in a batch, system calls of resets \
         per instance",
        time.as_millis()
    );
    println!(
        "{SLOTS} slots, batches of {BATCH_SLOTS}, {WARM_SLOTS} warm slots, {LIVE} instances a \
         thread"
    );
    for mix in &MIXES {
        for threads in [1, 2] {
            race(mix, threads, rounds, time);
        }
    }
}

//! Instances a second: this pool against one lock around the free list, in turns within one run.
//!
//! `cargo bench -p freehold-pool --bench pool_race -- [ROUNDS [MILLISECONDS]]`
//!
//! An instance takes a slot, makes it as large as its module's memory, writes to some pages, and
//! goes. Each thread has a few at a time, and is bound to a CPU. Some modules have an image: what
//! their instances find in memory.

use std::time::{Duration, Instant};

use freehold_host::{allowed_cpus, bind_current_thread};
use freehold_pool::{Image, Pool, PoolBuilder, PoolStats};

use contestants::{Contestant, Initial, Locked, Maps, Ours};
use files::Files;

mod contestants;
mod files;
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
    /// So large is the image of each module, at the beginning of its memory.
    image_pages: usize,
}

const MIXES: [Mix; 11] = [
    mix("one module", 1, 16),
    mix("many modules", 500, 16),
    mix("cold", 0, 16),
    mix("small", 1, 2),
    Mix { keep_resident_bytes: 16 * PAGE, ..mix("resident", 1, 16) },
    Mix { keeps: true, ..mix("kept", 1, 2) },
    Mix { pages_accessible: 0, ..mix("nothing accessible", 0, 0) },
    Mix { pages_accessible: 0, ..mix("nothing accessible, one module", 1, 0) },
    Mix { pages_accessible: 64, image_pages: 32, ..mix("image, one module", 1, 2) },
    Mix { pages_accessible: 64, image_pages: 32, ..mix("image, 20 modules", 20, 2) },
    Mix { pages_accessible: 64, image_pages: 32, ..mix("image, 500 modules", 500, 2) },
];

const fn mix(name: &'static str, modules: u64, pages_written: usize) -> Mix {
    Mix {
        name,
        modules,
        pages_accessible: 16,
        pages_written,
        keep_resident_bytes: 0,
        keeps: false,
        image_pages: 0,
    }
}

/// How many instances a thread has at a time.
const LIVE: usize = 4;

impl Mix {
    /// Whether a slot that comes back needs no system call.
    fn is_reset_by_writing(&self) -> bool {
        self.keep_resident_bytes >= self.pages_accessible * PAGE
    }

    /// How many images there are.
    fn modules_with_image(&self) -> u64 {
        if self.image_pages > 0 { self.modules } else { 0 }
    }

    /// The image of a module. Its bytes are the module's, so that an instance can tell.
    fn image(&self, module: u64) -> Vec<u8> {
        vec![mark(module); self.image_pages * PAGE]
    }
}

/// The byte that the image of a module consists of.
fn mark(module: u64) -> u8 {
    module as u8 | 1
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
            if mix.image_pages > 0 {
                // It reads a part of its image; the rest of its memory is zero.
                let bytes = slot.bytes();
                let (read, mark) = (mix.image_pages / 2 * PAGE, mark(module.unwrap_or(0)));
                assert!(bytes[..read].iter().step_by(PAGE).all(|byte| *byte == mark));
                assert_eq!(bytes[mix.image_pages * PAGE], 0);
            }
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
                bind_current_thread(&[cpu]).expect("the CPU is allowed");
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

/// A contestant of a race.
struct Entry<'r> {
    name: &'static str,
    measure: Box<dyn Fn() -> f64 + 'r>,
    /// Whose statistics are told.
    pool: Option<&'r Pool>,
}

impl<'r> Entry<'r> {
    fn new<'p>(
        name: &'static str,
        contestant: &'r impl Contestant<'p>,
        of_mix: (&'r Mix, usize, Duration),
    ) -> Self {
        let (mix, threads, time) = of_mix;
        let measure = Box::new(move || measure(contestant, mix, threads, time));
        Entry { name, measure, pool: None }
    }

    fn of(self, pool: &'r Pool) -> Self {
        Entry { pool: Some(pool), ..self }
    }
}

/// Measures contestants in turns. The others are compared to the first.
fn run(entries: &[Entry<'_>], rounds: usize) {
    let mut rates = vec![Vec::new(); entries.len()];
    for round in 0..=rounds {
        for (entry, rates) in entries.iter().zip(&mut rates) {
            let rate = (entry.measure)();
            // The first is a warm-up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let rates: Vec<_> = rates.into_iter().map(spread).collect();
    for (entry, of_entry) in entries.iter().zip(&rates) {
        print(entry.name, *of_entry, rates[0][0], entry.pool.map(Pool::stats));
    }
}

fn race(mix: &Mix, threads: usize, rounds: usize, time: Duration) {
    println!("{}, {threads} thread{}", mix.name, if threads == 1 { "" } else { "s" });
    let modules = mix.modules_with_image();
    let second = builder(mix).single_calls(modules == 0);
    let pools = [builder(mix), second, builder(mix), builder(mix)];
    let pools = pools.map(|builder| builder.build().expect("a pool"));
    let [first, second, third, fourth] = &pools;
    let warm_slots_max = if mix.modules == 0 { 0 } else { WARM_SLOTS };
    let locked = |pool, maps| Locked::new(pool, SLOTS, warm_slots_max, BATCH_SLOTS, mix, maps);
    let of_mix = (mix, threads, time);
    if modules == 0 {
        let locked = locked(third, Maps::Nothing);
        let [single, batched] = [second, first].map(|pool| Ours::new(pool, Initial::Zero));
        let entries = [
            Entry::new("one lock", &locked, of_mix),
            Entry::new("pool, single calls", &single, of_mix).of(second),
            Entry::new("pool", &batched, of_mix).of(first),
        ];
        return run(&entries, rounds);
    }
    let contents: Vec<_> = (0..modules).map(|module| mix.image(module)).collect();
    let image = |bytes: &Vec<u8>| Image::new(0, bytes).expect("memory");
    let always = locked(third, Maps::Always(Files::new(&contents)));
    let once = locked(fourth, Maps::IfOther(Files::new(&contents)));
    let mapping = Ours::new(first, Initial::Images(contents.iter().map(image).collect()));
    let copying = Ours::new(second, Initial::Copies(contents));
    let entries = [
        Entry::new("one lock, keeps image", &once, of_mix),
        Entry::new("one lock, maps always", &always, of_mix),
        Entry::new("pool, copies", &copying, of_mix).of(second),
        Entry::new("pool", &mapping, of_mix).of(first),
    ];
    run(&entries, rounds);
}

fn main() {
    // `cargo bench` adds an argument of its own.
    let arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut arguments = arguments.map(|number| number.parse().expect("a number"));
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

//! How many accesses a second the host simulates, at 112 CPUs.
//!
//! `cargo bench -p freehold-sim --bench speed` prints one line a scenario. Each CPU runs
//! a loop of accesses of modelled memory; the rate is over the time of [`Machine::run`] alone.
//!
//! * `private`: every CPU on its own line;
//! * `shared word`: all CPUs on one word, so the schedule switches the CPU at every access;
//! * `table`: random lines of a table of 4 million, the worst case for the host's own caches;
//! * `lock`: all CPUs take one lock and touch ten lines under it;
//! * `page fault`: work on private data, a frame cleared, and a lock for each batch of 31 frames.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use freehold::platform::{SharedCell, Word};
use freehold::{FrameCount, NodeId, Pfn};
use freehold_sim::{CpuHandle, Key, Machine, Path, preset};

const CPUS: usize = 112;
const TABLE_LINES: usize = 4 << 20;
const WORDS_PER_LINE: usize = 8;

fn new() -> Machine {
    let spec = preset("skylake-2s").expect("skylake-2s is a preset");
    Machine::new(&spec, 1).expect("presets can be built")
}

fn measure(name: &str, mut machine: Machine, work: impl Fn(&CpuHandle) + 'static) {
    let work = Rc::new(work);
    for cpu in 0..CPUS {
        let work = Rc::clone(&work);
        machine.spawn(cpu, move |handle| work(handle));
    }
    let began = Instant::now();
    let report = machine.run().expect("the scenarios neither panic nor deadlock");
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{name:12} {:6.1} M accesses/s {:6.1} M switches/s {:10} accesses {:9.3} ms simulated",
        report.accesses() as f64 / seconds / 1e6,
        report.switches as f64 / seconds / 1e6,
        report.accesses(),
        report.elapsed_ns / 1e6,
    );
}

fn main() {
    let mut machine = new();
    let region = machine.map_region(CPUS * 64, 64);
    measure("private", machine, move |handle| {
        let word = &region.words()[handle.cpu().index() * WORDS_PER_LINE];
        for _ in 0..100_000 {
            word.load(Relaxed);
        }
    });

    let mut machine = new();
    let region = machine.map_region(64, 64);
    measure("shared word", machine, move |_| {
        for value in 0..50_000 {
            region.words()[0].store(value, Relaxed);
        }
    });

    let mut machine = new();
    let region = machine.map_region(TABLE_LINES * 64, 64);
    // An allocator initialises its tables, so the host has backed them before the run.
    region.words().iter().for_each(|word| word.store(0, Relaxed));
    measure("table", machine, move |handle| {
        let mut line = handle.cpu().index();
        for value in 0..50_000 {
            // A full-period step visits the lines in an order that no prefetcher predicts.
            line = (line * 1_664_525 + 1_013_904_223) % TABLE_LINES;
            region.words()[line * WORDS_PER_LINE].store(value, Relaxed);
        }
    });

    let mut machine = new();
    let region = machine.map_region(10 * 64, 64);
    let lock = machine.lock("lock", NodeId::new(0));
    measure("lock", machine, move |handle| {
        for value in 0..4_000 {
            handle.lock(lock);
            for line in 0..10 {
                region.words()[line * WORDS_PER_LINE].store(value, Relaxed);
            }
            handle.unlock(lock);
        }
    });

    let mut machine = new();
    let private = machine.map_region(CPUS * 64, 64);
    let records = machine.map_region(TABLE_LINES * 64, 64);
    records.words().iter().for_each(|word| word.store(0, Relaxed));
    machine.follow_frames(Pfn::new(0), FrameCount::new(TABLE_LINES as u64));
    let lock = machine.lock("lock", NodeId::new(0));
    let next = Cell::new(0);
    measure("page fault", machine, move |handle| {
        let own = &private.local_words()[handle.cpu().index() * WORDS_PER_LINE];
        for fault in 0..10_000 {
            handle.charge(Key::TrapNs);
            handle.timed(Path::Alloc, || {
                for _ in 0..4 {
                    own.set(fault);
                }
                if fault % 31 == 0 {
                    handle.lock(lock);
                    let first = next.get();
                    next.set(first + 31);
                    for frame in first..first + 31 {
                        records.words()[frame * WORDS_PER_LINE].store(fault, Relaxed);
                    }
                    handle.unlock(lock);
                }
            });
            let pfn = handle.cpu().index() as u64 * 32_768 + fault;
            handle.clear_frame(Pfn::new(pfn), handle.node());
        }
    });
}

//! The allocator is checked where it runs.

use core::sync::atomic::AtomicU64;

use freehold::designs::Design;
use freehold::{Order, PageAllocator, Pfn, Request};
use freehold_conformance::suite::{self, Report};
use freehold_conformance::{Failure, Stamps, Tally, Torture, Worker};

use crate::arch;
use crate::boot::CPUS_MAX;
use crate::console::say;
use crate::cpus::{self, Work};
use crate::direct_map::FirstWords;
use crate::options::{Fault, Options};
use crate::platform::Platform;
use crate::sync::Mutex;

/// All ways to allocate and free, by this CPU alone.
pub(crate) fn conformance<D: Design<Platform>>(
    frames: &PageAllocator<Platform, D>,
) -> Result<(), Failure> {
    let mut scratch = [Pfn::new(0); 512];
    let report = suite::run(frames, &FirstWords, &mut scratch)?;
    let Report { free, orders, blocks, ranges, checks, .. } = report;
    say!("suite: {checks} groups of checks on {free}, with {orders} orders and {ranges} ranges");
    say!("suite: up to {blocks} blocks of mixed orders at once");
    Ok(())
}

/// Blocks that CPUs hand to each other.
static SLOTS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// All CPUs in a torture test, and the handlers of their timers.
struct Tortured<'a, D: Design<Platform>> {
    torture: Torture<'a, PageAllocator<Platform, D>, FirstWords>,
    rounds: u64,
    /// A free frame that handlers write to, as through a stale pointer.
    stale: Option<Pfn>,
    /// By CPU. A handler has a worker of its own, since it must not wait for what it interrupts.
    threads: [Mutex<Worker>; CPUS_MAX],
    handlers: [Mutex<Worker>; CPUS_MAX],
}

impl<D: Design<Platform> + Sync> Work for Tortured<'_, D> {
    fn run(&self, cpu: usize) {
        self.threads[cpu].with(|worker| {
            for _ in 0..self.rounds {
                self.torture.step(worker);
            }
        });
    }

    fn tick(&self, cpu: usize) {
        self.handlers[cpu].with(|worker| self.torture.interrupt(worker));
        if let Some(stale) = self.stale {
            FirstWords.write(stale, STALE);
        }
    }
}

/// All CPUs at once, and their interrupts.
pub(crate) fn torture<D: Design<Platform> + Sync>(
    frames: &PageAllocator<Platform, D>,
    options: &Options,
) -> Result<(), Failure> {
    let (cpus, rounds) = (cpus::online(), options.rounds);
    let workers = |seeds_from: usize| {
        core::array::from_fn(|cpu| Mutex::new(Worker::new((seeds_from + cpu) as u64)))
    };
    let torture = Torture::new(frames, &FirstWords, &SLOTS);
    let free = torture.prepare()?;
    let stale = (options.fault == Some(Fault::Content)).then(|| a_free_frame(frames));
    let (threads, handlers) = (workers(0), workers(CPUS_MAX));
    let all = Tortured { torture, rounds, stale, threads, handlers };
    let start = arch::ticks();
    cpus::on_all(&all);
    let ticks = arch::ticks() - start;
    for (cpu, handler) in all.handlers[..cpus].iter().enumerate() {
        let Tally { allocated, freed, .. } = handler.with(|worker| worker.tally);
        assert!(freed > 0, "the timer of CPU {cpu} has interrupted it: {allocated} allocated");
        say!("torture: the timer of CPU {cpu} allocated {allocated} frames");
    }
    let both = all.threads.iter().chain(&all.handlers);
    let mut taken = both.map(|worker| worker.with(|worker| worker.clone()));
    let mut workers: [_; 2 * CPUS_MAX] =
        core::array::from_fn(|_| taken.next().expect("a thread and a handler for each CPU"));
    let (tally, census) = all.torture.finish(&mut workers, free)?;
    say!("torture: {cpus} CPUs with {rounds} steps each, in {ticks} ticks");
    let Tally { allocated, out_of_memory, below_watermark, would_wait, .. } = tally;
    say!("torture: {allocated} blocks allocated and freed, without an error");
    say!("torture: refused: {out_of_memory} by memory, {below_watermark} by a watermark");
    say!("torture: {would_wait} handlers would have had to wait");
    say!("torture: {} free, {} in use", census.free, census.allocated);
    Ok(())
}

/// What a stale pointer writes.
const STALE: u64 = 0xdead;

/// A frame that will be allocated soon: the last that was freed.
fn a_free_frame<D: Design<Platform>>(frames: &PageAllocator<Platform, D>) -> Pfn {
    let frame = frames.alloc(Request::default()).expect("memory is free");
    frames.free(frame, Order::ZERO).expect("our frame");
    frame
}

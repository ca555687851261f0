//! On the real machine: tasks fault all their memory in and unmap it, again and again, while
//! samples are taken, as the benchmark does.
//!
//! The first passes touch memory that the operating system has not backed yet; the warm-up takes
//! that cost out of the samples.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use freehold::Setting;
use serde_json::{Map, json};

use super::mapping::{Fault, Mapping};
use crate::machine::FRAME_BYTES;
use crate::report::document::Work;
use crate::report::summary::Summary;
use crate::settings::{Assignments, setting};
use crate::task::Task;
use crate::task::meeting::Watch;
use crate::task::workload::{Besides, Findings};

/// The settings of the workload on the host.
pub(super) const SETTINGS: &[Setting] = &[
    setting("samples", "1..=1000", "5")
        .means("samples taken of whole faults, and as many of each part that is left out"),
    setting("sample_ms", "1..=60000", "500").means("length of a sample, in milliseconds"),
    setting("huge_pages", "on|off", "off")
        .means("ask the operating system to back the memory with huge pages"),
];

/// What is left out of faults, sample by sample in turn: without lists, and with them.
const UNLISTED: &[Fault] = &[Fault::Whole, Fault::Nothing];
const LISTED: &[Fault] = &[Fault::Whole, Fault::Touch, Fault::Nothing];

/// What the settings say, and what the tasks and the sampler share.
pub(super) struct Samples {
    count: usize,
    sample: Duration,
    pub(super) huge_pages: bool,
    faults: &'static [Fault],
    stop: AtomicBool,
    /// Which of `faults` are done at the moment.
    doing: AtomicU8,
    counters: Vec<Counter>,
    taken: Mutex<Taken>,
}

/// What one task has done, on a cache line of its own. Written by the task, read by the sampler.
#[repr(align(128))]
#[derive(Default)]
struct Counter {
    faults: AtomicU64,
    passes: AtomicU64,
}

/// Faults a second, sample by sample.
#[derive(Default)]
struct Taken {
    whole: Vec<f64>,
    touch: Vec<f64>,
    nothing: Vec<f64>,
    /// Whole faults, and how long they took.
    faults: u64,
    seconds: f64,
}

impl Samples {
    pub(super) fn parse(given: &Assignments, lists: bool, tasks: usize) -> Result<Self> {
        Ok(Samples {
            count: given.number(SETTINGS, "samples", 1..=1000)?,
            sample: Duration::from_millis(given.number(SETTINGS, "sample_ms", 1..=60_000)? as u64),
            huge_pages: given.word(SETTINGS, "huge_pages", &[("on", true), ("off", false)])?,
            faults: if lists { LISTED } else { UNLISTED },
            stop: AtomicBool::new(false),
            doing: AtomicU8::new(0),
            counters: (0..tasks).map(|_| Counter::default()).collect(),
            taken: Mutex::default(),
        })
    }

    /// How many steps of progress a cell has: the yardstick, the warm-up, and the samples.
    pub(super) fn steps(&self) -> u64 {
        (self.faults.len() * self.count) as u64 + 2
    }

    /// Does the work of a task, which ends with all of its memory faulted in.
    pub(super) fn run<T: Task>(&self, mapping: &mut Mapping<'_, T>) -> Result<f64> {
        /// A fault is counted with the others of its batch, so that counting costs next to nothing.
        const BATCH: usize = 64;
        let counter = &self.counters[mapping.task.place().index];
        mapping.task.meet()?;
        loop {
            mapping.fault = self.faults[usize::from(self.doing.load(Relaxed))];
            counter.passes.fetch_add(1, Relaxed);
            while mapping.is_filling() {
                let batch = BATCH.min(mapping.frames - mapping.mapped().len());
                for _ in 0..batch {
                    mapping.fault()?;
                }
                // Only this task writes the counter.
                counter.faults.store(counter.faults.load(Relaxed) + batch as u64, Relaxed);
            }
            if self.stop.load(Relaxed) {
                return Ok(0.0);
            }
            while !mapping.mapped().is_empty() {
                mapping.unmap(usize::MAX)?;
            }
        }
    }

    /// Takes samples of all kinds of faults, in turn, and stops the tasks.
    pub(super) fn take(&self, watch: &Watch<'_>) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(watch, 0);
        thread::sleep(self.sample);
        watch.progress.step();
        for nth in (0..self.faults.len()).cycle().take(self.faults.len() * self.count) {
            self.settle(watch, nth);
            let (start, before) = (Instant::now(), self.faults_done());
            thread::sleep(self.sample);
            let (seconds, count) = (start.elapsed().as_secs_f64(), self.faults_done() - before);
            watch.progress.step();
            let per_second = count as f64 / seconds;
            match self.faults[nth] {
                Fault::Whole => {
                    taken.whole.push(per_second);
                    taken.faults += count;
                    taken.seconds += seconds;
                }
                Fault::Touch => taken.touch.push(per_second),
                Fault::Nothing => taken.nothing.push(per_second),
            }
        }
        self.stop.store(true, Relaxed);
    }

    /// Says what is to be done, and waits until every task has begun a pass that knows it.
    fn settle(&self, watch: &Watch<'_>, nth: usize) {
        let passes = || self.counters.iter().map(|counter| counter.passes.load(Relaxed));
        self.doing.store(nth as u8, Relaxed);
        let before: Vec<_> = passes().collect();
        let settled = || passes().zip(&before).all(|(now, before)| now >= before + 2);
        while !watch.has_failed() && !settled() {
            thread::sleep(Duration::from_micros(100));
        }
    }

    fn faults_done(&self) -> u64 {
        self.counters.iter().map(|counter| counter.faults.load(Relaxed)).sum()
    }

    pub(super) fn sum_up(&self, frames: usize, besides: &Besides) -> Findings {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = Summary::of(&taken.whole);
        // Every CPU does one thing after the other, so a CPU second divided by the faults of a CPU
        // is the time of a fault.
        let ns = |samples: &[f64]| self.counters.len() as f64 * 1e9 / Summary::of(samples).median;
        let (fault_ns, allocator_ns) = (ns(&taken.whole), ns(&taken.nothing));
        let allocator: Vec<_> = taken.nothing.iter().map(|rate| ns(&[*rate])).collect();
        let touch_ns = if taken.touch.is_empty() { fault_ns } else { ns(&taken.touch) };
        let mut specific = Map::from_iter([
            ("fault_ns".to_owned(), json!(fault_ns)),
            ("allocator_ns".to_owned(), json!(allocator_ns)),
            ("touch_ns".to_owned(), json!(touch_ns - allocator_ns)),
            ("lru_ns".to_owned(), json!(fault_ns - touch_ns)),
            ("samples_per_second".to_owned(), json!(taken.whole)),
            ("samples_allocator_ns".to_owned(), json!(allocator)),
            ("spread".to_owned(), json!(whole.spread())),
            ("task_bytes".to_owned(), json!(frames as u64 * FRAME_BYTES)),
        ]);
        if let Some(yardstick) = &besides.yardstick {
            let lock_pairs = allocator_ns / yardstick.lock_pair_ns.median;
            specific.insert("allocator_lock_pairs".to_owned(), json!(lock_pairs));
            specific.extend(yardstick.fields());
        }
        let Taken { faults: count, seconds, .. } = *taken;
        let work = Work { unit: "faults", count, seconds, per_second: whole.median };
        Findings { work, specific }
    }
}

//! The accounting of a run: where the time goes, recorded while it runs.

use hdrhistogram::Histogram;

use crate::hierarchy::{Outcome, Served};
use crate::spec::Picos;

/// What a CPU is doing, as far as accounting distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Allocating frames.
    Alloc,
    /// Freeing frames.
    Free,
    /// Anything else.
    Other,
}

impl Path {
    /// All paths, in the order of their numbers.
    pub const ALL: [Path; 3] = [Path::Alloc, Path::Free, Path::Other];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Alloc => "alloc",
            Path::Free => "free",
            Path::Other => "other",
        }
    }
}

/// What a CPU spends its time on. The five add up to all its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    /// Work that touches no modelled memory.
    Compute,
    /// Accesses of memory, hits as well as misses.
    Memory,
    /// Waiting for locks.
    LockWait,
    /// Waiting at barriers, or idle on request.
    Idle,
    /// Stopped by a fault.
    Stopped,
}

impl Spent {
    pub(crate) const COUNT: usize = 5;
}

/// Accesses and the time they took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) time: Picos,
}

/// The accesses of one kind of data: by where they were served, and by whether a lock was held.
pub(crate) type DataBooks = [[Tally; 2]; Served::ALL.len()];

/// The accounting of all locks of one class.
#[derive(Clone, Debug)]
pub(crate) struct ClassBooks {
    pub(crate) name: &'static str,
    pub(crate) instances: u64,
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) try_failed: u64,
    pub(crate) waits: [Picos; Path::ALL.len()],
    pub(crate) wait_max: Picos,
    pub(crate) hold: Picos,
    pub(crate) hold_max: Picos,
}

impl ClassBooks {
    pub(crate) fn new(name: &'static str) -> Self {
        ClassBooks {
            name,
            instances: 0,
            acquisitions: 0,
            contended: 0,
            try_failed: 0,
            waits: [0; Path::ALL.len()],
            wait_max: 0,
            hold: 0,
            hold_max: 0,
        }
    }

    /// The same class with all counts zero.
    fn cleared(&self) -> Self {
        ClassBooks { instances: self.instances, ..ClassBooks::new(self.name) }
    }
}

/// Interrupt-off sections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IrqBooks {
    pub(crate) sections: u64,
    pub(crate) off: Picos,
    pub(crate) longest: Picos,
    /// What the CPU was doing when the longest section ended.
    pub(crate) longest_path: Option<Path>,
}

/// The accounting of a run.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) spent: [[Picos; Spent::COUNT]; Path::ALL.len()],
    pub(crate) data: Vec<DataBooks>,
    pub(crate) frames: [Tally; Served::ALL.len()],
    pub(crate) classes: Vec<ClassBooks>,
    pub(crate) irq: IrqBooks,
    /// Latencies in nanoseconds; `Path::Other` has none.
    pub(crate) latencies: [Histogram<u64>; 2],
    /// Accesses of memory outside every region.
    pub(crate) outside: u64,
    /// How often the host switched from one CPU to another.
    pub(crate) switches: u64,
}

/// The longest latency that is distinguished from longer ones: a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

impl Books {
    pub(crate) fn new(kinds: usize) -> Self {
        let latencies = || {
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .expect("the bounds are constants that the histogram accepts")
        };
        Books {
            spent: [[0; Spent::COUNT]; Path::ALL.len()],
            data: vec![DataBooks::default(); kinds],
            frames: [Tally::default(); Served::ALL.len()],
            classes: Vec::new(),
            irq: IrqBooks::default(),
            latencies: [latencies(), latencies()],
            outside: 0,
            switches: 0,
        }
    }

    /// Resets all counts, keeping the kinds of data and classes of locks.
    pub(crate) fn clear(&mut self) {
        let classes = self.classes.iter().map(ClassBooks::cleared).collect();
        *self = Books { classes, ..Books::new(self.data.len()) };
    }

    /// The number of the class of this name.
    pub(crate) fn class(&mut self, name: &'static str) -> usize {
        match self.classes.iter().position(|class| class.name == name) {
            Some(class) => class,
            None => {
                self.classes.push(ClassBooks::new(name));
                self.classes.len() - 1
            }
        }
    }

    /// Records an access.
    #[inline]
    pub(crate) fn enter(&mut self, kind: usize, outcome: Outcome, took: Picos, under_lock: bool) {
        let tally = &mut self.data[kind][outcome.served as usize][usize::from(under_lock)];
        tally.count += 1;
        tally.time += took;
    }

    /// Records the latency of one call.
    pub(crate) fn enter_latency(&mut self, path: Path, took: Picos) {
        if let Some(histogram) = self.latencies.get_mut(path as usize) {
            histogram.saturating_record((took / 1000).max(1));
        }
    }
}

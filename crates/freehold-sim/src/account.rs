//! The accounting of a run: where the time goes, recorded while it runs.

use hdrhistogram::Histogram;

use crate::access::{Outcome, Served};
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

/// What a CPU spends its time on. The six add up to all its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    /// Work that touches no modelled memory.
    Compute,
    /// Accesses of memory, hits as well as misses.
    Memory,
    /// Waiting for locks.
    LockWait,
    /// Idle on request.
    Idle,
    /// Waiting at barriers.
    Barrier,
    /// Stopped by a fault.
    Stopped,
}

impl Spent {
    pub(crate) const COUNT: usize = 6;
}

/// The time that is accounted for: from a moment on, up to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Picos,
    until: Picos,
}

impl Window {
    /// `length` from `from` on; the largest has no end.
    pub(crate) fn new(from: Picos, length: Picos) -> Self {
        Window { from, until: from.saturating_add(length) }
    }

    /// How much of the time between two moments is accounted for.
    #[inline]
    pub(crate) fn part(&self, from: Picos, to: Picos) -> Picos {
        to.min(self.until).saturating_sub(from.max(self.from))
    }

    /// Whether something that begins at `at` counts.
    #[inline]
    pub(crate) fn is_open_at(&self, at: Picos) -> bool {
        at < self.until
    }

    /// By how much a moment is past the end.
    pub(crate) fn overrun(&self, at: Picos) -> Picos {
        at.saturating_sub(self.until)
    }
}

/// Accesses and the time they took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) time: Picos,
}

impl Tally {
    #[inline]
    fn enter(&mut self, window: &Window, from: Picos, to: Picos) {
        self.count += u64::from(window.is_open_at(from));
        self.time += window.part(from, to);
    }
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
    pub(crate) window: Window,
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
            window: Window::new(0, Picos::MAX),
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

    /// Resets all counts, keeping the kinds of data and classes of locks. What counts from now on
    /// is in `window`.
    pub(crate) fn restart(&mut self, window: Window) {
        let classes = self.classes.iter().map(ClassBooks::cleared).collect();
        *self = Books { window, classes, ..Books::new(self.data.len()) };
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

    /// Records what a CPU did from one moment to another.
    #[inline]
    pub(crate) fn spend(&mut self, path: Path, what: Spent, from: Picos, to: Picos) {
        self.spent[path as usize][what as usize] += self.window.part(from, to);
    }

    /// 1 if something that begins at `at` counts, otherwise 0.
    #[inline]
    pub(crate) fn counts(&self, at: Picos) -> u64 {
        u64::from(self.window.is_open_at(at))
    }

    /// Records an access that began at `from`.
    #[inline]
    pub(crate) fn enter(&mut self, kind: usize, outcome: Outcome, from: Picos, under_lock: bool) {
        let tally = &mut self.data[kind][outcome.served as usize][usize::from(under_lock)];
        tally.enter(&self.window, from, outcome.done_at);
    }

    /// Records the use of a frame's content that began at `from`.
    pub(crate) fn enter_frame(&mut self, outcome: Outcome, from: Picos) {
        self.frames[outcome.served as usize].enter(&self.window, from, outcome.done_at);
    }

    /// Records one call: all of it, if it began in time.
    pub(crate) fn enter_call(&mut self, path: Path, from: Picos, to: Picos) {
        if let Some(histogram) = self.latencies.get_mut(path as usize)
            && self.window.is_open_at(from)
        {
            histogram.saturating_record(((to - from) / 1000).max(1));
        }
    }

    /// Records a section with interrupts off.
    pub(crate) fn enter_irqs_off(&mut self, path: Path, from: Picos, to: Picos) {
        let (off, counts) = (self.window.part(from, to), self.counts(from));
        let irq = &mut self.irq;
        irq.sections += counts;
        irq.off += off;
        if off > irq.longest {
            irq.longest = off;
            irq.longest_path = Some(path);
        }
    }
}

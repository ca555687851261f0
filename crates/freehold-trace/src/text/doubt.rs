//! What a text says that cannot be, or leaves open.

use std::collections::HashMap;
use std::fmt;

use crate::event::{Event, What};

/// Why a recording may not be what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// Blocks are allocated and never freed.
    NoFrees {
        /// How many allocations there are.
        allocations: u64,
    },
    /// Blocks are freed and never allocated.
    NoAllocations {
        /// How many frees there are.
        frees: u64,
    },
    /// Blocks are allocated when they are allocated, or freed when they are free.
    Order {
        /// How often.
        repeated: u64,
        /// Of so many pairs of events of one block.
        of: u64,
    },
    /// The times of a CPU go back.
    TimesGoBack {
        /// The first such line, from 1.
        line: usize,
        /// How many there are.
        lines: u64,
    },
    /// The text has several headings: it may be several recordings.
    Several {
        /// How many.
        headings: u64,
    },
    /// The buffer of ftrace was too small for all events.
    Overwritten {
        /// Events that it had.
        kept: u64,
        /// Events that it was given.
        of: u64,
    },
    /// Some migratetypes are not those of the GFP flags.
    Migratetypes {
        /// Allocations that contradict most others.
        allocations: u64,
        /// All that say something.
        of: u64,
    },
    /// The kernel is one before 4.4, which numbers migratetypes in another way. They were
    /// translated.
    Before44,
    /// GFP flags are numbers, whose meaning kernels change: they were read as those of Linux 6.10.
    GfpNumbers {
        /// In so many allocations.
        allocations: u64,
    },
    /// The text is from perf and tells of no losses, which it does by option alone.
    PerfLosses,
}

impl Doubt {
    /// Whether nothing is wrong: it is good to know.
    pub fn is_note(&self) -> bool {
        matches!(self, Doubt::Before44 | Doubt::GfpNumbers { .. } | Doubt::PerfLosses)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::NoFrees { allocations } => {
                write!(f, "{allocations} allocations and no free: record kmem:mm_page_free as well")
            }
            Doubt::NoAllocations { frees } => {
                write!(f, "{frees} frees and no allocation: record kmem:mm_page_alloc as well")
            }
            Doubt::Order { repeated, of } => write!(
                f,
                "in {repeated} of {of} cases a block is allocated twice without a free between, or \
                 freed twice: events are missing, or their times are not their order"
            ),
            Doubt::TimesGoBack { line, lines } => write!(
                f,
                "the times of a CPU go back, first in line {line}, {lines} times in all: events \
                 were sorted by time; if these are several recordings, import each by itself"
            ),
            Doubt::Several { headings } => write!(
                f,
                "the text has {headings} headings: if these are several recordings or machines, \
                 import each by itself"
            ),
            Doubt::Overwritten { kept, of } => write!(
                f,
                "the buffer of ftrace had {kept} of {of} events: the oldest are missing, up to \
                 another time on each CPU; a larger buffer_size_kb keeps them"
            ),
            Doubt::Migratetypes { allocations, of } => write!(
                f,
                "the migratetypes of {allocations} of {of} allocations are not those of their GFP \
                 flags: the text has more than one kernel"
            ),
            Doubt::Before44 => f.write_str(
                "a kernel before 4.4: migratetype 1 was read as reclaimable, 2 as movable",
            ),
            Doubt::GfpNumbers { allocations } => write!(
                f,
                "the GFP flags of {allocations} allocations are numbers: they were read as those \
                 of Linux 6.10 and later"
            ),
            Doubt::PerfLosses => f.write_str(
                "no losses are told of: perf script does so with --show-lost-events alone",
            ),
        }
    }
}

/// Below so many pairs of events of one block, their order is left to chance.
const PAIRS_MIN: u64 = 8;

/// What events in the order of time say that cannot be.
pub(super) fn of_events(events: &[Event]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    // Whether the last event of a block allocated it, by its first frame.
    let mut last: HashMap<u64, bool> = HashMap::new();
    let (mut allocations, mut frees, mut repeated, mut of) = (0, 0, 0, 0);
    for event in events {
        let (pfn, is_alloc) = match event.what {
            What::Alloc { pfn: Some(pfn), .. } => (pfn, true),
            What::Free { pfn, .. } => (pfn, false),
            _ => continue,
        };
        *if is_alloc { &mut allocations } else { &mut frees } += 1;
        if let Some(was_alloc) = last.insert(pfn, is_alloc) {
            of += 1;
            repeated += u64::from(was_alloc == is_alloc);
        }
    }
    match (allocations, frees) {
        (1.., 0) => doubts.push(Doubt::NoFrees { allocations }),
        (0, 1..) => doubts.push(Doubt::NoAllocations { frees }),
        _ if of >= PAIRS_MIN && repeated * 4 > of => doubts.push(Doubt::Order { repeated, of }),
        _ => {}
    }
    doubts
}

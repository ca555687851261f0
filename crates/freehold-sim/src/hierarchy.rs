//! The memory system as a whole: lines, sharers, caches, memory, contents of frames, prices. What
//! an access of it costs is in `directory`, and what clearing a frame costs in `frames`.

use crate::access::{Asker, Served};
use crate::cache::{Caches, Stamp};
use crate::memory::Memory;
use crate::sharers::Sharers;
use crate::spec::{CoreCosts, Costs, MemoryCosts, Picos, Spec};

/// The home of a line that was never touched and has no assigned home.
pub(crate) const NO_HOME: u8 = u8::MAX;

/// Which cores have a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Holding {
    /// Only the memory.
    None,
    /// `core`, or wherever its caches have since put the line.
    Single,
    /// The cores of a set.
    Shared,
}

/// One line of 64 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// When the current or last transfer of the line ends.
    pub(crate) free_at: Picos,
    /// Single: the core's counter of lines at its last touch. Shared: the number of the set.
    pub(crate) stamp_or_set: u32,
    /// Single: the counter of the core's last-level cache at that touch.
    pub(crate) llc_stamp: Stamp,
    /// Single: the core that touched the line last. Shared: the last one that fetched it.
    pub(crate) core: u16,
    pub(crate) holding: Holding,
    /// Whether the memory's copy is stale.
    pub(crate) dirty: bool,
    /// Whether a waiter for a lock keeps reading the line.
    pub(crate) spun_on: bool,
    /// The kind of data in the line.
    pub(crate) kind: u8,
    /// The node whose memory has the line.
    pub(crate) home: u8,
}

// Four million lines must fit in 96 MiB.
const _: () = assert!(size_of::<Line>() == 24);

impl Line {
    pub(crate) const COLD: Line = Line {
        free_at: 0,
        stamp_or_set: 0,
        llc_stamp: 0,
        core: 0,
        holding: Holding::None,
        dirty: false,
        spun_on: false,
        kind: 0,
        home: NO_HOME,
    };
}

/// The last touch of a frame's content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    pub(crate) stamp: Stamp,
    pub(crate) llc_stamp: Stamp,
    /// The core, plus one: 0 if the frame was never touched.
    pub(crate) toucher: u16,
}

/// The contents of a range of frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) first: u64,
    pub(crate) contents: Vec<Content>,
}

impl Frames {
    /// Remembers the contents of `count` frames from `first` on. Other frames are always cold.
    pub(crate) fn cover(&mut self, first: u64, count: usize) {
        self.first = first;
        self.contents = vec![Content::default(); count];
    }
}

/// The memory system of a machine.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    pub(crate) costs: Costs,
    pub(crate) caches: Caches,
    pub(crate) memory: Memory,
    pub(crate) lines: Vec<Line>,
    pub(crate) sharers: Sharers,
    /// Lines that a waiter at the head of a lock's queue keeps reading, with the waiter's core.
    pub(crate) spinners: Vec<(u32, u16)>,
    pub(crate) frames: Frames,
}

impl Hierarchy {
    pub(crate) fn new(spec: &Spec) -> Self {
        let costs = Costs::new(spec);
        Hierarchy {
            caches: Caches::new(spec, &costs),
            memory: Memory::new(&costs.line_service),
            lines: Vec::new(),
            sharers: Sharers::new(spec.cores(), spec.llcs()),
            spinners: Vec::new(),
            frames: Frames::default(),
            costs,
        }
    }

    /// The prices inside the core.
    #[inline]
    pub(crate) fn core_costs(&self, by: Asker) -> &CoreCosts {
        &self.costs.core[self.caches.class_of(by.core)][by.siblings]
    }

    /// The memory of a node as seen from one core.
    #[inline]
    pub(crate) fn place_of(&self, core: usize, node: usize) -> (Served, MemoryCosts) {
        let own = self.caches.node_of(core);
        let served = if node == own { Served::LocalDram } else { Served::RemoteDram };
        (served, self.costs.memory(own, node))
    }
}

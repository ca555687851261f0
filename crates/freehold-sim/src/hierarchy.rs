//! The memory system as a whole: directory, sharers, caches, memory, contents of frames, prices.

use crate::cache::Caches;
use crate::directory::Line;
use crate::frames::Frames;
use crate::memory::Memory;
use crate::sharers::Sharers;
use crate::spec::{CoreCosts, Costs, Picos, Spec};

/// What a CPU does to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    /// An atomic read-modify-write: it needs the line exclusively, even if it changes nothing.
    Rmw,
}

impl Op {
    #[inline]
    pub(crate) fn writes(self) -> bool {
        self != Op::Read
    }
}

/// Where an access found its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Served {
    /// The first-level cache of the core.
    L1,
    /// The private cache of the core.
    L2,
    /// The core had the line, but other copies had to be invalidated before it could write.
    Upgrade,
    /// The last-level cache of the core.
    Llc,
    /// Another core under the same last-level cache.
    SameLlc,
    /// A cache under another last-level cache of the socket.
    SameSocket,
    /// A cache of another socket.
    RemoteCache,
    /// The memory of the core's node.
    LocalDram,
    /// The memory of another node.
    RemoteDram,
}

impl Served {
    pub(crate) const ALL: [Served; 9] = [
        Served::L1,
        Served::L2,
        Served::Upgrade,
        Served::Llc,
        Served::SameLlc,
        Served::SameSocket,
        Served::RemoteCache,
        Served::LocalDram,
        Served::RemoteDram,
    ];

    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Served::L1 => "l1",
            Served::L2 => "l2",
            Served::Upgrade => "upgrade",
            Served::Llc => "llc",
            Served::SameLlc => "same_llc",
            Served::SameSocket => "same_socket",
            Served::RemoteCache => "remote_cache",
            Served::LocalDram => "local_dram",
            Served::RemoteDram => "remote_dram",
        }
    }

    /// Whether the access left the core: a cache miss.
    pub(crate) fn is_miss(self) -> bool {
        !matches!(self, Served::L1 | Served::L2)
    }
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) served: Served,
    /// When the CPU can continue.
    pub(crate) done_at: Picos,
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
            caches: Caches::new(spec.cores(), spec.llcs(), spec.nodes(), &costs),
            memory: Memory::new(spec.nodes(), costs.line_service),
            lines: Vec::new(),
            sharers: Sharers::new(spec.cores(), spec.llcs()),
            spinners: Vec::new(),
            frames: Frames::default(),
            costs,
        }
    }

    /// The prices inside a core, alone or beside a running sibling.
    #[inline]
    pub(crate) fn core_costs(&self, beside_sibling: bool) -> &CoreCosts {
        &self.costs.core[usize::from(beside_sibling)]
    }
}

//! An access of a line: what a CPU does, where the line is found, and when the CPU can go on.

use crate::spec::Picos;

/// Who makes an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) now: Picos,
    pub(crate) core: usize,
    /// How many siblings of the CPU are running, too.
    pub(crate) siblings: usize,
}

impl Asker {
    /// A CPU that has its core to itself.
    pub(crate) fn alone(now: Picos, core: usize) -> Self {
        Asker { now, core, siblings: 0 }
    }
}

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

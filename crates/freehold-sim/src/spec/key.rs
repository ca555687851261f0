//! The figures that describe a machine: their names, units, meanings and ranges.

use std::fmt;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Kibibytes.
    Kib,
    /// Gibibytes.
    Gib,
    /// Nanoseconds.
    Ns,
    /// 10^9 bytes a second.
    GbPerS,
    /// A factor without a unit.
    Ratio,
}

impl Unit {
    /// The unit as it is printed behind a value.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Kib => "KiB",
            Unit::Gib => "GiB",
            Unit::Ns => "ns",
            Unit::GbPerS => "GB/s",
            Unit::Ratio => "x",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident = $section:literal . $name:literal, $unit:ident,
        $least:literal ..= $most:literal, $meaning:literal;)*) => {
        /// Names one figure of a machine, as `section.name` in a machine file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Key {
            $(#[doc = $meaning] $key),*
        }

        impl Key {
            /// All figures, in the order in which a machine is described.
            pub const ALL: &[Key] = &[$(Key::$key),*];

            /// The table of a machine file that contains the figure.
            pub const fn section(self) -> &'static str {
                match self { $(Key::$key => $section),* }
            }

            /// The name of the figure inside its table.
            pub const fn name(self) -> &'static str {
                match self { $(Key::$key => $name),* }
            }

            /// The unit of the value.
            pub const fn unit(self) -> Unit {
                match self { $(Key::$key => Unit::$unit),* }
            }

            /// What the figure means, as a whole sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Key::$key => $meaning),* }
            }

            /// The smallest and the largest value that the machine accepts.
            pub const fn range(self) -> (f64, f64) {
                match self { $(Key::$key => ($least as f64, $most as f64)),* }
            }
        }
    };
}

keys! {
    Sockets = "topology"."sockets", Count, 1 ..= 8,
        "Sockets, each with memory of its own.";
    NodesPerSocket = "topology"."nodes_per_socket", Count, 1 ..= 32,
        "Memory nodes of a socket, which divide its last-level caches: AMD's NPS, Intel's SNC.";
    LlcsPerSocket = "topology"."llcs_per_socket", Count, 1 ..= 32,
        "Last-level caches in a socket: 1 on the Intel servers, one a core complex on AMD's.";
    CoresPerLlc = "topology"."cores_per_llc", Count, 1 ..= 1024,
        "Cores that share a last-level cache, but for E cores and low-power ones.";
    ECores = "topology"."e_cores", Count, 0 ..= 1024,
        "E cores that share each last-level cache with these, of one thread each.";
    LpCores = "topology"."lp_cores", Count, 0 ..= 1024,
        "Low-power E cores that share it as well, of one thread each.";
    ThreadsPerCore = "topology"."threads_per_core", Count, 1 ..= 8,
        "Hardware threads of a core, which share its private caches and its pipeline.";

    NodeGib = "memory"."node_gib", Gib, 0.0625 ..= 65536,
        "Memory of each node. A list has one figure a node, those without CPUs (CXL) last.";
    NodeGbPerS = "memory"."gb_per_s", GbPerS, 1 ..= 10000,
        "Bytes a second that the memory of one node delivers and takes, reads and writes together.";
    MemoryOnlyGbPerS = "memory"."memory_only_gb_per_s", GbPerS, 1 ..= 10000,
        "The same of a node without CPUs.";

    L1Kib = "cache"."l1_kib", Kib, 1 ..= 65536,
        "First-level data cache of a core.";
    L2Kib = "cache"."l2_kib", Kib, 1 ..= 1048576,
        "Private cache of a core, which the model takes as all that the core holds.";
    EL2Kib = "cache"."e_l2_kib", Kib, 1 ..= 1048576,
        "Private cache of an E core or a low-power one: its share, where several have one.";
    LlcKib = "cache"."llc_kib", Kib, 0 ..= 67108864,
        "Each last-level cache, which takes what the private caches of its cores evict. 0: none.";

    L1Ns = "latency"."l1_ns", Ns, 0 ..= 1000000,
        "A load that the first-level cache answers.";
    L2Ns = "latency"."l2_ns", Ns, 0 ..= 1000000,
        "A load that the private cache answers.";
    LlcNs = "latency"."llc_ns", Ns, 0 ..= 1000000,
        "A load that the last-level cache of the core answers.";
    DramLocalNs = "latency"."dram_local_ns", Ns, 0 ..= 1000000,
        "A load that memory of the core's own node answers, with the memory idle.";
    DramSameSocketNs = "latency"."dram_same_socket_ns", Ns, 0 ..= 1000000,
        "A load that memory of another node of the same socket answers, with the memory idle.";
    DramRemoteNs = "latency"."dram_remote_ns", Ns, 0 ..= 1000000,
        "A load that memory of another socket answers, with the memory idle.";
    MemoryOnlyNs = "latency"."memory_only_ns", Ns, 0 ..= 1000000,
        "A load that a node without CPUs answers, attached to the core's socket, when idle.";

    SameLlcNs = "transfer"."same_llc_ns", Ns, 0 ..= 1000000,
        "A line that another core under the same last-level cache holds for itself.";
    SameSocketNs = "transfer"."same_socket_ns", Ns, 0 ..= 1000000,
        "A line that a core of the same socket under another last-level cache has written.";
    RemoteHomeWriterNs = "transfer"."remote_home_writer_ns", Ns, 0 ..= 1000000,
        "A line that a core of another socket has written, with its home at the writer.";
    RemoteHomeReaderNs = "transfer"."remote_home_reader_ns", Ns, 0 ..= 1000000,
        "A line that a core of another socket has written, with its home not at the writer.";

    RmwNs = "core"."rmw_ns", Ns, 0 ..= 1000000,
        "What an atomic read-modify-write costs beyond a plain access of the same line.";
    IrqFlagNs = "core"."irq_flag_ns", Ns, 0 ..= 1000000,
        "Disabling interrupts, and again restoring them.";
    PauseNs = "core"."pause_ns", Ns, 0 ..= 1000000,
        "The time between two looks of a spinning waiter at its lock, which notices half as late.";
    WorkNs = "core"."work_ns", Ns, 0 ..= 1000000,
        "Computation that comes with each access of data in regions: the instructions around it.";
    SmtSlowdown = "core"."smt_slowdown", Ratio, 1 ..= 4,
        "How much longer a thread's own work takes while twice as many work on its core.";
    ESlowdown = "core"."e_slowdown", Ratio, 1 ..= 16,
        "How much longer work inside an E core takes than inside another core.";
    LpSlowdown = "core"."lp_slowdown", Ratio, 1 ..= 16,
        "How much longer work inside a low-power E core takes than inside another core.";

    ClearCachedNs = "clear"."cached_ns", Ns, 0 ..= 1000000,
        "Clearing a 4 KiB frame whose lines are in the core's private cache.";
    ClearMemoryNs = "clear"."memory_ns", Ns, 0 ..= 1000000,
        "Clearing a 4 KiB frame whose lines are in local memory, with the memory idle.";
    ClearReads = "clear"."reads", Ratio, 0 ..= 1,
        "The share of a cleared frame's lines that the memory delivers first, for ownership.";

    TrapNs = "workload"."trap_ns", Ns, 0 ..= 1000000,
        "Entering the kernel for a page fault and returning from it.";
    FaultPathNs = "workload"."fault_path_ns", Ns, 0 ..= 1000000,
        "A page fault's way through the kernel: finding the mapping, checking rights.";
    PageTableNs = "workload"."page_table_ns", Ns, 0 ..= 1000000,
        "Setting one page-table entry and the reverse mapping.";
    AccountingNs = "workload"."accounting_ns", Ns, 0 ..= 1000000,
        "Charging one frame, or taking the charge back, where no LRU of the library does.";
    UnmapNs = "workload"."unmap_ns", Ns, 0 ..= 1000000,
        "Removing one frame from a page table and the reverse mapping, in a run of many.";

    FaultRestNs = "calibrated"."fault_rest_ns", Ns, 0 ..= 1000000,
        "What else a page fault takes, beyond what is published: fitted to the calibration point.";
    UnmapRestNs = "calibrated"."unmap_rest_ns", Ns, 0 ..= 1000000,
        "What else unmapping a frame takes: fitted to the calibration point.";
}

impl Key {
    /// Whether only whole numbers make sense.
    pub const fn is_whole(self) -> bool {
        matches!(self.unit(), Unit::Count | Unit::Kib)
    }

    /// The figure of this section and name.
    pub fn find(section: &str, name: &str) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.section() == section && key.name() == name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.section(), self.name())
    }
}

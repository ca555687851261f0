//! The description of a machine: figures, each with its source.

mod costs;
mod file;
mod key;
mod near;
mod presets;
mod usual;

use std::borrow::Cow;

use freehold::{CpuId, NodeId};
use serde::Serialize;

pub use file::FileError;
pub use key::{Key, Unit};
pub use presets::{UnknownMachine, preset, preset_names};

pub(crate) use costs::{CoreCosts, Costs, MemoryCosts, Picos, picos};

/// The most cores that a machine may have.
pub const CORES_MAX: usize = 1024;

/// The most CPUs that a machine may have.
pub const CPUS_MAX: usize = 1024;

/// The most memory nodes that a machine may have, with those that have no CPUs.
pub const NODES_MAX: usize = 64;

/// The most threads of a core.
pub(crate) const THREADS_MAX: usize = 8;

/// Classes of cores: P cores, which are all cores of most machines, E cores, low-power E cores.
pub(crate) const CLASSES: usize = 3;

/// The most last-level caches that a machine may have: a set of them is one 64-bit word.
pub const LLCS_MAX: usize = 64;

/// One figure of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The value, in the unit of its [`Key`].
    pub value: f64,
    /// Where the value was published, or how it was derived from published ones.
    pub source: Cow<'static, str>,
}

/// A machine: its name and one [`Figure`] for every [`Key`].
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    name: String,
    summary: String,
    figures: Vec<Figure>,
    /// The memory of each node in GiB; empty if all have [`Key::NodeGib`].
    node_gib: Vec<f64>,
    /// The distance from each node to each node, row by row; empty if not given.
    distances: Vec<u8>,
}

/// Why a machine is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine `{machine}`: {reason}")]
pub struct BadSpec {
    /// The name of the machine.
    pub machine: String,
    /// The reason, naming the figure.
    pub reason: String,
}

impl Spec {
    /// The name of the machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sentence that describes the machine.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The value of a figure, in the unit of its key.
    pub fn get(&self, key: Key) -> f64 {
        self.figures[key as usize].value
    }

    /// A figure with its source.
    pub fn figure(&self, key: Key) -> &Figure {
        &self.figures[key as usize]
    }

    /// All figures, in the order of [`Key::ALL`]: the table that `list machines --details` prints.
    pub fn figures(&self) -> impl Iterator<Item = (Key, &Figure)> {
        Key::ALL.iter().map(|&key| (key, self.figure(key)))
    }

    /// Changes one figure. The machine is checked as a whole when it is built.
    /// With [`Key::NodeGib`] all nodes get the same, and those without CPUs are gone.
    pub fn set(&mut self, key: Key, value: f64, source: impl Into<Cow<'static, str>>) {
        if key == Key::NodeGib {
            self.node_gib.clear();
        }
        self.figures[key as usize] = Figure { value, source: source.into() };
    }

    /// The same machine under another name and description.
    pub fn renamed(mut self, name: &str, summary: &str) -> Self {
        self.name = name.to_owned();
        self.summary = summary.to_owned();
        self
    }

    /// How many CPUs, that is hardware threads, the machine has.
    pub fn cpus(&self) -> usize {
        let threads = self.whole(Key::ThreadsPerCore);
        self.cores() + self.llcs() * self.whole(Key::CoresPerLlc) * (threads - 1)
    }

    /// How many cores the machine has, E cores included.
    pub fn cores(&self) -> usize {
        self.llcs() * self.cores_of_llc()
    }

    /// How many last-level caches the machine has.
    pub fn llcs(&self) -> usize {
        self.whole(Key::Sockets) * self.whole(Key::LlcsPerSocket)
    }

    /// How many memory nodes the machine has: those with CPUs, and behind them those without.
    pub fn nodes(&self) -> usize {
        self.cpu_nodes().max(self.node_gib.len())
    }

    /// How many memory nodes with CPUs the machine has.
    pub fn cpu_nodes(&self) -> usize {
        self.whole(Key::Sockets) * self.whole(Key::NodesPerSocket)
    }

    /// The memory of a node in bytes, which may be 0.
    pub fn node_bytes(&self, node: NodeId) -> u64 {
        let gib = self.node_gib.get(node.index()).copied();
        (gib.unwrap_or(self.get(Key::NodeGib)) * f64::from(1 << 30)) as u64
    }

    /// The distance between two nodes, as ACPI's SLIT gives it: what the machine's file says, or
    /// 10 for the same node, 12 within a socket, 21 to another one, and for a node without CPUs
    /// 14 from its socket and 24 from others.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        if let Some(&given) = self.distances.get(from.index() * self.nodes() + to.index()) {
            return given;
        }
        let memory_only = from.index().max(to.index()) >= self.cpu_nodes();
        match (from == to, self.socket_of(from.index()) == self.socket_of(to.index()), memory_only)
        {
            (true, ..) => 10,
            (_, true, false) => 12,
            (_, true, true) => 14,
            (_, false, false) => 21,
            (_, false, true) => 24,
        }
    }

    /// The core of a CPU. CPUs are numbered as Linux numbers them on these servers: first one
    /// thread of every core, socket by socket, then the second threads in the same order, and so
    /// on. The cores of a last-level cache come with the E cores behind the others.
    pub fn core_of(&self, cpu: CpuId) -> usize {
        let (cores, with_threads) = (self.cores(), self.whole(Key::CoresPerLlc));
        match cpu.index().checked_sub(cores) {
            None => cpu.index(),
            Some(further) => {
                let nth = further % (self.llcs() * with_threads);
                nth / with_threads * self.cores_of_llc() + nth % with_threads
            }
        }
    }

    /// The node whose memory is local to a CPU.
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        let cores_per_node = self.cores() / self.cpu_nodes();
        NodeId::new((self.core_of(cpu) / cores_per_node) as u16)
    }

    /// The cores under a last-level cache, E cores included.
    pub(crate) fn cores_of_llc(&self) -> usize {
        [Key::CoresPerLlc, Key::ECores, Key::LpCores].map(|key| self.whole(key)).iter().sum()
    }

    /// The class of a core, less than [`CLASSES`].
    pub(crate) fn class_of(&self, core: usize) -> usize {
        let nth = core % self.cores_of_llc();
        let (p_cores, e_cores) = (self.whole(Key::CoresPerLlc), self.whole(Key::ECores));
        usize::from(nth >= p_cores) + usize::from(nth >= p_cores + e_cores)
    }

    /// The socket of a node. Those without CPUs are attached to one socket after the other.
    pub(crate) fn socket_of(&self, node: usize) -> usize {
        match node.checked_sub(self.cpu_nodes()) {
            None => node / self.whole(Key::NodesPerSocket),
            Some(memory_only) => memory_only % self.whole(Key::Sockets),
        }
    }

    /// The latency of a node's memory for the cores of another node, in nanoseconds. Memory without
    /// CPUs is as much farther from the other sockets as theirs is.
    pub(crate) fn memory_ns(&self, from: usize, to: usize) -> f64 {
        let same_socket = self.socket_of(from) == self.socket_of(to);
        let (local, remote) = (self.get(Key::DramLocalNs), self.get(Key::DramRemoteNs));
        match (to >= self.cpu_nodes(), same_socket) {
            (true, true) => self.get(Key::MemoryOnlyNs),
            (true, false) => self.get(Key::MemoryOnlyNs) + (remote - local).max(0.0),
            _ if from == to => local,
            (false, true) => self.get(Key::DramSameSocketNs),
            (false, false) => remote,
        }
    }

    /// Checks that the machine is possible.
    ///
    /// # Errors
    ///
    /// The first figure that is not a number in its range, or the limit that the topology exceeds:
    /// [`CORES_MAX`], [`CPUS_MAX`], [`LLCS_MAX`] or [`NODES_MAX`].
    pub fn check(&self) -> Result<(), BadSpec> {
        let bad = |reason| Err(BadSpec { machine: self.name.clone(), reason });
        for (key, figure) in self.figures() {
            if let Err(reason) = check_value(key, figure.value) {
                return bad(reason);
            }
        }
        for (count, most, what) in [
            (self.llcs(), LLCS_MAX, "last-level caches"),
            (self.cores(), CORES_MAX, "cores"),
            (self.cpus(), CPUS_MAX, "CPUs"),
            (self.nodes(), NODES_MAX, "memory nodes"),
        ] {
            if count > most {
                return bad(format!(
                    "the topology has {count} {what}, at most {most} are supported"
                ));
            }
        }
        let (llcs, parts) = (self.whole(Key::LlcsPerSocket), self.whole(Key::NodesPerSocket));
        if llcs % parts != 0 {
            return bad(format!(
                "topology.llcs_per_socket is {llcs}, expected a multiple of \
                 topology.nodes_per_socket, {parts}: each node has whole caches, so count the \
                 share of a cluster as one"
            ));
        }
        let has_e_cores = self.cores_of_llc() > self.whole(Key::CoresPerLlc);
        for l2 in [Some(Key::L2Kib), has_e_cores.then_some(Key::EL2Kib)].into_iter().flatten() {
            if self.get(Key::L1Kib) > self.get(l2) {
                return bad(format!("cache.l1_kib is larger than {l2}"));
            }
        }
        self.check_nodes().or_else(bad)
    }

    /// Checks the lists that have a figure a node.
    fn check_nodes(&self) -> Result<(), String> {
        let (nodes, with_cpus, sizes) = (self.nodes(), self.cpu_nodes(), self.node_gib.len());
        if self.node_gib.iter().skip(with_cpus).any(|&gib| gib == 0.0) {
            return Err("memory.node_gib has 0 for a node without CPUs: leave it out".to_owned());
        }
        if (1..with_cpus).contains(&sizes) {
            return Err(format!("memory.node_gib lists {sizes} nodes, but {with_cpus} have CPUs"));
        }
        if !self.distances.is_empty() && self.distances.len() != nodes * nodes {
            return Err(format!(
                "memory.distances has {} figures, expected {nodes} rows of {nodes}",
                self.distances.len()
            ));
        }
        Ok(())
    }

    /// A figure that is a whole number.
    fn whole(&self, key: Key) -> usize {
        self.get(key) as usize
    }
}

/// Checks one value against the range of its figure; the error states what would be valid.
fn check_value(key: Key, value: f64) -> Result<(), String> {
    let (least, most) = key.range();
    if !(least..=most).contains(&value) {
        return Err(format!("{key} is {value}, expected {least} to {most}"));
    }
    if key.is_whole() && value.fract() != 0.0 {
        return Err(format!("{key} is {value}, expected a whole number"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_numbered_thread_by_thread_and_socket_by_socket() {
        let spec = preset("skylake-2s").unwrap();
        assert_eq!((spec.cpus(), spec.cores(), spec.nodes()), (112, 56, 2));
        let at = |cpu| (spec.core_of(CpuId::new(cpu)), spec.node_of(CpuId::new(cpu)).index());
        assert_eq!(at(0), (0, 0));
        assert_eq!(at(27), (27, 0));
        assert_eq!(at(28), (28, 1));
        assert_eq!(at(56), (0, 0), "the sibling of CPU 0");
        assert_eq!(at(111), (55, 1));
    }

    #[test]
    fn a_bad_figure_is_named() {
        let mut spec = preset("uma-2").unwrap();
        spec.set(Key::L2Ns, -1.0, "a test");
        assert_eq!(
            spec.check().unwrap_err().to_string(),
            "machine `uma-2`: latency.l2_ns is -1, expected 0 to 1000000"
        );
        spec.set(Key::L2Ns, 4.7, "a test");
        spec.set(Key::CoresPerLlc, 2.5, "a test");
        assert!(spec.check().unwrap_err().reason.contains("whole number"));
        spec.set(Key::CoresPerLlc, 1024.0, "a test");
        spec.set(Key::Sockets, 2.0, "a test");
        assert!(spec.check().unwrap_err().reason.contains("2048 cores"));
    }
}

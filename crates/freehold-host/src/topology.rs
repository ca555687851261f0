//! The CPUs and memory nodes of this machine, and their distances.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use freehold::{CpuId, NodeId};

use crate::{HostError, cpulist};

/// The distance of a node to itself, by the ACPI tables that the kernel passes on.
const LOCAL_DISTANCE: u8 = 10;

/// The remedy if the description of the CPUs cannot be used.
const CPU_REMEDY: &str = "mount sysfs on /sys, or name the machine yourself with \
                          Arena::builder().cpus(count).nodes(1)";

/// The remedy if the description of the nodes cannot be used.
const NODE_REMEDY: &str = "mount sysfs on /sys, or treat the machine as one node with \
                           Arena::builder().cpus(count).nodes(1)";

/// A memory node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Freehold's number of the node: dense, from 0.
    pub id: NodeId,
    /// The operating system's number: ascending, with gaps on some machines.
    pub os_number: u32,
    /// Whether the node has memory. Some machines have nodes with only CPUs.
    pub has_memory: bool,
}

/// The CPUs and memory nodes of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    online_cpus: Vec<CpuId>,
    cpu_nodes: Vec<NodeId>,
    nodes: Vec<Node>,
    distances: Vec<u8>,
}

impl Topology {
    /// This machine, read from `/sys`. Costs a few system calls and one more for each node.
    ///
    /// # Errors
    ///
    /// [`HostError::UnreadableFile`] or [`HostError::MalformedFile`], with the file and a remedy.
    pub fn discover() -> Result<Self, HostError> {
        Topology::read(Path::new("/sys"))
    }

    /// The machine that a copy of `/sys` describes. A tree without `devices/system/node`, as in
    /// some containers, describes a machine of one node.
    ///
    /// # Errors
    ///
    /// As for [`Topology::discover`].
    pub fn read(sys: &Path) -> Result<Self, HostError> {
        let cpu_dir = sys.join("devices/system/cpu");
        let online = read_list(&cpu_dir.join("online"), CPU_REMEDY)?;
        let possible = optional(read_list(&cpu_dir.join("possible"), CPU_REMEDY))?;
        let highest = online.iter().chain(possible.iter().flatten()).max();
        let Some(cpu_count) = highest.map(|highest| *highest as usize + 1) else {
            return Err(HostError::MalformedFile {
                path: cpu_dir.join("online"),
                problem: "it lists no CPU".into(),
                remedy: CPU_REMEDY,
            });
        };
        let mut topology = Topology::flat(cpu_count);
        topology.online_cpus = online.into_iter().map(CpuId::new).collect();
        topology.read_nodes(&sys.join("devices/system/node"))?;
        Ok(topology)
    }

    /// A machine of one node, whose CPUs from 0 up are all online.
    ///
    /// # Panics
    ///
    /// If `cpus` is 0 or above 65535.
    pub fn flat(cpus: usize) -> Self {
        assert!((1..=usize::from(u16::MAX)).contains(&cpus), "a machine of {cpus} CPUs");
        Topology {
            online_cpus: (0..cpus as u32).map(CpuId::new).collect(),
            cpu_nodes: vec![NodeId::new(0); cpus],
            nodes: vec![Node { id: NodeId::new(0), os_number: 0, has_memory: true }],
            distances: vec![LOCAL_DISTANCE],
        }
    }

    /// The CPUs that are online, ascending. Their numbers may have gaps.
    pub fn online_cpus(&self) -> &[CpuId] {
        &self.online_cpus
    }

    /// One more than the highest number of an online CPU. The maximum that a virtual machine
    /// declares is often far beyond what it ever has.
    pub(crate) fn online_span(&self) -> usize {
        let highest = self.online_cpus.iter().max();
        highest.map_or(self.cpu_nodes.len(), |highest| highest.index() + 1)
    }

    /// The node of each CPU, indexed by CPU number up to the highest that the machine can ever
    /// have. A CPU that the system places on no node, as it does while it is offline, belongs to
    /// the first.
    pub fn cpu_nodes(&self) -> &[NodeId] {
        &self.cpu_nodes
    }

    /// The nodes, ascending. At least one of them has memory.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The distance of each node from each: row `a`, column `b` is the cost of memory of node `b`
    /// to a CPU of node `a`, where 10 is the cost of local memory.
    pub fn distances(&self) -> &[u8] {
        &self.distances
    }

    /// The cost of memory of node `to` to a CPU of node `from`, where 10 is local.
    ///
    /// # Panics
    ///
    /// If the machine does not have these nodes.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        let count = self.nodes.len();
        assert!(from.index() < count && to.index() < count, "{from} or {to} of {count} nodes");
        self.distances[from.index() * count + to.index()]
    }

    fn read_nodes(&mut self, node_dir: &Path) -> Result<(), HostError> {
        let Some(online) = optional(read_list(&node_dir.join("online"), NODE_REMEDY))? else {
            return Ok(());
        };
        // `flat` is such a machine, and each file takes microseconds.
        if let [os_number] = online[..] {
            self.nodes[0].os_number = os_number;
            return Ok(());
        }
        // Kernels before 2.6.24 and some emulations omit this file: then all nodes count.
        let with_memory = optional(read_list(&node_dir.join("has_memory"), NODE_REMEDY))?
            .unwrap_or_else(|| online.clone());
        if !online.iter().any(|node| with_memory.contains(node)) {
            return Err(HostError::MalformedFile {
                path: node_dir.join("has_memory"),
                problem: "none of the online nodes has memory".into(),
                remedy: NODE_REMEDY,
            });
        }
        self.nodes.clear();
        self.distances.clear();
        for (index, os_number) in online.iter().copied().enumerate() {
            let id = NodeId::new(index as u16);
            let has_memory = with_memory.contains(&os_number);
            self.nodes.push(Node { id, os_number, has_memory });
            let dir = node_dir.join(format!("node{os_number}"));
            for cpu in read_list(&dir.join("cpulist"), NODE_REMEDY)? {
                // A CPU above the highest possible one cannot run anything.
                if let Some(node) = self.cpu_nodes.get_mut(cpu as usize) {
                    *node = id;
                }
            }
            self.distances.extend(read_distances(&dir.join("distance"), online.len())?);
        }
        Ok(())
    }
}

fn read_text(path: &Path, remedy: &'static str) -> Result<String, HostError> {
    let mut text = fs::read_to_string(path).map_err(|source| HostError::UnreadableFile {
        path: path.to_owned(),
        source,
        remedy,
    })?;
    // The kernel says of each file that it takes a page.
    text.shrink_to_fit();
    Ok(text)
}

fn read_list(path: &Path, remedy: &'static str) -> Result<Vec<u32>, HostError> {
    cpulist::parse(&read_text(path, remedy)?).map_err(|problem| HostError::MalformedFile {
        path: path.to_owned(),
        problem,
        remedy,
    })
}

/// One row of the table: as many distances as there are online nodes, in their order.
fn read_distances(path: &Path, nodes: usize) -> Result<Vec<u8>, HostError> {
    let text = read_text(path, NODE_REMEDY)?;
    let malformed = |problem| HostError::MalformedFile {
        path: PathBuf::from(path),
        problem,
        remedy: NODE_REMEDY,
    };
    let row: Result<Vec<u8>, _> = text.split_whitespace().map(str::parse).collect();
    let row = row.map_err(|_| malformed(format!("`{}` are not distances", text.trim())))?;
    if row.len() != nodes {
        return Err(malformed(format!("{} distances for {nodes} online nodes", row.len())));
    }
    Ok(row)
}

/// Turns the absence of a file into `None`.
fn optional<T>(result: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(HostError::UnreadableFile { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree under a temporary folder: pairs of a path below `devices/system` and a text.
    pub(crate) fn read(files: &[(&str, &str)]) -> Result<Topology, HostError> {
        let sys = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = sys.path().join("devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Topology::read(sys.path())
    }

    pub(crate) fn nodes(numbers: &[u16]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId::new).collect()
    }

    #[test]
    fn this_machine_is_read() {
        let topology = Topology::discover().unwrap();
        for cpu in crate::allowed_cpus().unwrap() {
            assert!(topology.online_cpus().contains(&cpu), "{cpu}");
            assert!(cpu.index() < topology.cpu_nodes().len(), "{cpu}");
        }
        for node in topology.nodes() {
            assert_eq!(topology.distance(node.id, node.id), LOCAL_DISTANCE);
        }
    }

    #[test]
    fn a_machine_without_node_files_is_one_node() {
        let topology = read(&[("cpu/online", "0-1\n"), ("cpu/possible", "0-3\n")]).unwrap();
        assert_eq!(topology.online_cpus(), [CpuId::new(0), CpuId::new(1)]);
        assert_eq!(topology.cpu_nodes(), nodes(&[0, 0, 0, 0]));
        assert_eq!(topology.distances(), [10]);
        assert!(topology.nodes()[0].has_memory);
    }

    #[test]
    fn sparse_nodes_get_dense_numbers() {
        let topology = read(&[
            ("cpu/online", "0,2,5\n"),
            ("cpu/possible", "0-2,5\n"),
            ("node/online", "0,2\n"),
            ("node/has_memory", "0,2\n"),
            ("node/node0/cpulist", "0\n"),
            ("node/node0/distance", "10 21\n"),
            ("node/node2/cpulist", "2,5\n"),
            ("node/node2/distance", "17 10\n"),
        ])
        .unwrap();
        assert_eq!(topology.cpu_nodes(), nodes(&[0, 0, 1, 0, 0, 1]));
        let os_numbers: Vec<u32> = topology.nodes().iter().map(|node| node.os_number).collect();
        assert_eq!(os_numbers, [0, 2]);
        assert_eq!(topology.distance(NodeId::new(0), NodeId::new(1)), 21);
        assert_eq!(topology.distance(NodeId::new(1), NodeId::new(0)), 17);
    }

    #[test]
    fn nodes_may_lack_cpus_or_memory() {
        let topology = read(&[
            ("cpu/online", "0-3\n"),
            ("node/online", "0-2\n"),
            ("node/has_memory", "1-2\n"),
            ("node/node0/cpulist", "0-1\n"),
            ("node/node0/distance", "10 20 30\n"),
            ("node/node1/cpulist", "2-3\n"),
            ("node/node1/distance", "20 10 30\n"),
            ("node/node2/cpulist", "\n"),
            ("node/node2/distance", "30 30 10\n"),
        ])
        .unwrap();
        assert_eq!(topology.cpu_nodes(), nodes(&[0, 0, 1, 1]));
        let has_memory: Vec<bool> = topology.nodes().iter().map(|node| node.has_memory).collect();
        assert_eq!(has_memory, [false, true, true]);
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let two_nodes = [
            ("cpu/online", "0\n"),
            ("node/online", "0-1\n"),
            ("node/node0/cpulist", "0\n"),
            ("node/node0/distance", "10 20\n"),
            ("node/node1/cpulist", "\n"),
        ];
        let with = |more: &[(&'static str, &'static str)]| [&two_nodes, more].concat();
        for (files, file, problem) in [
            (vec![], "cpu/online", "cannot read"),
            (vec![("cpu/online", "\n")], "cpu/online", "lists no CPU"),
            (vec![("cpu/online", "0-x\n")], "cpu/online", "`x` is not a number"),
            (with(&[]), "node1/distance", "cannot read"),
            (with(&[("node/node1/distance", "20\n")]), "node1/distance", "1 distances for 2"),
            (with(&[("node/node1/distance", "20 z\n")]), "node1/distance", "not distances"),
            (with(&[("node/has_memory", "5\n")]), "has_memory", "none of the online nodes"),
        ] {
            let message = read(&files).unwrap_err().to_string();
            assert!(message.contains(file), "{message}");
            assert!(message.contains(problem), "{message}");
            assert!(message.contains("Arena::builder().cpus(count).nodes(1)"), "{message}");
        }
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;

        const FILES: [&str; 8] = [
            "cpu/online",
            "cpu/possible",
            "node/online",
            "node/has_memory",
            "node/node0/cpulist",
            "node/node0/distance",
            "node/node1/cpulist",
            "node/node1/distance",
        ];

        /// What the files say, divided by zero bytes; without a text, there is no such file.
        #[test]
        fn any_machine_is_read_or_refused() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes);
                    let files: Vec<_> = FILES.into_iter().zip(text.split('\0')).collect();
                    let files: Vec<_> =
                        files.into_iter().filter(|(_, text)| !text.is_empty()).collect();
                    let Ok(topology) = read(&files) else { return };
                    let nodes = topology.nodes();
                    assert!(nodes.iter().any(|node| node.has_memory));
                    assert_eq!(topology.distances().len(), nodes.len() * nodes.len());
                    for cpu in topology.online_cpus() {
                        assert!(topology.cpu_nodes()[cpu.index()].index() < nodes.len());
                    }
                    for (from, to) in
                        nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to)))
                    {
                        topology.distance(from.id, to.id);
                    }
                },
            );
        }
    }
}

//! How an arena divides its address space and its CPUs among memory nodes. Pure arithmetic.

use freehold::geometry::CPUS_MAX;
use freehold::{FrameCount, FrameSize, NodeId, Order, Pfn};

use crate::{HostError, Topology};

/// What memory is added in: pageblocks, so that no part ends inside one.
const GRAIN: Order = Order::PAGEBLOCK;

/// What each node's part starts at a multiple of: the largest block of the buddy system.
pub(crate) const PART_ALIGN: Order = Order::BUDDY_MAX;

/// What the user of a builder asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) frame_size: Option<FrameSize>,
    pub(crate) bytes: usize,
    pub(crate) capacity_bytes: usize,
    pub(crate) cpus: Option<usize>,
    pub(crate) nodes: Option<usize>,
    /// The size of the mapping that the arena is to be built in, if that is there already.
    pub(crate) mapping_bytes: Option<usize>,
}

/// The stretch of an arena that belongs to one node: memory at its start, room to grow behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) node: NodeId,
    pub(crate) os_node: u32,
    pub(crate) start: Pfn,
    pub(crate) frames: FrameCount,
    pub(crate) capacity: FrameCount,
}

/// An arena's division. Its nodes are those of the machine that have memory, numbered anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) frame_size: FrameSize,
    pub(crate) parts: Vec<Part>,
    /// All nodes of the machine that have memory, by the machine's numbers.
    pub(crate) os_nodes: Vec<u32>,
    pub(crate) cpu_nodes: Vec<NodeId>,
    /// So many of the CPUs, the last ones, are there for leases.
    pub(crate) lease_homes: usize,
    pub(crate) distances: Vec<u8>,
}

impl Plan {
    /// Divides what the wishes ask for evenly, rounded up to whole pageblocks for each node, on a
    /// machine with pages of so many bytes.
    ///
    /// # Errors
    ///
    /// [`HostError::BadSetting`] with the wish that cannot be met.
    pub(crate) fn new(
        topology: &Topology,
        page_bytes: usize,
        wishes: Wishes,
    ) -> Result<Self, HostError> {
        let frame_size = frame_size(wishes.frame_size, page_bytes)?;
        let with_memory = topology.nodes().iter().filter(|node| node.has_memory);
        let mut nodes: Vec<_> = with_memory.copied().collect();
        let count = wishes.nodes.unwrap_or(nodes.len());
        if count == 0 || count > nodes.len() {
            let reason = format!("{count} is not in 1 to {}, the nodes with memory", nodes.len());
            return Err(HostError::BadSetting { setting: "nodes", reason });
        }
        let os_nodes = nodes.iter().map(|node| node.os_number).collect();
        nodes.truncate(count);

        let cpu_count = wishes.cpus.unwrap_or(topology.online_span());
        if cpu_count == 0 || cpu_count > CPUS_MAX {
            let reason = format!("{cpu_count} is not in 1 to {CPUS_MAX}");
            return Err(HostError::BadSetting { setting: "cpus", reason });
        }
        let nearest = |from: NodeId| {
            let distance = |index: &usize| topology.distance(from, nodes[*index].id);
            NodeId::new((0..count).min_by_key(distance).unwrap_or(0) as u16)
        };
        let machine_cpus = topology.cpu_nodes().iter().copied().cycle();
        let cpu_nodes = machine_cpus.take(cpu_count).map(nearest).collect();
        let row = |from: NodeId| nodes.iter().map(move |to| topology.distance(from, to.id));
        let distances = nodes.iter().flat_map(|from| row(from.id)).collect();

        if let Some(bytes) = wishes.mapping_bytes {
            let (node, os_node) = match nodes[..] {
                [node] => (NodeId::new(0), node.os_number),
                _ => {
                    let reason = "an arena in a mapping has one: give `nodes(1)`".into();
                    return Err(HostError::BadSetting { setting: "nodes", reason });
                }
            };
            let capacity = FrameCount::new((bytes / frame_size.bytes()) as u64);
            let frames = match wishes.bytes {
                0 => capacity,
                wanted => FrameCount::from_bytes(wanted, frame_size),
            };
            if frames > capacity || capacity == FrameCount::ZERO {
                let reason = format!("{bytes} bytes are less than {frames} of {frame_size}");
                return Err(HostError::BadSetting { setting: "mapping", reason });
            }
            let parts = vec![Part { node, os_node, start: Pfn::new(0), frames, capacity }];
            return Ok(Plan { frame_size, parts, os_nodes, cpu_nodes, lease_homes: 0, distances });
        }
        if wishes.bytes == 0 {
            let reason = "an arena needs at least one frame: give a size above 0".into();
            return Err(HostError::BadSetting { setting: "bytes", reason });
        }
        let frames = share(wishes.bytes, count, frame_size, GRAIN);
        let capacity_bytes = wishes.capacity_bytes.max(wishes.bytes);
        let capacity = share(capacity_bytes, count, frame_size, PART_ALIGN);
        let parts = nodes.iter().enumerate().map(|(index, node)| Part {
            node: NodeId::new(index as u16),
            os_node: node.os_number,
            start: Pfn::new(index as u64 * capacity.get()),
            frames,
            capacity,
        });
        let parts = parts.collect();
        Ok(Plan { frame_size, parts, os_nodes, cpu_nodes, lease_homes: 0, distances })
    }

    /// Adds a CPU of the same node for each that there is, for leases.
    ///
    /// # Errors
    ///
    /// [`HostError::BadSetting`] if these are too many.
    pub(crate) fn add_lease_homes(&mut self) -> Result<(), HostError> {
        self.lease_homes = self.cpu_nodes.len();
        if 2 * self.lease_homes > CPUS_MAX {
            let reason = format!("an arena with leases has at most {} CPUs", CPUS_MAX / 2);
            return Err(HostError::BadSetting { setting: "leases", reason });
        }
        self.cpu_nodes.extend_from_within(..);
        Ok(())
    }

    /// The frames of all parts, room to grow included. The first is frame 0.
    pub(crate) fn span(&self) -> FrameCount {
        self.parts.iter().map(|part| part.capacity).sum()
    }
}

/// The number of frames that each of `nodes` gets of `bytes`, rounded up to whole pageblocks.
pub(crate) fn growth(bytes: usize, nodes: usize, frame_size: FrameSize) -> FrameCount {
    share(bytes, nodes, frame_size, GRAIN)
}

fn share(bytes: usize, nodes: usize, frame_size: FrameSize, grain: Order) -> FrameCount {
    let frames = bytes.div_ceil(nodes).div_ceil(frame_size.bytes()) as u64;
    // Cannot overflow: a share of all addresses, in frames of 4 KiB or more.
    FrameCount::new(frames.next_multiple_of(grain.frames().get()))
}

/// The size of a frame: the one wished for, if it is made of whole pages of the machine.
fn frame_size(wish: Option<FrameSize>, page_bytes: usize) -> Result<FrameSize, HostError> {
    let bad = |reason| HostError::BadSetting { setting: "frame_size", reason };
    match wish {
        Some(size) if size.bytes() < page_bytes => Err(bad(format!(
            "{size} is less than a page of this machine: {} KiB",
            page_bytes >> 10
        ))),
        Some(size) => Ok(size),
        None => FrameSize::new(page_bytes.max(FrameSize::DEFAULT.bytes())).ok_or_else(|| {
            bad(format!("pages of {page_bytes} bytes, which this machine has, are no frames"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::{nodes, read};

    const MIB: usize = 1 << 20;
    const WISHES: Wishes = Wishes {
        frame_size: Some(FrameSize::MIN),
        bytes: 8 * MIB,
        capacity_bytes: 0,
        cpus: None,
        nodes: None,
        mapping_bytes: None,
    };

    fn plan(topology: &Topology, wishes: Wishes) -> Result<Plan, HostError> {
        Plan::new(topology, 4096, wishes)
    }

    /// Three nodes: CPUs 0 and 1 without memory, two with; node 7 is nearer to the CPUs.
    fn three_nodes() -> Topology {
        let files = [
            ("cpu/online", "0-2"),
            ("node/online", "0,3,7"),
            ("node/has_memory", "3,7"),
            ("node/node0/cpulist", "0-1"),
            ("node/node0/distance", "10 40 20"),
            ("node/node3/cpulist", "2"),
            ("node/node3/distance", "40 10 30"),
            ("node/node7/cpulist", ""),
            ("node/node7/distance", "20 31 10"),
        ];
        read(&files).unwrap()
    }

    #[test]
    fn one_node_holds_everything() {
        let plan = plan(&Topology::flat(3), WISHES).unwrap();
        assert_eq!(plan.cpu_nodes, nodes(&[0, 0, 0]));
        assert_eq!(plan.span(), FrameCount::new(2048));
        assert_eq!(plan.parts[0].frames, FrameCount::new(2048));
    }

    #[test]
    fn nodes_without_memory_are_served_by_the_nearest() {
        let plan = plan(&three_nodes(), Wishes { capacity_bytes: 20 * MIB, ..WISHES }).unwrap();
        assert_eq!(plan.cpu_nodes, nodes(&[1, 1, 0]));
        assert_eq!(plan.distances, [10, 30, 31, 10]);
        assert_eq!(plan.span(), FrameCount::new(2 * 3072));
        let os_nodes: Vec<u32> = plan.parts.iter().map(|part| part.os_node).collect();
        assert_eq!(os_nodes, [3, 7]);
        assert_eq!(plan.parts[1].start, Pfn::new(3072));
        assert_eq!(plan.parts[1].frames, FrameCount::new(1024));
    }

    #[test]
    fn fewer_nodes_and_more_cpus_than_the_machine_has() {
        let wishes = Wishes { nodes: Some(1), cpus: Some(5), ..WISHES };
        let plan = plan(&three_nodes(), wishes).unwrap();
        assert_eq!(plan.cpu_nodes, nodes(&[0; 5]));
        assert_eq!(plan.distances, [10]);
        assert_eq!(plan.parts.len(), 1);
    }

    #[test]
    fn cpus_that_are_not_there_have_no_share_of_the_memory() {
        let topology = read(&[("cpu/online", "0-1,3"), ("cpu/possible", "0-511")]).unwrap();
        assert_eq!(plan(&topology, WISHES).unwrap().cpu_nodes, nodes(&[0; 4]));
        let wishes = Wishes { cpus: Some(512), ..WISHES };
        assert_eq!(plan(&topology, wishes).unwrap().cpu_nodes, nodes(&[0; 512]));
    }

    #[test]
    fn sizes_are_rounded_up() {
        let plan = plan(&Topology::flat(1), Wishes { bytes: 1, ..WISHES }).unwrap();
        assert_eq!(plan.parts[0].frames, FrameCount::new(512));
        assert_eq!(plan.parts[0].capacity, FrameCount::new(1024));
        assert_eq!(growth(2 * MIB + 1, 1, FrameSize::MIN), FrameCount::new(1024));
        assert_eq!(growth(4 * MIB, 2, FrameSize::MIN), FrameCount::new(512));
    }

    #[test]
    fn larger_frames_make_larger_pageblocks() {
        let size = FrameSize::new(64 << 10).unwrap();
        let wishes = Wishes { frame_size: Some(size), bytes: 33 * MIB, ..WISHES };
        let plan = plan(&Topology::flat(1), wishes).unwrap();
        assert_eq!((plan.frame_size, plan.parts[0].frames), (size, FrameCount::new(1024)));
        assert_eq!(growth(32 * MIB, 1, size), FrameCount::new(512));
    }

    #[test]
    fn a_frame_is_at_least_a_page_of_the_machine() {
        let kib = |kib: usize| FrameSize::new(kib << 10);
        assert_eq!(frame_size(None, 4096).unwrap(), FrameSize::DEFAULT.max(FrameSize::MIN));
        assert_eq!(frame_size(None, 64 << 10).ok(), kib(64).max(Some(FrameSize::DEFAULT)));
        assert_eq!(frame_size(kib(64), 16 << 10).ok(), kib(64));
        let message = frame_size(kib(4), 16 << 10).unwrap_err().to_string();
        assert_eq!(message, "frame_size: 4 KiB is less than a page of this machine: 16 KiB");
    }

    #[test]
    fn wishes_that_cannot_be_met_are_named() {
        for (wishes, setting) in [
            (Wishes { nodes: Some(0), ..WISHES }, "nodes: 0 is not in 1 to 2"),
            (Wishes { nodes: Some(3), ..WISHES }, "nodes: 3 is not in 1 to 2"),
            (Wishes { cpus: Some(0), ..WISHES }, "cpus: 0 is not in 1 to 65534"),
            (Wishes { cpus: Some(1 << 16), ..WISHES }, "cpus: 65536 is not in 1 to 65534"),
            (Wishes { bytes: 0, ..WISHES }, "bytes: an arena needs at least one frame"),
        ] {
            let message = plan(&three_nodes(), wishes).unwrap_err().to_string();
            assert!(message.starts_with(setting), "{message}");
        }
    }
}

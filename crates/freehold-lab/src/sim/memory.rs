//! The memory of a simulated machine, as configured for the allocator.

use std::rc::Rc;

use anyhow::{Result, ensure};
use bytesize::ByteSize;
use freehold::{
    Config, CpuId, FrameCount, MemoryRange, NodeId, Order, PageAllocator, Pfn, Setting,
};
use freehold_linux::ZoneLock;
use freehold_sim::{Costless, Machine, Sim, SimFrames, Spec};

use crate::cell::SimCell;
use crate::designs::{SimDesign, with_design};
use crate::machine::FRAME_BYTES;
use crate::settings::{Assignments, setting};
use crate::sim::linux::KERNEL;
use crate::task::lru::ReclaimingFrames;

/// The settings of simulated machines.
pub(crate) const FRAME_SETTINGS: &[Setting] = &[
    setting("frame_record_bytes", "0, or a multiple of 16 up to 4096", "64")
        .means("distance between frame records on simulated machines; 0: as close as they fit"),
    KERNEL,
];

/// The settings of simulated machines whose memory the workload does not determine.
pub(crate) const NODE_SETTINGS: &[Setting] = &[setting(
    "node_memory",
    "a size of at least 4MiB, such as 8GiB; a part, such as 1/4; or all",
    "all",
)
.means("memory of each node of a simulated machine; less than it has sets up faster")];

/// Memory comes in the largest blocks of the buddy system.
const BLOCK_BYTES: u64 = Order::BUDDY_MAX.frames().get() * FRAME_BYTES;

/// How the memory of a machine is laid out: one range a node that has memory, side by side.
pub(crate) struct MemoryPlan {
    ranges: Vec<MemoryRange>,
    cpu_nodes: Vec<NodeId>,
    distances: Vec<u8>,
    frame_record_bytes: usize,
    node_ends: Vec<u64>,
}

impl MemoryPlan {
    /// The memory of `spec`, as far as the settings request it.
    pub(crate) fn new(spec: &Spec, given: &Assignments) -> Result<Self> {
        let largest = nodes(spec).map(|node| spec.node_bytes(node)).max().unwrap_or(0);
        // A part of each node, and no more than so much of it.
        let (parts, most) = given.parsed(NODE_SETTINGS, "node_memory", |value| {
            let (parts, most) = match value.strip_prefix("1/") {
                Some(parts) => (parts.parse().ok()?, u64::MAX),
                None if value == "all" => (1, u64::MAX),
                None => (1, value.parse::<ByteSize>().ok()?.0),
            };
            let bytes = largest.checked_div(parts)?.min(most);
            (bytes >= BLOCK_BYTES).then_some((parts, most))
        })?;
        ensure!(
            most == u64::MAX || most <= largest,
            "{} has {} a node: lower --set node_memory",
            spec.name(),
            ByteSize(largest)
        );
        Self::of_nodes(spec, given, |there| (there / parts).min(most) / BLOCK_BYTES)
    }

    /// So much memory in all, as `setting` specifies, divided as the nodes' memory is and rounded
    /// up to whole blocks on each.
    pub(crate) fn exactly(
        spec: &Spec,
        given: &Assignments,
        bytes: u64,
        setting: &str,
    ) -> Result<Self> {
        let there = nodes(spec).map(|node| spec.node_bytes(node)).sum();
        ensure!(
            bytes <= there,
            "{} has {}: lower --set {setting}, by which it would be {}",
            spec.name(),
            ByteSize(there),
            ByteSize(bytes)
        );
        let all = u128::from(there) * u128::from(BLOCK_BYTES);
        let part = |of_node| u128::from(bytes) * u128::from(of_node);
        Self::of_nodes(spec, given, |of_node| part(of_node).div_ceil(all) as u64)
    }

    /// `blocks` says how many blocks a node of so many bytes gets, at least one if it has any.
    fn of_nodes(spec: &Spec, given: &Assignments, blocks: impl Fn(u64) -> u64) -> Result<Self> {
        let frame_record_bytes = given.parsed(FRAME_SETTINGS, "frame_record_bytes", |value| {
            value.parse().ok().filter(|bytes: &usize| bytes.is_multiple_of(16) && *bytes <= 4096)
        })?;
        let (mut ranges, mut node_ends, mut end) = (Vec::new(), Vec::new(), 0);
        for node in nodes(spec) {
            let there = spec.node_bytes(node);
            if there > 0 {
                let frames = blocks(there).max(1) * Order::BUDDY_MAX.frames().get();
                let range = MemoryRange::new(Pfn::new(end), FrameCount::new(frames));
                ranges.push(range.on_node(node));
                end += frames;
            }
            node_ends.push(end);
        }
        let pairs = nodes(spec).flat_map(|from| nodes(spec).map(move |to| (from, to)));
        Ok(MemoryPlan {
            ranges,
            cpu_nodes: (0..spec.cpus()).map(|cpu| spec.node_of(CpuId::new(cpu as u32))).collect(),
            distances: pairs.map(|(from, to)| spec.distance(from, to)).collect(),
            frame_record_bytes,
            node_ends,
        })
    }

    /// The machine as the allocator's configuration.
    pub(crate) fn config(&self) -> Config<'_> {
        Config::new(&self.ranges, &self.cpu_nodes)
            .distances(&self.distances)
            .frame_record_bytes(self.frame_record_bytes)
    }

    /// Frames of a node.
    pub(crate) fn node_frames(&self, node: usize) -> u64 {
        self.node_ends[node] - node.checked_sub(1).map_or(0, |before| self.node_ends[before])
    }

    /// The number of the frame behind each node's last one.
    pub(crate) fn node_ends(&self) -> &[u64] {
        &self.node_ends
    }

    /// Frames of all nodes.
    pub(crate) fn frames(&self) -> FrameCount {
        FrameCount::new(self.node_ends.last().copied().unwrap_or(0))
    }

    /// The distance between two frame records.
    pub(crate) fn frame_record_bytes(&self) -> usize {
        self.frame_record_bytes
    }

    /// Builds the allocator of a cell on `machine`, which tracks the contents of the frames.
    pub(crate) fn build(
        &self,
        machine: &mut Machine,
        cell: &SimCell<'_>,
    ) -> Result<Rc<dyn ReclaimingFrames>> {
        machine.follow_frames(Pfn::new(0), self.frames());
        let config = self.config();
        let SimDesign::Real(design) = cell.design else {
            type FreeLunch = SimFrames<ZoneLock<Costless>, Costless>;
            return Ok(Rc::new(FreeLunch::new(machine, Costless, &config, &Default::default())?));
        };
        with_design!(design, Sim, D => {
            let settings = cell.assignments.of_design()?;
            Ok(Rc::new(SimFrames::<D>::new(machine, Sim, &config, &settings)?))
        })
    }

    /// How large the metadata of a cell's allocator is.
    pub(crate) fn metadata_bytes(&self, cell: &SimCell<'_>) -> Result<u64> {
        let config = self.config();
        let SimDesign::Real(design) = cell.design else {
            let layout =
                PageAllocator::<Costless, ZoneLock<Costless>>::layout(&config, &Default::default());
            return Ok(layout?.size() as u64);
        };
        with_design!(design, Sim, D => {
            let settings = cell.assignments.of_design()?;
            Ok(PageAllocator::<Sim, D>::layout(&config, &settings)?.size() as u64)
        })
    }

    /// The approximate host memory of one machine with this memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        // A directory entry of 24 bytes for each line of metadata, 12 bytes for a frame's content.
        let stride = self.frame_record_bytes.max(16) as u64;
        self.frames().get() * (stride + stride * 24 / 64 + 12)
    }
}

/// The nodes of a machine, those without CPUs last.
pub(crate) fn nodes(spec: &Spec) -> impl Iterator<Item = NodeId> {
    (0..spec.nodes()).map(|node| NodeId::new(node as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_as_the_nodes_have_it() {
        let text = "base = 'skylake-2s'\n[memory]\nnode_gib = [1, 0, 2]\n";
        let spec = Spec::from_toml("m.toml", text).unwrap();
        let given = |setting: &str| {
            let given = Assignments::of([("node_memory".to_owned(), setting.to_owned())]);
            MemoryPlan::new(&spec, &given)
        };
        let plans = [
            (given("all"), [1 << 18, 0, 2 << 18]),
            (given("1/2"), [1 << 17, 0, 1 << 18]),
            (given("1536MiB"), [1 << 18, 0, 3 << 17]),
            (MemoryPlan::exactly(&spec, &Assignments::of([]), 3 << 28, "x"), [1 << 16, 0, 1 << 17]),
        ];
        for (plan, frames) in plans {
            let plan = plan.unwrap();
            assert_eq!([0, 1, 2].map(|node| plan.node_frames(node)), frames);
            assert_eq!(plan.frames().get(), frames.iter().sum::<u64>());
            let nodes: Vec<_> = plan.config().ranges.iter().map(|of| of.node.index()).collect();
            assert_eq!(nodes, [0, 2]);
            assert_eq!(plan.config().distances, [10, 21, 14, 21, 10, 24, 14, 24, 10]);
            let layout =
                PageAllocator::<Sim, ZoneLock<Sim>>::layout(&plan.config(), &Default::default());
            assert!(layout.is_ok());
        }
        let error = given("4GiB").err().unwrap().to_string();
        assert!(error.contains("lower --set node_memory"), "{error}");
    }
}

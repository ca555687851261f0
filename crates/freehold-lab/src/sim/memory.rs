//! The memory of a simulated machine, as configured for the allocator.

use std::rc::Rc;

use anyhow::{Result, ensure};
use bytesize::ByteSize;
use freehold::{
    Config, CpuId, FrameCount, MemoryRange, NodeId, Order, PageAllocator, Pfn, Setting,
};
use freehold_linux::ZoneLock;
use freehold_sim::{Costless, Key, Machine, Sim, SimFrames, Spec};

use crate::cell::SimCell;
use crate::designs::{SimDesign, with_design};
use crate::machine::FRAME_BYTES;
use crate::settings::Assignments;
use crate::task::lru::ReclaimingFrames;

/// The settings of simulated machines.
pub(crate) const FRAME_SETTINGS: &[Setting] = &[Setting {
    name: "frame_record_bytes",
    values: "0, or a multiple of 16 up to 4096",
    default: "64",
    meaning: "distance between frame records on simulated machines; 0: as close as they fit",
}];

/// The settings of simulated machines whose memory the workload does not determine.
pub(crate) const NODE_SETTINGS: &[Setting] = &[Setting {
    name: "node_memory",
    values: "a size of at least 4MiB, such as 8GiB; a part, such as 1/4; or all",
    default: "all",
    meaning: "memory of each node of a simulated machine; less than it has sets up faster",
}];

/// Memory comes in the largest blocks of the buddy system.
const BLOCK_BYTES: u64 = Order::BUDDY_MAX.frames().get() * FRAME_BYTES;

/// How the memory of a machine is laid out: one range a node, all of one size, side by side.
pub(crate) struct MemoryPlan {
    ranges: Vec<MemoryRange>,
    cpu_nodes: Vec<NodeId>,
    distances: Vec<u8>,
    frame_record_bytes: usize,
    node_frames: u64,
}

impl MemoryPlan {
    /// The memory of `spec`, as far as the settings request it.
    pub(crate) fn new(spec: &Spec, given: &Assignments) -> Result<Self> {
        let there = node_bytes(spec);
        let wanted = given.parsed(NODE_SETTINGS, "node_memory", |value| {
            let bytes = match value.strip_prefix("1/") {
                Some(parts) => there.checked_div(parts.parse().ok()?),
                None if value == "all" => Some(there),
                None => value.parse::<ByteSize>().ok().map(|size| size.0),
            };
            bytes.filter(|&bytes| bytes >= BLOCK_BYTES)
        })?;
        ensure!(
            wanted <= there,
            "{} has {} a node: lower --set node_memory",
            spec.name(),
            ByteSize(there)
        );
        Self::of_nodes(spec, given, wanted / BLOCK_BYTES)
    }

    /// So much memory in all, as `setting` specifies, rounded up to whole blocks on each node.
    pub(crate) fn exactly(
        spec: &Spec,
        given: &Assignments,
        bytes: u64,
        setting: &str,
    ) -> Result<Self> {
        let there = node_bytes(spec) * spec.nodes() as u64;
        ensure!(
            bytes <= there,
            "{} has {}: lower --set {setting}, by which it would be {}",
            spec.name(),
            ByteSize(there),
            ByteSize(bytes)
        );
        Self::of_nodes(spec, given, bytes.div_ceil(BLOCK_BYTES * spec.nodes() as u64))
    }

    fn of_nodes(spec: &Spec, given: &Assignments, node_blocks: u64) -> Result<Self> {
        let frame_record_bytes = given.parsed(FRAME_SETTINGS, "frame_record_bytes", |value| {
            value.parse().ok().filter(|bytes: &usize| bytes.is_multiple_of(16) && *bytes <= 4096)
        })?;
        let node_frames = node_blocks * Order::BUDDY_MAX.frames().get();
        let nodes = spec.nodes();
        let range = |node: usize| {
            let start = Pfn::new(node as u64 * node_frames);
            MemoryRange::new(start, FrameCount::new(node_frames)).on_node(NodeId::new(node as u16))
        };
        let distance = |entry: usize| if entry / nodes == entry % nodes { 10 } else { 21 };
        Ok(MemoryPlan {
            ranges: (0..nodes).map(range).collect(),
            cpu_nodes: (0..spec.cpus()).map(|cpu| spec.node_of(CpuId::new(cpu as u32))).collect(),
            distances: (0..nodes * nodes).map(distance).collect(),
            frame_record_bytes,
            node_frames,
        })
    }

    /// The machine as the allocator's configuration.
    pub(crate) fn config(&self) -> Config<'_> {
        Config::new(&self.ranges, &self.cpu_nodes)
            .distances(&self.distances)
            .frame_record_bytes(self.frame_record_bytes)
    }

    /// Frames of one node.
    pub(crate) fn node_frames(&self) -> u64 {
        self.node_frames
    }

    /// Frames of all nodes.
    pub(crate) fn frames(&self) -> FrameCount {
        FrameCount::new(self.node_frames * self.ranges.len() as u64)
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

fn node_bytes(spec: &Spec) -> u64 {
    (spec.get(Key::NodeGib) * f64::from(1 << 30)) as u64
}

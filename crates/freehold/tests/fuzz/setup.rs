//! Machines that lists of calls run on.

use freehold::{FrameCount, FrameSize, MemoryRange, NodeId, Order, Pfn, ZoneKind};

pub(crate) const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

/// A machine to run on, and memory that may be added later.
#[derive(Clone, Debug)]
pub(crate) struct Setup<S> {
    pub(crate) ranges: Vec<MemoryRange>,
    pub(crate) later: Vec<MemoryRange>,
    pub(crate) cpu_nodes: Vec<NodeId>,
    pub(crate) distances: Vec<u8>,
    pub(crate) frame_size: FrameSize,
    pub(crate) frame_record_bytes: usize,
    pub(crate) min_free: Option<u64>,
    pub(crate) settings: S,
}

/// One to three pageblocks of one zone, more or less.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) gap_blocks: u64,
    pub(crate) blocks: u64,
    pub(crate) trim_start: u64,
    pub(crate) trim_end: u64,
    pub(crate) hole: Option<(u64, u64)>,
    pub(crate) node: u16,
    pub(crate) zone: ZoneKind,
    pub(crate) later: bool,
}

impl Stretch {
    /// The ranges of this stretch, which starts at the pageblock boundary at `at`; advances that.
    fn ranges(&self, nodes: u16, at: &mut u64) -> Vec<MemoryRange> {
        let start = *at + self.gap_blocks * PAGEBLOCK;
        *at = start + self.blocks * PAGEBLOCK;
        let (first, end) =
            (start + self.trim_start.min(PAGEBLOCK / 2), *at - self.trim_end.min(PAGEBLOCK / 2));
        let range = |first, end| {
            MemoryRange::new(Pfn::new(first), FrameCount::new(end - first))
                .on_node(NodeId::new(self.node % nodes))
                .in_zone(self.zone)
        };
        match self.hole {
            Some((offset, frames)) if first + offset + frames < end => {
                let hole = first + offset;
                vec![range(first, hole), range(hole + frames, end)]
            }
            _ if first < end => vec![range(first, end)],
            _ => vec![],
        }
    }
}

impl<S> Setup<S> {
    /// A machine of so many nodes, whose memory begins at this pageblock: none if it has no memory
    /// to begin with. Distances are for three nodes.
    pub(crate) fn new(
        stretches: &[Stretch],
        cpus: &[u16],
        distances: Option<Vec<u8>>,
        (nodes, base, frame_size, frame_record_bytes, min_free): Numbers,
        settings: S,
    ) -> Option<Self> {
        let (mut at, mut ranges, mut later) = (base * PAGEBLOCK, vec![], vec![]);
        for stretch in stretches {
            let list = if stretch.later { &mut later } else { &mut ranges };
            list.extend(stretch.ranges(nodes, &mut at));
        }
        let cpu_nodes: Vec<_> = cpus.iter().map(|cpu| NodeId::new(cpu % nodes)).collect();
        let of_ranges = ranges.iter().chain(&later).map(|range| range.node);
        let nodes = of_ranges.chain(cpu_nodes.iter().copied()).max()?.index() + 1;
        let distances = distances.map_or(vec![], |all| all[..nodes * nodes].to_vec());
        (!ranges.is_empty()).then_some(Setup {
            ranges,
            later,
            cpu_nodes,
            distances,
            frame_size,
            frame_record_bytes,
            min_free,
            settings,
        })
    }
}

/// Nodes, the first pageblock, the size of a frame, that of its record, and what is kept free.
pub(crate) type Numbers = (u16, u64, FrameSize, usize, Option<u64>);

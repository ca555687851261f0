//! The node of each CPU, the order in which a request tries the zones, and the size of a frame.

use core::cmp::Reverse;
use core::num::NonZero;

use crate::Error;
use crate::config::Config;
use crate::memmap::index::ZoneIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::units::{CpuId, FrameSize, NodeId, ZoneKind};

/// More zones than any machine has; keeps zone numbers within 16 bits.
const ZONES_MAX: usize = 4096;

/// Read-only tables, fixed when the allocator is built. Plain memory: every CPU caches its own
/// copy.
pub struct Topology {
    /// For each node and zone limit: how many zones, then the zones, nearest first.
    zonelists: Table<u16>,
    numbers: ZoneNumbers,
    cpus: Table<Cpu>,
    zones: usize,
    /// The size of a frame.
    pub frame_size: FrameSize,
}

/// The numbers of the zones, by node and kind.
struct ZoneNumbers {
    /// For each node and kind: how many zones come before, which is the zone's number if there is
    /// such a zone.
    before: Table<u16>,
    zones: usize,
}

/// What is known of a CPU.
struct Cpu {
    /// The zone that a request without a preference tries first, by zone limit.
    best_zones: [u16; ZoneKind::COUNT],
    node: NodeId,
}

/// Where the tables will lie.
pub struct TopologyPlan {
    zonelists: TablePlan<u16>,
    zones_before: TablePlan<u16>,
    cpus: TablePlan<Cpu>,
    nodes: usize,
    zones: usize,
}

/// What is in a list behind its last zone.
const NO_ZONE: u16 = u16::MAX;

impl TopologyPlan {
    pub fn new(config: &Config<'_>, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let nodes = config.nodes();
        let zones = config.zones().take(ZONES_MAX + 1).count();
        if zones == 0 || zones > ZONES_MAX {
            return Err(Error::BadTopology);
        }
        let lists = nodes * ZoneKind::COUNT;
        Ok(TopologyPlan {
            zonelists: layout.table(SectionKind::Topology, lists * (1 + zones))?,
            zones_before: layout.table(SectionKind::Topology, lists)?,
            cpus: layout.table(SectionKind::Topology, config.cpu_nodes.len())?,
            nodes,
            zones,
        })
    }
}

impl ZoneNumbers {
    fn carve(plan: &TopologyPlan, config: &Config<'_>, carver: &mut Carver) -> Self {
        let (mut zones, mut count) = (config.zones().peekable(), 0);
        // Zones come in the order of the entries.
        let before = carver.table(plan.zones_before, |entry| {
            let before = count;
            count += u16::from(
                zones.next_if(|&(node, kind)| Self::entry(node, kind) == entry).is_some(),
            );
            before
        });
        ZoneNumbers { before, zones: plan.zones }
    }

    fn entry(node: NodeId, kind: ZoneKind) -> usize {
        node.index() * ZoneKind::COUNT + kind.index()
    }

    /// The number of a zone, if there is such a zone.
    fn number(&self, node: NodeId, kind: ZoneKind) -> Option<u16> {
        let entry = Self::entry(node, kind);
        let number = *self.before.try_get(entry)?;
        let up_to = self.before.try_get(entry + 1).map_or(self.zones, |&up_to| usize::from(up_to));
        (usize::from(number) < up_to).then_some(number)
    }

    /// The node and kind of a zone.
    fn place(&self, zone: u16) -> (NodeId, ZoneKind) {
        let entries = self.before.slice(0, self.before.len());
        // Entries before the first one with more zones before it have no higher number.
        let entry = entries.partition_point(|&before| before <= zone) - 1;
        (NodeId::new((entry / ZoneKind::COUNT) as u16), ZoneKind::ALL[entry % ZoneKind::COUNT])
    }

    /// Fills the lists of a node, each of `stride` entries, with the zones within each limit in the
    /// order in which requests from there try them: nodes by distance, and on each node the least
    /// restricted zone first (Linux's node order).
    fn fill_lists(&self, config: &Config<'_>, nodes: usize, from: NodeId, lists: &mut [u16]) {
        let stride = lists.len() / ZoneKind::COUNT;
        let (narrower, widest) = lists.split_at_mut(lists.len() - stride);
        let [len, all @ ..] = widest else { return };
        *len = self.zones as u16;
        all.iter_mut().zip(0..).for_each(|(entry, zone)| *entry = zone);
        all.sort_unstable_by_key(|&zone| {
            let (to, kind) = self.place(zone);
            // Ties are broken in a ring from the requesting node, so that different nodes overflow
            // to different neighbours.
            let ring = (to.index() + nodes - from.index()) % nodes;
            (config.distance(nodes, from, to), ring, Reverse(kind))
        });
        for (list, limit) in narrower.chunks_exact_mut(stride).zip(ZoneKind::ALL) {
            let within = all.iter().filter(|&&zone| self.place(zone).1 <= limit);
            let mut count = 0;
            for (entry, &zone) in list[1..].iter_mut().zip(within) {
                *entry = zone;
                count += 1;
            }
            list[0] = count;
        }
    }
}

impl Topology {
    // As all steps of `allocator/build.rs`.
    #[inline(never)]
    pub fn carve(plan: &TopologyPlan, config: &Config<'_>, carver: &mut Carver) -> Self {
        let mut zonelists = carver.table(plan.zonelists, |_| NO_ZONE);
        let numbers = ZoneNumbers::carve(plan, config, carver);
        // The first entry of each list is its length.
        let stride = 1 + plan.zones;
        let lists_of_nodes = zonelists.as_mut_slice().chunks_exact_mut(ZoneKind::COUNT * stride);
        for (from, lists) in lists_of_nodes.enumerate() {
            numbers.fill_lists(config, plan.nodes, NodeId::new(from as u16), lists);
        }
        let cpus = carver.table(plan.cpus, |cpu| {
            let node = config.cpu_nodes[cpu];
            let best_zones = ZoneKind::ALL.map(|limit| {
                let first = (node.index() * ZoneKind::COUNT + limit.index()) * stride;
                // An empty list has `NO_ZONE` in its first entry too.
                *zonelists.get(first + 1)
            });
            Cpu { best_zones, node }
        });
        let (zones, frame_size) = (plan.zones, config.frame_size);
        Topology { zonelists, numbers, cpus, zones, frame_size }
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The zone of this kind on the node.
    pub fn zone(&self, node: NodeId, kind: ZoneKind) -> Option<ZoneIndex> {
        self.numbers.number(node, kind).map(ZoneIndex)
    }

    /// A CPU number folded into the range of existing CPUs.
    #[inline(always)]
    pub fn fold(&self, cpu: CpuId) -> usize {
        let (cpu, cpus) = (cpu.index(), self.cpus.len());
        // Nearly always in range, and a comparison is cheaper than a division.
        if cpu < cpus { cpu } else { NonZero::new(cpus).map_or(0, |cpus| cpu % cpus) }
    }

    /// The node that a CPU is near to.
    #[inline(always)]
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        self.cpus.get(self.fold(cpu)).node
    }

    /// The zone that a request without a preference tries first. `cpu` is in range.
    #[inline(always)]
    pub fn best_zone(&self, cpu: usize, limit: ZoneKind) -> Option<ZoneIndex> {
        let zone = self.cpus.get(cpu).best_zones[limit.index()];
        (zone != NO_ZONE).then_some(ZoneIndex(zone))
    }

    /// How many CPUs are near to a node.
    pub fn cpus_of(&self, node: NodeId) -> usize {
        self.cpus.iter().filter(|cpu| cpu.node == node).count()
    }

    /// The zones that a request from `node` may use, best first.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNode`], or [`Error::UnknownZone`] if no zone of any node is within the
    /// limit.
    #[inline]
    pub fn zonelist(&self, node: NodeId, limit: ZoneKind) -> Result<&[u16], Error> {
        let list = node.index() * ZoneKind::COUNT + limit.index();
        let start = list * (1 + self.zones);
        if start >= self.zonelists.len() {
            return Err(Error::UnknownNode);
        }
        match *self.zonelists.get(start) {
            0 => Err(Error::UnknownZone),
            len => Ok(self.zonelists.slice(start + 1, len as usize)),
        }
    }
}

//! Which node a CPU is near to, and in which order a request tries the zones.

use crate::Error;
use crate::config::Config;
use crate::memmap::block::ZoneIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::units::{CpuId, NodeId, ZoneKind};

/// More zones than any machine has; keeps zone numbers within 16 bits.
const ZONES_MAX: usize = 4096;

/// Read-only tables, fixed when the allocator is built. Plain memory: every CPU keeps its own
/// cached copy of them.
pub(crate) struct Topology {
    /// For each node and zone limit: how many zones, then the zones, nearest first.
    zonelists: Table<u16>,
    zone_indexes: Table<u16>,
    cpus: Table<Cpu>,
    zones: usize,
}

/// What is known of a CPU.
struct Cpu {
    /// The zone that a request without a preference tries first, by zone limit.
    best_zones: [u16; ZoneKind::COUNT],
    node: NodeId,
}

/// Where the tables will lie.
pub(crate) struct TopologyPlan {
    zonelists: TablePlan<u16>,
    zone_indexes: TablePlan<u16>,
    cpus: TablePlan<Cpu>,
    nodes: usize,
    zones: usize,
}

/// A pair of node and kind without a zone.
const NO_ZONE: u16 = u16::MAX;

impl TopologyPlan {
    pub(crate) fn new(config: &Config<'_>, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        let nodes = config.nodes();
        let zones = config.zones().count();
        if zones == 0 || zones > ZONES_MAX {
            return Err(Error::BadTopology);
        }
        let lists = nodes * ZoneKind::COUNT;
        Ok(TopologyPlan {
            zonelists: layout.table(SectionKind::Topology, lists * (1 + zones))?,
            zone_indexes: layout.table(SectionKind::Topology, lists)?,
            cpus: layout.table(SectionKind::Topology, config.cpu_nodes.len())?,
            nodes,
            zones,
        })
    }
}

impl Topology {
    pub(crate) fn carve(plan: &TopologyPlan, config: &Config<'_>, carver: &mut Carver) -> Self {
        let place = |node: NodeId, kind: ZoneKind| {
            config.zones().position(|zone| zone == (node, kind)).map(|index| index as u16)
        };
        // The first of each list's entries is its length.
        let stride = 1 + plan.zones;
        let zonelists = carver.table(plan.zonelists, |entry| {
            let (list, at) = (entry / stride, entry % stride);
            let from = NodeId::new((list / ZoneKind::COUNT) as u16);
            let limit = ZoneKind::ALL[list % ZoneKind::COUNT];
            match at.checked_sub(1) {
                None => zonelist(config, plan.nodes, from, limit).count() as u16,
                Some(nth) => zonelist(config, plan.nodes, from, limit)
                    .nth(nth)
                    .and_then(|(node, kind)| place(node, kind))
                    .unwrap_or(NO_ZONE),
            }
        });
        let zone_indexes = carver.table(plan.zone_indexes, |entry| {
            let node = NodeId::new((entry / ZoneKind::COUNT) as u16);
            place(node, ZoneKind::ALL[entry % ZoneKind::COUNT]).unwrap_or(NO_ZONE)
        });
        let cpus = carver.table(plan.cpus, |cpu| {
            let node = config.cpu_nodes[cpu];
            let best_zones = ZoneKind::ALL.map(|limit| {
                let first = (node.index() * ZoneKind::COUNT + limit.index()) * stride;
                // An empty list has no zone in its first entry either.
                *zonelists.get(first + 1)
            });
            Cpu { best_zones, node }
        });
        Topology { zonelists, zone_indexes, cpus, zones: plan.zones }
    }

    /// How many CPUs there are.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The zone of this kind on the node.
    pub(crate) fn zone(&self, node: NodeId, kind: ZoneKind) -> Option<ZoneIndex> {
        let entry = node.index() * ZoneKind::COUNT + kind.index();
        if entry >= self.zone_indexes.len() {
            return None;
        }
        let index = *self.zone_indexes.get(entry);
        (index != NO_ZONE).then_some(ZoneIndex(index))
    }

    /// A CPU number folded into the range of CPUs that there are.
    #[inline(always)]
    pub(crate) fn fold(&self, cpu: CpuId) -> usize {
        let (cpu, cpus) = (cpu.index(), self.cpus.len());
        // Nearly always in range, and a comparison is cheaper than a division.
        if cpu < cpus { cpu } else { cpu % cpus }
    }

    /// The node that a CPU is near to.
    #[inline(always)]
    pub(crate) fn node_of(&self, cpu: CpuId) -> NodeId {
        self.cpus.get(self.fold(cpu)).node
    }

    /// The zone that a request without a preference tries first. `cpu` is in range.
    #[inline(always)]
    pub(crate) fn best_zone(&self, cpu: usize, limit: ZoneKind) -> Option<ZoneIndex> {
        let zone = self.cpus.get(cpu).best_zones[limit.index()];
        (zone != NO_ZONE).then_some(ZoneIndex(zone))
    }

    /// How many CPUs are near to a node.
    pub(crate) fn cpus_of(&self, node: NodeId) -> usize {
        self.cpus.iter().filter(|cpu| cpu.node == node).count()
    }

    /// The zones that a request from `node` may use, best first.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNode`], or [`Error::UnknownZone`] if no zone of any node is within the
    /// limit.
    #[inline]
    pub(crate) fn zonelist(&self, node: NodeId, limit: ZoneKind) -> Result<&[u16], Error> {
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

/// The zones within `limit` in the order in which a request from `from` tries them: nodes by
/// distance, and on each node the least restricted zone first (Linux's node order).
pub(crate) fn zonelist<'a>(
    config: &'a Config<'a>,
    nodes: usize,
    from: NodeId,
    limit: ZoneKind,
) -> impl Iterator<Item = (NodeId, ZoneKind)> + 'a {
    // Equal distances are broken in a ring from the requesting node, so that the overflow of
    // different nodes goes to different neighbours.
    let key = move |to: usize| {
        let ring = (to + nodes - from.index()) % nodes;
        (config.distance(from.index(), to), ring)
    };
    let nth_nearest = move |nth: usize| {
        (0..nodes).find(|&to| (0..nodes).filter(|&other| key(other) < key(to)).count() == nth)
    };
    (0..nodes).filter_map(nth_nearest).flat_map(move |node| {
        let node = NodeId::new(node as u16);
        let kinds = ZoneKind::ALL.into_iter().rev();
        kinds
            .filter(move |&kind| kind <= limit && config.has_zone(node, kind))
            .map(move |kind| (node, kind))
    })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::config::MemoryRange;
    use crate::units::{FrameCount, Pfn};
    use std::vec::Vec;

    fn range(start: u64, node: u16, zone: ZoneKind) -> MemoryRange {
        MemoryRange::new(Pfn::new(start), FrameCount::new(1024))
            .on_node(NodeId::new(node))
            .in_zone(zone)
    }

    fn list(config: &Config<'_>, from: u16, limit: ZoneKind) -> Vec<(u16, ZoneKind)> {
        zonelist(config, config.nodes(), NodeId::new(from), limit)
            .map(|(node, kind)| (node.index() as u16, kind))
            .collect()
    }

    #[test]
    fn nearer_nodes_come_first_and_on_each_the_least_restricted_zone() {
        let ranges = [
            range(0, 0, ZoneKind::Dma32),
            range(1024, 0, ZoneKind::Normal),
            range(2048, 1, ZoneKind::Normal),
            range(3072, 2, ZoneKind::Normal),
            range(4096, 2, ZoneKind::Movable),
        ];
        let cpus = [NodeId::new(0), NodeId::new(1), NodeId::new(2)];
        let distances = [10, 30, 20, 30, 10, 20, 20, 20, 10];
        let config = Config { distances: &distances, ..Config::new(&ranges, &cpus) };
        use ZoneKind::{Dma32, Movable, Normal};
        assert_eq!(
            list(&config, 0, Movable),
            [(0, Normal), (0, Dma32), (2, Movable), (2, Normal), (1, Normal)]
        );
        assert_eq!(list(&config, 1, Normal), [(1, Normal), (2, Normal), (0, Normal), (0, Dma32)]);
        assert_eq!(list(&config, 2, Dma32), [(0, Dma32)]);
    }

    #[test]
    fn equal_distances_go_round_in_a_ring() {
        let ranges: Vec<_> =
            (0..4).map(|node| range(u64::from(node) * 1024, node, ZoneKind::Normal)).collect();
        let cpus = [NodeId::new(0)];
        let config = Config::new(&ranges, &cpus);
        let nodes = |from| -> Vec<u16> {
            list(&config, from, ZoneKind::Normal).into_iter().map(|zone| zone.0).collect()
        };
        assert_eq!(nodes(0), [0, 1, 2, 3]);
        assert_eq!(nodes(2), [2, 3, 0, 1]);
    }
}

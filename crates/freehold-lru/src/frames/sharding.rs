//! How many shards an lruvec may have, and how the 8 bits of a frame's home name node and shard.

use super::state::{HOMES_MAX, State};
use crate::id::{Place, ShardId};
use crate::settings::LruLock;
use freehold::config::Config;
use freehold::units::{CpuId, NodeId};

/// The most shards of an lruvec: with more, to go through them costs more than their locks save.
const SHARDS_MAX: usize = 64;

/// The division of lruvecs into shards: one for two CPUs of a node, which are the threads of one
/// core where the second threads are numbered after all first ones. With `nodes` nodes, the lowest
/// bits of a frame's home are the shard, the others are the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharding {
    shards: usize,
    bits: u32,
}

impl Sharding {
    /// None with more nodes than can be told apart.
    pub(crate) fn new(config: &Config<'_>, lock: LruLock) -> Option<Self> {
        let nodes = config.nodes();
        let most = HOMES_MAX / nodes.max(1);
        if most == 0 {
            return None;
        }
        let count = |node| config.cpu_nodes.iter().filter(|&&of| of == node).count();
        let cpus = (0..nodes).map(|node| count(NodeId::new(node as u16))).max().unwrap_or(0);
        let shards = match lock {
            LruLock::Node | LruLock::Group => 1,
            LruLock::Shards => cpus.div_ceil(2).clamp(1, SHARDS_MAX.min(1 << most.ilog2())),
        };
        Some(Sharding { shards, bits: shards.next_power_of_two().trailing_zeros() })
    }

    /// How many shards an lruvec has that is divided.
    pub(crate) const fn shards(self) -> usize {
        self.shards
    }

    /// The shard that a CPU adds to.
    pub(crate) fn of_cpu(self, config: &Config<'_>, cpu: CpuId) -> usize {
        let node = config.cpu_nodes[cpu.index()];
        let before = config.cpu_nodes[..cpu.index()].iter().filter(|&&of| of == node);
        before.count() % self.shards
    }

    /// The home of unused frames of a node.
    pub(crate) const fn home(self, node: NodeId) -> u8 {
        (node.index() << self.bits) as u8
    }

    /// The node of a frame.
    pub(crate) const fn node(self, state: State) -> u16 {
        state.home() as u16 >> self.bits
    }

    /// The lruvec that the group and the node of a frame name.
    pub(crate) const fn place(self, state: State) -> Place {
        Place { slot: state.slot(), node: self.node(state) }
    }

    /// The shard that a frame names.
    pub(crate) const fn shard(self, state: State) -> ShardId {
        self.place(state).shard(state.home() as usize & ((1 << self.bits) - 1))
    }

    /// A frame that names a shard of its node.
    pub(crate) const fn in_shard(self, state: State, id: ShardId) -> State {
        let whole = self.whole(state);
        whole.in_slot(id.place.slot).with_home(whole.home() | id.shard as u8)
    }

    /// A frame that names shard 0.
    pub(crate) const fn whole(self, state: State) -> State {
        state.with_home(state.home() >> self.bits << self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::config::MemoryRange;
    use freehold::units::{FrameCount, Pfn, ZoneKind};

    extern crate std;
    use std::vec::Vec;

    fn with(nodes: u16, cpus_a_node: usize, lock: LruLock) -> Option<(Sharding, Vec<usize>)> {
        let range = |node: u16| {
            let start = Pfn::new(u64::from(node) * 512);
            MemoryRange::new(start, FrameCount::new(512)).on_node(NodeId::new(node))
        };
        let ranges: Vec<_> = (0..nodes).map(range).collect();
        let cpus: Vec<_> = (0..cpus_a_node * usize::from(nodes))
            .map(|cpu| NodeId::new(cpu as u16 % nodes))
            .collect();
        let config = Config::new(&ranges, &cpus);
        let sharding = Sharding::new(&config, lock)?;
        let of = |cpu| sharding.of_cpu(&config, CpuId::new(cpu as u32));
        Some((sharding, (0..cpus.len()).map(of).collect()))
    }

    #[test]
    fn two_cpus_of_a_node_share_a_shard() {
        let (sharding, of) = with(2, 6, LruLock::Shards).unwrap();
        assert_eq!((sharding.shards(), sharding.bits), (3, 2));
        assert_eq!(of, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        for (nodes, cpus, shards) in
            [(1, 1, 1), (1, 2, 1), (1, 3, 2), (1, 1024, 64), (4, 56, 28), (16, 64, 16), (256, 8, 1)]
        {
            let (sharding, _) = with(nodes, cpus, LruLock::Shards).unwrap();
            assert_eq!(sharding.shards(), shards, "{nodes} nodes of {cpus} CPUs");
        }
        assert_eq!(with(4, 56, LruLock::Group).unwrap().0.shards(), 1);
        assert!(with(257, 1, LruLock::Shards).is_none());
    }

    #[test]
    fn a_home_is_a_node_and_a_shard() {
        let (sharding, _) = with(4, 56, LruLock::Shards).unwrap();
        let unused = State::unused(sharding.home(NodeId::new(3)), ZoneKind::Normal);
        let place = Place { slot: 7, node: 3 };
        for shard in [0, 1, 27] {
            let there = sharding.in_shard(unused, place.shard(shard));
            assert_eq!(sharding.shard(there), place.shard(shard));
            assert_eq!(sharding.whole(there), unused.in_slot(7));
        }
    }
}

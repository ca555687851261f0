//! How allocations have to be counted by node, and free memory by type.

use crate::common::TestPlatform;
use crate::machine::Machine;
use crate::naive::{Ask, Naive};
use freehold::designs::Design;
use freehold::{FrameCount, NumaEvents, ZoneStats};

/// Hits, misses, foreign, local and other frames, and those that interleaving chose, of each zone.
pub(crate) type Counts = Vec<[u64; 6]>;

/// As the machine counts.
pub(crate) fn counts<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>) -> Counts {
    let of = |NumaEvents { hit, miss, foreign, local, other, interleave_hit }| {
        [hit, miss, foreign, local, other, interleave_hit].map(FrameCount::get)
    };
    (0..).map_while(|zone| machine.numa_events(zone).map(of)).collect()
}

/// How many frames of each zone are in use.
pub(crate) fn used<D: Design<TestPlatform>>(machine: &Machine<TestPlatform, D>) -> Vec<u64> {
    let of = |zone: ZoneStats| zone.managed.get() - zone.free.get() - zone.per_cpu.get();
    machine.zones().map(of).collect()
}

impl Naive {
    /// Counts so many frames of each zone that a request from this CPU got.
    pub(crate) fn count(&self, counts: &mut Counts, ask: &Ask, cpu: u32, got: &[u64]) {
        // The best zone, even if the request was limited to a node without memory.
        let Ok(zones) = self.zonelist(&Ask { only_node: false, ..*ask }, cpu) else { return };
        let best = zones[0];
        let near = self.cpu_nodes[cpu as usize % self.cpu_nodes.len()];
        for (zone, &frames) in got.iter().enumerate() {
            let node = self.zones[zone].0;
            let is_hit = node == self.zones[best].0;
            counts[zone][usize::from(!is_hit)] += frames;
            counts[best][2] += if is_hit { 0 } else { frames };
            counts[zone][if node == near { 3 } else { 4 }] += frames;
            let is_chosen = ask.interleaved && ask.node.map(usize::from) == Some(node);
            counts[zone][5] += if is_chosen { frames } else { 0 };
        }
    }

    /// Checks that the types of each zone together have what the zone has. No CPU caches frames.
    pub(crate) fn check_types<D: Design<TestPlatform>>(&self, machine: &Machine<TestPlatform, D>) {
        for (index, zone) in machine.zones().enumerate() {
            let of = machine.free_by_type(index).expect("there is such a zone");
            for (order, &blocks) in zone.free_blocks.iter().enumerate() {
                let sum: u64 = of.blocks.iter().map(|of_type| of_type[order]).sum();
                assert_eq!(sum, blocks, "zone {index}, order {order}");
            }
            let pageblocks = self.block_zones.iter().filter(|&&zone| zone == Some(index)).count();
            assert_eq!(of.pageblocks.iter().sum::<u64>(), pageblocks as u64, "zone {index}");
        }
        assert_eq!(machine.free_by_type(self.zones.len()), None);
    }
}

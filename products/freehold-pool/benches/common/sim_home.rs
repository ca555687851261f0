//! The tables of a pool's slots on a simulated machine.

use freehold::designs::Freehold;
use freehold::{Config, CpuId, FrameCount, NodeId, PageAllocator};
use freehold_pool::slots::{CpuRecord, SlotRecord, SlotsSettings, Tables};
use freehold_sim::{Home, Machine, Sim, SimFrames, SimTable};

/// The tables, in regions of a machine.
pub(crate) struct SimHome {
    frames: SimFrames<Freehold<Sim>>,
    cpus: SimTable<CpuRecord<Sim>>,
    slots: SimTable<SlotRecord<Sim>>,
}

impl SimHome {
    pub(crate) fn new(machine: &mut Machine, settings: SlotsSettings, cpus: usize) -> Self {
        let node = |cpu| machine.spec().node_of(CpuId::new(cpu as u32));
        let nodes: Vec<NodeId> = (0..cpus).map(node).collect();
        let ranges = settings.frames(cpus);
        let config = Config::new(&ranges, &nodes).min_free(FrameCount::ZERO);
        let frames = SimFrames::new(machine, Sim, &config, &Default::default()).unwrap();
        let cpu = |cpu: usize| (CpuRecord::new(), Home::Node(nodes[cpu]));
        let slot = |_| (SlotRecord::new(), Home::FirstTouch);
        let cpus = SimTable::new(machine, "pool CPUs", cpus, cpu);
        let slots = SimTable::new(machine, "pool slots", settings.slots as usize, slot);
        SimHome { frames, cpus, slots }
    }
}

impl Tables<Sim> for SimHome {
    fn frames(&self) -> &PageAllocator<Sim, Freehold<Sim>> {
        &self.frames
    }

    fn cpus(&self) -> &[CpuRecord<Sim>] {
        &self.cpus
    }

    fn slots(&self) -> &[SlotRecord<Sim>] {
        &self.slots
    }
}

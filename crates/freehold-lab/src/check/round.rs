//! A round of a scenario: all CPUs work, and fail, as drawn from the seed.

use anyhow::Result;
use freehold_sim::{CpuHandle, Machine};

use super::scenario::Scenario;

/// Many times what the longest round takes: walking a circular list never ends.
const PATIENCE_ACCESSES: u64 = 200_000_000;

impl Scenario {
    /// The machine of the scenario. It detects if a run never ends.
    pub(super) fn machine(&self) -> Result<Machine> {
        let mut machine = Machine::new(&self.spec, self.seed ^ self.schedule_seed)?;
        machine.set_patience(PATIENCE_ACCESSES);
        machine.require_pins();
        Ok(machine)
    }

    /// Plays a round: `work` is the work of each CPU, with its own seed.
    pub(super) fn play_round(
        &self,
        machine: &mut Machine,
        round: usize,
        work: impl Fn(&CpuHandle, u64) + Clone + 'static,
    ) -> Result<()> {
        machine.set_schedule(self.schedule);
        // CPUs that left in an earlier round are back, and leave again.
        let mut faults = self.faults.clone();
        let began = machine.now_ns();
        faults.departures.iter_mut().for_each(|departure| departure.at_ns += began);
        machine.set_faults(faults);
        let cpus = self.spec.cpus();
        for cpu in (0..cpus).filter(|cpu| !self.idle_cpus.contains(cpu)) {
            let work = work.clone();
            let seed = self.seed ^ ((round * cpus + cpu + 1) as u64) << 40;
            machine.spawn(cpu, move |handle| work(handle, seed));
        }
        machine.run()?;
        Ok(())
    }
}

/// Does so many operations, or fewer if the CPU leaves; returns whether it does.
pub(super) fn goes_away(handle: &CpuHandle, operations: usize, mut step: impl FnMut()) -> bool {
    for _ in 0..operations {
        if handle.is_leaving() {
            return true;
        }
        step();
    }
    false
}

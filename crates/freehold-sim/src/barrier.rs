//! Barriers between virtual CPUs: a tool for workloads, at no cost.

use crate::account::Spent;
use crate::parts::Status;
use crate::spec::Picos;
use crate::state::State;

impl State {
    /// The running CPU arrives at a barrier; returns whether it may continue at once. All continue
    /// at the time at which the last one arrived. If that one `measures`, the accounting restarts
    /// at that time, and lasts so long.
    pub(crate) fn arrive(&mut self, gate: usize, measures: Option<Picos>) -> bool {
        let cpu = self.running;
        self.gates[gate].arrived.push(cpu);
        if self.gates[gate].arrived.len() < self.gates[gate].parties {
            self.goes_idle(cpu, Status::WaitsAtBarrier(gate));
            return false;
        }
        let arrived = std::mem::take(&mut self.gates[gate].arrived);
        let opens_at = arrived.iter().map(|&other| self.cpus[other].now).max().unwrap_or(0);
        for &other in &arrived {
            let waits = opens_at - self.cpus[other].now;
            self.spend(other, Spent::Barrier, waits);
        }
        if let Some(length) = measures {
            self.start_measuring(opens_at, length);
        }
        for other in arrived {
            if other != cpu {
                self.goes_to_work(other);
            }
        }
        true
    }
}

//! Barriers between virtual CPUs: a tool of workloads, free of charge.

use crate::account::Spent;
use crate::state::{State, Status};

/// A barrier and who has come to it.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) parties: usize,
    pub(crate) arrived: Vec<usize>,
}

impl State {
    /// The running CPU comes to a barrier; says whether it may go on at once. All go on at the time
    /// at which the last one came. If `measures`, the books start anew at that time.
    pub(crate) fn arrive(&mut self, gate: usize, measures: bool) -> bool {
        let cpu = self.running;
        self.gates[gate].arrived.push(cpu);
        if self.gates[gate].arrived.len() < self.gates[gate].parties {
            self.goes_idle(cpu, Status::WaitsAtBarrier(gate));
            return false;
        }
        let arrived = std::mem::take(&mut self.gates[gate].arrived);
        let opens_at = arrived.iter().map(|&other| self.cpus[other].now).max().unwrap_or(0);
        for &other in &arrived {
            let idle = opens_at - self.cpus[other].now;
            self.spend(other, Spent::Idle, idle);
        }
        if measures {
            self.start_measuring(opens_at);
        }
        for other in arrived {
            if other != cpu {
                self.goes_to_work(other);
            }
        }
        true
    }
}

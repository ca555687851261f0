//! Interrupts: handlers that run on a CPU between two accesses of its work.
//!
//! A handler is what the machine's user wants of one, such as calls of the allocator that the
//! interrupted work is in the middle of. It runs with interrupts off, on the stack of what it
//! interrupts, so that whatever waits for that waits forever: a deadlock, which ends the run.

use freehold::{CpuId, NodeId};

use crate::parts::Handler;
use crate::state::State;

impl State {
    /// Whether there are interrupts, and something that handles them.
    pub(crate) fn may_be_interrupted(&self) -> bool {
        self.handler.is_some() && self.faults.faults.interrupts_per_million > 0
    }

    /// Turns the running CPU's interrupts off, if they are on and it is interrupted now; returns
    /// what is to run.
    pub(crate) fn begin_interrupt(&mut self) -> Option<(Handler, CpuId, NodeId)> {
        let cpu = self.running;
        let may_be = self.cpus[cpu].irq_off_since.is_none() && !std::thread::panicking();
        if !may_be || !self.faults.interrupts() {
            return None;
        }
        let handler = self.handler.clone()?;
        self.irq_save();
        let id = CpuId::new(cpu as u32);
        Some((handler, id, self.spec.node_of(id)))
    }

    pub(crate) fn end_interrupt(&mut self) {
        self.irq_restore(0);
    }
}

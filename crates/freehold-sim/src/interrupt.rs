//! Interrupts: handlers that run on a CPU between two accesses of its work.
//!
//! A handler is what the machine's user wants of one, such as calls of the allocator that the
//! interrupted work is in the middle of. It runs with interrupts off, on the stack of what it
//! interrupts, so that whatever waits for that waits forever: a deadlock, which ends the run.

use std::rc::Rc;

use crate::cpu::CpuHandle;
use crate::machine::Machine;
use crate::parts::Handler;

impl Machine {
    /// Sets what runs on a CPU whenever [`Faults::interrupts_per_million`] has it interrupted, with
    /// interrupts off. Without a handler there are no interrupts.
    ///
    /// [`Faults::interrupts_per_million`]: crate::Faults::interrupts_per_million
    pub fn set_handler(&mut self, handler: impl Fn(&CpuHandle) + 'static) {
        let handler = move |cpu, node| handler(&CpuHandle::new(cpu, node));
        self.state_mut().handler = Some(Handler(Rc::new(handler)));
    }
}

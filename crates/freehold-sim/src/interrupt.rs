//! Interrupts: handlers that run on a CPU between two accesses of its work.
//!
//! A handler is what the machine's user wants of one, such as calls of the allocator that the
//! interrupted work is in the middle of. It runs with interrupts off, on the stack of what it
//! interrupts, so that whatever waits for that waits forever: a deadlock, which ends the run.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use freehold::CpuId;

use crate::cpu::CpuHandle;
use crate::current;
use crate::machine::Machine;
use crate::state::State;

thread_local! {
    /// Whether the machine that runs on this thread may be interrupted at all.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// What runs on a CPU that is interrupted.
#[derive(Clone)]
pub(crate) struct Handler(Rc<dyn Fn(&CpuHandle)>);

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl Machine {
    /// Sets what runs on a CPU whenever [`Faults::interrupts_per_million`] has it interrupted, with
    /// interrupts off. Without a handler there are no interrupts.
    ///
    /// [`Faults::interrupts_per_million`]: crate::Faults::interrupts_per_million
    pub fn set_handler(&mut self, handler: impl Fn(&CpuHandle) + 'static) {
        self.state_mut().handler = Some(Handler(Rc::new(handler)));
    }
}

/// Sets whether the machine of this thread may be interrupted.
pub(crate) fn set_on(is_on: bool) {
    IS_ON.set(is_on);
}

/// Where the running CPU may be interrupted: before an access of memory, or a step of a lock.
#[inline]
pub(crate) fn point() {
    if IS_ON.get() {
        interrupt();
    }
}

#[cold]
fn interrupt() {
    if let Some(Some((handle, Handler(handler)))) = current::with(State::begin_interrupt) {
        handler(&handle);
        current::with(State::end_interrupt);
    }
}

impl State {
    /// Whether there are interrupts, and something that handles them.
    pub(crate) fn may_be_interrupted(&self) -> bool {
        self.handler.is_some() && self.faults.faults.interrupts_per_million > 0
    }

    /// Turns the running CPU's interrupts off, if they are on and it is interrupted now; returns
    /// what is to run.
    fn begin_interrupt(&mut self) -> Option<(CpuHandle, Handler)> {
        let cpu = self.running;
        let may_be = self.cpus[cpu].irq_off_since.is_none() && !std::thread::panicking();
        if !may_be || !self.faults.interrupts() {
            return None;
        }
        let handler = self.handler.clone()?;
        self.irq_save();
        let id = CpuId::new(cpu as u32);
        Some((CpuHandle::new(id, self.spec.node_of(id)), handler))
    }

    fn end_interrupt(&mut self) {
        self.irq_restore(0);
    }
}

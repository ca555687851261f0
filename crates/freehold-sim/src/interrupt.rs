//! Interrupts: handlers that run on a CPU between two accesses of its work.
//!
//! A handler is what the machine's user wants of one, such as calls of the allocator that the
//! interrupted work is in the middle of. It runs with interrupts off, on the stack of what it
//! interrupts, so that whatever waits for that waits forever: a deadlock, which ends the run.

use std::cell::{Cell, RefCell};
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
    /// The handler of that machine.
    static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
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
        self.handler = Some(Handler(Rc::new(handler)));
    }
}

/// Lends the handler of a machine to this thread while the machine runs.
pub(crate) struct Lent;

impl Lent {
    pub(crate) fn new(handler: Option<&Handler>, per_million: u32) -> Self {
        IS_ON.set(handler.is_some() && per_million > 0);
        HANDLER.replace(handler.cloned());
        Lent
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        IS_ON.set(false);
        HANDLER.take();
    }
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
    let Some(Some(handle)) = current::with(State::begin_interrupt) else { return };
    if let Some(Handler(handler)) = HANDLER.with_borrow(Clone::clone) {
        handler(&handle);
    }
    current::with(State::end_interrupt);
}

impl State {
    /// Turns the running CPU's interrupts off, if they are on and it is interrupted now.
    fn begin_interrupt(&mut self) -> Option<CpuHandle> {
        let cpu = self.running;
        let may_be = self.cpus[cpu].irq_off_since.is_none() && !std::thread::panicking();
        (may_be && self.faults.interrupts()).then(|| {
            self.irq_save();
            let id = CpuId::new(cpu as u32);
            CpuHandle::new(id, self.spec.node_of(id))
        })
    }

    fn end_interrupt(&mut self) {
        self.irq_restore(0);
    }
}

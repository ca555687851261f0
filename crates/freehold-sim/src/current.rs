//! The machine that runs on this thread: how the platform's storage finds it.

use std::cell::{Cell, RefCell};

use freehold::{CpuId, NodeId};

use crate::access::Op;
use crate::coroutine;
use crate::parts::Handler;
use crate::state::State;

thread_local! {
    static CURRENT: RefCell<Option<Box<State>>> = const { RefCell::new(None) };
    /// Whether the machine that runs on this thread may be interrupted at all.
    static MAY_BE_INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Makes `state` the machine of this thread.
///
/// # Panics
///
/// If a machine runs on this thread already.
pub(crate) fn enter(state: Box<State>) {
    let may_be_interrupted = state.may_be_interrupted();
    let previous = CURRENT.replace(Some(state));
    assert!(previous.is_none(), "a machine cannot run inside another one");
    MAY_BE_INTERRUPTED.set(may_be_interrupted);
}

/// Removes the machine of this thread.
pub(crate) fn leave() -> Option<Box<State>> {
    MAY_BE_INTERRUPTED.set(false);
    CURRENT.take()
}

/// Acts on the running machine; `None` outside one.
#[inline]
pub(crate) fn with<R>(act: impl FnOnce(&mut State) -> R) -> Option<R> {
    CURRENT.with_borrow_mut(|slot| slot.as_mut().map(|state| act(state)))
}

/// Where the running CPU may be interrupted: before an access of memory, or a step of a lock.
#[inline]
fn interrupt_point() {
    if MAY_BE_INTERRUPTED.get() {
        interrupt();
    }
}

#[cold]
fn interrupt() {
    if let Some(Some((Handler(handler), cpu, node))) = with(State::begin_interrupt) {
        handler(cpu, node);
        with(State::end_interrupt);
    }
}

impl State {
    /// Whether there are interrupts, and something that handles them.
    fn may_be_interrupted(&self) -> bool {
        self.handler.is_some() && self.faults.faults.interrupts_per_million > 0
    }

    /// Turns the running CPU's interrupts off, if they are on and it is interrupted now; returns
    /// what is to run.
    fn begin_interrupt(&mut self) -> Option<(Handler, CpuId, NodeId)> {
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

    fn end_interrupt(&mut self) {
        self.irq_restore(0);
    }
}

/// Acts on the running machine when no other CPU is earlier: the order of all accesses of shared
/// memory. `None` outside a machine. `address` is that of the memory about to be accessed, or 0.
#[inline]
pub(crate) fn in_turn<R>(address: usize, act: impl FnOnce(&mut State) -> R) -> Option<R> {
    interrupt_point();
    if_or_when(State::keeps_turn, address, act)
}

/// Acts on the running machine at once if the access that follows stays within the core, otherwise
/// when no other CPU is earlier.
#[inline]
pub(crate) fn within_core<R>(
    address: usize,
    op: Op,
    act: impl FnOnce(&mut State) -> R,
) -> Option<R> {
    interrupt_point();
    if_or_when(|state| state.stays_within_core(address, op) || state.keeps_order(), address, act)
}

/// Waits until no other CPU is earlier, so that the running one leaves the machine in the order of
/// virtual time.
pub(crate) fn wait_for_order() {
    if_or_when(State::keeps_order, 0, |_| ());
}

/// Acts on the running machine, if `may` says so now, or when the CPU, which `may` has put in the
/// queue, has its turn.
#[inline]
fn if_or_when<R>(
    may: impl FnOnce(&mut State) -> bool,
    address: usize,
    act: impl FnOnce(&mut State) -> R,
) -> Option<R> {
    CURRENT.with(|slot| {
        {
            let mut slot = slot.borrow_mut();
            let state = slot.as_mut()?;
            if may(state) {
                return Some(act(state));
            }
            state.prefetch(address);
        }
        coroutine::suspend();
        slot.borrow_mut().as_mut().map(|state| act(state))
    })
}

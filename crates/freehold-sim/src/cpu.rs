//! What the work of a virtual CPU can do, besides using an allocator.

use std::marker::PhantomData;

use freehold::{CpuId, NodeId, Pfn};

use crate::account::Path;
use crate::coroutine;
use crate::current;
use crate::parts::NEVER;
use crate::spec::{Key, Picos};
use crate::state::State;

/// A barrier between virtual CPUs. Made by [`crate::Machine::barrier`]; copies are the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Barrier(pub(crate) usize);

/// A lock of a workload. Made by [`crate::Machine::lock`]; copies are the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkLock(pub(crate) usize);

/// The virtual CPU that runs a piece of work: its clock, and operations that advance it.
///
/// A handle is lent to the work and works only while that runs.
#[derive(Debug)]
pub struct CpuHandle {
    cpu: CpuId,
    node: NodeId,
    /// Must not be sent to another thread, where there is no such machine.
    marker: PhantomData<*const ()>,
}

/// Acts on the running machine; wherever there is a handle, there is one.
fn machine<R>(act: impl FnOnce(&mut State) -> R) -> R {
    current::with(act).expect("a handle is used only while its machine runs")
}

/// As [`machine`], in the order of virtual time.
fn machine_in_turn<R>(act: impl FnOnce(&mut State) -> R) -> R {
    current::in_turn(0, act).expect("a handle is used only while its machine runs")
}

impl CpuHandle {
    pub(crate) fn new(cpu: CpuId, node: NodeId) -> Self {
        CpuHandle { cpu, node, marker: PhantomData }
    }

    /// The number of this CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The node whose memory is local to this CPU.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The virtual time of this CPU in nanoseconds, rounded down.
    pub fn now_ns(&self) -> u64 {
        self.now_ps() / 1000
    }

    /// The virtual time of this CPU in picoseconds.
    pub fn now_ps(&self) -> u64 {
        machine(|m| m.cpus[m.running].now)
    }

    /// Computes for `ns` nanoseconds, without touching modelled memory. Takes longer while the
    /// sibling of this CPU is at work.
    pub fn compute_ns(&self, ns: u64) {
        machine(|m| m.compute(ns * 1000));
    }

    /// Performs work outside the allocator at the price in the machine's table, such as
    /// [`Key::TrapNs`]. It is computation, like [`CpuHandle::compute_ns`].
    pub fn charge(&self, work: Key) {
        machine(|m| m.compute(m.price(work)));
    }

    /// Idles for `ns` nanoseconds, in the order of virtual time: meanwhile the sibling of this CPU
    /// has the core to itself.
    ///
    /// # Panics
    ///
    /// If virtual time ends before.
    pub fn idle_ns(&self, ns: u64) {
        if !machine_in_turn(|m| m.idle(ns.saturating_mul(1000))) {
            coroutine::suspend();
        }
    }

    /// Clears a frame in the memory of `node`. The frame's content moves through the
    /// caches and evicts other data; accesses of memory take bandwidth.
    pub fn clear_frame(&self, pfn: Pfn, node: NodeId) {
        machine_in_turn(|m| m.use_frame(pfn.get(), node, true));
    }

    /// Touches one line of a frame's content in the memory of `node`.
    pub fn touch_frame(&self, pfn: Pfn, node: NodeId) {
        machine_in_turn(|m| m.use_frame(pfn.get(), node, false));
    }

    /// Does `work` as part of a path, to which its time and its waiting are accounted.
    pub fn on_path<R>(&self, path: Path, work: impl FnOnce() -> R) -> R {
        let before = machine(|m| std::mem::replace(&mut m.cpus[m.running].path, path));
        let result = work();
        machine(|m| m.cpus[m.running].path = before);
        result
    }

    /// Does one allocation or one free: as [`CpuHandle::on_path`], and its latency is recorded.
    pub fn timed<R>(&self, path: Path, work: impl FnOnce() -> R) -> R {
        let began = self.now_ps();
        let result = self.on_path(path, work);
        machine(|m| m.books.enter_call(path, began, m.cpus[m.running].now));
        result
    }

    /// Waits until no other CPU is earlier. After that, and until the next access of shared memory,
    /// this CPU may use data of the host that other CPUs use as well, in the order of virtual time.
    pub fn in_order(&self) {
        machine_in_turn(|_| ());
    }

    /// Takes a lock of the workload, waiting in its queue if need be.
    pub fn lock(&self, lock: WorkLock) {
        if !machine_in_turn(|m| m.lock(lock.0)) {
            coroutine::suspend();
        }
    }

    /// Releases a lock of the workload.
    ///
    /// # Panics
    ///
    /// If this CPU does not hold it.
    pub fn unlock(&self, lock: WorkLock) {
        machine_in_turn(|m| m.unlock(lock.0));
    }

    /// Waits until as many CPUs have arrived at the barrier as it has parties. All continue at the
    /// time at which the last one arrived.
    pub fn wait(&self, barrier: Barrier) {
        self.arrive(barrier, None);
    }

    /// As [`CpuHandle::wait`], and the accounting restarts when all have arrived: what came before
    /// was a warm-up. Every CPU of the run must be a party. If parties make different calls, that
    /// of the last one to arrive decides.
    pub fn start_measuring(&self, barrier: Barrier) {
        self.arrive(barrier, Some(NEVER));
    }

    /// As [`CpuHandle::start_measuring`], and the accounting ends `ns` nanoseconds after it began,
    /// so that all shares are shares of one window, however long the last calls take. CPUs continue
    /// past its end: they learn from [`CpuHandle::now_ns`] that it has come.
    ///
    /// Of the time of every CPU, of waits for locks and holds, and of sections with interrupts off,
    /// what lies within the window counts. Calls (latencies, acquisitions), accesses and traffic of
    /// memory count if they began within it, calls with all of their latency.
    /// [`Report::overrun_ns_max`](crate::Report::overrun_ns_max) is how late the last CPU ended.
    pub fn start_measuring_for(&self, barrier: Barrier, ns: u64) {
        self.arrive(barrier, Some(ns.saturating_mul(1000)));
    }

    fn arrive(&self, barrier: Barrier, measures: Option<Picos>) {
        if !machine_in_turn(|m| m.arrive(barrier.0, measures)) {
            coroutine::suspend();
        }
    }

    /// Whether this CPU is to leave now: the work stops at the next point where it can, holding no
    /// lock, and leaves its per-CPU data as they are.
    pub fn is_leaving(&self) -> bool {
        machine(|m| m.cpus[m.running].now >= m.cpus[m.running].leaves_at)
    }

    /// Switches all failures off, for all CPUs: at the end of a test, when everything must recover.
    pub fn stop_faults(&self) {
        machine(State::stop_faults);
    }
}

//! What the state of a machine consists of: CPUs, locks, barriers, and what strikes them.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use freehold::{CpuId, NodeId};

use crate::account::Path;
use crate::fault::Halt;
use crate::spec::Picos;

/// A time that never comes.
pub(crate) const NEVER: Picos = Picos::MAX;

/// What a CPU waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It takes no part.
    Absent,
    /// It runs, or would if it were its turn.
    Ready,
    /// It is off its core until its turn comes.
    Idle,
    /// Its turn comes when it gets this lock.
    WaitsForLock(usize),
    /// Its turn comes when all have arrived at this barrier.
    WaitsAtBarrier(usize),
    /// It waits in a loop for a CPU that has stopped, and gets no more turns.
    WaitsForEver,
    /// A failure has stopped it forever.
    Halted,
    /// Its work is done.
    Finished,
}

/// One virtual CPU.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) now: Picos,
    pub(crate) core: usize,
    pub(crate) status: Status,
    pub(crate) path: Path,
    pub(crate) locks_held: u32,
    /// Since when interrupts are off, if they are.
    pub(crate) irq_off_since: Option<Picos>,
    /// How often they were disabled and not restored.
    pub(crate) irq_saves: u32,
    /// How many pins are under way: locks are taken by callers that are pinned.
    pub(crate) pins: u32,
    /// When it is to leave.
    pub(crate) leaves_at: Picos,
    /// Whether it is in a call that a failure may stop.
    pub(crate) is_in_call: bool,
}

/// A CPU in the queue of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) cpu: usize,
    /// When it called `lock`.
    pub(crate) since: Picos,
}

/// One lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    /// The number of its class in the accounting.
    pub(crate) class: usize,
    /// Its number within the class, for messages.
    pub(crate) number: u64,
    /// Its address in host memory, which only identifies it.
    pub(crate) address: usize,
    /// Its line, unless it lies outside every region.
    pub(crate) line: Option<usize>,
    pub(crate) holder: Option<usize>,
    pub(crate) held_since: Picos,
    pub(crate) queue: VecDeque<Waiter>,
}

/// A barrier and the CPUs that have arrived at it.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) parties: usize,
    pub(crate) arrived: Vec<usize>,
}

/// The machine's state about the CPU that is to stop.
#[derive(Debug, Default)]
pub(crate) struct Halting {
    pub(crate) halt: Option<Halt>,
    /// Whether it has stopped.
    pub(crate) is_halted: bool,
    /// Calls that it has started.
    pub(crate) calls: u64,
    /// Calls of all CPUs that have ended.
    pub(crate) ended: u64,
    /// For each CPU: a value of `ended`, and the accesses that the CPU has made since.
    pub(crate) since: Vec<(u64, u64)>,
}

impl Halting {
    pub(crate) fn new(halt: Option<Halt>, cpus: usize) -> Self {
        Halting { halt, since: vec![(0, 0); cpus], ..Halting::default() }
    }

    /// Whether steps must be counted.
    pub(crate) fn is_set(&self) -> bool {
        self.halt.is_some()
    }

    /// What becomes of a CPU in a call, before an access: it stops forever, or has waited for too
    /// long. `None` if it goes on. The CPU that `hangs` waits as soon as another one has stopped.
    pub(crate) fn strike(&mut self, cpu: usize, hangs: Option<usize>) -> Option<Status> {
        let halt = self.halt.as_mut()?;
        let since = &mut self.since[cpu];
        if since.0 != self.ended {
            *since = (self.ended, 0);
        }
        since.1 += 1;
        let hangs = self.is_halted && hangs == Some(cpu);
        let is_due = !self.is_halted && cpu == halt.cpu && self.calls > halt.call;
        if hangs || since.1 > halt.patience_accesses {
            Some(Status::WaitsForEver)
        } else if is_due && halt.step == 0 {
            self.is_halted = true;
            Some(Status::Halted)
        } else {
            halt.step -= u64::from(is_due);
            None
        }
    }
}

/// What runs on a CPU that is interrupted.
#[derive(Clone)]
pub(crate) struct Handler(pub(crate) Rc<dyn Fn(CpuId, NodeId)>);

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

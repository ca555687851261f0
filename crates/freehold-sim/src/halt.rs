//! A CPU that stops forever in the middle of a call, and the effect on the others.
//!
//! The CPU keeps what it has: locks, and interrupts off. A CPU in the queue of such a lock gets no
//! more turns. One that waits in a loop does, so there is a bound: a CPU that, in one call, has
//! made so many accesses while no call of any CPU has ended counts as waiting forever, and gets no
//! more turns either. The rest continue, in this run and in later ones. The bound also applies
//! before the CPU has stopped, or if it does not: then nothing may wait forever.

use crate::current;
use crate::machine::Machine;
use crate::parts::Status;
use crate::platform::Sim;
use crate::state::State;

/// A CPU that has stopped forever, and what it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted {
    /// The CPU.
    pub cpu: usize,
    /// The locks that it holds, by the names of messages.
    pub locks: Vec<String>,
    /// Whether it has interrupts off.
    pub irqs_off: bool,
}

/// A CPU that waits forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The CPU.
    pub cpu: usize,
    /// The lock in whose queue it is, and the CPU that holds the lock. `None`: it waits in a loop.
    pub lock: Option<(String, usize)>,
}

impl Sim {
    /// Makes a call, in the middle of which the running CPU may [stop forever](crate::Halt). `call`
    /// gets the number of the CPU, which no failure falsifies; 0 outside a machine.
    pub fn in_call<R>(&self, call: impl FnOnce(usize) -> R) -> R {
        let cpu = current::with(State::begin_call);
        let result = call(cpu.unwrap_or(0));
        current::with(State::end_call);
        result
    }

    /// Whether a CPU of the running machine has stopped forever.
    pub fn has_halted(&self) -> bool {
        current::with(|machine| machine.halting.is_halted).unwrap_or(false)
    }
}

impl State {
    fn begin_call(&mut self) -> usize {
        let cpu = self.running;
        self.cpus[cpu].is_in_call = true;
        if self.halting.halt.is_some_and(|halt| halt.cpu == cpu) {
            self.halting.calls += 1;
        }
        cpu
    }

    fn end_call(&mut self) {
        self.cpus[self.running].is_in_call = false;
        self.halting.ended += 1;
    }
}

impl Machine {
    /// The CPU that has stopped forever, if one has, and what it keeps.
    pub fn halted(&self) -> Option<Halted> {
        let state = self.state();
        let cpu = state.cpus.iter().position(|cpu| cpu.status == Status::Halted)?;
        let holder = |number: &usize| state.holder_and_waiters(*number).0;
        let held = (0..state.locks.len()).filter(|number| holder(number) == Some(cpu));
        Some(Halted {
            cpu,
            locks: held.map(|number| state.name_of(number)).collect(),
            irqs_off: state.cpus[cpu].irq_off_since.is_some(),
        })
    }

    /// The CPUs that wait forever, in the order of their numbers, if a [`Halt`](crate::Halt) was
    /// set.
    pub fn waiting(&self) -> Vec<Waiting> {
        let state = self.state();
        let of_cpu = |cpu: usize| match state.cpus[cpu].status {
            Status::WaitsForEver => Some(Waiting { cpu, lock: None }),
            Status::WaitsForLock(number) => {
                let holder = state.holder_and_waiters(number).0;
                Some(Waiting { cpu, lock: holder.map(|holder| (state.name_of(number), holder)) })
            }
            _ => None,
        };
        (0..state.cpus.len()).filter_map(of_cpu).collect()
    }

    /// Unwinds the work of all CPUs that wait forever, outside the machine, so that only the
    /// effects of the halted one remain. Run the machine no more.
    pub fn unwind_waiting(&mut self) {
        let halted = self.halted().map(|halted| halted.cpu);
        self.drop_work_out(|cpu| Some(cpu) != halted);
    }
}

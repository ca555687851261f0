//! A machine: set up, give it work, run it.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold::{CpuId, FrameCount, NodeId, Pfn};

use crate::account::DataBooks;
use crate::coroutine::Task;
use crate::cpu::{Barrier, CpuHandle, WorkLock};
use crate::current;
use crate::fault::Faults;
use crate::frames;
use crate::parts::{Gate, NEVER, Status};
use crate::region::{Home, Kind, Region};
use crate::report::Report;
use crate::schedule::Schedule;
use crate::spec::{BadSpec, Spec};
use crate::state::State;

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The work of a CPU panicked. The others were stopped where they were.
    #[error("CPU {cpu} panicked at {time_ns} ns, seed {seed}: {message}")]
    Panicked {
        /// The CPU.
        cpu: usize,
        /// Its virtual time in nanoseconds.
        time_ns: u64,
        /// The seed of the machine.
        seed: u64,
        /// The message of the panic.
        message: String,
    },
    /// All remaining CPUs wait for something that none of them will do.
    #[error("deadlock at {time_ns} ns, seed {seed}: {waits}")]
    Deadlock {
        /// The latest virtual time of a CPU in nanoseconds.
        time_ns: u64,
        /// The seed of the machine.
        seed: u64,
        /// Which CPUs wait for what, and which hold it.
        waits: String,
    },
}

/// A simulated machine.
///
/// A machine is set up, given work with [`Machine::spawn`], and [run](Machine::run). It can then be
/// given more work: caches and clocks continue, the accounting of each run is its own. One machine
/// runs on a thread at a time; any number run on as many threads.
///
/// ```
/// use freehold::platform::{LockClass, RawLock};
/// use freehold_sim::{Machine, Path, SimLock, preset};
/// use std::rc::Rc;
///
/// let mut machine = Machine::new(&preset("uma-2")?, 1)?;
/// let lock = Rc::new(SimLock::new(LockClass::Zone));
/// for cpu in 0..2 {
///     let lock = Rc::clone(&lock);
///     machine.spawn(cpu, move |handle| {
///         handle.on_path(Path::Alloc, || lock.lock());
///         handle.compute_ns(100);
///         lock.unlock();
///     });
/// }
/// let report = machine.run()?;
/// assert_eq!(report.locks[0].acquisitions, 2);
/// assert!(report.time_share["zone_lock.alloc"] > 0.3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Machine {
    /// Absent only while the machine runs.
    state: Option<Box<State>>,
    tasks: Vec<(usize, Task)>,
    /// The work of CPUs that stopped forever, and of those that wait for them.
    out: Vec<(usize, Task)>,
    regions: Vec<Region>,
}

impl Machine {
    /// A machine with cold caches. The seed decides ties of the schedule and all failures.
    ///
    /// # Errors
    ///
    /// The specification cannot be built, see [`Spec::check`].
    pub fn new(spec: &Spec, seed: u64) -> Result<Self, BadSpec> {
        spec.check()?;
        let state = Some(Box::new(State::new(spec, seed)));
        Ok(Machine { state, tasks: Vec::new(), out: Vec::new(), regions: Vec::new() })
    }

    /// What the machine was built from.
    pub fn spec(&self) -> &Spec {
        &self.state().spec
    }

    /// Sets how the next CPU is chosen.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.state_mut().queue.set_schedule(schedule);
    }

    /// Sets the failures of later runs.
    pub fn set_faults(&mut self, faults: Faults) {
        self.state_mut().set_faults(faults);
    }

    /// From now on, a lock that is taken by a caller which is neither pinned nor has interrupts off
    /// ends the run as a panic does: in a kernel, its holder could be preempted, and others would
    /// spin meanwhile. Locks of [`LockClass::Owner`](freehold::platform::LockClass::Owner) are the
    /// user's own affair.
    pub fn require_pins(&mut self) {
        self.state_mut().requires_pins = true;
    }

    /// Sets the maximum number of accesses of all CPUs in each run. A run that makes more ends as
    /// if a CPU had panicked, which detects work that never ends.
    pub fn set_patience(&mut self, accesses: u64) {
        self.state_mut().patience = accesses;
    }

    /// The virtual time in nanoseconds that all CPUs have reached: where the next run starts.
    pub fn now_ns(&self) -> u64 {
        self.state().cpus.iter().map(|cpu| cpu.now).max().unwrap_or(0) / 1000
    }

    /// Adds a region of zeroed memory: `bytes` rounded up to whole lines, at a multiple of `align`.
    /// Costs the host 24 bytes for every line, and the memory as far as it is used.
    ///
    /// # Panics
    ///
    /// If `align` is not a power of two, or all regions together have more than 2^32 lines.
    pub fn map_region(&mut self, bytes: usize, align: usize) -> Region {
        let mut region = Region::allocate(bytes, align);
        let start = region.as_ptr().as_ptr() as usize;
        region.first_line = self.state_mut().map(start, region.len());
        assert!(u32::try_from(self.state().hierarchy.lines.len()).is_ok(), "more than 2^32 lines");
        self.regions.push(region.clone());
        region
    }

    /// A kind of data of this name, for [`Machine::label`].
    ///
    /// # Panics
    ///
    /// If there are more than 256 kinds.
    pub fn kind(&mut self, name: &str) -> Kind {
        let state = self.state_mut();
        let number = state.kinds.iter().position(|kind| kind == name).unwrap_or_else(|| {
            state.kinds.push(name.to_owned());
            state.books.data.push(DataBooks::default());
            state.kinds.len() - 1
        });
        Kind(u8::try_from(number).expect("at most 256 kinds of data"))
    }

    /// Sets the kind of data of a range of offsets. A line that two kinds share has the one that
    /// was set last.
    ///
    /// # Panics
    ///
    /// If the range ends past the region.
    pub fn label(&mut self, region: &Region, offsets: Range<usize>, kind: Kind) {
        for line in &mut self.state_mut().hierarchy.lines[region.lines(offsets)] {
            line.kind = kind.0;
        }
    }

    /// Sets the node whose memory holds a range of offsets.
    ///
    /// # Panics
    ///
    /// If the range ends past the region, or there is no such node.
    pub fn home(&mut self, region: &Region, offsets: Range<usize>, home: Home) {
        let nodes = self.state().spec.nodes();
        let lines = region.lines(offsets);
        match home {
            Home::FirstTouch => self.state_mut().set_home(lines, None),
            Home::Node(node) => {
                assert!(node.index() < nodes, "there is no {node}");
                self.state_mut().set_home(lines, Some(node));
            }
            Home::Interleave => {
                const STEP: usize = frames::LINES as usize;
                for (page, start) in lines.clone().step_by(STEP).enumerate() {
                    let node = NodeId::new((page % nodes) as u16);
                    self.state_mut().set_home(start..lines.end.min(start + STEP), Some(node));
                }
            }
        }
    }

    /// Tracks the contents of `count` frames from `first` on, which [`CpuHandle::clear_frame`] and
    /// [`CpuHandle::touch_frame`] move through the caches. Other frames are never found in a cache.
    /// Costs the host 12 bytes a frame.
    pub fn follow_frames(&mut self, first: Pfn, count: FrameCount) {
        self.state_mut().hierarchy.frames.cover(first.get(), count.get() as usize);
    }

    /// A barrier at which `parties` CPUs meet, any number of times.
    pub fn barrier(&mut self, parties: usize) -> Barrier {
        let state = self.state_mut();
        state.gates.push(Gate { parties, arrived: Vec::new() });
        Barrier(state.gates.len() - 1)
    }

    /// A lock of the workload on its own line in the memory of `node`. Locks with the same name are
    /// one class in the report.
    pub fn lock(&mut self, name: &'static str, node: NodeId) -> WorkLock {
        let kind = self.kind("workload");
        let state = self.state_mut();
        let line = state.add_lines(1);
        state.hierarchy.lines[line].kind = kind.0;
        state.set_home(line..line + 1, Some(node));
        WorkLock(state.add_lock(0, Some(line), name))
    }

    /// Gives a CPU work for the next run. It starts when the run does.
    ///
    /// # Panics
    ///
    /// If there is no such CPU, it has work already, or it has stopped or waits forever.
    pub fn spawn(&mut self, cpu: usize, work: impl FnOnce(&CpuHandle) + 'static) {
        let state = self.state_mut();
        assert!(cpu < state.cpus.len(), "the machine has no CPU {cpu}");
        assert!(state.cpus[cpu].status != Status::Ready, "CPU {cpu} has work already");
        assert!(!state.is_out(cpu), "CPU {cpu} gets no turn any more");
        state.cpus[cpu].status = Status::Ready;
        let id = CpuId::new(cpu as u32);
        let handle = CpuHandle::new(id, state.spec.node_of(id));
        let work = move || {
            work(&handle);
            // Its sibling has the core to itself from then on, and not earlier.
            current::wait_for_order();
        };
        self.tasks.push((cpu, Task::new(work)));
    }

    /// Runs all work to its end. If a failure [stops a CPU forever](crate::Halt), runs until that
    /// CPU has stopped and all others are done or wait forever, see [`Machine::halted`] and
    /// [`Machine::waiting`].
    ///
    /// # Errors
    ///
    /// The work of a CPU panicked, or CPUs wait for each other in a circle. Unfinished work is
    /// dropped where it stopped. The machine keeps no work, but locks may be left held: do not use
    /// it again.
    ///
    /// # Panics
    ///
    /// If another machine runs on this thread.
    pub fn run(&mut self) -> Result<Report, RunError> {
        let mut tasks: Vec<Option<Task>> = Vec::new();
        let state = self.state_mut();
        tasks.resize_with(state.cpus.len(), || None);
        let start = state.cpus.iter().map(|cpu| cpu.now).max().unwrap_or(0);
        state.begin(start);
        for (cpu, task) in self.tasks.drain(..) {
            tasks[cpu] = Some(task);
        }
        if let Some(state) = self.state.take() {
            current::enter(state);
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| take_turns(&mut tasks))).err();
        self.state = current::leave();
        if panicked.is_none() {
            for (cpu, task) in tasks.iter_mut().enumerate() {
                if self.state().is_out(cpu) {
                    self.out.extend(task.take().map(|task| (cpu, task)));
                }
            }
        }
        // Unfinished work unwinds here, outside the machine, where nothing costs or waits.
        drop(tasks);
        match panicked {
            Some(payload) => {
                let cpu = self.state().running;
                Err(RunError::Panicked {
                    cpu,
                    time_ns: self.state().cpus[cpu].now / 1000,
                    seed: self.state().seed,
                    message: message_of(payload.as_ref()),
                })
            }
            None => match self.state().waits() {
                Some(waits) => Err(RunError::Deadlock {
                    time_ns: self.now_ns(),
                    seed: self.state().seed,
                    waits,
                }),
                None => Ok(Report::new(self.state())),
            },
        }
    }

    /// Drops the work of CPUs that get no more turns.
    pub(crate) fn drop_work_out(&mut self, is_meant: impl Fn(usize) -> bool) {
        self.out.retain(|(cpu, _)| !is_meant(*cpu));
    }

    pub(crate) fn state(&self) -> &State {
        self.state.as_deref().expect("the machine is not running")
    }

    pub(crate) fn state_mut(&mut self) -> &mut State {
        self.state.as_deref_mut().expect("the machine is not running")
    }
}

/// Runs the work of all CPUs on the machine of this thread, until all is done or all wait. A panic
/// in the work of a CPU, which is then the running one, propagates.
fn take_turns(tasks: &mut [Option<Task>]) {
    while let Some(Some(cpu)) = current::with(State::next_turn) {
        if let Some(task) = &mut tasks[cpu]
            && task.resume()
        {
            current::with(|state| state.finish(cpu));
        }
    }
}

/// The message that a panic was raised with.
fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

impl State {
    /// Starts a run of all CPUs that have work.
    fn begin(&mut self, start: u64) {
        self.start_measuring(start, NEVER);
        self.accesses_left = self.patience;
        self.at_work.fill(0);
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].status == Status::Ready {
                self.cpus[cpu].now = start;
                self.goes_to_work(cpu);
            } else if !self.is_out(cpu) {
                self.cpus[cpu].status = Status::Absent;
            }
        }
    }

    /// The work of a CPU is done.
    fn finish(&mut self, cpu: usize) {
        self.goes_idle(cpu, Status::Finished);
        self.cpus[cpu].leaves_at = NEVER;
    }

    /// What the remaining CPUs wait for; `None` if none remains.
    fn waits(&self) -> Option<String> {
        let mut waits = Vec::new();
        for number in 0..self.locks.len() {
            let (holder, mut waiters) = self.holder_and_waiters(number);
            waiters.retain(|&cpu| !self.is_out(cpu));
            if waiters.is_empty() {
                continue;
            }
            let holder = match holder {
                Some(cpu) => match self.cpus[cpu].status {
                    Status::Finished | Status::Absent => format!("CPU {cpu}, which is done"),
                    _ => format!("CPU {cpu}"),
                },
                None => "no CPU".to_owned(),
            };
            waits.push(format!(
                "{} is held by {holder} and waited for by {}",
                self.name_of(number),
                list(&waiters)
            ));
        }
        for (number, gate) in self.gates.iter().enumerate() {
            if !gate.arrived.is_empty() {
                waits.push(format!(
                    "barrier {number} of {} has only {}",
                    gate.parties,
                    list(&gate.arrived)
                ));
            }
        }
        (!waits.is_empty()).then(|| waits.join("; "))
    }
}

/// CPUs as a list for a message.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(|cpu| format!("CPU {cpu}")).collect::<Vec<_>>().join(", ")
}

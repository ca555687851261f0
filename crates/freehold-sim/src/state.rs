//! The running machine: its CPUs, its clock, and all state that they act on.

use freehold::{CpuId, NodeId};

use crate::access::{Asker, Op, Outcome};
use crate::account::{Books, Path, Spent, Window};
use crate::fault::{FaultState, Faults};
use crate::hierarchy::{Hierarchy, Line, NO_HOME};
use crate::parts::{Cpu, Gate, Halting, Handler, Lock, NEVER, Status};
use crate::prefetch::prefetch;
use crate::schedule::{Queue, TIME_MAX};
use crate::spec::{CoreCosts, Key, Picos, Spec, picos};

/// Where a region lies in host memory, and which lines belong to it.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: usize,
    bytes: usize,
    first_line: usize,
    /// Bytes in a line of the directory: 64, or fewer where a line has other data as well.
    line_bytes: usize,
    /// Computation that comes with each access.
    work: Picos,
}

#[cold]
fn time_ends() {
    // Unwinding needs turns too.
    if !std::thread::panicking() {
        let seconds = TIME_MAX / 1_000_000_000_000;
        panic!("virtual time ends after {seconds} s: give the machine less work");
    }
}

/// A machine, running or not.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) spec: Spec,
    pub(crate) seed: u64,
    /// Whether a lock may be taken only by callers that are pinned.
    pub(crate) requires_pins: bool,
    pub(crate) hierarchy: Hierarchy,
    pub(crate) cpus: Vec<Cpu>,
    /// Running threads on each core: not idle, not waiting for a lock or a barrier, not finished.
    pub(crate) at_work: Vec<u8>,
    pub(crate) queue: Queue,
    /// The CPU whose turn it is.
    pub(crate) running: usize,
    pub(crate) locks: Vec<Lock>,
    pub(crate) gates: Vec<Gate>,
    pub(crate) books: Books,
    pub(crate) kinds: Vec<String>,
    pub(crate) faults: FaultState,
    /// What runs on CPUs that are interrupted.
    pub(crate) handler: Option<Handler>,
    pub(crate) halting: Halting,
    /// Whether faults can stop a CPU before an access.
    stops: bool,
    /// How many accesses a run may make at most.
    pub(crate) patience: u64,
    /// How many the run may still make.
    pub(crate) accesses_left: u64,
    prices: Vec<Picos>,
    mappings: Vec<Mapping>,
    /// The line of the first frame's record, if each has a line of its own.
    pub(crate) frame_lines: Option<usize>,
}

impl State {
    pub(crate) fn new(spec: &Spec, seed: u64) -> Self {
        let cpus = (0..spec.cpus() as u32).map(|number| Cpu {
            now: 0,
            core: spec.core_of(CpuId::new(number)),
            status: Status::Absent,
            path: Path::Other,
            locks_held: 0,
            irq_off_since: None,
            irq_saves: 0,
            pins: 0,
            leaves_at: NEVER,
            is_in_call: false,
        });
        let kinds = vec!["other".to_owned()];
        State {
            seed,
            requires_pins: false,
            hierarchy: Hierarchy::new(spec),
            cpus: cpus.collect(),
            at_work: vec![0; spec.cores()],
            queue: Queue::new(spec.cpus(), seed),
            running: 0,
            locks: Vec::new(),
            gates: Vec::new(),
            books: Books::new(kinds.len()),
            kinds,
            faults: FaultState::new(Faults::default(), seed),
            handler: None,
            halting: Halting::default(),
            stops: false,
            patience: u64::MAX,
            accesses_left: u64::MAX,
            prices: Key::ALL.iter().map(|&key| picos(spec.get(key))).collect(),
            mappings: Vec::new(),
            frame_lines: None,
            spec: spec.clone(),
        }
    }

    /// Adds lines for a region of host memory; returns the first.
    pub(crate) fn map(&mut self, start: usize, bytes: usize) -> usize {
        let first_line = self.add_lines(bytes / 64);
        self.mappings.push(Mapping { start, bytes, first_line, line_bytes: 64, work: 0 });
        first_line
    }

    /// Spreads host memory that is mapped already over the lines from `first_line` on, so many
    /// bytes in each.
    pub(crate) fn spread(&mut self, start: usize, bytes: usize, line_bytes: usize, line: usize) {
        // Before the mapping of the region that it is part of: the first that fits is taken.
        let spread = Mapping { start, bytes, first_line: line, line_bytes, work: 0 };
        self.mappings.insert(0, spread);
    }

    /// Sets the computation that comes with each access of host memory that is mapped already.
    pub(crate) fn set_work(&mut self, start: usize, bytes: usize, work: Picos) {
        for mapping in &mut self.mappings {
            if mapping.start.wrapping_sub(start) < bytes {
                mapping.work = work;
            }
        }
    }

    /// Adds lines without host memory; returns the first.
    pub(crate) fn add_lines(&mut self, count: usize) -> usize {
        let first_line = self.hierarchy.lines.len();
        self.hierarchy.lines.resize(first_line + count, Line::COLD);
        first_line
    }

    /// The line of a host address, if it is mapped.
    #[inline]
    pub(crate) fn line_of(&self, address: usize) -> Option<usize> {
        self.find(address).map(|(line, _)| line)
    }

    /// The line of a host address, and the computation that comes with its access.
    #[inline]
    fn find(&self, address: usize) -> Option<(usize, Picos)> {
        self.mappings.iter().find_map(|mapping| {
            let offset = address.wrapping_sub(mapping.start);
            let line = || mapping.first_line + offset / mapping.line_bytes;
            (offset < mapping.bytes).then(|| (line(), mapping.work))
        })
    }

    /// Asks the host for the memory that an access of this address will need.
    #[inline]
    pub(crate) fn prefetch(&self, address: usize) {
        if let Some(line) = self.line_of(address) {
            prefetch(&raw const self.hierarchy.lines[line]);
            prefetch(address as *const u8);
        }
    }

    /// Sets the home of lines; `None` leaves it to the first CPU that touches them.
    pub(crate) fn set_home(&mut self, lines: std::ops::Range<usize>, node: Option<NodeId>) {
        let home = node.map_or(NO_HOME, |node| node.index() as u8);
        for line in &mut self.hierarchy.lines[lines] {
            line.home = home;
        }
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        for cpu in &mut self.cpus {
            cpu.leaves_at = NEVER;
        }
        for departure in &faults.departures {
            if let Some(cpu) = self.cpus.get_mut(departure.cpu) {
                cpu.leaves_at = departure.at_ns.saturating_mul(1000);
            }
        }
        // A CPU that waits forever continues to do so.
        if (0..self.cpus.len()).all(|cpu| !self.is_out(cpu)) {
            self.halting = Halting::new(faults.halt, self.cpus.len());
        }
        self.stops = faults.stopped.is_some() || self.halting.is_set();
        self.faults = FaultState::new(faults, self.seed);
    }

    /// Switches all failures off; CPUs that were to leave stay.
    pub(crate) fn stop_faults(&mut self) {
        self.set_faults(Faults::default());
    }

    /// Whether the running CPU may access shared memory now. If not, it has been put in the queue,
    /// unless it stops forever, and must hand over to the next.
    #[inline]
    pub(crate) fn keeps_turn(&mut self) -> bool {
        if self.stops {
            if self.halts() {
                return false;
            }
            let stop = self.faults.stop();
            self.spend(self.running, Spent::Stopped, stop);
        }
        let now = self.cpus[self.running].now;
        if now > TIME_MAX {
            time_ends();
        }
        if !self.queue.is_over(now) || std::thread::panicking() {
            // A CPU that panics unwinds in one go: no other CPU must run meanwhile.
            return true;
        }
        self.queue.insert(self.running, now);
        false
    }

    /// Whether the running CPU gets no more turns: it stops forever before this access, or has
    /// waited for too long.
    fn halts(&mut self) -> bool {
        let cpu = self.running;
        if !self.cpus[cpu].is_in_call || std::thread::panicking() {
            return false;
        }
        let Some(status) = self.halting.strike(cpu, self.faults.faults.hangs) else { return false };
        self.goes_idle(cpu, status);
        true
    }

    /// Whether a CPU gets no more turns, in this run or another.
    pub(crate) fn is_out(&self, cpu: usize) -> bool {
        match self.cpus[cpu].status {
            Status::Halted | Status::WaitsForEver => true,
            // Without a failure that stops a CPU, that is a deadlock.
            Status::WaitsForLock(_) => self.halting.is_set(),
            _ => false,
        }
    }

    /// Whether the running CPU is in the order of virtual time. If not, it has been put in the
    /// queue, and must hand over to the next. No failure strikes here.
    #[inline]
    pub(crate) fn keeps_order(&mut self) -> bool {
        let now = self.cpus[self.running].now;
        if now > TIME_MAX {
            time_ends();
        }
        if !self.queue.is_ahead(now) || std::thread::panicking() {
            return true;
        }
        self.queue.insert(self.running, now);
        false
    }

    /// Gives the next CPU its turn.
    pub(crate) fn next_turn(&mut self) -> Option<usize> {
        let cpu = self.queue.pop()?;
        if self.cpus[cpu].status == Status::Idle {
            self.cpus[cpu].status = Status::Ready;
            self.at_work[self.cpus[cpu].core] += 1;
        }
        self.running = cpu;
        self.books.switches += 1;
        Some(cpu)
    }

    /// Whether an access by the running CPU is noticed by no other core, at whatever time it is.
    #[inline]
    pub(crate) fn stays_within_core(&self, address: usize, op: Op) -> bool {
        let core = self.cpus[self.running].core;
        self.line_of(address).is_none_or(|line| self.hierarchy.stays_within_core(core, line, op))
    }

    /// Charges the running CPU for an access of the memory at a host address.
    #[inline]
    pub(crate) fn touch(&mut self, address: usize, op: Op) {
        match self.find(address) {
            Some((line, work)) => {
                self.touch_line(line, op);
                self.work(work);
            }
            None => {
                let cost = self.prices().l1;
                self.books.outside += self.books.counts(self.cpus[self.running].now);
                self.spend(self.running, Spent::Memory, cost);
            }
        }
    }

    /// Charges the running CPU for the instructions around an access, with `more` of its data's.
    #[inline]
    fn work(&mut self, more: Picos) {
        let mut work = self.prices().work;
        if more > 0 {
            work += self.prices().compute(more);
        }
        if work > 0 {
            self.spend(self.running, Spent::Compute, work);
        }
    }

    /// As [`State::work`], for a call of the lock at a host address.
    pub(crate) fn work_at_lock(&mut self, address: usize) {
        if let Some((_, work)) = self.find(address) {
            self.work(work);
        }
    }

    /// As [`State::touch`], for a compare-exchange of so many bytes. Returns whether it is torn:
    /// then this was a read, and its write is a separate access.
    #[inline]
    pub(crate) fn touch_to_exchange(&mut self, address: usize, bytes: usize) -> bool {
        let torn = self.faults.faults.torn.is_some_and(|torn| {
            let is_in = |name| self.line_of(address).is_some_and(|line| self.data_of(line) == name);
            torn.bytes == bytes && torn.data.is_none_or(is_in)
        });
        self.touch(address, if torn { Op::Read } else { Op::Rmw });
        torn
    }

    /// The kind of data in a line.
    fn data_of(&self, line: usize) -> &str {
        &self.kinds[self.hierarchy.lines[line].kind as usize]
    }

    /// Charges the running CPU for an access of a line.
    #[inline]
    pub(crate) fn touch_line(&mut self, line: usize, op: Op) {
        let outcome = self.access(self.running, line, op);
        let cpu = &mut self.cpus[self.running];
        let began = std::mem::replace(&mut cpu.now, outcome.done_at);
        self.books.spend(cpu.path, Spent::Memory, began, outcome.done_at);
        let kind = self.hierarchy.lines[line].kind as usize;
        self.books.enter(kind, outcome, began, cpu.locks_held > 0);
        self.accesses_left -= 1;
        if self.accesses_left == 0 {
            self.give_up();
        }
    }

    /// An access of a line by some CPU at its own time, which the caller charges.
    #[inline]
    pub(crate) fn access(&mut self, cpu: usize, line: usize, op: Op) -> Outcome {
        self.hierarchy.access(self.asker(cpu), line, op)
    }

    /// A CPU at its own time.
    #[inline]
    fn asker(&self, cpu: usize) -> Asker {
        let (now, core) = (self.cpus[cpu].now, self.cpus[cpu].core);
        let siblings = usize::from(self.at_work[core]).saturating_sub(1);
        Asker { now, core, siblings }
    }

    /// What its core charges the running CPU.
    #[inline]
    fn prices(&self) -> &CoreCosts {
        self.hierarchy.core_costs(self.asker(self.running))
    }

    /// Advances a CPU's clock and records what for.
    #[inline]
    pub(crate) fn spend(&mut self, cpu: usize, what: Spent, time: Picos) {
        let cpu = &mut self.cpus[cpu];
        let began = cpu.now;
        cpu.now += time;
        self.books.spend(cpu.path, what, began, cpu.now);
    }

    #[cold]
    fn give_up(&mut self) {
        // Only once: unwinding needs accesses too.
        self.accesses_left = u64::MAX;
        panic!("still at work after {} accesses, and perhaps forever", self.patience);
    }

    /// The running CPU computes: this takes longer beside a running sibling.
    pub(crate) fn compute(&mut self, time: Picos) {
        let time = self.prices().compute(time);
        self.spend(self.running, Spent::Compute, time);
    }

    /// The price of work outside the allocator.
    pub(crate) fn price(&self, key: Key) -> Picos {
        self.prices[key as usize]
    }

    /// The running CPU clears a frame, or touches one line of it.
    pub(crate) fn use_frame(&mut self, pfn: u64, node: NodeId, clears: bool) {
        let by = self.asker(self.running);
        let outcome = if clears {
            self.hierarchy.clear_frame(by, pfn, node.index())
        } else {
            self.hierarchy.touch_frame(by, pfn, node.index())
        };
        self.books.enter_frame(outcome, by.now);
        self.spend(self.running, Spent::Memory, outcome.done_at - by.now);
    }

    /// Pins the running CPU's caller; returns how many pins there were.
    pub(crate) fn pin(&mut self) -> u32 {
        let pins = &mut self.cpus[self.running].pins;
        *pins += 1;
        *pins - 1
    }

    /// Ends the pin that began when there were `before`.
    ///
    /// # Panics
    ///
    /// If another one has begun since and not ended.
    pub(crate) fn unpin(&mut self, before: u32) {
        let pins = &mut self.cpus[self.running].pins;
        assert!(*pins == before + 1 || std::thread::panicking(), "the last pin ends first");
        *pins = before;
    }

    /// Whether the running CPU's caller could be preempted, on a real machine.
    pub(crate) fn is_preemptible(&self) -> bool {
        let cpu = &self.cpus[self.running];
        cpu.pins == 0 && cpu.irq_off_since.is_none()
    }

    /// Disables interrupts on the running CPU; returns how often they were already.
    pub(crate) fn irq_save(&mut self) -> u32 {
        let cost = self.prices().irq_flag;
        self.spend(self.running, Spent::Compute, cost);
        let cpu = &mut self.cpus[self.running];
        cpu.irq_off_since.get_or_insert(cpu.now);
        cpu.irq_saves += 1;
        cpu.irq_saves - 1
    }

    /// Restores what [`State::irq_save`] returned.
    ///
    /// # Panics
    ///
    /// If what was disabled since is not restored yet. A machine has one flag, so that interrupts
    /// would be on again although the later caller still needs them off.
    pub(crate) fn irq_restore(&mut self, before: u32) {
        let cpu = &mut self.cpus[self.running];
        let is_last = cpu.irq_saves == before + 1;
        assert!(is_last || std::thread::panicking(), "interrupts disabled last are restored first");
        cpu.irq_saves = before;
        if before == 0
            && let Some(since) = cpu.irq_off_since.take()
        {
            self.books.enter_irqs_off(cpu.path, since, cpu.now);
        }
        let cost = self.prices().irq_flag;
        self.spend(self.running, Spent::Compute, cost);
    }

    /// The running CPU idles; returns whether it may continue at once. If not, it has left its core
    /// and must hand over to the next; it is back when its turn comes.
    pub(crate) fn idle(&mut self, time: Picos) -> bool {
        let cpu = self.running;
        self.spend(cpu, Spent::Idle, time.min(TIME_MAX + 1));
        let wakes_at = self.cpus[cpu].now;
        if wakes_at > TIME_MAX {
            time_ends();
        }
        if !self.queue.is_over(wakes_at) || std::thread::panicking() {
            // No other CPU runs meanwhile.
            return true;
        }
        self.goes_idle(cpu, Status::Idle);
        self.queue.insert(cpu, wakes_at);
        false
    }

    /// A CPU starts to wait: its sibling has the core to itself.
    pub(crate) fn goes_idle(&mut self, cpu: usize, status: Status) {
        self.cpus[cpu].status = status;
        self.at_work[self.cpus[cpu].core] -= 1;
    }

    /// A CPU continues its work, at its own time.
    pub(crate) fn goes_to_work(&mut self, cpu: usize) {
        self.cpus[cpu].status = Status::Ready;
        self.at_work[self.cpus[cpu].core] += 1;
        self.queue.insert(cpu, self.cpus[cpu].now);
    }

    /// Restarts the accounting at `from`, when no CPU waits for a lock, for `length`.
    pub(crate) fn start_measuring(&mut self, from: Picos, length: Picos) {
        let window = Window::new(from, length);
        self.books.restart(window);
        self.hierarchy.memory.restart_traffic(window);
    }
}

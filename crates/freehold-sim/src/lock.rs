//! Queued locks: first come, first served, with the cost of moving the lock's own line.
//!
//! The model is a queued spin lock as in Linux. A CPU that arrives does one atomic operation on the
//! lock's line, which moves the line to its core. If the lock is held, the CPU queues up and waits
//! on its own memory. Only the first in the queue keeps reading the lock's line, which therefore is
//! shared again after every write, including writes to data of the holder in the same line. The
//! holder's release is a store to that line. The first waiter notices it half a polling interval
//! later, on average, and takes the line with one atomic operation. (Linux's waiter reads the line
//! and then writes it; it does not wait for that write unless it is alone in the queue.) All these
//! moves are ordinary accesses of the directory, so a lock that moves between sockets costs more
//! than one that stays.
//!
//! A waiter's time counts as waiting from its call of `lock` to the moment it has the lock. A lock
//! that was free costs its access of the line and no waiting.

use std::collections::VecDeque;

use crate::access::{Asker, Op};
use crate::account::Spent;
use crate::parts::{Lock, Status, Waiter};
use crate::spec::Picos;
use crate::state::State;

impl State {
    /// The number of the lock at a host address. `known` is the number that the lock was given
    /// before, if any.
    pub(crate) fn lock_number(
        &mut self,
        address: usize,
        known: Option<usize>,
        class: &'static str,
    ) -> usize {
        if let Some(number) = known
            && let Some(lock) = self.locks.get(number)
            && lock.address == address
            && self.books.classes[lock.class].name == class
        {
            return number;
        }
        self.add_lock(address, self.line_of(address), class)
    }

    /// Adds a lock; returns its number.
    pub(crate) fn add_lock(
        &mut self,
        address: usize,
        line: Option<usize>,
        class: &'static str,
    ) -> usize {
        let class = self.books.class(class);
        let books = &mut self.books.classes[class];
        books.instances += 1;
        self.locks.push(Lock {
            class,
            number: books.instances - 1,
            address,
            line,
            holder: None,
            held_since: 0,
            queue: VecDeque::new(),
        });
        self.locks.len() - 1
    }

    /// The running CPU asks for a lock; returns whether it has it. If not, the CPU is in the lock's
    /// queue and must hand over to the next.
    ///
    /// # Panics
    ///
    /// If the CPU holds the lock already.
    pub(crate) fn lock(&mut self, number: usize) -> bool {
        let cpu = self.running;
        let since = self.cpus[cpu].now;
        if self.locks[number].holder == Some(cpu) {
            panic!("CPU {cpu} waits for {}, which it holds itself", self.name_of(number));
        }
        self.touch_lock(number, Op::Rmw);
        let class = self.locks[number].class;
        if self.locks[number].holder.is_none() {
            self.acquired(number, cpu, since);
            return true;
        }
        // The access was the start of the wait.
        let began = self.books.window.part(since, self.cpus[cpu].now);
        let path = self.cpus[cpu].path as usize;
        self.books.spent[path][Spent::Memory as usize] -= began;
        self.books.spent[path][Spent::LockWait as usize] += began;
        self.books.classes[class].contended += self.books.counts(since);
        self.locks[number].queue.push_back(Waiter { cpu, since });
        if self.locks[number].queue.len() == 1 {
            self.spins_on(number, Some(cpu));
        }
        self.goes_idle(cpu, Status::WaitsForLock(number));
        false
    }

    /// The running CPU takes a lock if it is free; returns whether it did.
    pub(crate) fn try_lock(&mut self, number: usize) -> bool {
        let began = self.cpus[self.running].now;
        self.touch_lock(number, Op::Rmw);
        if self.locks[number].holder.is_some() || self.faults.refuses_try_lock() {
            let class = self.locks[number].class;
            self.books.classes[class].try_failed += self.books.counts(began);
            return false;
        }
        self.acquired(number, self.running, began);
        true
    }

    /// The running CPU takes a lock over from the CPU that holds it, if another one does: a lease
    /// has the lock for a thread, wherever that runs, and passes it to the call that revokes it.
    pub(crate) fn pass_lock(&mut self, number: usize) {
        let to = self.running;
        if let Some(from) = &mut self.locks[number].holder {
            self.cpus[*from].locks_held -= 1;
            self.cpus[to].locks_held += 1;
            *from = to;
        }
    }

    /// A lock is not held any more: between two runs, outside the machine, it was released.
    pub(crate) fn note_released(&mut self, number: usize) {
        if let Some(holder) = self.locks[number].holder.take() {
            self.cpus[holder].locks_held -= 1;
        }
    }

    /// The running CPU releases a lock; returns whether another CPU has it now.
    ///
    /// # Panics
    ///
    /// If the CPU does not hold the lock.
    pub(crate) fn unlock(&mut self, number: usize) -> bool {
        let cpu = self.running;
        if self.locks[number].holder != Some(cpu) {
            panic!("CPU {cpu} releases {}, which it does not hold", self.name_of(number));
        }
        let class = self.locks[number].class;
        let held = self.books.window.part(self.locks[number].held_since, self.cpus[cpu].now);
        let books = &mut self.books.classes[class];
        books.hold += held;
        books.hold_max = books.hold_max.max(held);
        // The first waiter's next read of the lock is part of the hand-over.
        self.spins_on(number, None);
        self.touch_lock(number, Op::Write);
        self.cpus[cpu].locks_held -= 1;
        self.locks[number].holder = None;
        match self.locks[number].queue.pop_front() {
            None => false,
            Some(waiter) => {
                self.hand_over(number, waiter);
                true
            }
        }
    }

    /// Hands a lock that the running CPU just released over to the first waiter.
    fn hand_over(&mut self, number: usize, waiter: Waiter) {
        let released_at = self.cpus[self.running].now;
        let next = self.cpus[waiter.cpu].now.max(released_at + self.hierarchy.costs.notice);
        let idle = next - self.cpus[waiter.cpu].now;
        self.spend(waiter.cpu, Spent::LockWait, idle);
        if let Some(line) = self.locks[number].line {
            let began = self.cpus[waiter.cpu].now;
            let outcome = self.access(waiter.cpu, line, Op::Rmw);
            self.spend(waiter.cpu, Spent::LockWait, outcome.done_at - began);
            let kind = self.hierarchy.lines[line].kind as usize;
            self.books.enter(kind, outcome, began, false);
        }
        let waited = self.books.window.part(waiter.since, self.cpus[waiter.cpu].now);
        let path = self.cpus[waiter.cpu].path as usize;
        let books = &mut self.books.classes[self.locks[number].class];
        books.waits[path] += waited;
        books.wait_max = books.wait_max.max(waited);
        self.acquired(number, waiter.cpu, waiter.since);
        if let Some(&head) = self.locks[number].queue.front() {
            self.spins_on(number, Some(head.cpu));
            if let Some(line) = self.locks[number].line {
                let by = Asker::alone(self.cpus[waiter.cpu].now, self.cpus[head.cpu].core);
                self.hierarchy.access(by, line, Op::Read);
            }
        }
        self.goes_to_work(waiter.cpu);
    }

    /// Records a lock as taken by a CPU at its present time, in a call that began at `since`.
    fn acquired(&mut self, number: usize, cpu: usize, since: Picos) {
        let lock = &mut self.locks[number];
        lock.holder = Some(cpu);
        lock.held_since = self.cpus[cpu].now;
        self.books.classes[lock.class].acquisitions += self.books.counts(since);
        self.cpus[cpu].locks_held += 1;
        let stop = self.faults.holder_stop();
        self.spend(cpu, Spent::Stopped, stop);
    }

    /// Notes which CPU keeps reading the lock's line.
    fn spins_on(&mut self, number: usize, cpu: Option<usize>) {
        let Some(line) = self.locks[number].line else { return };
        let hierarchy = &mut self.hierarchy;
        hierarchy.spinners.retain(|(spun_on, _)| *spun_on != line as u32);
        if let Some(cpu) = cpu {
            hierarchy.spinners.push((line as u32, self.cpus[cpu].core as u16));
        }
        hierarchy.lines[line].spun_on = cpu.is_some();
    }

    fn touch_lock(&mut self, number: usize, op: Op) {
        match self.locks[number].line {
            Some(line) => self.touch_line(line, op),
            None => self.touch(self.locks[number].address, op),
        }
    }

    /// The name of a lock in messages.
    pub(crate) fn name_of(&self, number: usize) -> String {
        let lock = &self.locks[number];
        format!("{} {}", self.books.classes[lock.class].name, lock.number)
    }

    /// The holder of a lock, and the CPUs that wait for it.
    pub(crate) fn holder_and_waiters(&self, number: usize) -> (Option<usize>, Vec<usize>) {
        let lock = &self.locks[number];
        (lock.holder, lock.queue.iter().map(|waiter| waiter.cpu).collect())
    }
}

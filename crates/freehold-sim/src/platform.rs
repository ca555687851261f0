//! The platform: storage and locks whose every access the running machine charges.
//!
//! Words and cells hold their value themselves and are as large as the host's, so the layout of
//! metadata, and with it false sharing, is the real one. Outside a running machine, while an
//! allocator is set up or checked, accesses are free.
//!
//! All accesses are sequentially consistent, in the order of virtual time or of the random
//! schedule. Defects that only a weaker memory order exposes are for a model checker.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use freehold::CpuId;
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar, SharedCell, Word};

use crate::access::Op;
use crate::coroutine;
use crate::current;

/// The simulated machine as the allocator sees it: whichever machine runs on this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sim;

/// An atomic word. Each access waits for its turn in virtual time and is charged by the machine.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimWord<T: Copy>(Cell<T>);

impl<T: Copy> SimWord<T> {
    #[inline]
    fn turn(&self, op: Op) -> &Cell<T> {
        let address = self.0.as_ptr() as usize;
        current::in_turn(address, |machine| machine.touch(address, op));
        &self.0
    }
}

impl<T: Copy> SimWord<T> {
    /// Reads and writes in one turn; returns what the word held.
    #[inline]
    fn update(&self, change: impl FnOnce(T) -> T) -> T {
        let word = self.turn(Op::Rmw);
        word.replace(change(word.get()))
    }
}

impl<T: Scalar> Word<T> for SimWord<T> {
    fn new(value: T) -> Self {
        SimWord(Cell::new(value))
    }

    #[inline]
    fn load(&self, _order: Ordering) -> T {
        self.turn(Op::Read).get()
    }

    #[inline]
    fn store(&self, value: T, _order: Ordering) {
        self.turn(Op::Write).set(value);
    }

    #[inline]
    fn swap(&self, value: T, _order: Ordering) -> T {
        self.update(|_| value)
    }

    #[inline]
    fn fetch_add(&self, value: T, _order: Ordering) -> T {
        self.update(|held| held.wrapping_sum(value))
    }

    #[inline]
    fn fetch_or(&self, bits: T, _order: Ordering) -> T {
        self.update(|held| held | bits)
    }

    #[inline]
    fn fetch_and(&self, bits: T, _order: Ordering) -> T {
        self.update(|held| held & bits)
    }

    #[inline]
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<T, T> {
        let address = self.0.as_ptr() as usize;
        let torn = crate::current::in_turn(address, |machine| {
            machine.touch_to_exchange(address, size_of::<T>())
        });
        let held = self.0.get();
        if held != current {
            return Err(held);
        }
        match torn {
            Some(true) => self.store(new, Ordering::Relaxed),
            _ => self.0.set(new),
        }
        Ok(held)
    }
}

/// Memory that a lock guards: charged like a word, and in turn, since other CPUs may contend for
/// its line even while they cannot access its value.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimCell<T: Copy>(SimWord<T>);

impl<T: Copy> SharedCell<T> for SimCell<T> {
    fn new(value: T) -> Self {
        SimCell(SimWord(Cell::new(value)))
    }

    #[inline]
    fn get(&self) -> T {
        self.0.turn(Op::Read).get()
    }

    #[inline]
    fn set(&self, value: T) {
        self.0.turn(Op::Write).set(value);
    }
}

/// Memory of one CPU: charged, without waiting for a turn while its core has the line, since no
/// other CPU is expected there. What leaves the core is in order, as everything is that others can
/// notice.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimLocalCell<T: Copy>(Cell<T>);

impl<T: Copy> SimLocalCell<T> {
    #[inline]
    fn charged(&self, op: Op) -> &Cell<T> {
        let address = self.0.as_ptr() as usize;
        current::within_core(address, op, |machine| machine.touch(address, op));
        &self.0
    }
}

impl<T: Copy> SharedCell<T> for SimLocalCell<T> {
    fn new(value: T) -> Self {
        SimLocalCell(Cell::new(value))
    }

    #[inline]
    fn get(&self) -> T {
        self.charged(Op::Read).get()
    }

    #[inline]
    fn set(&self, value: T) {
        self.charged(Op::Write).set(value);
    }
}

/// A queued lock of four bytes, as large as Linux's spin lock. See `lock.rs` for what it costs.
#[derive(Debug)]
pub struct SimLock {
    /// The machine's number for this lock, plus one; 0 until a machine meets it. A number from an
    /// earlier machine is recognised, since that of the present one is at another address.
    number: Cell<u16>,
    class: LockClass,
    /// Whether the lock is held: its only state outside a running machine.
    held: Cell<bool>,
}

const _: () = assert!(size_of::<SimLock>() == 4);

impl SimLock {
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// See [`Machine::require_pins`](crate::Machine::require_pins).
    fn check_pinned(&self, machine: &crate::state::State) {
        let may_be_preempted = machine.requires_pins && machine.is_preemptible();
        assert!(
            !may_be_preempted || self.class == LockClass::Owner || std::thread::panicking(),
            "{} is taken by a caller that is not pinned",
            self.class.name()
        );
    }

    /// The running machine's number for this lock.
    fn number(&self, machine: &mut crate::state::State) -> usize {
        let known = usize::from(self.number.get()).checked_sub(1);
        let number = machine.lock_number(self.address(), known, self.class.name());
        if known != Some(number) {
            let next = u16::try_from(number + 1).expect("a machine has at most 65535 locks");
            self.number.set(next);
        }
        if !self.held.get() {
            machine.note_released(number);
        }
        number
    }
}

impl RawLock for SimLock {
    fn new(class: LockClass) -> Self {
        SimLock { number: Cell::new(0), class, held: Cell::new(false) }
    }

    /// # Panics
    ///
    /// If the CPU holds the lock already, or, outside a running machine, if the lock is held at
    /// all: no CPU runs there that could release it.
    fn lock(&self) {
        let acquired = current::in_turn(self.address(), |machine| {
            // A CPU that panics cannot wait. Its run is over, so nothing depends on the lock.
            self.check_pinned(machine);
            std::thread::panicking() || {
                let number = self.number(machine);
                machine.lock(number)
            }
        });
        match acquired {
            Some(true) => {}
            Some(false) => coroutine::suspend(),
            None => assert!(
                !self.held.get() || std::thread::panicking(),
                "{} is held and no CPU runs that could release it",
                self.class.name()
            ),
        }
        self.held.set(true);
        current::with(|machine| machine.work_at_lock(self.address()));
    }

    fn try_lock(&self) -> bool {
        let acquired = current::in_turn(self.address(), |machine| {
            self.check_pinned(machine);
            let number = self.number(machine);
            let acquired = machine.try_lock(number);
            machine.work_at_lock(self.address());
            acquired
        });
        let acquired = acquired.unwrap_or(!self.held.get());
        if acquired {
            self.held.set(true);
        }
        acquired
    }

    fn unlock(&self) {
        let handed_over = current::in_turn(self.address(), |machine| {
            !std::thread::panicking() && {
                let number = self.number(machine);
                if self.class == LockClass::CpuCache {
                    machine.pass_lock(number);
                }
                let handed_over = machine.unlock(number);
                machine.work_at_lock(self.address());
                handed_over
            }
        });
        self.held.set(handed_over.unwrap_or(false));
    }
}

impl Platform for Sim {
    type U32 = SimWord<u32>;
    type U64 = SimWord<u64>;
    type Cell<T: Scalar> = SimCell<T>;
    type LocalCell<T: Scalar> = SimLocalCell<T>;
    type Lock = SimLock;
    /// How many pins there were before.
    type PinState = u32;
    /// How often interrupts were disabled already.
    type IrqState = u32;

    /// The running CPU, at no cost: a kernel reads it from a register. CPU 0 outside a machine.
    fn cpu(&self) -> CpuId {
        let cpu = current::with(|machine| {
            let cpus = machine.cpus.len();
            machine.faults.wrong_cpu(cpus).unwrap_or(machine.running)
        });
        CpuId::new(cpu.unwrap_or(0) as u32)
    }

    /// As [`Sim::cpu`]: a virtual CPU never moves. That pins nest is checked.
    fn pin(&self) -> Pinned<u32> {
        Pinned::new(self.cpu(), current::with(|machine| machine.pin()).unwrap_or(0))
    }

    fn unpin(&self, before: u32) {
        current::with(|machine| machine.unpin(before));
    }

    /// All accesses are in one order, so there is nothing to do, and it costs nothing. On a real
    /// machine it costs an interrupt of each other CPU.
    fn heavy_barrier(&self) -> bool {
        true
    }

    /// Costs what [`Key::IrqFlagNs`](crate::Key::IrqFlagNs) says. That sections nest is checked.
    fn irq_save(&self) -> u32 {
        current::with(|machine| machine.irq_save()).unwrap_or(0)
    }

    fn irq_restore(&self, before: u32) {
        current::with(|machine| machine.irq_restore(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::platform::native::NativeCell;

    #[test]
    fn storage_is_as_large_as_the_host_s() {
        assert_eq!(size_of::<SimWord<u8>>(), 1);
        assert_eq!(size_of::<SimWord<u64>>(), 8);
        assert_eq!(align_of::<SimWord<u64>>(), align_of::<std::sync::atomic::AtomicU64>());
        assert_eq!(size_of::<SimCell<u32>>(), size_of::<NativeCell<u32>>());
        assert_eq!(size_of::<SimLocalCell<u16>>(), size_of::<NativeCell<u16>>());
    }

    #[test]
    fn outside_a_machine_everything_works_and_is_free() {
        let word: SimWord<u32> = Word::new(1);
        assert_eq!(word.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed), Ok(1));
        assert_eq!(word.compare_exchange(1, 3, Ordering::Relaxed, Ordering::Relaxed), Err(2));
        assert_eq!(word.swap(7, Ordering::Relaxed), 2);
        assert_eq!(word.load(Ordering::Relaxed), 7);
        let lock: SimLock = RawLock::new(LockClass::Zone);
        lock.lock();
        assert!(!lock.try_lock());
        lock.unlock();
        assert!(lock.try_lock());
        assert_eq!(Sim.pin(), Pinned::new(CpuId::new(0), 0));
        let state = Sim.irq_save();
        Sim.irq_restore(state);
        Sim.unpin(0);
    }

    #[test]
    #[should_panic(expected = "zone_lock is held and no CPU runs that could release it")]
    fn waiting_outside_a_machine_is_refused() {
        let lock: SimLock = RawLock::new(LockClass::Zone);
        lock.lock();
        lock.lock();
    }
}

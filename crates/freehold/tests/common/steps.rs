//! A platform that stops a call before any one of its steps, and runs something else there to its
//! end: a call of another CPU, or an interrupt handler on the same one.
//!
//! One thread does all of it, so that each case can be repeated. A step is an access to a word, or
//! one to a lock. A nested call that would wait for the stopped call waits forever; it is unwound,
//! and that is its outcome.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use freehold::CpuId;
use freehold::platform::native::NativeCell;
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar, Word};

/// So many rounds of waiting count as forever. More than a call makes before it helps itself.
const ROUNDS: u32 = 3000;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    /// Steps until the stop, while a call that is to be stopped is under way.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    /// Whether the running call is the nested one.
    static NESTED: Cell<bool> = const { Cell::new(false) };
    /// Whether a nested call that waited was unwound. It may have held what the stopped call now
    /// waits for.
    static ABANDONED: Cell<bool> = const { Cell::new(false) };
    static ROUND: Cell<u32> = const { Cell::new(0) };
    /// Sections with interrupts off that the running call is in, and locks that it holds.
    static IRQS_OFF: Cell<u32> = const { Cell::new(0) };
    static LOCKS: Cell<u32> = const { Cell::new(0) };
}

type Meanwhile = (Kind, Box<dyn FnOnce()>);

/// Where the call stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Before the step, whatever it is.
    Stop,
    /// There, or at the next step before which interrupts are on.
    Interrupt,
}

/// The payload that unwinds a call that waits forever.
struct WaitsForEver;

/// Makes the caller run on `cpu` from now on.
pub(crate) fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// How many locks the running or stopped call holds.
pub(crate) fn locks_held() -> u32 {
    LOCKS.get()
}

/// Whether interrupts are off.
pub(crate) fn irqs_are_off() -> bool {
    IRQS_OFF.get() > 0
}

/// How many steps a call takes that nothing stops.
pub(crate) fn steps_of<R>(call: impl FnOnce() -> R) -> (u64, R) {
    LEFT.set(Some(u64::MAX));
    let result = call();
    let left = LEFT.take().expect("no call within has stopped");
    (u64::MAX - left, result)
}

/// Runs `call`, and `meanwhile` before its step of this number, the first being 0. Returns whether
/// the call had so many. There is no result if it waits for what was unwound. The nested call may
/// stop a call of its own.
pub(crate) fn stop_at<R>(
    step: u64,
    kind: Kind,
    meanwhile: impl FnOnce() + 'static,
    call: impl FnOnce() -> R,
) -> (Option<R>, bool) {
    MEANWHILE.with_borrow_mut(|slot| *slot = Some((kind, Box::new(meanwhile))));
    ROUND.set(0);
    if !NESTED.get() {
        ABANDONED.set(false);
    }
    LEFT.set(Some(step));
    let result = unless_it_waits(call);
    LEFT.set(None);
    let unused = MEANWHILE.with_borrow_mut(Option::take);
    (result, unused.is_none())
}

/// Runs a case for each step of a call, the first being 0, until it tells that the call was not
/// stopped. Returns how often it was.
pub(crate) fn at_each_step(mut case: impl FnMut(u64) -> bool) -> u64 {
    (0..).find(|&step| !case(step)).expect("each call ends")
}

/// For the end of the nested call: makes the call stop again, before its step of this number from
/// here.
pub(crate) fn stop_again(step: u64, kind: Kind, meanwhile: impl FnOnce() + 'static) {
    MEANWHILE.with_borrow_mut(|slot| *slot = Some((kind, Box::new(meanwhile))));
    LEFT.set(Some(step));
}

/// The result of the nested call, unless it waits forever.
pub(crate) fn unless_it_waits<R>(call: impl FnOnce() -> R) -> Option<R> {
    ROUND.set(0);
    let result = catch_unwind(AssertUnwindSafe(call));
    result.map_or_else(
        |panic: Box<dyn Any + Send>| match panic.is::<WaitsForEver>() {
            true => {
                ABANDONED.set(true);
                None
            }
            false => resume_unwind(panic),
        },
        Some,
    )
}

fn step() {
    match LEFT.get() {
        None => {}
        Some(0) => {
            let may_stop = MEANWHILE.with_borrow(|slot| match slot {
                Some((Kind::Interrupt, _)) => IRQS_OFF.get() == 0,
                _ => true,
            });
            if may_stop && let Some((_, run)) = MEANWHILE.with_borrow_mut(Option::take) {
                LEFT.set(None);
                let before = (CPU.get(), IRQS_OFF.get(), LOCKS.get());
                let was_nested = NESTED.replace(true);
                let end = catch_unwind(AssertUnwindSafe(run));
                NESTED.set(was_nested);
                ROUND.set(0);
                CPU.set(before.0);
                IRQS_OFF.set(before.1);
                LOCKS.set(before.2);
                end.unwrap_or_else(|panic| resume_unwind(panic));
            }
        }
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

fn wait() {
    ROUND.set(ROUND.get() + 1);
    if ROUND.get() > ROUNDS {
        let may = NESTED.get() || ABANDONED.get();
        assert!(may, "a call waits forever, although all others have ended");
        resume_unwind(Box::new(WaitsForEver));
    }
}

/// An atomic.
pub(crate) struct StepWord<A>(A);

macro_rules! words {
    ($($atomic:ident: $int:ty),*) => {$(
        impl Word<$int> for StepWord<$atomic> {
            fn new(value: $int) -> Self {
                StepWord($atomic::new(value))
            }
            fn load(&self, order: Ordering) -> $int {
                step();
                self.0.load(order)
            }
            fn store(&self, value: $int, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            fn swap(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.swap(value, order)
            }
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_add(value, order)
            }
            fn fetch_or(&self, bits: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_or(bits, order)
            }
            fn fetch_and(&self, bits: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_and(bits, order)
            }
            fn compare_exchange(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    )*};
}
words!(AtomicU32: u32, AtomicU64: u64);

/// A lock that detects when it is waited for in vain.
pub(crate) struct StepLock(AtomicBool);

impl RawLock for StepLock {
    fn new(_class: LockClass) -> Self {
        StepLock(AtomicBool::new(false))
    }

    fn lock(&self) {
        while !self.try_lock() {
            wait();
        }
    }

    fn try_lock(&self) -> bool {
        step();
        let taken = !self.0.swap(true, Ordering::SeqCst);
        if taken {
            LOCKS.set(LOCKS.get() + 1);
        }
        taken
    }

    fn unlock(&self) {
        step();
        // Less than none: a thaw unlocks what a freeze has locked in another nested call.
        LOCKS.set(LOCKS.get().saturating_sub(1));
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The platform.
#[derive(Default)]
pub(crate) struct StepPlatform;

impl Platform for StepPlatform {
    type U32 = StepWord<AtomicU32>;
    type U64 = StepWord<AtomicU64>;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = StepLock;
    type PinState = ();
    type IrqState = u32;

    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {}

    fn relax(&self) {
        wait();
    }

    fn heavy_barrier(&self) -> bool {
        true
    }

    fn irq_save(&self) -> u32 {
        IRQS_OFF.replace(IRQS_OFF.get() + 1)
    }

    fn irq_restore(&self, before: u32) {
        // A machine has one flag: out of order, interrupts would be on while a caller needs them
        // off.
        let is_last = IRQS_OFF.replace(before) == before + 1;
        assert!(is_last || std::thread::panicking(), "interrupts disabled last are restored first");
    }
}

// Not every binary uses everything here.
const _: () = {
    let _: fn() -> u32 = locks_held;
    let _: fn() -> bool = irqs_are_off;
    let _: fn(fn()) -> (u64, ()) = steps_of;
    let _: fn(u64, Kind, fn()) = stop_again;
    let _: fn(fn(u64) -> bool) -> u64 = at_each_step;
    let _ = Kind::Interrupt;
};

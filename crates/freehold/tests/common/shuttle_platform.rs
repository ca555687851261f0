//! The allocator's platform on shuttle, which runs the threads of a program under random schedules.
//!
//! Every access is a point at which another thread may run. Writing to a cell takes two such
//! points, and a thread that accesses the cell between them is detected.

use std::cell::Cell;

use freehold::CpuId;
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar, SharedCell, Word};
use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

shuttle::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
}

/// Makes this thread of the program run on `cpu` from now on.
pub(crate) fn run_on(cpu: u32) {
    CPU.with(|of| of.set(cpu));
}

/// Shuttle explores sequential consistency only, whatever ordering is named.
const ORDER: Ordering = Ordering::SeqCst;

/// An atomic.
pub(crate) struct ShuttleWord<A>(A);

macro_rules! words {
    ($($atomic:ident: $int:ty),*) => {$(
        impl Word<$int> for ShuttleWord<$atomic> {
            fn new(value: $int) -> Self {
                ShuttleWord($atomic::new(value))
            }
            fn load(&self, _order: Ordering) -> $int {
                self.0.load(ORDER)
            }
            fn store(&self, value: $int, _order: Ordering) {
                self.0.store(value, ORDER);
            }
            fn swap(&self, value: $int, _order: Ordering) -> $int {
                self.0.swap(value, ORDER)
            }
            fn fetch_add(&self, value: $int, _order: Ordering) -> $int {
                self.0.fetch_add(value, ORDER)
            }
            fn fetch_or(&self, bits: $int, _order: Ordering) -> $int {
                self.0.fetch_or(bits, ORDER)
            }
            fn fetch_and(&self, bits: $int, _order: Ordering) -> $int {
                self.0.fetch_and(bits, ORDER)
            }
            fn compare_exchange(
                &self, current: $int, new: $int, _success: Ordering, _failure: Ordering,
            ) -> Result<$int, $int> {
                self.0.compare_exchange(current, new, ORDER, ORDER)
            }
        }
    )*};
}
words!(AtomicU32: u32, AtomicU64: u64);

/// A cell that detects accesses during a write.
pub(crate) struct ShuttleCell<T: Scalar> {
    value: T::Atomic,
    being_written: AtomicBool,
}

impl<T: Scalar> SharedCell<T> for ShuttleCell<T> {
    fn new(value: T) -> Self {
        ShuttleCell { value: Word::new(value), being_written: AtomicBool::new(false) }
    }

    fn get(&self) -> T {
        assert!(!self.being_written.load(ORDER), "data race: a cell is read without its lock");
        self.value.load(ORDER)
    }

    fn set(&self, value: T) {
        let raced = self.being_written.swap(true, ORDER);
        assert!(!raced, "data race: a cell is written without its lock");
        self.value.store(value, ORDER);
        self.being_written.store(false, ORDER);
    }
}

/// Without `ATOMIC`, taking the lock is a load and a store.
pub(crate) struct ShuttleLock<const ATOMIC: bool>(AtomicBool);

impl<const ATOMIC: bool> RawLock for ShuttleLock<ATOMIC> {
    fn new(_class: LockClass) -> Self {
        ShuttleLock(AtomicBool::new(false))
    }

    fn lock(&self) {
        while !self.try_lock() {
            shuttle::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        if ATOMIC {
            return !self.0.swap(true, ORDER);
        }
        let is_free = !self.0.load(ORDER);
        if is_free {
            self.0.store(true, ORDER);
        }
        is_free
    }

    fn unlock(&self) {
        self.0.store(false, ORDER);
    }
}

/// The platform.
#[derive(Default)]
pub(crate) struct ShuttlePlatform<const ATOMIC: bool = true>;

impl<const ATOMIC: bool> Platform for ShuttlePlatform<ATOMIC> {
    type U32 = ShuttleWord<AtomicU32>;
    type U64 = ShuttleWord<AtomicU64>;
    type Cell<T: Scalar> = ShuttleCell<T>;
    type LocalCell<T: Scalar> = ShuttleCell<T>;
    type Lock = ShuttleLock<ATOMIC>;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.with(Cell::get))
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {}

    fn relax(&self) {
        shuttle::thread::yield_now();
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

//! The allocator's platform on loom, which tries every interleaving of a small program and every
//! value that a weakly ordered load may see.
//!
//! The platform has four deliberate defects to choose from, for tests of the tests.

extern crate std;

use core::cell::Cell;

use freehold::CpuId;
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar, SharedCell, Word};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

loom::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
    static HAS_BARRIER: Cell<bool> = Cell::new(true);
}

/// Makes this thread of the model run on `cpu` from now on.
pub(crate) fn run_on(cpu: u32) {
    CPU.with(|of| of.set(cpu));
}

/// Has the heavy barriers of this thread of the model refused from now on.
pub(crate) fn refuse_barriers() {
    HAS_BARRIER.with(|has| has.set(false));
}

/// An atomic that loom checks. Without `ATOMIC`, a read-modify-write is a load and a store; without
/// `ACQUIRES`, reading a value does not make earlier writes of other threads visible.
#[derive(Debug)]
pub(crate) struct LoomWord<A, const ATOMIC: bool, const ACQUIRES: bool>(A);

/// The requested ordering, or relaxed.
const fn ordering<const ACQUIRES: bool>(order: Ordering) -> Ordering {
    if ACQUIRES { order } else { Relaxed }
}

/// Loom treats sequentially consistent accesses as acquiring and releasing ones. If two threads
/// each change a word and then read the other's, one sees the other's change if there is a fence
/// between the two steps: here before each read, and before each change that may turn out to be
/// only a read. None follows a change, so that a read with a weaker ordering is detected.
fn fence_if_total<const ACQUIRES: bool>(order: Ordering) {
    if ACQUIRES && order == SeqCst {
        loom::sync::atomic::fence(SeqCst);
    }
}

macro_rules! words {
    ($($atomic:ident: $int:ty),*) => {$(
        impl<const ATOMIC: bool, const ACQUIRES: bool> LoomWord<$atomic, ATOMIC, ACQUIRES> {
            /// Changes the word atomically, or in two steps.
            fn change(
                &self,
                order: Ordering,
                in_one: impl Fn(&$atomic, Ordering) -> $int,
                after: impl Fn($int) -> $int,
            ) -> $int {
                if ATOMIC {
                    return in_one(&self.0, ordering::<ACQUIRES>(order));
                }
                let before = self.0.load(Relaxed);
                self.0.store(after(before), Relaxed);
                before
            }
        }

        impl<const ATOMIC: bool, const ACQUIRES: bool> Word<$int>
            for LoomWord<$atomic, ATOMIC, ACQUIRES>
        {
            fn new(value: $int) -> Self {
                LoomWord($atomic::new(value))
            }
            fn load(&self, order: Ordering) -> $int {
                fence_if_total::<ACQUIRES>(order);
                self.0.load(ordering::<ACQUIRES>(order))
            }
            fn store(&self, value: $int, order: Ordering) {
                self.0.store(value, ordering::<ACQUIRES>(order));
            }
            fn swap(&self, value: $int, order: Ordering) -> $int {
                self.change(order, |atomic, order| atomic.swap(value, order), |_| value)
            }
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                let sum = |before: $int| before.wrapping_add(value);
                self.change(order, |atomic, order| atomic.fetch_add(value, order), sum)
            }
            fn fetch_or(&self, bits: $int, order: Ordering) -> $int {
                self.change(order, |atomic, order| atomic.fetch_or(bits, order), |it| it | bits)
            }
            fn fetch_and(&self, bits: $int, order: Ordering) -> $int {
                self.change(order, |atomic, order| atomic.fetch_and(bits, order), |it| it & bits)
            }
            fn compare_exchange(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                if ATOMIC {
                    fence_if_total::<ACQUIRES>(failure);
                    let [success, failure] = [success, failure].map(ordering::<ACQUIRES>);
                    return self.0.compare_exchange(current, new, success, failure);
                }
                let value = self.0.load(Relaxed);
                if value != current {
                    return Err(value);
                }
                self.0.store(new, Relaxed);
                Ok(value)
            }
        }
    )*};
}
words!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64);

/// A cell whose accesses loom checks for data races: it panics on the first one.
pub(crate) struct LoomCell<T>(UnsafeCell<T>);

// SAFETY: loom runs one thread of a model at a time, and panics before an access that races with
// another one.
unsafe impl<T: Send> Sync for LoomCell<T> {}

impl<T: Scalar> SharedCell<T> for LoomCell<T> {
    fn new(value: T) -> Self {
        LoomCell(UnsafeCell::new(value))
    }

    fn get(&self) -> T {
        // SAFETY: loom has checked that there is no writer, and the pointer is that of its cell.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&self, new: T) {
        // SAFETY: loom has checked that there is no other reader or writer, and the pointer is that
        // of its cell.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

/// A lock that lets other threads run while it waits. Without `ORDERED`, it excludes others but
/// publishes nothing.
pub(crate) struct LoomLock<const ORDERED: bool>(AtomicBool);

impl<const ORDERED: bool> RawLock for LoomLock<ORDERED> {
    fn new(_class: LockClass) -> Self {
        LoomLock(AtomicBool::new(false))
    }

    fn lock(&self) {
        while !self.try_lock() {
            loom::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        // Acquire: pairs with the release in `unlock`.
        let order = if ORDERED { Acquire } else { Relaxed };
        self.0.compare_exchange(false, true, order, Relaxed).is_ok()
    }

    fn unlock(&self) {
        // Release: publishes what the holder wrote to the next one.
        self.0.store(false, if ORDERED { Release } else { Relaxed });
    }
}

/// The platform. Without `FENCED`, its light barrier does nothing.
#[derive(Default)]
pub(crate) struct LoomPlatform<
    const ORDERED: bool = true,
    const ATOMIC: bool = true,
    const ACQUIRES: bool = true,
    const FENCED: bool = true,
>;

impl<const ORDERED: bool, const ATOMIC: bool, const ACQUIRES: bool, const FENCED: bool> Platform
    for LoomPlatform<ORDERED, ATOMIC, ACQUIRES, FENCED>
{
    type U32 = LoomWord<AtomicU32, ATOMIC, ACQUIRES>;
    type U64 = LoomWord<AtomicU64, ATOMIC, ACQUIRES>;
    type Cell<T: Scalar> = LoomCell<T>;
    type LocalCell<T: Scalar> = LoomCell<T>;
    type Lock = LoomLock<ORDERED>;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.with(Cell::get))
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {}

    /// Without this, a model that waits for another thread would never end.
    fn relax(&self) {
        loom::thread::yield_now();
    }

    fn light_barrier(&self) {
        if FENCED {
            loom::sync::atomic::fence(SeqCst);
        }
    }

    fn heavy_barrier(&self) -> bool {
        if !HAS_BARRIER.with(Cell::get) {
            return false;
        }
        loom::sync::atomic::fence(SeqCst);
        true
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

// Not every binary uses everything here.
const _: fn() = refuse_barriers;

//! A platform for tests, and allocators on it.
//!
//! The unit tests of the library include this file as well, so it names the library by its own
//! path. What only the integration tests need is in the files beside it.

extern crate std;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, fence};

use freehold::CpuId;
use freehold::platform::native::{NativeCell, Relax, SpinLock};
use freehold::platform::{Pinned, Platform, Scalar};

std::thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static RELAXED: Cell<u64> = const { Cell::new(0) };
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// How often this thread has waited for others.
pub(crate) fn relaxed() -> u64 {
    RELAXED.get()
}

/// Makes this thread run on `cpu` from now on.
pub(crate) fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// Whether the machine refuses this thread the heavy barrier from now on.
pub(crate) fn refuse_barriers(refuses: bool) {
    REFUSES.set(refuses);
}

// Not every binary that includes this file has more than one CPU, or leases.
const _: fn(u32) = run_on;
const _: fn(bool) = refuse_barriers;
const _: fn() -> u64 = relaxed;

/// Waits for a lock by letting other threads run: tests have more threads than CPUs.
pub(crate) struct Yield;

impl Relax for Yield {
    fn relax(_round: u32) {
        std::thread::yield_now();
    }
}

/// Native storage, and a CPU number that the test chooses.
#[derive(Default)]
pub(crate) struct TestPlatform;

impl Platform for TestPlatform {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = SpinLock<Yield>;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {}

    fn relax(&self) {
        RELAXED.set(RELAXED.get() + 1);
        Yield::relax(0);
    }

    fn heavy_barrier(&self) -> bool {
        fence(SeqCst);
        !REFUSES.get()
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

// A test with its own platform does not use this one.
const _: TestPlatform = TestPlatform;

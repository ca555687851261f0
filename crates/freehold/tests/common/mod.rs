//! A platform for tests, and allocators on it.

extern crate std;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use freehold::CpuId;
use freehold::platform::native::{NativeCell, Relax, SpinLock};
use freehold::platform::{Platform, Scalar};

std::thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Makes this thread run on `cpu` from now on.
#[expect(dead_code, reason = "each test binary uses its own part of this module")]
pub fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// Waits for a lock by letting other threads run: tests have more threads than CPUs.
pub struct Yield;

impl Relax for Yield {
    fn relax(_round: u32) {
        std::thread::yield_now();
    }
}

/// Native storage, and a CPU number that the test chooses.
pub struct TestPlatform;

impl Platform for TestPlatform {
    type U8 = AtomicU8;
    type U16 = AtomicU16;
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = SpinLock<Yield>;
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    fn pin(&self) -> CpuId {
        self.cpu()
    }

    fn unpin(&self) {}

    fn irq_save(&self) {}

    fn irq_restore(&self, _state: ()) {}
}

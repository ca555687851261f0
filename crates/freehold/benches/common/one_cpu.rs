//! The platform of examples that run on one CPU.

use std::sync::atomic::{AtomicU32, AtomicU64};

use freehold::CpuId;
use freehold::platform::native::{NativeCell, SpinLock};
use freehold::platform::{Pinned, Platform, Scalar};

/// A machine with one CPU that runs.
pub(crate) struct Machine;

impl Platform for Machine {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = SpinLock;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {}
    fn irq_save(&self) {}
    fn irq_restore(&self, (): ()) {}
}

//! Platforms with a bug: their compare-exchange reads and writes in two steps, so
//! that two CPUs can both win. A checker that does not find it finds nothing.

use std::sync::atomic::Ordering;

use freehold::CpuId;
use freehold::platform::{Platform, Scalar, Word};
use freehold_sim::{Sim, SimCell, SimLocalCell, SimLock, SimWord};

use super::Stage;

/// The simulated machine, but for words of 32 bits: those by which allocators claim blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Canary;

/// The simulated machine, but for words of 64 bits: those that hold what the LRU knows of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct LruCanary;

/// A word whose compare-exchange is none.
#[repr(transparent)]
pub(super) struct CanaryWord<T: Scalar>(SimWord<T>);

impl<T: Scalar> Word<T> for CanaryWord<T> {
    fn new(value: T) -> Self {
        CanaryWord(Word::new(value))
    }

    fn load(&self, order: Ordering) -> T {
        self.0.load(order)
    }

    fn store(&self, value: T, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, value: T, order: Ordering) -> T {
        self.0.swap(value, order)
    }

    fn fetch_add(&self, value: T, order: Ordering) -> T {
        self.0.fetch_add(value, order)
    }

    fn fetch_or(&self, bits: T, order: Ordering) -> T {
        self.0.fetch_or(bits, order)
    }

    fn fetch_and(&self, bits: T, order: Ordering) -> T {
        self.0.fetch_and(bits, order)
    }

    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        let held = self.0.load(failure);
        if held != current {
            return Err(held);
        }
        // The planted bug: somebody else may have written since.
        self.0.store(new, success);
        Ok(held)
    }
}

macro_rules! stage {
    ($canary:ident: $u32:ty, $u64:ty) => {
        impl Stage for $canary {
            const HERE: Self = $canary;
        }

        impl Platform for $canary {
            type U32 = $u32;
            type U64 = $u64;
            type Cell<T: Scalar> = SimCell<T>;
            type LocalCell<T: Scalar> = SimLocalCell<T>;
            type Lock = SimLock;
            type IrqState = bool;

            fn cpu(&self) -> CpuId {
                Sim.cpu()
            }

            fn pin(&self) -> CpuId {
                Sim.pin()
            }

            fn unpin(&self) {
                Sim.unpin();
            }

            fn irq_save(&self) -> bool {
                Sim.irq_save()
            }

            fn irq_restore(&self, were_off: bool) {
                Sim.irq_restore(were_off);
            }
        }
    };
}
stage!(Canary: CanaryWord<u32>, SimWord<u64>);
stage!(LruCanary: SimWord<u32>, CanaryWord<u64>);

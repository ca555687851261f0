//! The machine as the allocator sees it.

use freehold::CpuId;
use freehold::platform::{Machine, Native};

use crate::arch;

/// The platform that designs are built for: atomics and spin locks of the core, and this machine.
pub(crate) type Platform = Native<Kernel>;

/// This kernel.
pub(crate) struct Kernel;

impl Machine for Kernel {
    /// `pin` may do nothing, as it does by default: there are no threads that could move, and
    /// handlers return to what they interrupt. A kernel that preempts disables that in `pin`. One
    /// whose handlers allocate without `nowait` disables interrupts there.
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId::new(arch::cpu())
    }

    #[inline(always)]
    fn irq_save(&self) -> usize {
        arch::irq_save()
    }

    #[inline(always)]
    fn irq_restore(&self, state: usize) {
        arch::irq_restore(state);
    }
}

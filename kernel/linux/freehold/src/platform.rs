//! The machine: an x86-64 CPU under Linux.
//!
//! Preemption count, CPU number and flags are accessed by the instructions that the kernel's inline
//! functions compile to (`arch/x86/include/asm/preempt.h`, `smp.h`, `irqflags.h`), since Rust
//! cannot call those. `module/glue.c` checks at compile time that the offsets are right.

use core::arch::asm;

use freehold::CpuId;
use freehold::platform::{Machine, Pinned};

#[cfg(feature = "lock-stats")]
pub(crate) use crate::locks::Counting as Kernel;
/// What allocators in this module run on.
#[cfg(not(feature = "lock-stats"))]
pub(crate) type Kernel = freehold::platform::Native<Cpu>;

/// The machine.
#[cfg(not(feature = "lock-stats"))]
pub(crate) const KERNEL: Kernel = freehold::platform::Native(Cpu);
#[cfg(feature = "lock-stats")]
pub(crate) const KERNEL: Kernel = crate::locks::Counting(Cpu);

/// The CPU that executes the caller.
pub(crate) struct Cpu;

/// The operand of a per-CPU variable, as the kernel at hand has it.
#[cfg(feature = "pcpu-hot")]
macro_rules! per_cpu {
    (preempt_count) => {
        "dword ptr gs:[pcpu_hot + 8]"
    };
    (cpu_number) => {
        "dword ptr gs:[pcpu_hot + 12]"
    };
}

/// The operand of a per-CPU variable, as the kernel at hand has it.
#[cfg(not(feature = "pcpu-hot"))]
macro_rules! per_cpu {
    (preempt_count) => {
        "dword ptr gs:[__preempt_count]"
    };
    (cpu_number) => {
        "dword ptr gs:[cpu_number]"
    };
}

/// The interrupt flag of the register of flags.
const INTERRUPTS_ON: usize = 1 << 9;

impl Machine for Cpu {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        let cpu: u32;
        // SAFETY: reads a per-CPU variable that the kernel writes once, when the CPU starts.
        unsafe {
            asm!(
                concat!("mov {0:e}, ", per_cpu!(cpu_number)),
                out(reg) cpu,
                options(nostack, preserves_flags, readonly)
            );
        }
        CpuId::new(cpu)
    }

    #[cfg(not(feature = "pin-irq"))]
    #[inline(always)]
    fn pin(&self) -> Pinned<usize> {
        preempt_disable();
        Pinned::new(self.cpu(), 0)
    }

    #[cfg(not(feature = "pin-irq"))]
    #[inline(always)]
    fn unpin(&self, _state: usize) {
        preempt_enable();
    }

    #[cfg(feature = "pin-irq")]
    #[inline(always)]
    fn pin(&self) -> Pinned<usize> {
        let flags = self.irq_save();
        Pinned::new(self.cpu(), flags)
    }

    #[cfg(feature = "pin-irq")]
    #[inline(always)]
    fn unpin(&self, flags: usize) {
        self.irq_restore(flags);
    }

    #[inline(always)]
    fn irq_save(&self) -> usize {
        let flags: usize;
        // SAFETY: reads the flags and disables interrupts; the caller restores them. The stack is
        // used, and memory may change before the next instruction: neither is promised not to.
        unsafe { asm!("pushfq", "pop {0}", "cli", out(reg) flags) };
        flags
    }

    #[inline(always)]
    fn irq_restore(&self, flags: usize) {
        if flags & INTERRUPTS_ON != 0 {
            // SAFETY: interrupts were on before the `irq_save` that returned these flags.
            unsafe { asm!("sti", options(nostack)) };
        }
    }
}

/// As the kernel's inline function of this name.
#[cfg(not(feature = "pin-irq"))]
#[inline(always)]
fn preempt_disable() {
    // SAFETY: adds to this CPU's count, in one instruction, so no preemption can come between.
    unsafe { asm!(concat!("inc ", per_cpu!(preempt_count)), options(nostack)) };
}

/// As the kernel's inline function of this name. The count includes, inverted, whether the task
/// shall be preempted: it is zero if so and nothing else disables preemption.
#[cfg(not(feature = "pin-irq"))]
#[inline(always)]
fn preempt_enable() {
    unsafe extern "C" {
        /// `module/glue.c`: preempts the task.
        fn fh_preempt_schedule();
    }

    #[cold]
    #[inline(never)]
    fn preempt() {
        // SAFETY: the kernel asked for it, and nothing disables preemption any more.
        unsafe { fh_preempt_schedule() };
    }

    let is_zero: u8;
    // SAFETY: takes back what `preempt_disable` added.
    unsafe {
        asm!(
            concat!("dec ", per_cpu!(preempt_count)),
            "setz {0}",
            out(reg_byte) is_zero,
            options(nostack)
        );
    }
    if is_zero != 0 {
        preempt();
    }
}

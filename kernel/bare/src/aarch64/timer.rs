//! The virtual timer of each CPU.

use core::arch::asm;

/// Its interrupt: private to each CPU.
pub(super) const INTERRUPT: u32 = 27;

/// Interrupts in a second.
const RATE: u64 = 2000;

/// Starts this CPU's timer; its handler does so again.
pub(crate) fn start() {
    let frequency: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack)) };
    // SAFETY: the handler knows this interrupt.
    unsafe {
        asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", "isb",
            in(reg) frequency / RATE, in(reg) 1u64, options(nostack));
    }
}

/// Stops this CPU's timer.
pub(crate) fn stop() {
    // SAFETY: interrupts less.
    unsafe { asm!("msr cntv_ctl_el0, xzr", "isb", options(nostack)) };
}

/// The counter that timers compare with.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack)) };
    ticks
}

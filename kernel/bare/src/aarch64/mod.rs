//! The machine: QEMU's `virt` with a GICv2, whose firmware speaks PSCI.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cpus::PerCpu;

pub(crate) use serial::{exit, write};
pub(crate) use timer::{start as start_timer, stop as stop_timer, ticks};

pub(crate) mod entry;

mod device_tree;
mod gic;
mod interrupts;
mod serial;
mod timer;

global_asm!(include_str!("boot.s"));

unsafe extern "C" {
    safe static start_other: u8;
    safe static cpu_root: AtomicU64;
    safe static cpu_stack: AtomicU64;
    safe static cpu_entry: AtomicU64;
}

/// Devices that the direct map has, beside memory.
pub(crate) const DEVICES: [(u64, u64); 2] = [(gic::ADDRESS, gic::BYTES), (serial::ADDRESS, 4096)];

/// Tells translations of the kernel's tables from those of the boot tables, so that no CPU ever
/// has two for an address.
const KERNEL_SPACE: u64 = 1 << 48;

/// Where `boot.s` goes on, on the first CPU.
#[unsafe(no_mangle)]
extern "C" fn first_cpu(device_tree: u64) -> ! {
    let device_tree = if device_tree == 0 { device_tree::DEFAULT_ADDRESS } else { device_tree };
    crate::start(device_tree::read(device_tree, own_number()))
}

/// The hardware number of the running CPU: the lowest three fields of its affinity.
fn own_number() -> u32 {
    let affinity: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) affinity, options(nomem, nostack)) };
    affinity as u32 & 0xff_ffff
}

/// The first steps of every CPU: which one it is, its vectors, its interrupts.
pub(crate) fn init_cpu(per_cpu: &'static PerCpu) {
    let base = core::ptr::from_ref(per_cpu).addr();
    // SAFETY: from now on, the register names the data of this CPU, as `cpu` wants.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) base, options(nostack)) };
    interrupts::load();
    gic::enable(timer::INTERRUPT);
}

/// The running CPU: the first word of what its `tpidr_el1` points to.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    let cpu;
    // SAFETY: `init_cpu` has set the register.
    unsafe {
        asm!("mrs {0:x}, tpidr_el1", "ldr {0:w}, [{0:x}]", out(reg) cpu,
            options(pure, readonly, nostack, preserves_flags));
    }
    cpu
}

/// Disables interrupts; returns which were disabled before.
#[inline(always)]
pub(crate) fn irq_save() -> usize {
    let mask;
    // SAFETY: interrupts that come later are no danger. Not `nomem`: what follows stays behind it.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) mask, options(nostack)) };
    mask
}

/// Enables interrupts if they were enabled.
#[inline(always)]
pub(crate) fn irq_restore(mask: usize) {
    // SAFETY: as in `irq_enable`, if they were enabled.
    unsafe { asm!("msr daif, {}", in(reg) mask, options(nostack)) };
}

/// Enables interrupts.
#[inline(always)]
pub(crate) fn irq_enable() {
    // SAFETY: `init_cpu` has loaded the handlers.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// Switches this CPU to the tables at `root`.
///
/// # Safety
///
/// They map the image and the direct map as the present ones do.
pub(crate) unsafe fn activate(root: u64) {
    // SAFETY: as the caller promises. The barriers make the tables visible before they are used.
    unsafe {
        asm!("dsb ish", "msr ttbr0_el1, {}", "isb", in(reg) root | KERNEL_SPACE, options(nostack));
    }
}

/// Starts the CPU with a hardware number: it goes to `entry` on this stack, with these tables.
pub(crate) fn start_cpu(number: u32, root: u64, stack_end: u64, entry: extern "C" fn() -> !) {
    const CPU_ON: u64 = 0xc400_0003;
    // Relaxed: the barrier below comes before the call that starts the CPU.
    cpu_root.store(root | KERNEL_SPACE, Relaxed);
    cpu_stack.store(stack_end, Relaxed);
    cpu_entry.store(entry as usize as u64, Relaxed);
    let (line, start) = (&raw const cpu_root, (&raw const start_other).addr() as u64);
    let result: i64;
    // SAFETY: cleans the line that the CPU reads before its caches are on; then calls the firmware,
    // by PSCI 0.2, which may change x0 to x17.
    unsafe {
        asm!("dc civac, {line}", "dsb sy", "hvc #0", line = in(reg) line,
            inout("x0") CPU_ON => result, in("x1") u64::from(number), in("x2") start,
            in("x3") 0u64, clobber_abi("C"));
    }
    assert_eq!(result, 0, "PSCI starts CPU {number:#x}");
}

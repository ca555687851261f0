//! The machine: a PC with local APICs, booted by PVH.

use core::arch::{asm, global_asm};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use crate::cpus::PerCpu;
use crate::direct_map;

pub(crate) use apic::{start_timer, stop_timer};
pub(crate) use serial::{exit, write};

pub(crate) mod entry;

mod acpi;
mod apic;
mod interrupts;
mod port;
mod serial;
mod start_info;

global_asm!(include_str!("boot.s"));

unsafe extern "C" {
    safe static trampoline: u8;
    safe static trampoline_end: u8;
    safe static cpu_root: AtomicU64;
    safe static cpu_stack: AtomicU64;
    safe static cpu_entry: AtomicU64;
}

/// A frame below 1 MiB, which is reserved, in which other CPUs start.
const TRAMPOLINE: u64 = 0x8000;

/// Devices that the direct map has, beside memory.
pub(crate) const DEVICES: [(u64, u64); 1] = [(apic::ADDRESS, 4096)];

/// Where `boot.s` goes on, on the first CPU.
#[unsafe(no_mangle)]
extern "C" fn first_cpu(start_info: u64) -> ! {
    mask_legacy_interrupts();
    interrupts::fill();
    crate::start(start_info::read(start_info))
}

/// The first steps of every CPU: which one it is, its vectors, its APIC.
pub(crate) fn init_cpu(per_cpu: &'static PerCpu) {
    const GS_BASE: u32 = 0xc000_0101;
    let base = core::ptr::from_ref(per_cpu).addr() as u64;
    // SAFETY: from now on, gs is the data of this CPU, as `cpu` wants.
    unsafe {
        asm!("wrmsr", in("ecx") GS_BASE, in("eax") base as u32, in("edx") (base >> 32) as u32);
    }
    interrupts::load();
    apic::enable();
}

/// The running CPU: the first word of what its `gs` points to.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    let cpu;
    // SAFETY: `init_cpu` has set the base.
    unsafe {
        asm!("mov {:e}, gs:[0]", out(reg) cpu, options(pure, readonly, nostack, preserves_flags));
    }
    cpu
}

/// Disables interrupts; returns the flags as they were.
#[inline(always)]
pub(crate) fn irq_save() -> usize {
    let flags;
    // SAFETY: interrupts that come later are no danger. Not `nomem`: what follows stays behind it.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags
}

/// Enables interrupts if they were enabled.
#[inline(always)]
pub(crate) fn irq_restore(flags: usize) {
    const INTERRUPTS: usize = 0x200;
    if flags & INTERRUPTS != 0 {
        irq_enable();
    }
}

/// Enables interrupts.
#[inline(always)]
pub(crate) fn irq_enable() {
    // SAFETY: `init_cpu` has loaded the handlers.
    unsafe { asm!("sti", options(nostack, preserves_flags)) };
}

/// The time-stamp counter. With QEMU's `-icount shift=0` it counts instructions.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: has no effect on memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Switches this CPU to the tables at `root`.
///
/// # Safety
///
/// They map the image and the direct map as the present ones do.
pub(crate) unsafe fn activate(root: u64) {
    // SAFETY: as the caller promises.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// Starts the CPU with a hardware number: it goes to `entry` on this stack, with these tables.
pub(crate) fn start_cpu(apic_id: u32, root: u64, stack_end: u64, entry: extern "C" fn() -> !) {
    // Relaxed: the fence below comes before the message that starts the CPU.
    cpu_root.store(root, Relaxed);
    cpu_stack.store(stack_end, Relaxed);
    cpu_entry.store(entry as usize as u64, Relaxed);
    let code = &raw const trampoline;
    let bytes = (&raw const trampoline_end).addr() - code.addr();
    // SAFETY: the frame is reserved for this, and mapped.
    unsafe { code.copy_to_nonoverlapping(direct_map::at(TRAMPOLINE), bytes) };
    // SeqCst: no store may be left behind the message, which is one to a device.
    fence(SeqCst);
    apic::start_cpu(apic_id, TRAMPOLINE);
}

/// The interrupt controllers of the first PCs would send interrupts of their own.
fn mask_legacy_interrupts() {
    port::write(0x21, 0xff);
    port::write(0xa1, 0xff);
}

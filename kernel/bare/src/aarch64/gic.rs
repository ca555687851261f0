//! The interrupt controller: a GICv2 where QEMU's machine `virt` has it.

use crate::direct_map;

pub(super) const ADDRESS: u64 = 0x0800_0000;
pub(super) const BYTES: u64 = 0x2_0000;

const DISTRIBUTOR_CONTROL: u64 = 0;
/// Of the first 32 interrupts, which each CPU has for itself.
const DISTRIBUTOR_ENABLE: u64 = 0x100;
const CPU_CONTROL: u64 = 0x1_0000;
const CPU_PRIORITY_MASK: u64 = 0x1_0004;
const CPU_ACKNOWLEDGE: u64 = 0x1_000c;
const CPU_END: u64 = 0x1_0010;

/// Fewer than these are interrupts; the others say that there is none.
const INTERRUPTS_END: u32 = 1020;

fn register(offset: u64) -> *mut u32 {
    direct_map::at(ADDRESS + offset)
}

fn write(offset: u64, value: u32) {
    // SAFETY: a register of the controller, which the direct map has.
    unsafe { register(offset).write_volatile(value) };
}

/// Lets one interrupt of this CPU's own through.
pub(super) fn enable(interrupt: u32) {
    write(DISTRIBUTOR_CONTROL, 1);
    write(DISTRIBUTOR_ENABLE, 1 << interrupt);
    write(CPU_PRIORITY_MASK, 0xff);
    write(CPU_CONTROL, 1);
}

/// The interrupt that is to be handled.
pub(super) fn acknowledge() -> u32 {
    // SAFETY: as in `write`.
    unsafe { register(CPU_ACKNOWLEDGE).read_volatile() }
}

/// Lets the next interrupt come.
pub(super) fn end(interrupt: u32) {
    if interrupt < INTERRUPTS_END {
        write(CPU_END, interrupt);
    }
}

//! Vectors: the timer's handler, and exceptions, which end the kernel.

use core::arch::{asm, global_asm};
use core::mem::size_of_val;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::apic;
use crate::cpus;

global_asm!(include_str!("vectors.s"), handler = sym handle);

unsafe extern "C" {
    safe static vector_stubs: [[u8; 16]; VECTORS];
}

const VECTORS: usize = 48;

/// The vector of the local APIC's timer: the first one behind the exceptions.
pub(super) const TIMER: u8 = 32;

/// The vector of spurious interrupts, whose lowest four bits are set.
pub(super) const SPURIOUS: u8 = 47;

/// The interrupt descriptor table, two words a vector. Atomics, so that a static needs no unsafe
/// access: all CPUs share it, and the first one writes it before it loads it.
static IDT: [[AtomicU64; 2]; VECTORS] = [const { [const { AtomicU64::new(0) }; 2] }; VECTORS];

/// Fills the table. The first CPU calls it once.
pub(super) fn fill() {
    const CODE_SEGMENT: u64 = 0x08;
    const INTERRUPT_GATE: u64 = 0x8e00;
    for (stub, gate) in vector_stubs.iter().zip(&IDT) {
        let address = stub.as_ptr() as u64;
        let low = address & 0xffff | CODE_SEGMENT << 16;
        let middle = INTERRUPT_GATE | (address >> 16 & 0xffff) << 16;
        // Relaxed: `load` follows in program order, and other CPUs are started later.
        gate[0].store(low | middle << 32, Relaxed);
        gate[1].store(address >> 32, Relaxed);
    }
}

/// Makes this CPU use the table.
pub(super) fn load() {
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer =
        Pointer { limit: size_of_val(&IDT) as u16 - 1, base: (&raw const IDT).addr() as u64 };
    // SAFETY: the table is filled, and its handlers keep all registers.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags)) };
}

/// The stack of an interrupted context, from its top.
#[repr(C)]
struct Registers {
    general: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

extern "C" fn handle(registers: &Registers) {
    match registers.vector as u8 {
        TIMER => {
            apic::end_of_interrupt();
            cpus::tick();
        }
        SPURIOUS => {}
        vector => {
            let address: u64;
            // SAFETY: reads a register.
            unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack)) };
            let Registers { rip, rsp, flags, error, general, .. } = registers;
            panic!(
                "exception {vector}, error {error:#x}, at {rip:#x}, address {address:#x}, \
                 rsp {rsp:#x}, flags {flags:#x}, r15 to rax {general:x?}"
            );
        }
    }
}

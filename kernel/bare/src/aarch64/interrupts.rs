//! Vectors: the timer's handler, and exceptions, which end the kernel.

use core::arch::{asm, global_asm};

use super::{gic, timer};
use crate::cpus;

global_asm!(include_str!("vectors.s"), handler = sym handle);

unsafe extern "C" {
    safe static vector_table: [[u8; 128]; 16];
}

/// An interrupt of EL1 itself, on its own stack.
const INTERRUPT: u64 = 5;

/// Makes this CPU use the vectors.
pub(super) fn load() {
    let table = (&raw const vector_table).addr();
    // SAFETY: the handlers keep all registers.
    unsafe { asm!("msr vbar_el1, {}", "isb", in(reg) table, options(nostack)) };
}

/// The stack of an interrupted context, from its top.
#[repr(C)]
struct Registers {
    general: [u64; 31],
    address: u64,
    state: u64,
}

extern "C" fn handle(registers: &Registers, vector: u64) {
    if vector == INTERRUPT {
        let interrupt = gic::acknowledge();
        if interrupt == timer::INTERRUPT {
            timer::start();
            cpus::tick();
        }
        gic::end(interrupt);
        return;
    }
    let (syndrome, fault): (u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) syndrome, out(reg) fault,
            options(nomem, nostack));
    }
    let Registers { general, address, state } = registers;
    panic!(
        "exception by vector {vector}, syndrome {syndrome:#x}, at {address:#x}, address {fault:#x},\
         state {state:#x}, x0 to x30 {general:x?}"
    );
}

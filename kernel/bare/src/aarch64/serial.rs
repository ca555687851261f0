//! The serial port, a PL011 where QEMU's machine `virt` has it, and semihosting to end the machine.

use core::arch::asm;

use crate::direct_map;

pub(super) const ADDRESS: u64 = 0x0900_0000;

const FLAGS: u64 = ADDRESS + 0x18;
const IS_FULL: u32 = 1 << 5;

/// Sends bytes.
pub(crate) fn write(bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: a register of the port, which the direct map has.
        while unsafe { direct_map::at::<u32>(FLAGS).read_volatile() } & IS_FULL != 0 {
            core::hint::spin_loop();
        }
        // SAFETY: as above.
        unsafe { direct_map::at::<u32>(ADDRESS).write_volatile(byte.into()) };
    }
}

/// Ends the machine: QEMU's exit code is 33 if all went well, or else 35, as on the PC.
pub(crate) fn exit(is_success: bool) -> ! {
    const EXIT_EXTENDED: u64 = 0x20;
    const APPLICATION_EXIT: u64 = 0x2_0026;
    let block = [APPLICATION_EXIT, if is_success { 33 } else { 35 }];
    loop {
        // SAFETY: a call of the debugger, QEMU, by the semihosting specification; reads the block.
        // If it returned, it would have changed x0.
        unsafe {
            asm!("hlt #0xf000", inout("x0") EXIT_EXTENDED => _, in("x1") &block, options(nostack));
        }
    }
}

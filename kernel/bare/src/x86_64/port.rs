//! Ports of the I/O space.

use core::arch::asm;

/// Writes a byte to a port of a device that this kernel drives.
pub(super) fn write(port: u16, value: u8) {
    // SAFETY: the ports that this kernel names touch no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

/// Reads a byte.
pub(super) fn read(port: u16) -> u8 {
    let value;
    // SAFETY: as in `write`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

//! The first serial port, and QEMU's port for ending the machine.

use super::port;

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const CAN_SEND: u8 = 1 << 5;

/// QEMU's device `isa-debug-exit`, which ends QEMU with the code `2 * value + 1`.
const DEBUG_EXIT: u16 = 0xf4;

/// Sends bytes.
pub(crate) fn write(bytes: &[u8]) {
    for &byte in bytes {
        while port::read(LINE_STATUS) & CAN_SEND == 0 {
            core::hint::spin_loop();
        }
        port::write(COM1, byte);
    }
}

/// Ends the machine: QEMU's exit code is 33 if all went well, or else 35.
pub(crate) fn exit(is_success: bool) -> ! {
    port::write(DEBUG_EXIT, if is_success { 16 } else { 17 });
    loop {
        core::hint::spin_loop();
    }
}

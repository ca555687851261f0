//! The local APIC: the timer of each CPU, and the messages that start other CPUs.

use super::interrupts::{SPURIOUS, TIMER};
use crate::direct_map;

/// Where every CPU finds its own.
pub(super) const ADDRESS: u64 = 0xfee0_0000;

const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER_VECTOR: u64 = 0x320;
const TIMER_COUNT: u64 = 0x380;
const TIMER_DIVIDER: u64 = 0x3e0;

const ENABLED: u32 = 0x100;
const PERIODIC: u32 = 1 << 17;
const DIVIDE_BY_16: u32 = 3;
const DELIVERY_PENDING: u32 = 1 << 12;
const INIT: u32 = 0x4500;
const START_UP: u32 = 0x4600;

/// Counts of the timer between two interrupts: 0.5 ms on QEMU, whose APICs have a bus of 1 GHz. A
/// kernel for other machines compares the timer with a clock of known rate.
const TIMER_PERIOD: u32 = 1_000_000_000 / 16 / 2000;

fn write(register: u64, value: u32) {
    // SAFETY: a register of this CPU's APIC, which the direct map has.
    unsafe { direct_map::at::<u32>(ADDRESS + register).write_volatile(value) };
}

fn read(register: u64) -> u32 {
    // SAFETY: as in `write`.
    unsafe { direct_map::at::<u32>(ADDRESS + register).read_volatile() }
}

/// Switches this CPU's APIC on.
pub(super) fn enable() {
    write(SPURIOUS_VECTOR, ENABLED | u32::from(SPURIOUS));
}

/// Starts this CPU's periodic timer.
pub(crate) fn start_timer() {
    write(TIMER_DIVIDER, DIVIDE_BY_16);
    write(TIMER_VECTOR, PERIODIC | u32::from(TIMER));
    write(TIMER_COUNT, TIMER_PERIOD);
}

/// Stops this CPU's timer.
pub(crate) fn stop_timer() {
    write(TIMER_COUNT, 0);
}

/// Lets the next interrupt come.
pub(super) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Starts the CPU with this APIC ID in real mode at `page`, which is below 1 MiB.
pub(super) fn start_cpu(apic_id: u32, page: u64) {
    send(apic_id, INIT);
    // Machines of the last two decades need neither the waits nor the second message that the
    // protocol once had.
    send(apic_id, START_UP | (page >> 12) as u32);
}

fn send(apic_id: u32, command: u32) {
    write(COMMAND_HIGH, apic_id << 24);
    write(COMMAND_LOW, command);
    while read(COMMAND_LOW) & DELIVERY_PENDING != 0 {
        core::hint::spin_loop();
    }
}

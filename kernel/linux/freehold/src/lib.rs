//! Freehold as a part of a Linux module: two designs behind C functions.
//!
//! * [`platform`] is the machine: CPU numbers, preemption and interrupts, read and written as the
//!   kernel's own inline functions do;
//! * [`ffi`] has the functions that the C side calls;
//! * [`report`] hands statistics to the C side by name;
//! * [`torture`] has the checks of `freehold-conformance`;
//! * [`panic`] ends in the kernel's `BUG`.
//!
//! `kernel/linux/build` compiles this crate. Its C side is `kernel/linux/module`.

#![no_std]

mod ffi;
mod panic;
mod platform;
mod report;
mod torture;

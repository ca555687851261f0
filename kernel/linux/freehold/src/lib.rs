//! Freehold in Linux, behind C functions: two designs in a module, or one as the kernel's own page
//! allocator, with the feature `vmlinux`.
//!
//! * [`platform`] is the machine: CPU numbers, preemption and interrupts, read and written as the
//!   kernel's own inline functions do;
//! * `ffi` has the functions that the module's C side (`kernel/linux/module`) calls, and `torture`
//!   the checks of `freehold-conformance`;
//! * `vmlinux` has those that the kernel's memory management calls (`kernel/linux/vmlinux/mm`), and
//!   `moves` those that have content moved, of one `design`, and
//!   `own` those that only the project's own design has;
//! * [`calls`] is what both have in common;
//! * `locks` is the machine with locks that count, with the feature `lock-stats`;
//! * [`report`] hands statistics to the C side by name;
//! * [`panic`] ends in the kernel's `BUG`.
//!
//! `kernel/linux/build` and `kernel/linux/vmlinux/build` compile this crate.

#![no_std]

mod calls;
#[cfg(feature = "vmlinux")]
mod design;
#[cfg(not(feature = "vmlinux"))]
mod ffi;
#[cfg(feature = "lock-stats")]
mod locks;
#[cfg(feature = "vmlinux")]
mod moves;
#[cfg(feature = "own")]
mod own;
mod panic;
mod platform;
mod report;
#[cfg(not(feature = "vmlinux"))]
mod torture;
#[cfg(feature = "vmlinux")]
mod vmlinux;

//! Running workloads on simulated machines.

pub(crate) mod linux;
pub(crate) mod memory;
pub(crate) mod parallel;
pub(crate) mod result;

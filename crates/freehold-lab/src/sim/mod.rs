//! Running workloads on simulated machines.

use freehold::Design;
use freehold_sim::Sim;

pub(crate) mod memory;
pub(crate) mod parallel;
pub(crate) mod result;

/// A design that the virtual CPUs of a machine can share.
pub(crate) trait SimDesign: Design<Sim> + 'static {}

impl<D: Design<Sim> + 'static> SimDesign for D {}

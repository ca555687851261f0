//! The input and output of one run of a workload.

use freehold::CpuId;
use freehold_host::Snapshot;
use freehold_sim::Spec;
use serde_json::{Map, Value};

use crate::designs::{DesignName, SimDesign};
use crate::fragmentation::Fragmentation;
use crate::report::document::{Simulated, Work};
use crate::settings::Assignments;

/// One run of a workload on the host: on one design, with so many CPUs.
pub(crate) struct HostCell<'a> {
    pub(crate) design: DesignName,
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) seed: u64,
    pub(crate) assignments: &'a Assignments,
}

/// One run of a workload on a simulated machine: on one design, with so many virtual CPUs.
pub(crate) struct SimCell<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) design: SimDesign,
    pub(crate) cpus: usize,
    pub(crate) seed: u64,
    pub(crate) assignments: &'a Assignments,
}

/// The measurements of a workload.
pub(crate) struct Measured {
    pub(crate) work: Work,
    pub(crate) simulated: Option<Simulated>,
    pub(crate) fragmentation: Option<Fragmentation>,
    /// The state of the allocator before the tasks freed what they held.
    pub(crate) state: Snapshot,
    pub(crate) specific: Map<String, Value>,
}

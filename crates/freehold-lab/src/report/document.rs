//! The JSON document of `freehold run`. Fields that do not apply to a run are absent.

use std::collections::BTreeMap;

use freehold_host::Snapshot;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::fragmentation::Fragmentation;

/// The version of the format.
pub(crate) const SCHEMA: &str = "freehold.run/1";

/// Everything that one command has measured.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) schema: &'static str,
    pub(crate) results: Vec<RunResult>,
}

/// One workload on one design, on one machine with so many CPUs.
#[derive(Debug, Serialize)]
pub(crate) struct RunResult {
    pub(crate) workload: String,
    pub(crate) design: String,
    pub(crate) machine: String,
    pub(crate) cpus: u32,
    /// The cargo profile of this program, where times are measured on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
    pub(crate) settings: BTreeMap<String, Value>,
    pub(crate) work: Work,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) simulated: Option<Simulated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fragmentation: Option<Fragmentation>,
    pub(crate) workload_specific: Map<String, Value>,
    /// What the allocator knew before the tasks gave back what they held. No part of the hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Snapshot>,
}

/// What only a simulated machine can tell.
#[derive(Debug, Serialize)]
pub(crate) struct Simulated {
    /// Waiting as a share of all CPU time, by class of lock, and by class and path.
    pub(crate) time_share: BTreeMap<String, f64>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) irq_off: IrqOff,
    pub(crate) latency_ns: BTreeMap<String, Latency>,
    /// A hash of all other fields.
    pub(crate) result_hash: String,
}

/// All locks of one class.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) instances: u64,
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) wait_ns: f64,
    pub(crate) hold_ns: f64,
    pub(crate) hold_ns_max: f64,
}

/// Interrupts off: the share of all CPU time, and the longest stretch.
#[derive(Debug, Serialize)]
pub(crate) struct IrqOff {
    pub(crate) share: f64,
    pub(crate) ns_max: f64,
}

/// Latencies in virtual time.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

/// A number of a result; not a number if it is missing.
pub(crate) fn number(value: Option<&Value>) -> f64 {
    value.and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// A number of CPUs as people write it.
pub(crate) fn cpus_in_words(cpus: usize) -> String {
    format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })
}

/// A number of threads as people write it.
pub(crate) fn threads_in_words(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// What was done, and how fast.
#[derive(Debug, Serialize)]
pub(crate) struct Work {
    /// What is counted, such as `faults`.
    pub(crate) unit: &'static str,
    /// How many were done while measuring.
    pub(crate) count: u64,
    /// For how long was measured.
    pub(crate) seconds: f64,
    /// How many were done in a second: the median of the samples.
    pub(crate) per_second: f64,
}

impl Work {
    /// So many of a unit in so many seconds.
    pub(crate) fn of(unit: &'static str, count: u64, seconds: f64) -> Self {
        Work { unit, count, seconds, per_second: count as f64 / seconds }
    }
}

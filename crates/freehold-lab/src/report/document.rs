//! The JSON document of `freehold run`. Fields that do not apply to a run are absent.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

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
    pub(crate) settings: BTreeMap<String, Value>,
    pub(crate) work: Work,
    pub(crate) workload_specific: Map<String, Value>,
}

/// A number of CPUs as people write it.
pub(crate) fn cpus_in_words(cpus: usize) -> String {
    format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })
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

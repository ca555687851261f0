//! The JSON document of `freehold run`. Fields that do not apply to a run are absent.

use std::collections::BTreeMap;

use freehold_host::Snapshot;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::fragmentation::Fragmentation;

/// The version of the format.
pub(crate) const SCHEMA: &str = "freehold.run/1";

/// All measurements of one command.
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
    /// The cargo profile of this program, for times measured on the host.
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
    /// The state of the allocator before the tasks freed what they held. Not part of the hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Snapshot>,
}

impl RunResult {
    /// Whether the calls are those of a recording. Otherwise a workload of this program makes them.
    pub(crate) fn is_replayed(&self) -> bool {
        self.workload_specific.contains_key("recording")
    }

    /// The time of all virtual CPUs but that at barriers, of which all shares are shares.
    pub(crate) fn working_ns(&self) -> Option<f64> {
        let time = self.workload_specific.get("time")?;
        // Earlier versions counted waiting at barriers as idle.
        let barrier_ns = time.get("barrier_ns").and_then(Value::as_f64).unwrap_or(0.0);
        Some(time.get("all_ns")?.as_f64()? - barrier_ns)
    }

    /// Where the figures come from, in a word or two.
    pub(crate) fn origin(&self) -> &'static str {
        match (self.is_replayed(), self.simulated.is_some()) {
            (true, true) => "replayed, simulated",
            (true, false) => "replayed, measured",
            (false, true) => "simulated",
            (false, false) => "measured",
        }
    }
}

/// Data that only a simulated machine provides.
#[derive(Debug, Serialize)]
pub(crate) struct Simulated {
    /// Waiting as a share of CPU time outside barriers, by class of lock, and by class and path.
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

/// Interrupts off: the share of CPU time outside barriers, and the longest interval.
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

/// A number of CPUs in words.
pub(crate) fn cpus_in_words(cpus: usize) -> String {
    format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })
}

/// A number of threads in words.
pub(crate) fn threads_in_words(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// The work done, and its rate.
#[derive(Debug, Serialize)]
pub(crate) struct Work {
    /// The unit, such as `faults`.
    pub(crate) unit: &'static str,
    /// How many were done during the measurement.
    pub(crate) count: u64,
    /// How long the measurement took.
    pub(crate) seconds: f64,
    /// How many were done per second: the median of the samples.
    pub(crate) per_second: f64,
}

impl Work {
    /// So many of a unit in so many seconds.
    pub(crate) fn of(unit: &'static str, count: u64, seconds: f64) -> Self {
        Work { unit, count, seconds, per_second: count as f64 / seconds }
    }
}

//! Hand-made results, for unit tests.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document::{IrqOff, Lock, RunResult, Simulated, Work};

/// A simulated result with these shares of waiting. Every 20th of its faults took the zone lock,
/// for 4 µs.
pub(crate) fn simulated(design: &str, per_second: f64, shares: &[(&str, f64)]) -> RunResult {
    let lock = Lock {
        name: "zone_lock".to_owned(),
        instances: 2,
        acquisitions: 50_000,
        contended: 40_000,
        wait_ns: 0.0,
        hold_ns: 2e8,
        hold_ns_max: 0.0,
    };
    let simulated = Simulated {
        time_share: shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect(),
        locks: vec![lock],
        irq_off: IrqOff { share: 0.0, ns_max: 1.5e6 },
        latency_ns: BTreeMap::new(),
        result_hash: String::new(),
    };
    let machine = "skylake-2s".to_owned();
    RunResult {
        machine,
        cpus: 112,
        simulated: Some(simulated),
        ..result(design, per_second, Map::new())
    }
}

/// A measured result with such a spread of its samples.
pub(crate) fn measured(design: &str, per_second: f64, spread: f64) -> RunResult {
    let specific = json!({
        "pair_ns": {"median": 15.0},
        "pair_lock_pairs": {"median": 3.0},
        "spread": spread,
    });
    result(design, per_second, specific.as_object().cloned().unwrap_or_default())
}

fn result(design: &str, per_second: f64, workload_specific: Map<String, Value>) -> RunResult {
    RunResult {
        workload: "page-fault".to_owned(),
        design: design.to_owned(),
        machine: "host".to_owned(),
        cpus: 2,
        profile: None,
        seed: None,
        settings: BTreeMap::new(),
        work: Work { unit: "faults", count: 1_000_000, seconds: 1.0, per_second },
        simulated: None,
        fragmentation: None,
        workload_specific,
        state: None,
    }
}

//! A machine's report as the fields of a result.

use std::collections::BTreeMap;

use anyhow::Result;
use freehold_sim::Report;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::report::document::{IrqOff, Latency, Lock, Simulated};

/// The standard fields of a simulated run.
pub(crate) fn standard_fields(report: &Report) -> Simulated {
    let locks = report.locks.iter().map(|lock| Lock {
        name: lock.name.clone(),
        instances: lock.instances,
        acquisitions: lock.acquisitions,
        contended: lock.contended,
        wait_ns: lock.wait_ns,
        hold_ns: lock.hold_ns,
        hold_ns_max: lock.hold_ns_max,
    });
    let latency = report.latency_ns.iter().map(|(name, latency)| {
        let fields =
            Latency { p50: latency.p50, p99: latency.p99, p999: latency.p999, max: latency.max };
        ((*name).to_owned(), fields)
    });
    Simulated {
        time_share: report.time_share.clone(),
        locks: locks.collect(),
        irq_off: IrqOff { share: report.irq_off.share, ns_max: report.irq_off.ns_max },
        latency_ns: latency.collect::<BTreeMap<_, _>>(),
        result_hash: String::new(),
    }
}

/// Further fields: where time went, and which data missed where.
pub(crate) fn details(report: &Report) -> Result<Map<String, Value>> {
    let mut details = Map::new();
    details.insert("elapsed_ns".to_owned(), report.elapsed_ns.into());
    details.insert("overrun_ns_max".to_owned(), report.overrun_ns_max.into());
    details.insert("time".to_owned(), serde_json::to_value(&report.time)?);
    details.insert("paths".to_owned(), serde_json::to_value(&report.paths)?);
    details.insert("data".to_owned(), serde_json::to_value(&report.data)?);
    details.insert("frames".to_owned(), serde_json::to_value(&report.frames)?);
    details.insert("memory".to_owned(), serde_json::to_value(&report.memory)?);
    Ok(details)
}

/// A hash of everything in a result: equal for runs that are equal in every byte.
pub(crate) fn hash(result: &impl serde::Serialize) -> Result<String> {
    let digest = Sha256::digest(serde_json::to_vec(result)?);
    Ok(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

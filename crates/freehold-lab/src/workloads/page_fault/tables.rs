//! The results in tables: one for each kind of machine, with what each alone can tell.

use anyhow::Result;

use crate::report::columns::{self, Column};
use crate::report::document::{RunResult, number};
use crate::report::out;
use crate::report::profile::MEASURED;
use crate::report::table::Table;
use crate::report::waits::{percent, wait_share};

/// What the host tells.
const OF_HOST: [Column; 6] = [
    Column("faults/s", |r| format!("{:.0}", r.work.per_second)),
    Column("spread", |r| columns::percent(r, "spread")),
    Column("ns/fault", |r| columns::number(r, "fault_ns", 1)),
    Column("LRU ns", |r| match number(r.workload_specific.get("lru_ns")) {
        0.0 => "-".to_owned(),
        lru_ns => format!("{lru_ns:.1}"),
    }),
    Column("allocator ns", |r| columns::number(r, "allocator_ns", 1)),
    Column("lock pairs", |r| columns::number(r, "allocator_lock_pairs", 1)),
];

/// Prints results of the host.
pub(super) fn print_host(results: &[RunResult]) -> Result<()> {
    out!("{}", columns::table(results, &OF_HOST, &[]));
    out!(
        "{MEASURED}. allocator ns: allocation and free of a frame\nwithout touching it, also in \
         uncontended lock pairs of this run. LRU ns: what the lists cost,\nwith lru=node|group. \
         spread: largest less smallest sample, of the median."
    );
    Ok(())
}

/// Prints results of a simulated machine.
pub(super) fn print_sim(results: &[RunResult]) -> Result<()> {
    let headings = [
        "design",
        "cpus",
        "faults/s",
        "scaling",
        "lock wait",
        "zone lock",
        "alloc",
        "free",
        "LRU lock",
        "ns/fault",
    ];
    let mut table = Table::new(headings).numbers_from(1);
    for result in results {
        let share = |name: &str| {
            let shares = result.simulated.as_ref().map(|simulated| &simulated.time_share);
            let share = shares.and_then(|shares| shares.get(name)).copied().unwrap_or_default();
            percent(share)
        };
        let alike = results.iter().filter(|other| other.design == result.design);
        let fewest = alike.min_by_key(|other| other.cpus).unwrap_or(result);
        let scaling = result.work.per_second / fewest.work.per_second * f64::from(fewest.cpus);
        let scaling = match fewest.cpus == 1 {
            true => format!("{scaling:.1}x"),
            // Without a run on one CPU there is nothing to compare with.
            false => "-".to_owned(),
        };
        table.row([
            result.design.clone(),
            result.cpus.to_string(),
            format!("{:.0}", result.work.per_second),
            scaling,
            percent(result.simulated.as_ref().map(wait_share).unwrap_or_default()),
            share("zone_lock"),
            share("zone_lock.alloc"),
            share("zone_lock.free"),
            share("lru_lock"),
            format!("{:.0}", number(result.workload_specific.get("fault_ns"))),
        ]);
    }
    out!("{table}");
    let mut table = Table::new(["design", "cpus", "interrupts off", "longest ns"]).numbers_from(1);
    for result in results {
        let Some(simulated) = &result.simulated else { continue };
        table.row([
            result.design.clone(),
            result.cpus.to_string(),
            percent(simulated.irq_off.share),
            format!("{:.0}", simulated.irq_off.ns_max),
        ]);
    }
    out!("{table}");
    let machine = results.first().map_or("", |result| result.machine.as_str());
    out!(
        "Simulated on {machine}: a prediction. lock wait: share of CPU time outside barriers; zone \
         lock,\nLRU lock: for these, the former also by path. scaling: faults/s as a multiple of \
         those of one CPU,\nif that was run. interrupts off: share of CPU time outside barriers, \
         waiting for locks included."
    );
    Ok(())
}

//! A task workload as seen by the command line: its cells on the host and on simulated machines.

use anyhow::Result;
use freehold_sim::Spec;
use serde_json::{Value, json};

use super::workload::{Findings, Finished, Setup, TaskWorkload};
use super::{host, sim};
use crate::cell::{HostCell, Measured, SimCell};
use crate::machine::{FRAME_BYTES, Machine};
use crate::report::columns::{Telling, print_columns};
use crate::report::document::{RunResult, Simulated};
use crate::report::progress::Progress;
use crate::settings::Assignments;
use crate::sim::memory::{FRAME_SETTINGS, MemoryPlan, NODE_SETTINGS};
use crate::sim::result::{details, standard_fields};
use crate::workload::{Brief, SettingTable, Workload};

impl<W: TaskWorkload> Workload for W {
    const HOST_SETTINGS: &'static [SettingTable] = &[W::SETTINGS];
    const SIM_SETTINGS: &'static [SettingTable] = if W::SETS_MEMORY {
        &[W::SETTINGS, ("simulated machines", FRAME_SETTINGS)]
    } else {
        &[W::SETTINGS, ("simulated machines", FRAME_SETTINGS), ("simulated memory", NODE_SETTINGS)]
    };
    const BRIEF: Brief = W::BRIEF;
    const TELLING: &'static [Telling] = W::TELLING;

    fn steps(_: &Assignments) -> Result<u64> {
        Ok(1)
    }

    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
        let given = cell.assignments;
        let work = W::new(&Setup { given, tasks: cell.cpus.len(), simulated: false })?;
        let finished = host::run(cell, &work)?;
        progress.step();
        Ok(measured::<W>(given, cell.cpus.len(), finished, None))
    }

    fn host_bytes(spec: &Spec, given: &Assignments) -> Result<u64> {
        if W::SETS_MEMORY {
            let work = W::new(&Setup { given, tasks: spec.cpus(), simulated: true })?;
            return Ok(sim::plan(spec, given, &work)?.host_bytes());
        }
        Ok(MemoryPlan::new(spec, given)?.host_bytes())
    }

    fn run_on_sim(cell: &SimCell<'_>) -> Result<Measured> {
        let given = cell.assignments;
        let work = W::new(&Setup { given, tasks: cell.cpus, simulated: true })?;
        let plan = sim::plan(cell.spec, given, &work)?;
        let (finished, report) = sim::run(cell, &plan, work)?;
        let simulated = Some(standard_fields(&report));
        let mut measured = measured::<W>(given, cell.cpus, finished, simulated);
        measured.specific.extend(details(&report)?);
        measured.specific.insert("frame_record_bytes".to_owned(), json!(plan.frame_record_bytes()));
        let node_bytes = plan.node_frames() * FRAME_BYTES;
        measured.specific.insert("node_bytes".to_owned(), json!(node_bytes));
        Ok(measured)
    }

    fn print(results: &[RunResult], machine: &Machine) -> Result<()> {
        print_columns(results, machine, W::COLUMNS, W::LEGEND)
    }
}

fn measured<W: TaskWorkload>(
    given: &Assignments,
    tasks: usize,
    finished: Finished,
    simulated: Option<Simulated>,
) -> Measured {
    let Findings { work, mut specific } = finished.findings;
    let (_, table) = W::SETTINGS;
    let options = table.iter().map(|setting| {
        let value = given.value(table, setting.name);
        (setting.name.to_owned(), value.parse::<u64>().map_or(json!(value), Value::from))
    });
    specific.insert("options".to_owned(), options.collect());
    let task_ns = work.seconds * 1e9 * tasks as f64;
    specific.insert("calls".to_owned(), json!(finished.calls));
    specific.insert("allocator_share".to_owned(), json!(finished.calls.total_ns() / task_ns));
    let Finished { fragmentation, state, .. } = finished;
    Measured { work, simulated, fragmentation: Some(fragmentation), state, specific }
}

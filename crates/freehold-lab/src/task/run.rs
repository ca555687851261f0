//! A task workload as seen by the command line: its cells on the host and on simulated machines.

use anyhow::Result;
use serde_json::{Value, json};

use super::workload::{Findings, Finished, Setup, TaskWorkload};
use super::{host, sim};
use crate::cell::{HostCell, Measured, SimCell};
use crate::designs::DesignName;
use crate::machine::{FRAME_BYTES, Machine};
use crate::report::columns::Telling;
use crate::report::document::{RunResult, Simulated};
use crate::report::figure::{Figure, Parts};
use crate::report::goal::Goal;
use crate::report::progress::Progress;
use crate::settings::Assignments;
use crate::sim::linux::lru_costs;
use crate::sim::memory::{FRAME_SETTINGS, MemoryPlan, NODE_SETTINGS};
use crate::sim::result::{details, standard_fields};
use crate::workload::{Brief, SettingTable, Workload};

impl<W: TaskWorkload> Workload for W {
    const BRIEF: Brief = W::BRIEF;
    const GOALS: &'static [Goal] = W::GOALS;
    const TELLING: &'static [Telling] = W::TELLING;
    const FIGURES: &'static [Figure] = W::FIGURES;
    const PARTS: Option<&'static Parts> = W::PARTS;

    fn host_settings() -> Vec<SettingTable> {
        own_settings::<W>(false).collect()
    }

    fn sim_settings() -> Vec<SettingTable> {
        let of_memory = (!W::SETS_MEMORY).then_some(("simulated memory", NODE_SETTINGS));
        let of_machine = [("simulated machines", FRAME_SETTINGS)].into_iter().chain(of_memory);
        own_settings::<W>(true).chain(of_machine).collect()
    }

    fn check_on_host(_design: DesignName, tasks: usize, given: &Assignments) -> Result<()> {
        W::new(&Setup { given, tasks, simulated: false }).map(drop)
    }

    fn steps(given: &Assignments) -> Result<u64> {
        <W as TaskWorkload>::steps(given)
    }

    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
        let given = cell.assignments;
        let work = W::new(&Setup { given, tasks: cell.cpus.len(), simulated: false })?;
        let finished = host::run(cell, &work, progress)?;
        progress.step();
        Ok(measured::<W>(given, cell.cpus.len(), finished, None))
    }

    fn check_on_sim(cell: &SimCell<'_>) -> Result<u64> {
        let plan = prepared::<W>(cell)?.1;
        // The LRU's records of 16 bytes, and directory entries of 24 for four of them, or for each.
        let each = match lru_costs(cell.assignments)?.in_page {
            true => 16 + 24 / 4 + 24,
            false => 16 + 24 / 4,
        };
        let of_lru = if W::USES_LRU { plan.frames().get() * each } else { 0 };
        Ok(plan.host_bytes() + of_lru)
    }

    fn run_on_sim(cell: &SimCell<'_>) -> Result<Measured> {
        let (work, plan) = prepared::<W>(cell)?;
        let (finished, report) = sim::run(cell, &plan, work)?;
        let simulated = Some(standard_fields(&report));
        let mut measured = measured::<W>(cell.assignments, cell.cpus, finished, simulated);
        measured.specific.extend(details(&report)?);
        measured.specific.insert("frame_record_bytes".to_owned(), json!(plan.frame_record_bytes()));
        let node_bytes = plan.node_frames(0) * FRAME_BYTES;
        measured.specific.insert("node_bytes".to_owned(), json!(node_bytes));
        Ok(measured)
    }

    fn print(results: &[RunResult], machine: &Machine) -> Result<()> {
        W::show(results, machine)
    }
}

/// The work of a simulated cell, and the memory that it runs in.
fn prepared<W: TaskWorkload>(cell: &SimCell<'_>) -> Result<(W, MemoryPlan)> {
    let (given, tasks) = (cell.assignments, cell.cpus);
    let work = W::new(&Setup { given, tasks, simulated: true })?;
    let plan = sim::plan(cell.spec, given, (work.memory(), W::SIZE), tasks)?;
    Ok((work, plan))
}

fn measured<W: TaskWorkload>(
    given: &Assignments,
    tasks: usize,
    finished: Finished,
    simulated: Option<Simulated>,
) -> Measured {
    let Findings { work, mut specific } = finished.findings;
    let tables = own_settings::<W>(simulated.is_some());
    let options = tables.flat_map(|(_, table)| table.iter().map(move |setting| (table, setting)));
    let options = options.map(|(table, setting)| {
        let value = given.value(table, setting.name);
        (setting.name.to_owned(), value.parse::<u64>().map_or(json!(value), Value::from))
    });
    specific.insert("options".to_owned(), options.collect());
    specific.insert("metadata_bytes".to_owned(), json!(finished.metadata_bytes));
    let task_ns = work.seconds * 1e9 * tasks as f64;
    if let Some(calls) = finished.calls {
        specific.insert("calls".to_owned(), json!(calls));
        specific.insert("allocator_share".to_owned(), json!(calls.total_ns() / task_ns));
    }
    let Finished { fragmentation, state, .. } = finished;
    Measured { work, simulated, fragmentation, state, specific }
}

/// The workload's own settings on a machine.
fn own_settings<W: TaskWorkload>(simulated: bool) -> impl Iterator<Item = SettingTable> {
    let further = if simulated { W::ON_SIM } else { W::ON_HOST };
    [W::SETTINGS].into_iter().chain(further.iter().copied())
}

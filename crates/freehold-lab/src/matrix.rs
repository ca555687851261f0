//! Every design with every number of CPUs, on the host or on a simulated machine: the basis of both
//! `freehold run` and `freehold compare`.

use std::collections::BTreeMap;

use anyhow::Result;
use freehold::{Design, Setting};
use freehold_host::Snapshot;
use freehold_sim::{Sim, Spec};
use serde_json::Value;

use crate::catalog::{WorkloadName, name_of, with_workload};
use crate::cell::{HostCell, Measured, SimCell};
use crate::designs::{DesignName, SimDesign, with_design};
use crate::error::refuse;
use crate::host::tasks;
use crate::machine::HOST;
use crate::report::document::{RunResult, cpus_in_words};
use crate::report::profile::PROFILE;
use crate::report::progress::Progress;
use crate::settings::{Assignments, shown};
use crate::sim::parallel::run_all;
use crate::sim::result::hash;
use crate::workload::{SettingTable, Workload};

/// What to run, on any machine.
pub(crate) struct Matrix<'a> {
    pub(crate) workload: WorkloadName,
    pub(crate) designs: &'a [SimDesign],
    /// Each is run; all CPUs of the machine if empty.
    pub(crate) cpus: &'a [u32],
    pub(crate) seed: u64,
    pub(crate) assignments: &'a Assignments,
}

/// The settings of the designs, and those of a workload.
pub(crate) fn tables(
    designs: &[SimDesign],
    of_workload: &[SettingTable],
) -> Vec<&'static [Setting]> {
    let of_designs = designs.iter().map(|design| design.settings());
    of_designs.chain(of_workload.iter().map(|(_, table)| *table)).collect()
}

/// Cells on the host, checked and ready to run.
pub(crate) struct HostCells<'a> {
    workload: WorkloadName,
    cells: Vec<HostCell<'a>>,
    steps: u64,
}

/// Cells on a simulated machine, checked and ready to run.
pub(crate) struct SimCells<'a> {
    workload: WorkloadName,
    cells: Vec<SimCell<'a>>,
    /// How much of the host's memory the largest takes.
    host_bytes: u64,
}

impl<'a> Matrix<'a> {
    /// The cells on the host.
    pub(crate) fn on_host(&self) -> Result<HostCells<'a>> {
        let Matrix { workload, seed, assignments, .. } = *self;
        let counts = self.counts(tasks::cpus_max()?);
        let mut cells = Vec::new();
        for (design, count) in self.designs_and(&counts) {
            let cpus = tasks::cpus_for(count, "--cpus")?;
            let Some(real) = design.real() else {
                let only = "runs on simulated machines only: name one with --machine";
                return refuse(format!("{} {only}", name_of(&design)));
            };
            shown_of(design, assignments)?;
            with_workload!(workload, W => W::check_on_host(real, count as usize, assignments)?);
            cells.push(HostCell { design: real, cpus, seed, assignments });
        }
        let steps = with_workload!(workload, W => W::steps(assignments)?);
        Ok(HostCells { workload, cells, steps })
    }

    /// The cells on a simulated machine, which the workload must support.
    pub(crate) fn on_sim(&self, spec: &'a Spec) -> Result<SimCells<'a>> {
        let there = spec.cpus() as u32;
        let counts = self.counts(there);
        if let Some(count) = counts.iter().find(|&&count| count > there) {
            return refuse(format!("--cpus {count}: {} has {there} CPUs", spec.name()));
        }
        let Matrix { workload, seed, assignments, .. } = *self;
        let (mut cells, mut host_bytes) = (Vec::new(), 0);
        for (design, count) in self.designs_and(&counts) {
            let cell = SimCell { spec, design, cpus: count as usize, seed, assignments };
            shown_of(design, assignments)?;
            host_bytes = host_bytes.max(with_workload!(workload, W => W::check_on_sim(&cell)?));
            cells.push(cell);
        }
        Ok(SimCells { workload, cells, host_bytes })
    }

    fn counts(&self, all: u32) -> Vec<u32> {
        if self.cpus.is_empty() { vec![all] } else { self.cpus.to_vec() }
    }

    fn designs_and(&self, counts: &[u32]) -> impl Iterator<Item = (SimDesign, u32)> {
        self.designs.iter().flat_map(|&design| counts.iter().map(move |&count| (design, count)))
    }
}

impl HostCells<'_> {
    /// These cells and those of another part of the same command.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.cells.extend(other.cells);
        self
    }

    /// Runs one cell after the other, since they would disturb each other's times.
    pub(crate) fn run(&self) -> Result<Vec<RunResult>> {
        self.run_showing(&self.progress())
    }

    /// A bar for all of them.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(self.steps * self.cells.len() as u64)
    }

    /// As [`HostCells::run`], with its progress shown there.
    pub(crate) fn run_showing(&self, progress: &Progress) -> Result<Vec<RunResult>> {
        let mut results = Vec::new();
        for cell in &self.cells {
            let cpus = cpus_in_words(cell.cpus.len());
            progress.say(format!("{} on {cpus}", name_of(&cell.design)));
            let result = self.run_cell(cell, progress)?;
            progress.known(&result)?;
            results.push(result);
        }
        progress.finish();
        Ok(results)
    }

    fn run_cell(&self, cell: &HostCell<'_>, progress: &Progress) -> Result<RunResult> {
        let design = SimDesign::Real(cell.design);
        let shown = shown_of(design, cell.assignments)?;
        let measured = with_workload!(self.workload, W => W::run_on_host(cell, progress)?);
        let (result, state) = result(self.workload, design, HOST, cell.cpus.len(), shown, measured);
        let (profile, seed) = (Some(PROFILE), Some(cell.seed));
        Ok(RunResult { profile, seed, state: Some(state), ..result })
    }
}

impl SimCells<'_> {
    /// These cells and those of another part of the same command.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.cells.extend(other.cells);
        self.host_bytes = self.host_bytes.max(other.host_bytes);
        self
    }

    /// Runs all cells side by side, as far as the host has CPUs and memory.
    pub(crate) fn run(&self) -> Result<Vec<RunResult>> {
        self.run_showing(&self.progress())
    }

    /// A bar for all of them.
    pub(crate) fn progress(&self) -> Progress {
        Progress::new(self.cells.len() as u64)
    }

    /// How much of the host's memory the largest takes.
    pub(crate) fn host_bytes(&self) -> u64 {
        self.host_bytes
    }

    /// As [`SimCells::run`], with its progress shown there.
    pub(crate) fn run_showing(&self, progress: &Progress) -> Result<Vec<RunResult>> {
        if let Some(cell) = self.cells.first() {
            progress.say(format!("on {}", cell.spec.name()));
        }
        // The quickest design first, for a first result soon; then the slowest, so that no CPU is
        // left with it at the end.
        let rank = |design| match design {
            SimDesign::Real(DesignName::Freehold) => 0,
            SimDesign::Real(DesignName::ZoneLock) => 1,
            _ => 2,
        };
        let mut order: Vec<_> = (0..self.cells.len()).collect();
        order.sort_by_key(|nth| rank(self.cells[*nth].design));
        let results = run_all(&order, self.host_bytes, None, |nth| {
            let result = self.run_cell(&self.cells[*nth])?;
            progress.known(&result)?;
            progress.step();
            Ok((*nth, result))
        });
        progress.finish();
        let mut results = results?;
        results.sort_by_key(|(nth, _)| *nth);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    fn run_cell(&self, cell: &SimCell<'_>) -> Result<RunResult> {
        let shown = shown_of(cell.design, cell.assignments)?;
        let measured = with_workload!(self.workload, W => W::run_on_sim(cell)?);
        let name = cell.spec.name();
        let (mut result, state) =
            result(self.workload, cell.design, name, cell.cpus, shown, measured);
        result.seed = Some(cell.seed);
        let hash = hash(&result)?;
        if let Some(simulated) = &mut result.simulated {
            simulated.result_hash = hash;
        }
        result.state = Some(state);
        Ok(result)
    }
}

/// The settings of a design, which are the same on every platform, as shown in a report.
fn shown_of(design: SimDesign, given: &Assignments) -> Result<BTreeMap<String, Value>> {
    let Some(design) = design.real() else { return Ok(BTreeMap::new()) };
    with_design!(design, Sim, D => {
        Ok(shown(&given.of_design::<<D as Design<Sim>>::Settings>()?))
    })
}

/// A result, and the state of its allocator, which is not part of the hash.
fn result(
    workload: WorkloadName,
    design: SimDesign,
    machine: &str,
    cpus: usize,
    settings: BTreeMap<String, Value>,
    measured: Measured,
) -> (RunResult, Snapshot) {
    let result = RunResult {
        workload: name_of(&workload),
        design: name_of(&design),
        machine: machine.to_owned(),
        cpus: cpus as u32,
        profile: None,
        seed: None,
        settings,
        work: measured.work,
        simulated: measured.simulated,
        fragmentation: measured.fragmentation,
        workload_specific: measured.specific,
        state: None,
    };
    (result, measured.state)
}

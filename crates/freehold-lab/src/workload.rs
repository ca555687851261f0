//! What the commands `run` and `compare` require of a workload.

use anyhow::Result;
use freehold::Setting;

use crate::cell::{HostCell, Measured, SimCell};
use crate::designs::DesignName;
use crate::machine::Machine;
use crate::report::columns::Telling;
use crate::report::document::RunResult;
use crate::report::figure::{Figure, Parts};
use crate::report::goal::{Goal, RATE};
use crate::report::progress::Progress;
use crate::settings::Assignments;

/// Settings and their owner.
pub(crate) type SettingTable = (&'static str, &'static [Setting]);

/// Settings and their values, by name.
type Values = &'static [(&'static str, &'static str)];

/// What `freehold compare` sets by default, on the host and on simulated machines.
pub(crate) struct Brief {
    pub(crate) on_host: Values,
    pub(crate) on_sim: Values,
}

/// A workload, as seen by the command line.
///
/// One whose tasks are the same on every machine implements [`TaskWorkload`] instead, which makes
/// it a workload.
///
/// [`TaskWorkload`]: crate::task::workload::TaskWorkload
pub(crate) trait Workload {
    /// How the workload is reduced so that comparing all designs is quick, if that does not change
    /// which one is ahead (`tools/check-briefs`).
    const BRIEF: Brief = Brief { on_host: &[], on_sim: &[] };

    /// What users want of it, the most important first: what a comparison ranks by. Each of its
    /// results has a value for one of them at least.
    const GOALS: &'static [Goal] = &[RATE];

    /// Its own numbers that a comparison mentions.
    const TELLING: &'static [Telling] = &[];

    /// The figures of its results that not every workload has.
    const FIGURES: &'static [Figure];

    /// The parts of its results, if these have figures of their own.
    const PARTS: Option<&'static Parts> = None;

    /// The settings on the host.
    fn host_settings() -> Vec<SettingTable>;

    /// The settings on simulated machines.
    fn sim_settings() -> Vec<SettingTable>;

    /// Refuses settings that a cell of so many tasks on the host could not run with, before it
    /// runs.
    fn check_on_host(design: DesignName, tasks: usize, given: &Assignments) -> Result<()>;

    /// How many steps of progress a cell on the host has.
    fn steps(given: &Assignments) -> Result<u64>;

    /// Runs one cell on the real machine.
    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured>;

    /// Refuses what a simulated cell could not run with, before it runs. Returns how much memory of
    /// the host it takes at most.
    fn check_on_sim(cell: &SimCell<'_>) -> Result<u64>;

    /// Runs one cell on a simulated machine.
    fn run_on_sim(cell: &SimCell<'_>) -> Result<Measured>;

    /// Prints the results of all cells, which ran on `machine`.
    fn print(results: &[RunResult], machine: &Machine) -> Result<()>;
}

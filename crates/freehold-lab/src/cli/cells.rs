//! What a workload is run on, and the arguments of `freehold run` and `freehold stat`.

use clap::{Args, ValueEnum};

use super::design::{DesignChoice, chosen_designs};
use super::format::FormatArgs;
use crate::catalog::WorkloadName;
use crate::designs::{DesignName, SimDesign};
use crate::machine::Machine;
use crate::report::html::ReportArgs;

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// The workload (see `freehold list workloads`).
    pub(crate) workload: WorkloadName,

    #[command(flatten)]
    pub(crate) cells: CellArgs,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// What a workload is run on. The defaults are not clap's, so that given arguments can be
/// distinguished from defaults.
#[derive(Debug, Args)]
pub(crate) struct CellArgs {
    /// The designs to run, separated by commas; `all` for every one but free-lunch. Default:
    /// freehold.
    #[arg(long, value_name = "DESIGN", value_delimiter = ',')]
    pub(crate) design: Vec<DesignChoice>,

    /// The machine to run on: `host`, a simulated one (see `freehold list machines`), or a .toml
    /// file that describes one. Default: host.
    #[arg(long, value_name = "MACHINE", value_parser = Machine::parse)]
    pub(crate) machine: Option<Machine>,

    /// The seed of a simulated schedule. One seed, one result, byte for byte. Default: 1.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// How many CPUs to use, one task on each; several counts, separated by commas, are run one
    /// after the other. Default: all.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: Vec<u32>,

    /// Change a setting of the design or the workload (see `freehold list settings`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,
}

impl CellArgs {
    /// The designs to run, each once.
    pub(crate) fn designs(&self) -> Vec<SimDesign> {
        const DEFAULT: &[DesignChoice] =
            &[DesignChoice::One(SimDesign::Real(DesignName::Freehold))];
        chosen_designs(if self.design.is_empty() { DEFAULT } else { &self.design })
    }

    /// The machine to run on.
    pub(crate) fn machine(&self) -> &Machine {
        self.machine.as_ref().unwrap_or(&Machine::Host)
    }

    /// The first given argument that only makes sense for a run.
    pub(crate) fn given_for_a_run(&self) -> Option<&'static str> {
        let given = [
            ("--machine", self.machine.is_some()),
            ("--seed", self.seed.is_some()),
            ("--cpus", !self.cpus.is_empty()),
            ("--set", !self.settings.is_empty()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

const RUN_HELP: &str = "\
Examples:
  freehold run page-fault --design zone-lock --cpus 1,2 --json
  freehold run page-fault --machine skylake-2s --cpus 1,28,56,112
  freehold run page-fault --design zone-lock --set pcp=fixed --set task_bytes=32MiB
  freehold run bulk --cpus 1";

#[derive(Debug, Args)]
#[command(after_help = STAT_HELP)]
pub(crate) struct StatArgs {
    /// A workload to run; or a document of `freehold run --json`, a file or - for standard input,
    /// from which --design selects results.
    pub(crate) source: String,

    #[command(flatten)]
    pub(crate) cells: CellArgs,

    /// The views to show, separated by commas.
    #[arg(long, value_name = "VIEW", value_delimiter = ',')]
    #[arg(default_value = "buddyinfo,zoneinfo,pagetypeinfo,vmstat")]
    pub(crate) show: Vec<View>,
}

const STAT_HELP: &str = "\
The state is that of the moment when the tasks have done their work and not yet freed what they
hold; of page-fault on the host, one in the middle of the work.

Examples:
  freehold stat build --design zone-lock --machine uma-4
  freehold stat page-fault --show vmstat
  freehold run thp-mix --json | freehold stat - --show buddyinfo,pagetypeinfo
  freehold stat kept.json --design zone-lock --show prometheus
  freehold stat purge --machine desktop --show prometheus";

/// A view of the state of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Free blocks by order, as in /proc/buddyinfo.
    Buddyinfo,
    /// Levels and watermarks of zones, as in /proc/zoneinfo.
    Zoneinfo,
    /// Free blocks by migratetype and order, as in /proc/pagetypeinfo.
    Pagetypeinfo,
    /// Sums and events, as in /proc/vmstat.
    Vmstat,
    /// Everything, in the text format of Prometheus.
    Prometheus,
}

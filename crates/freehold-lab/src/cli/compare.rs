//! The arguments of `freehold compare`.

use clap::Args;
use freehold_sim::Spec;

use super::design::DesignChoice;
use super::format::FormatArgs;
use crate::catalog::WorkloadName;
use crate::machine::parse_simulated;
use crate::report::html::ReportArgs;

#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
pub(crate) struct CompareArgs {
    /// The workload (see `freehold list workloads`).
    pub(crate) workload: WorkloadName,

    /// The designs to compare, separated by commas; `all` for every one but free-lunch.
    #[arg(long, value_name = "DESIGN", value_delimiter = ',', default_value = "all")]
    pub(crate) design: Vec<DesignChoice>,

    /// The simulated machine (see `freehold list machines`), or a .toml file that describes one.
    #[arg(long, value_name = "MACHINE", default_value = "skylake-2s")]
    #[arg(value_parser = parse_simulated)]
    pub(crate) machine: Box<Spec>,

    /// How many of its CPUs to use, one task on each. Default: all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: Option<u32>,

    /// The first seed, from which tasks and the simulated machine's schedule draw. On a simulated
    /// machine, one seed is one result, byte for byte.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many seeds to run; on the host in turns, each as one round of all designs. Places that
    /// depend on the seed are ties: one seed cannot tell.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,

    /// Do not reduce the workload: each part takes as long as `freehold run`.
    #[arg(long)]
    pub(crate) whole: bool,

    /// Do not run on the host.
    #[arg(long, conflicts_with = "no_sim")]
    pub(crate) no_host: bool,

    /// Do not run on the simulated machine.
    #[arg(long)]
    pub(crate) no_sim: bool,

    /// Change a setting of the designs or the workload (see `freehold list settings`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,

    /// Run each design that has this setting once with each value. Default: all designs with
    /// pcp=auto, and zone-lock also with pcp=fixed, unless --set sets pcp.
    #[arg(long, value_name = "NAME=VALUE,..")]
    pub(crate) vary: Option<String>,

    /// Run all designs with both kinds of per-CPU lists: the same as --vary pcp=auto,fixed.
    #[arg(long, conflicts_with = "vary")]
    pub(crate) all_settings: bool,

    /// Instead of on the host, run on machines whose figures are a little different: which places
    /// hold, and how far ratios spread.
    #[arg(long, conflicts_with_all = ["no_sim", "seeds", "vary", "all_settings", "why", "csv"])]
    #[arg(conflicts_with = "report")]
    pub(crate) sensitivity: bool,

    /// Also print, for each place, all that was counted and goes with it.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub(crate) why: bool,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

const COMPARE_HELP: &str = "\
Designs run on the simulated machine side by side, then on this host one after the other, on all
CPUs that the process may use. Each result is a line on stderr as soon as it is known. Designs are
ranked by what users want of the workload, which may be several figures. With several seeds, a
design is ahead of another if it is with all of them; otherwise they share their places. What is
said of a design was counted in its run with the median.
Workloads are reduced where that does not change which design is ahead. The settings that do so are
printed, and --set overrides them; --whole reduces nothing.
--sensitivity runs every design up to 17 times: on the machine as it is; with its figures in ns and
GB/s 30 % lower and higher, those of one table of the machine file at a time; with instructions that
take time; and with tasks that start apart.

Examples:
  freehold compare page-fault                        every design, here and on 112 simulated CPUs
  freehold compare page-fault --seeds 3 --why        which places are ties, and what goes with them
  freehold compare page-fault --all-settings         per-CPU lists tuned and fixed
  freehold compare page-fault --set pcp=fixed        with per-CPU lists of a fixed length only
  freehold compare page-fault --design lazy-merge --vary compact-history=off,on
  freehold compare page-fault --machine epyc-2s --no-host
  freehold compare thp-mix --no-host --seeds 5       more seeds, fewer ties
  freehold compare page-fault --sensitivity --set pcp=fixed
  freehold compare page-fault --csv > compare.csv    a table for other programs
  freehold compare page-fault --whole                not reduced: takes longer";

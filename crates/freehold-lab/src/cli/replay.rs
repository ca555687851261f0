//! The arguments of `freehold replay`.

use std::path::PathBuf;

use clap::Args;

use super::design::DesignChoice;
use super::format::FormatArgs;
use crate::machine::Machine;
use crate::report::html::ReportArgs;

#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArgs {
    /// The recording (see `freehold record` and `freehold import`).
    pub(crate) trace: PathBuf,

    /// The designs to replay it on, separated by commas; `all` for every one but free-lunch.
    #[arg(long, value_name = "DESIGN", value_delimiter = ',', default_value = "all")]
    pub(crate) design: Vec<DesignChoice>,

    /// The machine: `host`, a simulated one (see `freehold list machines`), or a .toml file that
    /// describes one.
    #[arg(long, value_name = "MACHINE", default_value = "host", value_parser = Machine::parse)]
    pub(crate) machine: Machine,

    /// How many copies of the recorded CPUs run side by side, each with blocks of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_534))]
    pub(crate) scale: u32,

    /// Replay only so many of the first events. Default: all on the host; on simulated machines so
    /// many that all copies have 4 million.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: Option<u64>,

    /// The seed of a simulated machine's schedule. One seed, one result, byte for byte.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Change a setting of the designs or of the replay (see `freehold list settings`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

const REPLAY_HELP: &str = "\
Each recorded CPU is a task that makes the same calls in the same order. On the host it makes them
as fast as it can; on simulated machines, times between calls are the recorded ones. With --scale,
a recording of 2 CPUs asks a machine of 112.

Examples:
  freehold replay build.fht                               on this machine, as fast as it can
  freehold replay build.fht --machine skylake-2s --scale 56
  freehold replay build.fht --design zone-lock --machine uma-2 --set pcp=fixed
  freehold replay build.fht --machine skylake-2s --scale 56 --set memory=64GiB --json";

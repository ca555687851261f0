//! The arguments of `freehold list`.

use clap::{Args, ValueEnum};

use super::format::FormatArgs;

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ListArgs {
    /// The list to print.
    pub(crate) what: ListWhat,

    /// With `machines`: every figure of every machine, with its source.
    #[arg(long)]
    pub(crate) details: bool,

    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

const LIST_HELP: &str = "\
Examples:
  freehold list workloads
  freehold list machines --details
  freehold list settings --json
  freehold list machines --details --csv";

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ListWhat {
    /// The workloads.
    Workloads,
    /// The allocators to run them on.
    Designs,
    /// The machines to run them on.
    Machines,
    /// The settings that `--set` can change.
    Settings,
    /// The benches of races.
    Benches,
    /// The contestants of races besides the designs.
    Peers,
}

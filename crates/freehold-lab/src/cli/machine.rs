//! The arguments of `freehold machine`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(super) const MACHINE_HELP: &str = "\
A machine is a .toml file for --machine: `base` is one of `freehold list machines`, and tables
replace its figures. All keys, with units and meanings: freehold list machines --details

Examples:
  LC_ALL=C lscpu | freehold machine from-lscpu - > mine.toml
  freehold run page-fault --machine mine.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Write a machine file from what lscpu and numactl print.
    FromLscpu(FromLscpuArgs),
}

#[derive(Debug, Args)]
#[command(after_help = FROM_LSCPU_HELP)]
pub(crate) struct FromLscpuArgs {
    /// The texts, or - for standard input: lscpu's and, in the same file or another, that of
    /// numactl --hardware, which has the sizes of nodes and their distances.
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

const FROM_LSCPU_HELP: &str = "\
Texts may be quoted, as in mail, and have other output around them. What cannot follow from them,
such as latencies, is that of the nearest machine of `freehold list machines`, and is listed in
comments. Comments also say what was rounded or taken for granted.

Examples:
  (LC_ALL=C lscpu; numactl --hardware) | freehold machine from-lscpu - > mine.toml
  freehold machine from-lscpu lscpu.txt numactl.txt > theirs.toml
  freehold run page-fault --machine theirs.toml";

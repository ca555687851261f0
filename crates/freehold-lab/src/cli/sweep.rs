//! The arguments of `freehold sweep`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::report::html::ReportArgs;

#[derive(Debug, Args)]
#[command(after_help = SWEEP_HELP)]
pub(crate) struct SweepArgs {
    /// The file that says what to run (docs/lab.md has every key).
    pub(crate) file: PathBuf,

    /// The folder of the results. Default: FILE without its extension, plus `.results`.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Only cells of this name, in which each `*` stands for any text. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) cell: Vec<String>,

    /// Only this part of the cells: part I, from 0, of N. Names decide, so a cell stays in its part
    /// when others come or go.
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Part>,

    /// How many simulated cells to run side by side, as far as there is memory. Default: one for
    /// each CPU. Cells on the host run alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with_all = ["list", "merge", "slurm"])]
    pub(crate) jobs: Option<u32>,

    /// Run cells again whose definition has changed, in place of refusing.
    #[arg(long, conflicts_with_all = ["list", "merge"])]
    pub(crate) force: bool,

    /// Print the cells, and which are done. Nothing runs.
    #[arg(long, conflicts_with_all = ["merge", "slurm"])]
    pub(crate) list: bool,

    /// Only write DIR/results.json, once all cells are done.
    #[arg(long, conflicts_with_all = ["cell", "shard", "slurm"])]
    pub(crate) merge: bool,

    /// Print a script for sbatch of Slurm: an array of up to N tasks, which run what is missing in
    /// N parts. N is at most Slurm's MaxArraySize, 1001 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(conflicts_with_all = ["cell", "shard", "json", "report"])]
    pub(crate) slurm: Option<u32>,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

const SWEEP_HELP: &str = "\
FILE has [global] with defaults and [[run]] with lists of values; each [[run]] is all combinations
of its values:

  [global]
  machine = \"skylake-2s\"
  design = [\"zone-lock\", \"freehold\"]
  seed = [1, 2, 3]
  [[run]]
  workload = \"page-fault\"
  cpus = [1, 28, 56, 112]
  set.task_bytes = \"4MiB\"

Each finished cell is a document in DIR/cells, as of `freehold run --json`. When all are done,
DIR/results.json has them in the order of FILE. After a kill, the same command runs what is missing.

Examples:
  freehold sweep campaign.toml
  freehold sweep campaign.toml --list
  freehold sweep campaign.toml --cell 'page-fault/*/cpus=112/*'
  freehold sweep campaign.toml --shard 0/4    on the first of four machines that share a disk
  freehold sweep campaign.toml --slurm 16 | sbatch --time=30 --cpus-per-task=4";

/// A part of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) index: u32,
    pub(crate) of: u32,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, of)| {
            Some(Part { index: index.parse().ok()?, of: of.parse().ok()? })
        });
        let part = parsed.filter(|part| part.index < part.of);
        part.ok_or_else(|| "write I/N with I from 0 and below N, for example 0/4".to_owned())
    }
}

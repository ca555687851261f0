//! The arguments of `freehold diff`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub(crate) struct DiffArgs {
    /// The document to compare with: what `freehold run`, `compare` or `race` printed with --json.
    #[arg(value_name = "A.json")]
    pub(crate) a: PathBuf,

    /// The document to compare, of the same command.
    #[arg(value_name = "B.json")]
    pub(crate) b: PathBuf,

    /// The least change that counts, as a percentage of A.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percentage)]
    pub(crate) threshold: f64,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a percentage as a share.
fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let percent = number.filter(|percent| (0.0..=1000.0).contains(percent));
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "this is no percentage from 0% to 1000%: write, for example, 5%".to_owned())
}

const DIFF_HELP: &str = "\
Cells of the two documents are matched by what was run: of runs and comparisons, workload, design,
machine, CPUs, seed and settings; of races, bench, contestant, threads, memory and frames. How
often something was measured may differ, and so may settings that only one of the two programs has.

A change counts if it is at least the threshold and not chance. Of a simulated machine, no change
is. Of what was measured on a host, one is taken for chance unless the 99 % interval of the ratio
B/A excludes 1: a bootstrap of the ratio of medians, over the samples or rounds in the documents.
That takes five on each side; what has fewer never counts. Samples of one run do not show what
varies from run to run, such as where memory lies: to see it, compare two runs of one program.

Exit codes:
  0  no figure is worse
  1  a document is not what it should be
  2  the command line is invalid, or a file cannot be read
  3  at least one figure is worse: its change counts, and it is for the worse

Examples:
  freehold run page-fault --json > a.json       before a change of the sources
  freehold run page-fault --json > b.json       and after it
  freehold diff a.json b.json
  freehold diff a.json b.json --threshold 10%   only what changed by a tenth or more";

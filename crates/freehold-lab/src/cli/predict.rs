//! The arguments of `freehold predict`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = PREDICT_HELP)]
pub(crate) struct PredictArgs {
    /// The published results (see `--list`). Default: all.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Name the published results, and run nothing.
    #[arg(long, conflicts_with_all = ["json", "csv", "markdown"])]
    pub(crate) list: bool,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print one CSV table instead: a line of headings, numbers in full.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,

    /// Print docs/predictions.md instead: with sources, machines, commands and notes.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub(crate) markdown: bool,
}

const PREDICT_HELP: &str = "\
Each published result names the run that predicts it, a command that you can type. Ratios are of the
prediction to what was published. Nothing of the simulated machines was fitted to any of them, but
for the one that says so.

Examples:
  freehold predict --list                      what there is
  freehold predict lazy-merging clusters       two of them
  freehold predict                             all: ten minutes on two cores
  freehold predict --markdown > docs/predictions.md";

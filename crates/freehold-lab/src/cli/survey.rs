//! The arguments of `freehold survey`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = SURVEY_HELP)]
pub(crate) struct SurveyArgs {
    /// Where the page goes. Beside it come FILE.json, with all figures, and FILE.toml, a file for
    /// --machine.
    #[arg(long, value_name = "FILE.html", default_value = "survey.html")]
    pub(crate) report: PathBuf,

    /// Print the document of FILE.json instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// As short as can be, to see that everything works: the figures are good for nothing.
    #[arg(long)]
    pub(crate) quick: bool,
}

const SURVEY_HELP: &str = "\
What a machine with many CPUs would say of all that is predicted here: what its memory, its caches
and its atomics cost, as `freehold list machines --details` defines these figures; and races and
workloads on one CPU, two, a last-level cache, a socket, all cores and all CPUs. The same is then
simulated on the nearest machine of `freehold list machines`, and on one with the figures that were
measured. The files name the model of the CPU, and neither the host nor its user.

Takes ten minutes on 64 CPUs. It wants an otherwise idle machine, lscpu, and a GiB of memory.

Examples:
  freehold survey                              survey.html, survey.json, survey.toml
  freehold survey --report /tmp/epyc.html
  freehold run page-fault --machine survey.toml
                                               what would be on such a machine";

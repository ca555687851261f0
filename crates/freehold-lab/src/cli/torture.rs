//! The arguments of `freehold torture`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::check::Canary;
use crate::designs::DesignName;

#[derive(Debug, Args)]
#[command(after_help = TORTURE_HELP)]
pub(crate) struct TortureArgs {
    /// How long, and whether the seeds are always the same.
    #[arg(long, value_name = "PROFILE", default_value = "short")]
    pub(crate) profile: TortureProfile,

    /// How long, in minutes, instead of the profile's time.
    #[arg(long, value_name = "N", value_parser = minutes)]
    pub(crate) minutes: Option<f64>,

    /// How many batches of seeds to run side by side. Default: as many as there are CPUs.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,

    /// The designs, separated by commas. Default: all.
    #[arg(long, value_name = "DESIGN", value_delimiter = ',')]
    pub(crate) design: Vec<DesignName>,

    /// What to do, separated by commas. Default: all.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kind: Vec<TortureKind>,

    /// The first seed of each kind and design. Default: the profile's.
    #[arg(long, value_name = "SEED")]
    pub(crate) first_seed: Option<u64>,

    /// A batch that takes longer never ends: a finding. The longest takes some seconds on a CPU of
    /// its own.
    #[arg(long = "hang-after", value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) hang_after_s: u32,

    /// Where cases that failed are saved, made small. Made when there is one.
    #[arg(long, value_name = "FOLDER", default_value = "torture-findings")]
    pub(crate) save: PathBuf,

    /// Append what was done to a file, as one line of JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Plant a bug, to check that it is found.
    #[arg(long, value_name = "BUG", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "race")]
    pub(crate) canary: Option<Canary>,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

const TORTURE_HELP: &str = "\
Batches of seeds of `freehold check` run in processes of their own, for each design in turn, until
the time is over. A seed that fails, a batch that crashes and one that never ends are findings: each
is made as small as it gets, and saved with the command that plays it again. The run goes on. The
exit code is 1 if there was a finding.

Examples:
  freehold torture                                a minute of everything
  freehold torture --minutes 30 --jobs 8          longer, on more CPUs
  freehold torture --profile night --record long-runs.jsonl
                                                  eight hours, other seeds every night
  freehold torture --design freehold --kind host  threads on this machine alone
  freehold check --case torture-findings/1.json   plays a finding again";

/// How long, and from which seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TortureProfile {
    /// A minute, seeds from 0: what a CI can run for each change.
    Short,
    /// Eight hours, with seeds that the clock draws: other ones every night.
    Night,
}

impl TortureProfile {
    pub(crate) fn minutes(self) -> f64 {
        match self {
            TortureProfile::Short => 1.0,
            TortureProfile::Night => 480.0,
        }
    }
}

/// A kind of batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TortureKind {
    /// Random schedules on simulated machines, with failures, interrupts and leases.
    Simulated,
    /// The same, and a CPU stops forever.
    StopCpu,
    /// The LRU on simulated machines.
    Lru,
    /// Threads on this machine, and real memory whose frames say who owns them.
    Host,
    /// Threads that are delayed at any step, in all calls at once.
    Chaos,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if minutes > 0.0 && minutes <= 100_000.0 => Ok(minutes),
        _ => Err("it is a number of minutes above 0, such as 0.5 or 30".to_owned()),
    }
}

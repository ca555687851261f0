//! The arguments of `freehold check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::designs::DesignName;

#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArgs {
    /// The subject of the check.
    #[arg(long, value_name = "SUBJECT", default_value = "allocator")]
    pub(crate) subject: Subject,

    /// The design to check, or to check the subject on.
    #[arg(long, value_name = "DESIGN", default_value = "freehold")]
    pub(crate) design: DesignName,

    /// How many seeds to play.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) seeds: u64,

    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) first_seed: u64,

    /// Play only this seed, to replay a failure.
    #[arg(long, conflicts_with_all = ["seeds", "first_seed"])]
    pub(crate) seed: Option<u64>,

    /// Play a case that --shrink has saved.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["subject", "design", "seeds", "first_seed", "seed", "failures"])]
    #[arg(conflicts_with_all = ["stop_cpu", "canary", "shrink"])]
    pub(crate) case: Option<PathBuf>,

    /// Make the first seed that fails as small as it gets, and save it as a case.
    #[arg(long, value_name = "FILE")]
    pub(crate) shrink: Option<PathBuf>,

    /// How many seeds to play side by side, at most. Default: as many as there are CPUs.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,

    /// Inject exactly these failures, separated by commas, instead of those that the seed draws.
    #[arg(long, value_name = "FAILURE", value_delimiter = ',')]
    pub(crate) failures: Vec<Failure>,

    /// Stop one CPU forever in the middle of a call: the others must proceed, unless they wait for
    /// what it holds.
    #[arg(long)]
    pub(crate) stop_cpu: bool,

    /// Plant a bug, to check that it is found. With --stop-cpu, a call of another CPU that never
    /// ends.
    #[arg(long, value_name = "BUG", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "race")]
    pub(crate) canary: Option<Canary>,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

const CHECK_HELP: &str = "\
A seed picks machine, memory, settings, failures, schedule and work. The first seed that fails is
reported with the command that replays it, and the exit code is 1. With the subjects host and chaos,
this machine picks the schedule: a seed that failed once may pass the next time.

Examples:
  freehold check                      seeds 0 to 999
  freehold check --seed 42            replays the seed of a reported failure
  freehold check --subject lru        a cache under reclaim, moves between groups, compaction
  freehold check --failures preempt   lock holders are preempted for long, nothing else
  freehold check --stop-cpu           one CPU stops forever, the others proceed
  freehold check --subject host --seeds 20      threads on this machine
  freehold check --subject chaos --seeds 20     the same, delayed at any step, in all calls at once
  freehold check --shrink bug.json    saves what fails, made small
  freehold check --case bug.json      plays it again
  freehold check --canary             with a bug planted: fails
  freehold check --canary=loss        with another one";

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Canary {
    /// A compare-exchange is done in two steps; on this machine, a frame is handed out twice.
    Race,
    /// A frame is lost, and no count shows it.
    Loss,
    /// With --subject chaos: a lock lets a second holder in.
    Lock,
}

/// The subject of random schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    /// The page allocator.
    Allocator,
    /// The LRU, in a page cache of several groups on the page allocator.
    Lru,
    /// The page allocator on this machine: threads, real memory whose frames say who owns them.
    Host,
    /// The page allocator among threads of this machine that are delayed at any step.
    Chaos,
}

/// A kind of failure that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Failure {
    /// CPUs are stopped, holders of locks for long.
    Preempt,
    /// Attempts to take a free lock fail.
    TryLock,
    /// CPU numbers are wrong.
    CpuHint,
    /// Memory is refused, because a CPU takes all of it for a while.
    Memory,
    /// CPUs leave in the middle.
    Leave,
    /// CPUs are interrupted by handlers that call the allocator.
    Interrupt,
}

//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use freehold_sim::Spec;

use crate::catalog::{BenchName, WorkloadName};
use crate::designs::{DesignName, SimDesign};
use crate::machine::{Machine, parse_simulated};
use crate::race::contestant::ContestantChoice;
use crate::race::probe;

/// Runs workloads on page-frame allocators and reports their cost.
#[derive(Debug, Parser)]
#[command(name = "freehold", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  freehold compare page-fault                   every design, here and on 112 simulated CPUs
  freehold run page-fault                       page faults on this machine
  freehold run page-fault --cpus 1,2 --json     on one CPU and on two, as JSON
  freehold run page-fault --machine skylake-2s  on 112 simulated CPUs
  freehold run bulk                             one at a time against in bulk
  freehold race fill                            the designs against other allocators
  freehold check --seeds 1000                   random schedules and failures
  freehold list workloads                       the workloads

Exit codes:
  0  success
  1  the run failed
  2  the command line is invalid

Results go to stdout, progress to stderr if that is a terminal. NO_COLOR is respected.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload and report its cost.
    Run(RunArgs),
    /// Show the statistics of an allocator, from a run or from stored results.
    Stat(StatArgs),
    /// Compare designs on this machine and on a simulated one.
    Compare(CompareArgs),
    /// Check a design under random schedules and failures.
    Check(CheckArgs),
    /// Race the designs against other allocators on this machine.
    Race(RaceArgs),
    /// List the available choices.
    List(ListArgs),
    /// Load a library for a race, in a separate process.
    #[command(name = probe::COMMAND, hide = true)]
    ProbePeer {
        /// The library.
        library: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// The workload (see `freehold list workloads`).
    pub(crate) workload: WorkloadName,

    #[command(flatten)]
    pub(crate) cells: CellArgs,

    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a workload is run on. The defaults are not clap's, so that given arguments can be
/// distinguished from defaults.
#[derive(Debug, Args)]
pub(crate) struct CellArgs {
    /// The designs to run, separated by commas; `all` for every one but free-lunch. Default:
    /// freehold.
    #[arg(long, value_name = "DESIGN", value_delimiter = ',')]
    pub(crate) design: Vec<DesignChoice>,

    /// The machine to run on: `host`, a simulated one (see `freehold list machines`), or a .toml
    /// file that describes one. Default: host.
    #[arg(long, value_name = "MACHINE", value_parser = Machine::parse)]
    pub(crate) machine: Option<Machine>,

    /// The seed of a simulated schedule. One seed, one result, byte for byte. Default: 1.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// How many CPUs to use, one task on each; several counts, separated by commas, are run one
    /// after the other. Default: all.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: Vec<u32>,

    /// Change a setting of the design or the workload (see `freehold list settings`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,
}

impl CellArgs {
    /// The designs to run, each once.
    pub(crate) fn designs(&self) -> Vec<SimDesign> {
        const DEFAULT: &[DesignChoice] =
            &[DesignChoice::One(SimDesign::Real(DesignName::Freehold))];
        chosen_designs(if self.design.is_empty() { DEFAULT } else { &self.design })
    }

    /// The machine to run on.
    pub(crate) fn machine(&self) -> &Machine {
        self.machine.as_ref().unwrap_or(&Machine::Host)
    }

    /// The first given argument that only makes sense for a run.
    pub(crate) fn given_for_a_run(&self) -> Option<&'static str> {
        let given = [
            ("--machine", self.machine.is_some()),
            ("--seed", self.seed.is_some()),
            ("--cpus", !self.cpus.is_empty()),
            ("--set", !self.settings.is_empty()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

#[derive(Debug, Args)]
#[command(after_help = STAT_HELP)]
pub(crate) struct StatArgs {
    /// A workload to run; or a document of `freehold run --json`, a file or - for standard input,
    /// from which --design selects results.
    pub(crate) source: String,

    #[command(flatten)]
    pub(crate) cells: CellArgs,

    /// The views to show, separated by commas.
    #[arg(long, value_name = "VIEW", value_delimiter = ',')]
    #[arg(default_value = "buddyinfo,zoneinfo,pagetypeinfo,vmstat")]
    pub(crate) show: Vec<View>,
}

const STAT_HELP: &str = "\
The state is that of the moment when the tasks have done their work and not yet freed what they
hold; of page-fault on the host, one in the middle of the work.

Examples:
  freehold stat build --design zone-lock --machine uma-4
  freehold stat page-fault --show vmstat
  freehold run thp-mix --json | freehold stat - --show buddyinfo,pagetypeinfo
  freehold stat kept.json --design zone-lock --show prometheus
  freehold stat purge --machine desktop --show prometheus";

/// A view of the state of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Free blocks by order, as in /proc/buddyinfo.
    Buddyinfo,
    /// Levels and watermarks of zones, as in /proc/zoneinfo.
    Zoneinfo,
    /// Free blocks by migratetype and order, as in /proc/pagetypeinfo.
    Pagetypeinfo,
    /// Sums and events, as in /proc/vmstat.
    Vmstat,
    /// Everything, in the text format of Prometheus.
    Prometheus,
}

const RUN_HELP: &str = "\
Examples:
  freehold run page-fault --design zone-lock --cpus 1,2 --json
  freehold run page-fault --machine skylake-2s --cpus 1,28,56,112
  freehold run page-fault --design zone-lock --set pcp=fixed --set task_bytes=32MiB
  freehold run bulk --cpus 1";

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

    /// The seed of the simulated machine's schedule. One seed, one result, byte for byte.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Do not run on the host.
    #[arg(long, conflicts_with = "no_sim")]
    pub(crate) no_host: bool,

    /// Do not run on the simulated machine.
    #[arg(long)]
    pub(crate) no_sim: bool,

    /// Change a setting of the designs or the workload (see `freehold list settings`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,

    /// Run each design that has this setting once with each value. Default: pcp=auto,fixed, unless
    /// --set sets pcp.
    #[arg(long, value_name = "NAME=VALUE,..")]
    pub(crate) vary: Option<String>,

    /// Print one JSON document instead of a table and a ranking.
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPARE_HELP: &str = "\
Designs run on the simulated machine side by side, then on this host one after the other, on all
CPUs that the process may use. The ranking gives reasons, derived only from the results.
Workloads are reduced so that everything takes a minute or two. The settings that do so are
printed, and --set overrides them.

Examples:
  freehold compare page-fault                        every design, per-CPU lists tuned and fixed
  freehold compare page-fault --set pcp=fixed        with per-CPU lists of a fixed length only
  freehold compare page-fault --design lazy-merge --vary compact-history=off,on
  freehold compare page-fault --machine epyc-2s --no-host
  freehold compare page-fault --set task_bytes=128MiB --set node_memory=all
                                                     not reduced: takes longer";

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

    /// Inject exactly these failures, separated by commas, instead of those that the seed draws.
    #[arg(long, value_name = "FAILURE", value_delimiter = ',')]
    pub(crate) failures: Vec<Failure>,

    /// Stop one CPU forever in the middle of a call: the others must proceed, unless they wait for
    /// what it holds.
    #[arg(long)]
    pub(crate) stop_cpu: bool,

    /// Plant a bug, to check that it is found: a compare-exchange in two steps; with --stop-cpu, a
    /// call of another CPU that never ends.
    #[arg(long)]
    pub(crate) canary: bool,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

const CHECK_HELP: &str = "\
A seed picks machine, memory, settings, failures, schedule and work. The first seed that fails is
reported with the command that replays it, and the exit code is 1.

Examples:
  freehold check                      seeds 0 to 999
  freehold check --seed 42            replays the seed of a reported failure
  freehold check --subject lru        a cache under reclaim, moves between groups, compaction
  freehold check --failures preempt   lock holders are preempted for long, nothing else
  freehold check --stop-cpu           one CPU stops forever, the others proceed
  freehold check --canary             with a bug planted: fails";

/// The subject of random schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// The page allocator.
    Allocator,
    /// The LRU, in a page cache of several groups on the page allocator.
    Lru,
}

/// A kind of failure that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
}

/// A design by its name, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesignChoice {
    All,
    One(SimDesign),
}

impl ValueEnum for DesignChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static CHOICES: LazyLock<Vec<DesignChoice>> = LazyLock::new(|| {
            let designs =
                SimDesign::value_variants().iter().map(|&design| DesignChoice::One(design));
            designs.chain([DesignChoice::All]).collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            DesignChoice::All => Some(clap::builder::PossibleValue::new("all")),
            DesignChoice::One(design) => design.to_possible_value(),
        }
    }
}

/// Every chosen design once, in the order of the command line.
pub(crate) fn chosen_designs(choices: &[DesignChoice]) -> Vec<SimDesign> {
    let mut designs = Vec::new();
    for choice in choices {
        let chosen = match choice {
            DesignChoice::All => {
                DesignName::value_variants().iter().copied().map(SimDesign::Real).collect()
            }
            DesignChoice::One(design) => vec![*design],
        };
        for design in chosen {
            if !designs.contains(&design) {
                designs.push(design);
            }
        }
    }
    designs
}

#[derive(Debug, Args)]
#[command(after_help = RACE_HELP)]
pub(crate) struct RaceArgs {
    /// The benches, one after the other. Default: all (see `freehold list benches`).
    #[arg(value_name = "BENCH")]
    pub(crate) benches: Vec<BenchName>,

    /// The contestants, separated by commas; `all` for all designs and all built-in peers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    pub(crate) contestants: Vec<ContestantChoice>,

    /// Another contestant: a shared library by include/freehold_peer.h. May be given several times.
    #[arg(long = "peer", value_name = "LIBRARY.so")]
    pub(crate) peers: Vec<PathBuf>,

    /// How many threads, each bound to a CPU; several counts, separated by commas, are raced one
    /// after the other. Default: 1,2, as far as there are CPUs.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Vec<u32>,

    /// How many times every contestant takes its turn.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = within(1..=1000))]
    pub(crate) rounds: usize,

    /// Frames that each thread allocates before it frees them.
    #[arg(long, value_name = "N", default_value_t = 32768, value_parser = within(64..=1 << 22))]
    pub(crate) frames: usize,

    /// How much memory contestants manage, as a multiple of what all threads hold; several
    /// multiples, separated by commas, are raced one after the other.
    #[arg(long, value_name = "X", value_delimiter = ',', default_value = "1.5,16")]
    #[arg(value_parser = multiple_of_memory)]
    pub(crate) memory: Vec<f64>,

    /// How many milliseconds a turn takes, in whole passes over the frames, at least one.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = within(0..=10_000))]
    pub(crate) sample_ms: usize,

    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a number within a range.
fn within(range: RangeInclusive<u64>) -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(range).map(|number| number as usize)
}

/// Parses a multiple of memory, of which designs reserve some.
fn multiple_of_memory(text: &str) -> Result<f64, String> {
    const RANGE: RangeInclusive<f64> = 1.5..=1000.0;
    let multiple: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let (least, most) = (RANGE.start(), RANGE.end());
    let problem = || format!("{text} is not in {least}..={most}");
    RANGE.contains(&multiple).then_some(multiple).ok_or_else(problem)
}

const RACE_HELP: &str = "\
Contestants take turns, round by round; figures are medians over the rounds, and ratios are taken
within a round: to freehold, and to the best peer, the fastest contestant of a row that is not one
of Freehold's own. The last lines count the rows that freehold has won, tied and lost. Outside of
the timed loops, a referee checks that no frame is allocated twice, that none is invented, and that
all return. A contestant that fails is reported, and the exit code is 1.

Examples:
  freehold race                                all benches, all contestants: three minutes
  freehold race pair fill --threads 2 --json   two benches, on two CPUs
  freehold race bulk --contestants zone-lock,host-kernel --memory 16
  freehold race --peer ./my_allocator.so       with an allocator of your own
  freehold race --rounds 1 --frames 512 --sample-ms 0
                                               to check that everything works";

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ListArgs {
    /// The list to print.
    pub(crate) what: ListWhat,

    /// With `machines`: every figure of every machine, with its source.
    #[arg(long)]
    pub(crate) details: bool,

    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

const LIST_HELP: &str = "\
Examples:
  freehold list workloads
  freehold list machines --details
  freehold list settings --json";

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

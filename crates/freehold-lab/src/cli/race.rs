//! The arguments of `freehold race`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;

use super::format::FormatArgs;
use crate::catalog::BenchName;
use crate::machine::Machine;
use crate::race::contestant::ContestantChoice;
use crate::report::html::ReportArgs;

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

    /// The machine: `host`, a simulated one (see `freehold list machines`), or a .toml file that
    /// describes one. On a simulated machine only designs race.
    #[arg(long, value_name = "MACHINE", default_value = "host", value_parser = Machine::parse)]
    pub(crate) machine: Machine,

    /// How many threads, each bound to a CPU; several counts, separated by commas, are raced one
    /// after the other. Default: 1,2, as far as there are CPUs; on a simulated machine 1 and all.
    #[arg(long, visible_alias = "cpus", value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Vec<u32>,

    /// How many times every contestant takes its turn on the host.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = within(1..=1000))]
    pub(crate) rounds: usize,

    /// Frames that each thread allocates before it frees them. Default: 32768; 4096 on a simulated
    /// machine.
    #[arg(long, value_name = "N", value_parser = within(64..=1 << 22))]
    pub(crate) frames: Option<usize>,

    /// How much memory contestants manage, as a multiple of what all threads hold; several
    /// multiples, separated by commas, are raced one after the other. Default: 1.5,16; 2 on a
    /// simulated machine.
    #[arg(long, value_name = "X", value_delimiter = ',')]
    #[arg(value_parser = multiple_of_memory)]
    pub(crate) memory: Vec<f64>,

    /// How many milliseconds a turn takes on the host, in whole passes over the frames, at least
    /// one.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = within(0..=10_000))]
    pub(crate) sample_ms: usize,

    /// The seed of a simulated machine's schedule. One seed, one result, byte for byte.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Change a setting of the designs, on a simulated machine (see `freehold list settings`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

impl RaceArgs {
    /// Frames of a thread on the host.
    pub(crate) fn host_frames(&self) -> usize {
        self.frames.unwrap_or(32768)
    }

    /// The multiples of memory on the host.
    pub(crate) fn host_memory(&self) -> &[f64] {
        if self.memory.is_empty() { &[1.5, 16.0] } else { &self.memory }
    }
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
  freehold race pair --csv > race.csv          a table for other programs
  freehold race bulk --contestants zone-lock,host-kernel --memory 16
  freehold race --peer ./my_allocator.so       with an allocator of your own
  freehold race fill random --machine skylake-2s --cpus 1,28,112
                                               designs on 112 simulated CPUs
  freehold race --rounds 1 --frames 512 --sample-ms 0
                                               to check that everything works";

//! The command line.

mod cells;
mod check;
mod compare;
mod design;
mod diff;
mod format;
mod list;
mod machine;
mod predict;
mod race;
mod replay;
mod shell;
mod survey;
mod trace;

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::race::probe;

pub(crate) use cells::{CellArgs, RunArgs, StatArgs, View};
pub(crate) use check::{Canary, CheckArgs, Failure, Subject};
pub(crate) use compare::CompareArgs;
pub(crate) use design::chosen_designs;
pub(crate) use diff::DiffArgs;
pub(crate) use format::Format;
pub(crate) use list::{ListArgs, ListWhat};
use machine::MACHINE_HELP;
pub(crate) use machine::{FromLscpuArgs, MachineCommand};
pub(crate) use predict::PredictArgs;
pub(crate) use race::RaceArgs;
pub(crate) use replay::ReplayArgs;
pub(crate) use shell::{CompletionsArgs, ManArgs};
pub(crate) use survey::SurveyArgs;
pub(crate) use trace::{ImportArgs, InfoArgs, RecordArgs, TraceCommand};

/// Runs workloads on page-frame allocators and reports their cost.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The name of the command.
const NAME: &str = "freehold";

impl Cli {
    /// The command line without what is hidden, of which neither shells nor pages should know.
    pub(crate) fn shown() -> clap::Command {
        let all = Cli::command();
        let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
        let about = all.get_about().cloned().unwrap_or_default();
        clap::Command::new(NAME)
            .version(env!("CARGO_PKG_VERSION"))
            .about(about)
            .after_help(AFTER_HELP)
            .subcommands(shown)
    }
}

const AFTER_HELP: &str = "\
Examples:
  freehold compare page-fault                   every design, here and on 112 simulated CPUs
  freehold run page-fault                       page faults on this machine
  freehold run page-fault --cpus 1,2 --json     on one CPU and on two, as JSON
  freehold run page-fault --machine skylake-2s  on 112 simulated CPUs
  freehold run bulk                             one at a time against in bulk
  freehold race fill                            the designs against other allocators
  freehold predict                              what was published, and what is predicted
  freehold survey                               what this machine says of the predictions
  freehold diff a.json b.json                   what is slower in b, beyond chance
  freehold check --seeds 1000                   random schedules and failures
  freehold record --seconds 10 -o busy.fht      what this kernel's page allocator does
  freehold trace info busy.fht                  what a recording has
  freehold replay busy.fht                      the same calls, on every design
  freehold list workloads                       the workloads

Exit codes:
    0  success
    1  the run failed
    2  the command line is invalid, or a file that it names
    3  freehold diff: at least one figure is worse
    4  events were lost in a recording, which was kept
    5  recording is not possible here: root or tracefs is missing
  130  interrupted

Results go to stdout, progress to stderr if that is a terminal; each result of compare, as soon as
it is known, in any case. NO_COLOR is respected.";

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
    /// Measure what this machine says of the predictions.
    Survey(SurveyArgs),
    /// Predict what others have measured and published, and show both.
    Predict(PredictArgs),
    /// Record what the page allocator of the running kernel does.
    Record(RecordArgs),
    /// Import a recording from the text of ftrace, trace-cmd or perf.
    Import(ImportArgs),
    /// Replay a recording on other allocators and machines.
    Replay(ReplayArgs),
    /// Show what is in recordings.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Compare two stored documents: what is faster, what is slower, beyond chance.
    Diff(DiffArgs),
    /// List the available choices.
    List(ListArgs),
    /// Describe a machine for simulation.
    #[command(subcommand, after_help = MACHINE_HELP)]
    Machine(MachineCommand),
    /// Print what a shell needs to complete command lines of freehold.
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(ManArgs),
    /// Load a library for a race, in a separate process.
    #[command(name = probe::COMMAND, hide = true)]
    ProbePeer {
        /// The library.
        library: PathBuf,
    },
}

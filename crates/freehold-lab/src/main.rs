//! `freehold`: runs workloads on page-frame allocators and reports their cost.

#![deny(unsafe_code)]

mod books;
mod catalog;
mod cell;
mod check;
mod child;
mod cli;
mod compare;
mod designs;
mod diff;
mod error;
mod fragmentation;
mod frames;
mod host;
mod input;
mod list;
mod lscpu;
mod machine;
#[cfg(test)]
mod mangled;
mod matrix;
mod output;
mod panics;
mod peers;
mod predict;
mod race;
mod replay;
mod report;
mod run;
mod sensitivity;
mod settings;
mod shell;
mod signals;
mod sim;
mod stat;
mod survey;
mod task;
mod trace;
mod workload;
mod workloads;

use std::process::ExitCode;

use clap::Parser;
use freehold_trace::tracefs::RecordError;

use error::UsageError;

/// The exit codes, which `--help` states.
mod exit {
    pub(crate) const FAILURE: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const REGRESSION: u8 = 3;
    pub(crate) const EVENTS_LOST: u8 = 4;
    pub(crate) const UNAVAILABLE: u8 = 5;
    /// As shells have it for a program that SIGINT ended.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// The exit code of an error.
fn code(error: &anyhow::Error) -> u8 {
    let recording = error.downcast_ref::<RecordError>();
    match () {
        () if error.is::<UsageError>() => exit::USAGE,
        () if error.is::<diff::Regression>() => exit::REGRESSION,
        () if error.is::<trace::EventsLost>() => exit::EVENTS_LOST,
        () if recording.is_some_and(RecordError::is_unavailable) => exit::UNAVAILABLE,
        () if error.is::<signals::Interrupted>() => exit::INTERRUPTED,
        () => exit::FAILURE,
    }
}

fn main() -> ExitCode {
    // Exits with code 2 by itself if the arguments are invalid.
    let cli = cli::Cli::parse();
    let outcome = match &cli.command {
        cli::Command::Run(args) => run::run(args),
        cli::Command::Stat(args) => stat::stat(args),
        cli::Command::Compare(args) => match args.sensitivity {
            true => sensitivity::sensitivity(args),
            false => compare::compare(args),
        },
        cli::Command::Survey(args) => survey::survey(args),
        cli::Command::Check(args) => check::check(args),
        cli::Command::Race(args) => race::race(args),
        cli::Command::Predict(args) => predict::predict(args),
        cli::Command::Record(args) => trace::record(args),
        cli::Command::Import(args) => trace::import(args),
        cli::Command::Replay(args) => replay::replay(args),
        cli::Command::Trace(cli::TraceCommand::Info(args)) => trace::info(args),
        cli::Command::Diff(args) => diff::diff(args),
        cli::Command::List(args) => list::list(args),
        cli::Command::Machine(cli::MachineCommand::FromLscpu(args)) => lscpu::from_lscpu(args),
        cli::Command::Completions(args) => shell::completions(args),
        cli::Command::Man(args) => shell::man(args),
        cli::Command::ProbePeer { library } => race::probe::probe(library),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(code(&error))
        }
    }
}

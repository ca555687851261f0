//! `freehold`: runs workloads on page-frame allocators and reports their cost.

#![deny(unsafe_code)]

mod books;
mod catalog;
mod cell;
mod check;
mod cli;
mod compare;
mod designs;
mod fragmentation;
mod frames;
mod host;
mod list;
mod machine;
mod matrix;
mod race;
mod report;
mod run;
mod settings;
mod sim;
mod stat;
mod task;
mod workload;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

/// The exit codes, which `--help` states.
mod exit {
    pub(crate) const FAILURE: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
}

/// A mistake in the arguments that only shows when they are combined. Exits with code 2.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

fn main() -> ExitCode {
    // Exits with code 2 by itself if the arguments are invalid.
    let cli = cli::Cli::parse();
    let outcome = match &cli.command {
        cli::Command::Run(args) => run::run(args),
        cli::Command::Stat(args) => stat::stat(args),
        cli::Command::Compare(args) => compare::compare(args),
        cli::Command::Check(args) => check::check(args),
        cli::Command::Race(args) => race::race(args),
        cli::Command::List(args) => list::list(args),
        cli::Command::ProbePeer { library } => race::probe::probe(library),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            let usage = error.is::<UsageError>();
            ExitCode::from(if usage { exit::USAGE } else { exit::FAILURE })
        }
    }
}

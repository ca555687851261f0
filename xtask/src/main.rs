//! Works on the repository itself: `cargo xtask --help`.

#![deny(unsafe_code)]

mod mutants;
mod prove;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Works on the repository itself.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Prove(prove::Args),
    Gate(prove::GateArgs),
    Mutants(mutants::Args),
}

fn main() -> ExitCode {
    // Exits with code 2 by itself if the arguments are invalid.
    let done = match Cli::parse().command {
        Command::Prove(args) => prove::run(&args),
        Command::Gate(args) => prove::run_gate(&args),
        Command::Mutants(args) => mutants::run(&args).map(|is_right| u8::from(!is_right)),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

//! Breaks the protocols of the allocator, the LRU and the block cache on purpose, one step at a
//! time, and checks whether a test notices: tests of the tests.
//!
//! The tables in `table/` name the texts to replace, and the test that kills each mutant. The
//! sources stay as they are; a copy in `target/mutants` has all mutants at once.

#![deny(unsafe_code)]

mod copy;
mod generated;
mod place;
mod program;
mod report;
mod schemata;
mod survey;
mod table;
mod verdict;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;

use crate::generated::Generated;
use crate::program::Programs;
use crate::survey::Effort;
use crate::table::Place;

/// Breaks the protocols of the allocator, the LRU and the block cache, one step at a time, and
/// checks whether a test notices.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Only mutants whose name, file or test contains this.
    filter: Option<String>,

    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,

    /// Only check whether the tables fit the sources.
    #[arg(long, conflicts_with = "json")]
    check: bool,

    /// How many tests run at a time; one for each CPU by default.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    jobs: usize,

    /// Try the mutants of cargo-mutants instead of those of the tables: the output of
    /// `cargo mutants --list --json -p freehold`.
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    generated: Option<PathBuf>,

    /// Of the generated mutants that the filter leaves, only every Nth.
    #[arg(long, value_name = "N", default_value = "1", requires = "generated")]
    every: NonZeroUsize,

    /// Leave out tests that take longer than this without a mutant.
    #[arg(long, value_name = "SECONDS", default_value = "2", requires = "generated")]
    test_limit: f64,

    /// Give up on a generated mutant that no test has noticed after this time.
    #[arg(long, value_name = "SECONDS", default_value = "30", requires = "generated")]
    mutant_limit: f64,

    /// The repository.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), hide = true)]
    root: PathBuf,
}

const AFTER_HELP: &str = "\
Examples:
  cargo run -p freehold-mutants                  all mutants
  cargo run -p freehold-mutants -- refill        those with `refill` in name, file or test
  cargo run -p freehold-mutants -- remote.rs     those in one file
  cargo run -p freehold-mutants -- --check       check whether the tables fit the sources
  cargo run -p freehold-mutants -- --json        as JSON

  cargo mutants --list --json -p freehold > mutants.json
  cargo run -p freehold-mutants -- --generated mutants.json --every 20 src/lru
                                                 one in 20 of all simple mutants of the LRU

Exit codes:
  0  everything is as the tables say, or generated mutants were tried, whatever their fate
  1  a mutant lives or is killed against its table, or a test fails without a mutant
  2  the command line is invalid, a table does not fit the sources, or these do not compile

Results go to stdout, progress to stderr. All files are written to `target/mutants`.";

impl Cli {
    fn wants(&self, place: &Place) -> bool {
        let Some(filter) = &self.filter else { return true };
        [&place.name, &place.file, &place.test].into_iter().any(|text| text.contains(filter))
    }
}

fn main() -> ExitCode {
    // Exits with code 2 by itself if the arguments are invalid.
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether everything is as the tables say.
fn run(cli: &Cli) -> Result<bool> {
    let start = Instant::now();
    let root = cli.root.canonicalize()?;
    rayon::ThreadPoolBuilder::new().num_threads(cli.jobs).build_global()?;
    if let Some(list) = &cli.generated {
        return survey_generated(cli, &root, list).map(|()| true);
    }
    let places = table::read(&root.join("crates/freehold-mutants/table"))?;
    let wanted: Vec<_> = places.iter().enumerate().filter(|(_, place)| cli.wants(place)).collect();
    ensure!(!wanted.is_empty(), "no mutant has that in its name, file or test");
    let folder = root.join("target/mutants");
    copy::write(&root, &folder.join("source"), &places)?;
    if cli.check {
        println!("{} places, all found", places.len());
        return Ok(true);
    }
    let programs = Programs::build(&folder, places.iter().any(copy::is_of_cache))?;
    let built = start.elapsed();
    let verdicts = verdict::judge(&programs, &wanted)?;
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&verdicts)?);
    } else {
        report::print(&verdicts, built, start.elapsed() - built);
    }
    verdicts.problems.iter().for_each(|problem| eprintln!("{problem}"));
    Ok(verdicts.problems.is_empty())
}

/// Tries the generated mutants that are wanted.
fn survey_generated(cli: &Cli, root: &Path, list: &Path) -> Result<()> {
    let wants =
        |mutant: &Generated| cli.filter.as_ref().is_none_or(|filter| mutant.name.contains(filter));
    let mutants: Vec<_> = generated::read(list)?.into_iter().filter(wants).collect();
    let mutants: Vec<_> = mutants.into_iter().step_by(cli.every.get()).collect();
    ensure!(!mutants.is_empty(), "no generated mutant has that in its name");
    let effort = Effort {
        test: Duration::try_from_secs_f64(cli.test_limit)?,
        mutant: Duration::try_from_secs_f64(cli.mutant_limit)?,
    };
    let folder = root.join("target/generated");
    let (programs, built) = survey::build(root, &folder, &mutants)?;
    let log = folder.join("trials.jsonl");
    let survey = survey::survey(&programs, &mutants, &built, &effort, &log)?;
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&survey)?);
    } else {
        report::print_survey(&survey);
    }
    Ok(())
}

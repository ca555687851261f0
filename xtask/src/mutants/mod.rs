//! Breaks the protocols of the allocator, the LRU and the products on purpose, one step at a
//! time, and checks whether a test notices: tests of the tests.
//!
//! The tables in `xtask/mutants` name the texts to replace, and the test that kills each mutant.
//! The sources stay as they are; a copy in `target/mutants` has all mutants at once.

mod copy;
mod place;
mod program;
mod report;
mod schemata;
mod table;
mod verdict;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::mutants::program::Programs;
use crate::mutants::table::Place;

/// Breaks the protocols of the allocator, the LRU and the products, one step at a time, and
/// checks whether a test notices.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Only mutants whose name, file or test contains this.
    filter: Option<String>,

    /// Only check whether the tables fit the sources.
    #[arg(long)]
    check: bool,

    /// How many tests run at a time; one for each CPU by default.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    jobs: usize,

    /// The repository.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."), hide = true)]
    root: PathBuf,
}

const AFTER_HELP: &str = "\
Examples:
  cargo xtask mutants              all mutants
  cargo xtask mutants refill       those with `refill` in name, file or test
  cargo xtask mutants remote.rs    those in one file
  cargo xtask mutants --check      check whether the tables fit the sources

Exit codes:
  0  everything is as the tables say
  1  a mutant lives or is killed against its table, or a test fails without a mutant
  2  the command line is invalid, a table does not fit the sources, or these do not compile

Results go to stdout, progress to stderr. All files are written to `target/mutants`.";

impl Args {
    fn wants(&self, place: &Place) -> bool {
        let Some(filter) = &self.filter else { return true };
        [&place.name, &place.file, &place.test].into_iter().any(|text| text.contains(filter))
    }
}

/// Returns whether everything is as the tables say.
pub(crate) fn run(cli: &Args) -> Result<bool> {
    let start = Instant::now();
    let root = cli.root.canonicalize()?;
    rayon::ThreadPoolBuilder::new().num_threads(cli.jobs).build_global()?;
    let places = table::read(&root.join("xtask/mutants"))?;
    let wanted: Vec<_> = places.iter().enumerate().filter(|(_, place)| cli.wants(place)).collect();
    ensure!(!wanted.is_empty(), "no mutant has that in its name, file or test");
    let folder = root.join("target/mutants");
    copy::write(&root, &folder.join("source"), &places)?;
    if cli.check {
        println!("{} places, all found", places.len());
        return Ok(true);
    }
    let programs = Programs::build(&folder, places.iter().any(copy::is_of_products))?;
    let built = start.elapsed();
    let verdicts = verdict::judge(&programs, &wanted)?;
    report::print(&verdicts, built, start.elapsed() - built);
    verdicts.problems.iter().for_each(|problem| eprintln!("{problem}"));
    Ok(verdicts.problems.is_empty())
}

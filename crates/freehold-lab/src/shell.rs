//! `freehold completions` and `freehold man`: the command line for shells, and as manual pages.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap_mangen::Man;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::error::UsageError;
use crate::report::out;

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut command = Cli::shown();
    let name = command.get_name().to_owned();
    // Into memory first: clap_complete panics if a pipe is closed.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    print(&text)
}

/// Prints the page of freehold, or writes those of all commands.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    match &args.output {
        Some(folder) => write_pages(folder),
        None => {
            let mut page = Vec::new();
            // `help` has no page of its own.
            let command = Cli::shown().disable_help_subcommand(true);
            Man::new(command).render(&mut page).context("cannot make the page")?;
            print(&page)
        }
    }
}

fn write_pages(folder: &Path) -> Result<()> {
    let unusable = |error| {
        let folder = folder.display();
        UsageError(format!("--output {folder}: cannot write there: {error}; name a folder"))
    };
    fs::create_dir_all(folder).map_err(unusable)?;
    Ok(clap_mangen::generate_to(Cli::shown(), folder).map_err(unusable)?)
}

fn print(text: &[u8]) -> Result<()> {
    out!("{}", String::from_utf8_lossy(text).trim_end_matches('\n'));
    Ok(())
}

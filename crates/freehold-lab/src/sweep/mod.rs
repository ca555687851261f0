//! `freehold sweep`: all cells of a file, in parts, on one machine or many, and on after a kill.

mod campaign;
mod job;
mod lists;
mod name;
mod pool;
mod slurm;
mod status;
mod store;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use self::campaign::{Campaign, Cell};
use self::status::Status;
use self::store::{State, Store};
use crate::cli::SweepArgs;
use crate::error::UsageError;
use crate::report::document::Stored;
use crate::report::progress::Progress;
use crate::settings::nearest;
use crate::sim::parallel::cpus;

/// Runs what is missing of a campaign, or what the options say in place of that.
pub(crate) fn sweep(args: &SweepArgs) -> Result<()> {
    let runs_here = !(args.list || args.merge || args.slurm.is_some());
    let campaign = Campaign::read(&args.file, runs_here)?;
    let store = Store::new(output(args)?);
    let selected = selected(args, &campaign)?;
    match args.slurm {
        Some(parts) => slurm::print(args, &campaign, &store, parts),
        None if args.list => Status::of(&store, &selected)?.list(args.json),
        None if args.merge => merge_all(args, &campaign, &store),
        None => run(args, &campaign, &store, &selected),
    }
}

/// The folder of the results, wherever a job starts.
fn output(args: &SweepArgs) -> Result<PathBuf> {
    let beside = || args.file.with_extension("results");
    Ok(std::path::absolute(args.output.clone().unwrap_or_else(beside))?)
}

/// The cells that `--cell` and `--shard` leave.
fn selected(args: &SweepArgs, campaign: &Campaign) -> Result<Vec<Arc<Cell>>> {
    let names = || campaign.cells.iter().map(|cell| cell.name.as_str());
    for pattern in &args.cell {
        if !names().any(|name| name::matches(pattern, name)) {
            let remedy = match nearest(pattern, names()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => "--list prints them all".to_owned(),
            };
            return Err(UsageError(format!("--cell {pattern}: no such cell; {remedy}")).into());
        }
    }
    let chosen = |name: &str| {
        let matches = |pattern: &String| name::matches(pattern, name);
        let in_part = args.shard.is_none_or(|part| name::shard(name, part.of) == part.index);
        in_part && (args.cell.is_empty() || args.cell.iter().any(matches))
    };
    Ok(campaign.cells.iter().filter(|cell| chosen(&cell.name)).cloned().collect())
}

fn run(args: &SweepArgs, campaign: &Campaign, store: &Store, selected: &[Arc<Cell>]) -> Result<()> {
    let before = Status::of(store, selected)?;
    let left = before.left(args.force)?;
    for (cell, _) in before.cells.iter().filter(|(_, state)| *state == State::Changed) {
        store.forget(cell)?;
    }
    store.prepare(campaign)?;
    if !left.is_empty() {
        store.forget_results()?;
    }
    let jobs = args.jobs.map_or_else(cpus, |jobs| jobs as usize);
    let progress = Progress::new(left.len() as u64);
    progress.say(format!("cells, to {}", store.folder().display()));
    let outcome = pool::run(&left, jobs, |cell, outcome| {
        store.keep(cell, &outcome)?;
        progress.step();
        Ok(())
    });
    progress.finish();
    outcome?;
    let all_done = Status::are_all_done(store, &campaign.cells)?;
    if all_done {
        store.merge(campaign)?;
    }
    let after = Status::of(store, selected)?;
    let results = all_done.then(|| store.results());
    if let Some(results) = &results {
        write_page(args, results)?;
    }
    after.report(campaign, left.len(), results.as_deref(), args.json)
}

/// Writes the page of all results, if one is asked for.
fn write_page(args: &SweepArgs, results: &Path) -> Result<()> {
    if args.report.report.is_none() {
        return Ok(());
    }
    let name = || results.display().to_string();
    let text = fs::read_to_string(results).with_context(name)?;
    let stored: Stored = serde_json::from_str(&text).with_context(name)?;
    args.report.of_runs(&args.file.display().to_string(), &stored.results, text)
}

fn merge_all(args: &SweepArgs, campaign: &Campaign, store: &Store) -> Result<()> {
    let status = Status::of(store, &campaign.cells)?;
    if let Some((cell, state)) = status.cells.iter().find(|(_, state)| *state != State::Done) {
        let of_file = campaign.cells.len();
        bail!(
            "{} of {of_file} cells are not done, such as {}, which is {}: run {} first",
            of_file - status.done(),
            cell.name,
            state.name(),
            command(args),
        );
    }
    store.merge(campaign)?;
    write_page(args, &store.results())?;
    status.report(campaign, 0, Some(&store.results()), args.json)
}

/// The command that runs what is missing, as a user would type it.
fn command(args: &SweepArgs) -> String {
    let word = |path: &Path| {
        let text = path.display().to_string();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,+".contains(letter);
        if text.chars().all(plain) { text } else { slurm::quoted(path) }
    };
    let output = args.output.as_deref().map(|folder| format!(" --output {}", word(folder)));
    format!("`freehold sweep {}{}`", word(&args.file), output.unwrap_or_default())
}

//! `--slurm`: hands what is missing to Slurm.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::campaign::Campaign;
use super::slurm::{Plan, quoted};
use super::status::Status;
use super::store::{Store, write};
use super::{left, name};
use crate::UsageError;
use crate::cli::SweepArgs;
use crate::report::out;

/// Submits an array of jobs for the parts of the campaign with something to run, and a job that
/// merges when they have ended; or prints the scripts.
pub(super) fn submit(args: &SweepArgs, campaign: &Campaign, store: &Store) -> Result<()> {
    let status = Status::of(store, &campaign.cells)?;
    let left = match args.dry_run {
        // Nothing is forgotten, and so nothing refused.
        true => status.not_done(),
        false => left(args, store, &status)?,
    };
    let freehold = std::env::current_exe().context("cannot find this program")?;
    check_paths(&freehold, campaign, store)?;
    let options = &campaign.slurm;
    let mut parts: Vec<_> =
        left.iter().map(|cell| name::shard(&cell.name, options.array)).collect();
    parts.sort_unstable();
    parts.dedup();
    let plan = Plan {
        options,
        freehold: &freehold,
        file: &campaign.file,
        output: store.folder(),
        logs: &store.slurm(),
        exclusive: left.iter().any(|cell| cell.job.runs_alone()),
    };
    let (array, merge) = (plan.array_script(&parts), plan.merge_script());
    let (array_path, merge_path) = (store.slurm().join("array.sh"), store.slurm().join("merge.sh"));
    if args.dry_run {
        if args.json {
            return print(&json!({"array_script": array, "merge_script": merge}));
        }
        out!("# {}\n{array}", array_path.display());
        out!("# {}\n{merge}", merge_path.display());
        out!("sbatch --parsable {}", quoted(&array_path));
        out!("sbatch --parsable --dependency=afterany:ARRAY_JOB {}", quoted(&merge_path));
        return Ok(());
    }
    if left.is_empty() {
        store.merge(campaign)?;
        return status.report(campaign, 0, Some(&store.results()), args.json);
    }
    store.prepare(campaign)?;
    store.forget_results()?;
    let folder = store.slurm();
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    write(&array_path, &array)?;
    write(&merge_path, &merge)?;
    let array_job = sbatch(&[], &array_path)?;
    // After any end: the merging job says what is missing if a task was killed.
    let merge_job = sbatch(&[format!("--dependency=afterany:{array_job}")], &merge_path)?;
    if args.json {
        return print(&json!({
            "cells": left.len(), "array_job": array_job, "merge_job": merge_job,
        }));
    }
    let (tasks, logs) = (parts.len(), folder.display());
    out!("Submitted {} cells in {tasks} tasks as job {array_job}", left.len());
    out!("Job {merge_job} merges after it; logs are in {logs}");
    Ok(())
}

/// Refuses paths that scripts cannot have.
fn check_paths(freehold: &Path, campaign: &Campaign, store: &Store) -> Result<()> {
    let logs = store.slurm();
    for path in [freehold, &campaign.file, &logs] {
        if path.to_str().is_none_or(|path| path.contains('\n')) {
            let message = format!("{path:?}: a script cannot name it: rename it");
            return Err(UsageError(message).into());
        }
    }
    let shown = logs.display().to_string();
    if shown.contains(['%', '\\']) {
        let why = "Slurm takes `%` and `\\` in the path of a log for something else";
        let message = format!("{shown}: {why}: name another folder with --output");
        return Err(UsageError(message).into());
    }
    Ok(())
}

fn print(document: &serde_json::Value) -> Result<()> {
    out!("{}", serde_json::to_string_pretty(document)?);
    Ok(())
}

/// Submits a script; returns the number of the job.
fn sbatch(options: &[String], script: &Path) -> Result<String> {
    let output = Command::new("sbatch").arg("--parsable").args(options).arg(script).output();
    let output = output.context(
        "cannot run sbatch: run this where Slurm is installed, or print the scripts with --dry-run",
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("sbatch refused {}: {}", script.display(), why.trim());
    }
    // `JOB`, or `JOB;CLUSTER`.
    Ok(text.trim().split(';').next().unwrap_or_default().to_owned())
}

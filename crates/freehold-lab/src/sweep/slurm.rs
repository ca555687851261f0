//! `--slurm N`: a script for sbatch, whose tasks run the parts that have something to run. All that
//! sbatch takes from its command line and its environment is left to it.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::campaign::Campaign;
use super::name;
use super::status::Status;
use super::store::Store;
use crate::cli::SweepArgs;
use crate::error::refuse;
use crate::report::out;

/// Prints the script for what is missing, in so many parts.
///
/// # Errors
///
/// Nothing is missing, or a script cannot name a path.
pub(super) fn print(
    args: &SweepArgs,
    campaign: &Campaign,
    store: &Store,
    parts: u32,
) -> Result<()> {
    let left = Status::of(store, &campaign.cells)?.left(args.force)?;
    if left.is_empty() {
        bail!("all {} cells are done: there is nothing to submit", campaign.cells.len());
    }
    let freehold = std::env::current_exe().context("cannot find this program")?;
    let paths = [&*freehold, &campaign.file, store.folder()];
    if let Some(path) = paths.iter().find(|path| path.to_str().is_none()) {
        return refuse(format!("{path:?}: a script cannot name it: rename it"));
    }
    let mut tasks: Vec<_> = left.iter().map(|cell| name::shard(&cell.name, parts)).collect();
    tasks.sort_unstable();
    tasks.dedup();
    // Such cells measure the machine that they run on, which must then do nothing else.
    let exclusive = left.iter().any(|cell| cell.job.runs_alone());
    if let Some(note) = too_many(&tasks) {
        eprintln!("warning: {note}");
    }
    out!("{}", script(&tasks, parts, exclusive, args.force, paths));
    Ok(())
}

/// `MaxArraySize` of a Slurm that was not told otherwise: the numbers of tasks are below.
const MAX_ARRAY_SIZE: u32 = 1001;

/// What to change if sbatch refuses so many tasks, which it does without saying why.
fn too_many(tasks: &[u32]) -> Option<String> {
    let last = *tasks.last().filter(|last| **last >= MAX_ARRAY_SIZE)?;
    Some(format!(
        "sbatch refuses task {last} (\"Invalid job array specification\") unless MaxArraySize is \
         above it: {MAX_ARRAY_SIZE} by default, see `scontrol show config`; lower --slurm to that"
    ))
}

/// The script of an array. Signals go to the command, not to a shell.
fn script(tasks: &[u32], parts: u32, exclusive: bool, force: bool, paths: [&Path; 3]) -> String {
    let tasks = tasks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let exclusive = if exclusive { "#SBATCH --exclusive\n" } else { "" };
    let force = if force { " --force" } else { "" };
    let [freehold, file, output] = paths.map(quoted);
    format!(
        "#!/bin/bash\n\
         #SBATCH --job-name=freehold-sweep\n\
         #SBATCH --array={tasks}\n\
         {exclusive}\
         exec {freehold} sweep {file} \\\n    \
         --output {output} \\\n    \
         --jobs \"${{SLURM_CPUS_PER_TASK:-1}}\" --shard \"$SLURM_ARRAY_TASK_ID/{parts}\"{force}"
    )
}

/// A path as one word of a shell, which changes nothing between single quotes.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_that_slurm_refuses_by_default_is_noted_with_a_remedy() {
        assert_eq!(too_many(&[0, 7, 1000]), None);
        let note = too_many(&[3, 1001]).unwrap();
        assert!(note.contains("task 1001 ") && note.contains("lower --slurm"), "{note}");
    }

    #[test]
    fn a_script_quotes_what_needs_it() {
        let paths = ["/opt/free hold/freehold", "/data/it's.toml", "/data/a $b"].map(Path::new);
        let expected = r#"#!/bin/bash
#SBATCH --job-name=freehold-sweep
#SBATCH --array=0,1,5
#SBATCH --exclusive
exec '/opt/free hold/freehold' sweep '/data/it'\''s.toml' \
    --output '/data/a $b' \
    --jobs "${SLURM_CPUS_PER_TASK:-1}" --shard "$SLURM_ARRAY_TASK_ID/8" --force"#;
        assert_eq!(script(&[0, 1, 5], 8, true, true, paths), expected);
    }
}

//! Runs proofs by name, and the gate: steps are commands, of which each gets a line when it ends.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// One command. `run` is for bash, in the root of the repository.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    what: String,
    run: String,
    /// Whether it is a search that must find the defect that is planted, and so end with 1.
    #[serde(default)]
    finds: bool,
}

/// Steps under one name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proof {
    name: String,
    what: String,
    step: Vec<Step>,
}

/// The file of proofs.
#[derive(Deserialize)]
struct Proofs {
    proof: Vec<Proof>,
}

/// The file of the gate.
#[derive(Deserialize)]
struct Gate {
    step: Vec<Step>,
}

/// Runs what takes longer than the gate may: proofs by name.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Names of proofs, or `all`.
    #[arg(required_unless_present = "list")]
    names: Vec<String>,

    /// Print the names, what each is, and its commands.
    #[arg(long)]
    list: bool,

    /// Show what the steps print; otherwise only what those that fail or are skipped do.
    #[arg(long, short)]
    verbose: bool,
}

/// Runs what must hold before a change lands.
#[derive(Debug, clap::Args)]
pub(crate) struct GateArgs {
    /// Show what the steps print; otherwise only what those that fail or are skipped do.
    #[arg(long, short)]
    verbose: bool,
}

const AFTER_HELP: &str = "\
Examples:
  cargo xtask prove --list            what there is
  cargo xtask prove models stops      after a change of a protocol
  cargo xtask prove litmus --verbose  with the output
  cargo xtask prove all               for the night

Exit codes:
  0  every step passed, or was skipped since something is missing here, which it says
  1  a step failed
  2  the command line is invalid";

/// Returns the exit code.
pub(crate) fn run(args: &Args) -> Result<u8> {
    if args.list {
        for proof in proofs()? {
            println!("{:<11} {}", proof.name, proof.what);
            proof.step.iter().for_each(|step| println!("{:13} {}", "", step.run));
        }
        return Ok(0);
    }
    let proofs = proofs()?;
    let mut steps = Vec::new();
    for proof in wanted(&proofs, &args.names)? {
        steps.extend(proof.step.iter().map(|step| (&*proof.name, step)));
    }
    run_all(&steps, args.verbose)
}

/// Returns the exit code.
pub(crate) fn run_gate(args: &GateArgs) -> Result<u8> {
    let gate: Gate = toml::from_str(include_str!("../gate.toml"))?;
    let steps: Vec<_> = gate.step.iter().map(|step| ("gate", step)).collect();
    run_all(&steps, args.verbose)
}

/// All proofs.
fn proofs() -> Result<Vec<Proof>> {
    let proofs: Proofs = toml::from_str(include_str!("../proofs.toml"))?;
    Ok(proofs.proof)
}

/// The proofs of these names, in the order given.
fn wanted<'a>(proofs: &'a [Proof], names: &[String]) -> Result<Vec<&'a Proof>> {
    let mut wanted = Vec::new();
    for name in names {
        match proofs.iter().find(|proof| proof.name == *name) {
            Some(proof) => wanted.push(proof),
            None if name == "all" => wanted.extend(proofs),
            None => bail!("there is no proof {name:?}; `cargo xtask prove --list` names them"),
        }
    }
    Ok(wanted)
}

enum End {
    Passed,
    Failed(String),
    Skipped,
}

/// Runs all steps, also after one that fails. Returns the exit code.
fn run_all(steps: &[(&str, &Step)], verbose: bool) -> Result<u8> {
    let (mut failed, mut skipped) = (0, 0);
    for (of, step) in steps {
        let start = Instant::now();
        let (end, printed) = run_step(step, verbose)?;
        let end = match end {
            End::Passed => "ok".to_owned(),
            End::Failed(why) => {
                failed += 1;
                print!("{printed}");
                format!("FAILED: {why}: {}", step.run)
            }
            End::Skipped => {
                skipped += 1;
                print!("{printed}");
                format!("!! SKIPPED, see above: {}", step.run)
            }
        };
        println!("{:7.1} s  {of}: {}: {end}", start.elapsed().as_secs_f64(), step.what);
    }
    println!("{} steps, {failed} failed, {skipped} skipped", steps.len());
    Ok(u8::from(failed > 0))
}

/// Returns also what the step printed, unless it was shown at once.
fn run_step(step: &Step, verbose: bool) -> Result<(End, String)> {
    let script = format!("exec 2>&1\n{}", step.run);
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &script])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdin(Stdio::null());
    if verbose {
        bash.stdout(Stdio::inherit());
    }
    let done = bash.stderr(Stdio::inherit()).output().context("bash does not start")?;
    let end = match done.status.code() {
        Some(code) if code == i32::from(step.finds) => End::Passed,
        Some(77) => End::Skipped,
        Some(0) => End::Failed("the planted defect was not found".into()),
        _ => End::Failed(done.status.to_string()),
    };
    Ok((end, String::from_utf8_lossy(&done.stdout).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(run: &str, finds: bool) -> Step {
        Step { what: "test".to_owned(), run: run.to_owned(), finds }
    }

    fn code(steps: &[(&str, bool)]) -> u8 {
        let steps: Vec<_> = steps.iter().map(|&(run, finds)| step(run, finds)).collect();
        let steps: Vec<_> = steps.iter().map(|step| ("test", step)).collect();
        run_all(&steps, false).expect("bash starts")
    }

    #[test]
    fn a_step_fails_by_its_exit_code_and_77_skips_it() {
        assert_eq!(code(&[("true", false), ("exit 77", false)]), 0);
        assert_eq!(code(&[("false; true", false), ("true", false)]), 1);
        assert_eq!(code(&[("exit 1", true)]), 0);
        assert_eq!(code(&[("true", true)]), 1);
        assert_eq!(code(&[("exit 2", true)]), 1);
    }

    #[test]
    fn what_a_step_prints_is_kept_with_its_errors() {
        let step = step("echo one; echo two >&2; exit 3", false);
        let (end, printed) = run_step(&step, false).expect("bash starts");
        assert!(matches!(end, End::Failed(why) if why.contains('3')));
        assert_eq!(printed, "one\ntwo\n");
    }

    #[test]
    fn names_are_those_of_the_table_and_all() {
        let proofs = proofs().expect("the file is in order");
        let wanted = |name: &str| wanted(&proofs, &[name.to_owned()]);
        assert_eq!(wanted("models").expect("it is there").len(), 1);
        assert_eq!(wanted("all").expect("it is there").len(), proofs.len());
        let error = wanted("model").err().expect("it is not there").to_string();
        assert!(error.contains("--list"), "{error}");
    }

    #[test]
    fn the_gate_has_the_golden_counts() {
        let gate: Gate = toml::from_str(include_str!("../gate.toml")).expect("it is in order");
        let proofs = proofs().expect("the file is in order");
        let golden = wanted(&proofs, &["golden".to_owned()]).expect("it is there");
        assert!(gate.step.iter().any(|step| step.run == golden[0].step[0].run));
    }
}

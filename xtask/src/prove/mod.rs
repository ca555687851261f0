//! Runs proofs by name, and the gate: steps are commands, of which each gets a line when it ends.

mod gate;
mod table;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// One command. `run` is for bash, in the root of the repository.
pub(crate) struct Step {
    what: &'static str,
    run: &'static str,
    /// The exit code that is right.
    code: i32,
}

impl Step {
    const fn new(what: &'static str, run: &'static str) -> Self {
        Self { what, run, code: 0 }
    }

    /// A search that must find the defect that is planted.
    const fn finds(what: &'static str, run: &'static str) -> Self {
        Self { what, run, code: 1 }
    }
}

/// Steps under one name.
struct Proof {
    name: &'static str,
    what: &'static str,
    steps: &'static [Step],
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
        for proof in table::PROOFS {
            println!("{:<11} {}", proof.name, proof.what);
            proof.steps.iter().for_each(|step| println!("{:13} {}", "", step.run));
        }
        return Ok(0);
    }
    let mut steps = Vec::new();
    for proof in wanted(&args.names)? {
        steps.extend(proof.steps.iter().map(|step| (proof.name, step)));
    }
    run_all(&steps, args.verbose)
}

/// Returns the exit code.
pub(crate) fn run_gate(args: &GateArgs) -> Result<u8> {
    let steps: Vec<_> = gate::STEPS.iter().map(|step| ("gate", step)).collect();
    run_all(&steps, args.verbose)
}

/// The proofs of these names, in the order given.
fn wanted(names: &[String]) -> Result<Vec<&'static Proof>> {
    let mut wanted = Vec::new();
    for name in names {
        match table::PROOFS.iter().find(|proof| proof.name == name) {
            Some(proof) => wanted.push(proof),
            None if name == "all" => wanted.extend(table::PROOFS),
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
        Some(code) if code == step.code => End::Passed,
        Some(77) => End::Skipped,
        Some(0) => End::Failed("the planted defect was not found".into()),
        _ => End::Failed(done.status.to_string()),
    };
    Ok((end, String::from_utf8_lossy(&done.stdout).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(steps: &[Step]) -> u8 {
        let steps: Vec<_> = steps.iter().map(|step| ("test", step)).collect();
        run_all(&steps, false).expect("bash starts")
    }

    #[test]
    fn a_step_fails_by_its_exit_code_and_77_skips_it() {
        assert_eq!(code(&[Step::new("right", "true"), Step::new("missing", "exit 77")]), 0);
        assert_eq!(code(&[Step::new("wrong", "false; true"), Step::new("right", "true")]), 1);
        assert_eq!(code(&[Step::finds("found", "exit 1")]), 0);
        assert_eq!(code(&[Step::finds("not found", "true")]), 1);
        assert_eq!(code(&[Step::finds("bad argument", "exit 2")]), 1);
    }

    #[test]
    fn what_a_step_prints_is_kept_with_its_errors() {
        let step = Step::new("prints", "echo one; echo two >&2; exit 3");
        let (end, printed) = run_step(&step, false).expect("bash starts");
        assert!(matches!(end, End::Failed(why) if why.contains('3')));
        assert_eq!(printed, "one\ntwo\n");
    }

    #[test]
    fn names_are_those_of_the_table_and_all() {
        let wanted = |name: &str| wanted(&[name.to_owned()]);
        assert_eq!(wanted("models").expect("it is there").len(), 1);
        assert_eq!(wanted("all").expect("it is there").len(), table::PROOFS.len());
        let error = wanted("model").err().expect("it is not there").to_string();
        assert!(error.contains("--list"), "{error}");
    }
}

//! `freehold check --minutes`: batches of seeds, in processes of their own, until the time is over.
//! What fails, crashes or never ends is a finding, with the command that plays it again.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use super::case::Case;
use crate::catalog::name_of;
use crate::child;
use crate::cli::{CheckArgs, Subject};
use crate::designs::DesignName;
use crate::report::out;
use crate::report::progress::Progress;
use crate::signals::{Interrupted, stop_flag};
use crate::sim::parallel::cpus;

/// What was done, and what was found: the document of `--json`.
#[derive(Debug, Default, Serialize)]
struct Summary {
    schema: &'static str,
    /// Of each subject and design.
    first_seed: u64,
    /// Those that passed.
    seeds: u64,
    /// Operations on allocators and LRUs; where a CPU stops, calls of the others that came back.
    operations: u64,
    seconds: f64,
    jobs: usize,
    findings: Vec<Finding>,
}

/// A defect, or what looks like one.
#[derive(Debug, Serialize)]
struct Finding {
    /// The subject, or `stop-cpu`.
    by: String,
    design: DesignName,
    /// When its batch began, in seconds since the run did.
    seconds: f64,
    /// How it ended, what it said, and the command that plays it again.
    what: String,
}

/// Checks until the time is over, and says what was done.
pub(super) fn check(args: &CheckArgs, minutes: f64) -> Result<()> {
    let lines = lines(args);
    lines.iter().try_for_each(Case::check)?;
    let jobs = args.jobs.map_or_else(cpus, usize::from);
    let stop = stop_flag()?;
    let runner = Runner {
        program: &std::env::current_exe().context("cannot find this program")?,
        save: &args.save,
        hang_after: Duration::from_secs(args.hang_after_s.into()),
        stop: &stop,
    };
    let (schema, first_seed) = ("freehold.check-minutes/1", args.first_seed);
    let summary = Mutex::new(Summary { schema, first_seed, jobs, ..Summary::default() });
    let (began, time) = (Instant::now(), Duration::from_secs_f64(minutes * 60.0));
    // Relaxed: the flag only says when to end, and the counter only assigns numbers.
    let is_over = || began.elapsed() >= time || stop.load(Relaxed);
    let next = AtomicU64::new(0);
    let progress = Progress::new(time.as_secs());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !is_over() {
                    let batch = Batch::nth(&lines, next.fetch_add(1, Relaxed));
                    let seconds = began.elapsed().as_secs_f64();
                    let outcome = runner.play(&batch);
                    let mut summary = summary.lock().expect("no other thread panics");
                    summary.add(&batch, seconds, outcome);
                    progress.say(format!("s: {}", summary.line()));
                }
            });
        }
        while !is_over() {
            thread::sleep(Duration::from_secs(1).min(time.saturating_sub(began.elapsed())));
            progress.step();
        }
    });
    progress.finish();
    let mut summary = summary.into_inner().expect("no other thread panics");
    summary.seconds = began.elapsed().as_secs_f64();
    if args.json {
        out!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        let Summary { seconds, .. } = summary;
        out!("{} in {seconds:.0} s, {jobs} at a time, from seed {first_seed}.", summary.line());
        for Finding { what, .. } in &summary.findings {
            out!("\n{what}");
        }
    }
    match summary.findings.len() {
        _ if stop.load(Relaxed) => Err(Interrupted("").into()),
        0 => Ok(()),
        findings => bail!("findings: {findings}"),
    }
}

impl Summary {
    fn add(&mut self, batch: &Batch, seconds: f64, outcome: Result<(u64, u64), String>) {
        match outcome {
            Ok((seeds, operations)) => {
                self.seeds += seeds;
                self.operations += operations;
            }
            Err(what) => {
                let (by, design) = (batch.case.kind(), batch.case.design);
                self.findings.push(Finding { by, design, seconds, what });
            }
        }
    }

    fn line(&self) -> String {
        let Summary { seeds, operations, findings, .. } = self;
        format!("{seeds} seeds, {operations} operations, {} findings", findings.len())
    }
}

/// The first case of everything that is wanted on every design that is, in an order in which a run
/// that is short has some of each.
fn lines(args: &CheckArgs) -> Vec<Case> {
    let designs = args.design.map_or(DesignName::value_variants().to_vec(), |one| vec![one]);
    let kinds = match args.subject {
        None if !args.stop_cpu => {
            let subjects = Subject::value_variants().iter().map(|&subject| (subject, false));
            subjects.chain([(Subject::Allocator, true)]).collect()
        }
        subject => vec![(subject.unwrap_or(Subject::Allocator), args.stop_cpu)],
    };
    let turns = (0..designs.len()).flat_map(|turn| (0..kinds.len()).map(move |nth| (turn, nth)));
    let case = |(turn, nth): (usize, usize)| {
        let (subject, stop_cpu) = kinds[nth];
        let design = designs[(turn + nth) % designs.len()];
        Case { subject, stop_cpu, design, ..Case::new(args, args.first_seed) }
    };
    turns.map(case).collect()
}

/// Seeds that one process plays, from that of the case.
#[derive(Clone, Debug)]
struct Batch {
    case: Case,
    seeds: u64,
}

impl Batch {
    /// The batch of this number, from 0, of all lines in turn.
    fn nth(lines: &[Case], nth: u64) -> Self {
        let case = lines[(nth % lines.len() as u64) as usize].clone();
        // A second or two of work.
        let seeds = match (case.subject, case.stop_cpu) {
            (Subject::Allocator, true) => 6,
            (Subject::Allocator | Subject::Lru, _) => 40,
            (Subject::Host, _) => 2,
            (Subject::Chaos, _) => 4,
        };
        let seed = case.seed.wrapping_add(nth / lines.len() as u64 * seeds);
        Batch { case: Case { seed, ..case }, seeds }
    }

    fn one(&self, nth: u64) -> Self {
        let seed = self.case.seed.wrapping_add(nth);
        Batch { case: Case { seed, ..self.case.clone() }, seeds: 1 }
    }

    /// The command that plays it.
    fn command(&self) -> String {
        match self.seeds {
            1 => self.case.replay(),
            seeds => {
                self.case.replay_with(&format!("--first-seed {} --seeds {seeds}", self.case.seed))
            }
        }
    }
}

/// How a process ended.
enum End {
    /// All seeds passed, with so many operations.
    Passed(u64),
    /// A seed failed: what was said of it.
    Failed(String),
    /// The process crashed, or never ended: it has not said which seed it was.
    Gone(String),
    /// This run was interrupted.
    Interrupted,
}

/// Plays batches in processes.
struct Runner<'a> {
    program: &'a Path,
    /// Where cases are saved.
    save: &'a Path,
    /// A batch that takes longer never ends.
    hang_after: Duration,
    stop: &'a AtomicBool,
}

impl Runner<'_> {
    /// Plays a batch; returns how many seeds passed, with how many operations, or what was
    /// found.
    fn play(&self, batch: &Batch) -> Result<(u64, u64), String> {
        match self.run(batch, self.hang_after) {
            End::Passed(operations) => Ok((batch.seeds, operations)),
            End::Interrupted => Ok((0, 0)),
            End::Failed(what) => Err(what),
            End::Gone(what) => {
                // One seed is a small part of a batch, so it gets part of a batch's time.
                let alone = (0..batch.seeds).map(|nth| batch.one(nth)).find(|one| {
                    let end = self.run(one, self.hang_after / 5);
                    matches!(end, End::Failed(_) | End::Gone(_))
                });
                Err(format!("{what}\nreplay: {}", alone.as_ref().unwrap_or(batch).command()))
            }
        }
    }

    fn run(&self, batch: &Batch, time_max: Duration) -> End {
        let Case { design, seed, .. } = &batch.case;
        let name = format!("{}-{}-{seed}.json", batch.case.kind(), name_of(design));
        let mut command = Command::new(self.program);
        // Batches are what runs side by side.
        command
            .args(batch.command().split(' ').skip(1))
            .args(["--json", "--jobs", "1", "--shrink"]);
        // Signals of a terminal are for this process, which ends the others.
        command.arg(self.save.join(name)).process_group(0);
        let output = match child::output(&mut command, time_max, self.stop) {
            Ok(Some(output)) => output,
            Ok(None) if self.stop.load(Relaxed) => return End::Interrupted,
            Ok(None) => return End::Gone(format!("hung: no end after {} s", time_max.as_secs())),
            Err(error) => return End::Gone(format!("crashed: {error}")),
        };
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match (output.status.code(), serde_json::from_slice::<Value>(&output.stdout)) {
            (Some(0), Ok(document)) => {
                let count = |name: &str| document[name].as_u64();
                End::Passed(count("operations").or(count("served")).unwrap_or(0))
            }
            (Some(1), _) if said.contains(" failed: ") => End::Failed(said),
            _ => End::Gone(format!("crashed: {}\n{said}", output.status).trim().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command as Parsed};
    use clap::Parser;
    use std::collections::HashSet;

    fn lines_of(options: &[&str]) -> Vec<Case> {
        let cli = Cli::parse_from([&["freehold", "check", "--minutes", "1"], options].concat());
        match cli.command {
            Parsed::Check(args) => lines(&args),
            _ => unreachable!("it is check"),
        }
    }

    #[test]
    fn everything_meets_every_design_and_the_first_batches_have_many_of_both() {
        let all = lines_of(&[]);
        let names = |case: &Case| (case.kind(), name_of(&case.design));
        let pairs: HashSet<_> = all.iter().map(names).collect();
        assert_eq!((all.len(), pairs.len()), (5 * 6, 5 * 6));
        let (kinds, designs): (HashSet<_>, HashSet<_>) = all[..5].iter().map(names).unzip();
        assert_eq!((kinds.len(), designs.len()), (5, 5));
        let stops = lines_of(&["--stop-cpu", "--design", "cluster"]);
        assert_eq!(
            stops.iter().map(names).collect::<Vec<_>>(),
            [("stop-cpu".into(), "cluster".into())]
        );
        assert_eq!(lines_of(&["--subject", "lru"]).len(), 6);
    }

    #[test]
    fn batches_of_a_line_follow_each_other_and_are_commands() {
        let lines = lines_of(&["--subject", "host", "--first-seed", "1000"]);
        let command = |nth| Batch::nth(&lines, nth).command();
        assert_eq!(
            command(0),
            "freehold check --first-seed 1000 --seeds 2 --design zone-lock --subject host"
        );
        assert!(command(1).contains("--first-seed 1000 --seeds 2 --design lazy-merge "));
        assert!(command(6).contains("--first-seed 1002 --seeds 2 --design zone-lock "));
    }

    #[test]
    fn the_seed_that_hangs_or_crashes_is_found() {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let program = folder.path().join("freehold");
        // Written by another process: this one may fork while the file is open, and a file that is
        // open for writing is not executed.
        let script = r#"#!/bin/sh
case "$*" in
*'--seed 12 '*'lru'*) exec sleep 60;;
*'--first-seed '*'lru'* | *'--seed 13 '*) echo so long >&2; kill -SEGV $$;;
*'--first-seed 1'*) echo no JSON;;
*'--first-seed 4'*) exec sleep 60;;
*'--first-seed 2'*) echo 'error: seed 21 failed: lost' >&2; exit 1;;
*) echo '{"operations": 5}';;
esac"#;
        let write = r#"printf '%s\n' "$1" > "$0" && chmod +x "$0""#;
        let status = Command::new("sh").arg("-c").arg(write).arg(&program).arg(script).status();
        assert!(status.is_ok_and(|status| status.success()));
        let stop = AtomicBool::new(false);
        let play = |stop: &AtomicBool, subject, first_seed| {
            let lines = lines_of(&["--subject", subject, "--first-seed", first_seed]);
            let hang_after = Duration::from_secs(10);
            let runner = Runner { program: &program, save: folder.path(), hang_after, stop };
            runner.play(&Batch::nth(&lines, 0))
        };
        let crashed = play(&stop, "lru", "10").unwrap_err();
        assert!(crashed.starts_with("crashed: signal: 11 (SIGSEGV)"), "{crashed}");
        let ending = "\nso long\nreplay: freehold check --seed 12 --design zone-lock --subject lru";
        assert!(crashed.ends_with(ending), "{crashed}");
        let no_json = play(&stop, "chaos", "10").unwrap_err();
        let expected = "crashed: exit status: 0\nreplay: freehold check --seed 13 ";
        assert!(no_json.starts_with(expected), "{no_json}");
        assert_eq!(play(&stop, "chaos", "20"), Err("error: seed 21 failed: lost".to_owned()));
        assert_eq!(play(&stop, "chaos", "30"), Ok((4, 5)));
        stop.store(true, Relaxed);
        assert_eq!(play(&stop, "chaos", "40"), Ok((0, 0)), "interrupted");
    }
}

//! `freehold torture`: batches of seeds of `freehold check`, in processes of their own, until the
//! time is over. What fails, crashes or never ends is saved, made small, with a command that plays
//! it again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::cli::{Canary, TortureArgs, TortureKind, TortureProfile};
use crate::designs::DesignName;
use crate::report::progress::Progress;
use crate::signals::stop_flag;

mod batch;
mod child;
mod finding;
mod summary;

use batch::Batch;
use child::End;
use finding::Examiner;
use summary::Summary;

/// A signal ended a run, whose results were printed. Exits with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Tortures everything until the time is over, and says what was done.
pub(crate) fn torture(args: &TortureArgs) -> Result<()> {
    let minutes = args.minutes.unwrap_or_else(|| args.profile.minutes());
    let jobs = args
        .jobs
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let first_seed = args.first_seed.unwrap_or_else(|| match args.profile {
        TortureProfile::Short => 0,
        TortureProfile::Night => drawn_seed(),
    });
    let hang_after = Duration::from_secs(args.hang_after_s.into());
    let stop = stop_flag()?;
    let began = Instant::now();
    let plan = Plan {
        lines: lines(&args.kind, &args.design),
        first_seed,
        canary: args.canary,
        until: began + Duration::from_secs_f64(minutes * 60.0),
        stop: &stop,
        next: AtomicU64::new(0),
    };
    let program = std::env::current_exe().context("finding this program")?;
    let examiner = Examiner { program: &program, folder: &args.save, hang_after, stop: &stop };
    let summary = Mutex::new(Summary::new(args, first_seed, jobs));
    let progress = Progress::new((minutes * 60.0).ceil() as u64);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(batch) = plan.next_batch() {
                    let end = child::run(&program, &batch.arguments(), hang_after, &stop);
                    let finding = match &end {
                        End::Failed(_) | End::TimedOut | End::Crashed(_) => {
                            let seconds = began.elapsed().as_secs_f64();
                            let what = (&batch, &end);
                            Some(examiner.examine(what, seconds))
                        }
                        End::Passed(_) | End::Interrupted => None,
                    };
                    let mut summary = summary.lock().expect("no other thread panics");
                    summary.add(&batch, &end, finding);
                    progress.say(summary.line());
                }
            });
        }
        while !plan.is_over() {
            thread::sleep(Duration::from_secs(1).min(plan.left()));
            progress.step();
        }
    });
    progress.finish();
    let summary = summary.into_inner().expect("no other thread panics");
    summary.print(args.json)?;
    if let Some(path) = &args.record {
        summary.append_to(path)?;
    }
    match summary.findings() {
        _ if stop.load(Relaxed) => Err(Interrupted.into()),
        0 => Ok(()),
        1 => bail!("1 finding"),
        more => bail!("{more} findings"),
    }
}

/// What is done in turn, until when.
struct Plan<'a> {
    lines: Vec<(TortureKind, DesignName)>,
    first_seed: u64,
    canary: Option<Canary>,
    until: Instant,
    stop: &'a AtomicBool,
    /// How many batches have begun.
    next: AtomicU64,
}

impl Plan<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn is_over(&self) -> bool {
        // Relaxed, as below: it only says when to end.
        self.left().is_zero() || self.stop.load(Relaxed)
    }

    /// The next batch, if there is time for one.
    fn next_batch(&self) -> Option<Batch> {
        if self.is_over() {
            return None;
        }
        // Relaxed: the counter only assigns numbers.
        let nth = self.next.fetch_add(1, Relaxed);
        let lines = self.lines.len() as u64;
        let line = self.lines[(nth % lines) as usize];
        let batch = Batch::new(line, self.first_seed, nth / lines);
        Some(Batch { canary: self.canary, ..batch })
    }
}

/// All kinds on all designs that are wanted: a run that is short has something of each kind, and of
/// each design.
fn lines(kinds: &[TortureKind], designs: &[DesignName]) -> Vec<(TortureKind, DesignName)> {
    let designs = if designs.is_empty() { DesignName::value_variants() } else { designs };
    let kinds = if kinds.is_empty() { TortureKind::value_variants() } else { kinds };
    let turns = (0..designs.len()).flat_map(|turn| (0..kinds.len()).map(move |nth| (turn, nth)));
    turns.map(|(turn, nth)| (kinds[nth], designs[(turn + nth) % designs.len()])).collect()
}

/// A seed that no earlier run had: of the time in seconds, with room for a billion seeds.
fn drawn_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_meets_every_design_and_the_first_batches_have_many_of_both() {
        let all = lines(&[], &[]);
        let (kinds, designs) = (TortureKind::value_variants(), DesignName::value_variants());
        assert_eq!(all.len(), kinds.len() * designs.len());
        let names = |(kind, design): &(TortureKind, DesignName)| format!("{kind:?} {design:?}");
        assert_eq!(all.iter().map(names).collect::<HashSet<_>>().len(), all.len());
        let first = &all[..kinds.len()];
        assert_eq!(first.iter().map(|(kind, _)| kind).collect::<HashSet<_>>().len(), kinds.len());
        let designs: HashSet<_> = first.iter().map(|(_, design)| format!("{design:?}")).collect();
        assert_eq!(designs.len(), kinds.len());
    }
}

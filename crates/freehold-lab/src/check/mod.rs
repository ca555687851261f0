//! `freehold check`: random schedules on small simulated machines, by the seed, and threads on this
//! one.
//!
//! A seed picks machine, memory, settings, failures, schedule and work. A ledger records the frames
//! in use independently of the allocator, or of the LRU, and is checked at every step. At the end
//! the failures stop, all CPUs drain, and every frame must be free. An allocator is then asked for
//! all memory: what it hands out is held against the ledger, whatever its counts say.

use anyhow::Result;
use freehold_sim::Torn;
use serde::Serialize;

use crate::catalog::name_of;
use crate::cli::{Canary, CheckArgs, Subject};
use crate::report::out;
use crate::report::progress::Progress;
use crate::sim::parallel::run_all;

mod actor;
mod case;
mod flow;
mod frames;
mod interrupts;
mod leases;
mod ledger;
mod lru;
mod menu;
mod minutes;
mod movers;
mod play;
mod round;
mod scenario;
mod shrink;
mod stop;
mod tally;
mod threads;
mod work;

use case::Case;
use scenario::Scenario;
use tally::Count;

/// The document of `freehold check --json`.
#[derive(Serialize)]
struct Document<T> {
    schema: &'static str,
    subject: String,
    design: String,
    seeds: u64,
    first_seed: u64,
    #[serde(flatten)]
    tally: T,
}

/// Plays all seeds, and fails with the first one that fails and the command that replays it; or
/// goes on for some minutes.
pub(crate) fn check(args: &CheckArgs) -> Result<()> {
    if let Some(minutes) = args.minutes {
        return minutes::check(args, minutes);
    }
    let cases: Vec<Case> = match &args.case {
        Some(path) => vec![Case::read(path)?],
        None => {
            let (first, count) = args.seed.map_or((args.first_seed, args.seeds), |seed| (seed, 1));
            (0..count).map(|nth| Case::new(args, first.wrapping_add(nth))).collect()
        }
    };
    cases[0].check()?;
    match (cases[0].subject, cases[0].stop_cpu) {
        (Subject::Allocator, false) => {
            check_cases(args, &cases, |case| play::play(case.design, &scenario(case)))
        }
        (Subject::Allocator, true) => {
            check_cases(args, &cases, |case| stop::play(case.design, &scenario(case)))
        }
        (Subject::Lru, _) => {
            check_cases(args, &cases, |case| lru::play(case.design, &scenario(case)))
        }
        (Subject::Host | Subject::Chaos, _) => check_cases(args, &cases, threads::play),
    }
}

fn check_cases<T: Count>(
    args: &CheckArgs,
    cases: &[Case],
    play: fn(&Case) -> Result<T>,
) -> Result<()> {
    let first = &cases[0];
    if cases.len() > 1 || args.shrink.is_some() {
        // The error says what failed; only a replay also says where, as panics do.
        std::panic::set_hook(Box::new(|_| ()));
    }
    let progress = Progress::new(cases.len() as u64);
    progress.say("seeds");
    /// More than the largest simulated scenario takes.
    const SCENARIO_BYTES: u64 = 64 << 20;
    let jobs = match first.subject {
        // Each has threads enough of its own.
        Subject::Host | Subject::Chaos => Some(1),
        Subject::Allocator | Subject::Lru => args.jobs.map(usize::from),
    };
    let outcomes = run_all(cases, SCENARIO_BYTES, jobs, |case| {
        let outcome = play(case);
        progress.step();
        Ok(outcome)
    })?;
    progress.finish();

    let mut tally = T::default();
    for (case, outcome) in cases.iter().zip(outcomes) {
        match outcome {
            Ok(of_seed) => tally.add(&of_seed)?,
            Err(error) => return Err(failed(args, case, &error, play)),
        }
    }
    let (subject, design) = (name_of(&first.subject), name_of(&first.design));
    let (schema, seeds, first_seed) = ("freehold.check/1", cases.len() as u64, first.seed);
    let document = Document { schema, subject, design, seeds, first_seed, tally };
    if args.json {
        out!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        let Document { design, tally, .. } = document;
        let subject = match first.subject {
            Subject::Allocator => design,
            subject => format!("{} on {design}", name_of(&subject)),
        };
        out!("{subject}: {seeds} seeds from {first_seed}, no failure.\n{}", tally.told()?);
    }
    Ok(())
}

/// What to say of a case that failed. Shrinks and saves it, if `args` want that.
fn failed<T: Count>(
    args: &CheckArgs,
    case: &Case,
    error: &anyhow::Error,
    play: fn(&Case) -> Result<T>,
) -> anyhow::Error {
    let seed = case.seed;
    let what = match case.subject {
        Subject::Host | Subject::Chaos => threads::describe(case),
        Subject::Allocator | Subject::Lru => scenario(case).to_string(),
    };
    let replay = match &args.case {
        Some(path) => format!("freehold check --case {}", path.display()),
        None => case.replay(),
    };
    let mut text = format!("seed {seed} failed: {error:#}\nscenario: {what}\nreplay: {replay}");
    if let Some(path) = &args.shrink {
        let small = shrink::shrink(case, &format!("{error:#}"), |case| {
            play(case).err().map(|error| format!("{error:#}"))
        });
        text += &match small.write(path) {
            Ok(()) => format!(
                "\nshrunk: {}\nreplay: freehold check --case {}",
                small.cuts,
                path.display()
            ),
            Err(error) => format!("\nnot saved: {error:#}"),
        };
    }
    anyhow::anyhow!(text)
}

/// The scenario of a case.
fn scenario(case: &Case) -> Scenario {
    let mut scenario = Scenario::draw(case.seed, &case.failures, case.stop_cpu);
    if case.stop_cpu {
        stop::add_stop(&mut scenario, case.canary.is_some());
    } else {
        scenario.loses_a_frame = case.canary == Some(Canary::Loss);
        scenario.faults.torn = (case.canary == Some(Canary::Race)).then_some(match case.subject {
            // The LRU's state of a frame is a word of 64 bits. The allocator beneath is sound.
            Subject::Lru => Torn { bytes: 8, data: Some("lru_frames") },
            // Allocators claim blocks by words of 32 bits.
            _ => Torn { bytes: 4, data: None },
        });
    }
    scenario.cut(&case.cuts);
    scenario
}

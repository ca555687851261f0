//! `freehold check`: random schedules on small simulated machines, by the seed.
//!
//! A seed picks machine, memory, settings, failures, schedule and work. A ledger records the frames
//! in use independently of the allocator, or of the LRU, and is checked at every step. At the end
//! the failures stop, all CPUs drain, and every frame must be free. An allocator is then asked for
//! all memory: what it hands out is held against the ledger, whatever its counts say.

use anyhow::{Result, bail};
use freehold_sim::Torn;
use serde::Serialize;

use crate::UsageError;
use crate::catalog::name_of;
use crate::cli::{Canary, CheckArgs, Subject};
use crate::designs::DesignName;
use crate::report::out;
use crate::report::progress::Progress;
use crate::sim::parallel::run_all;

mod actor;
mod flow;
mod frames;
mod ledger;
mod lru;
mod movers;
mod play;
mod round;
mod scenario;
mod stop;
mod tally;

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

/// Plays all seeds, and fails with the first one that fails and the command that replays it.
pub(crate) fn check(args: &CheckArgs) -> Result<()> {
    if args.canary == Some(Canary::Loss) && (args.stop_cpu || args.subject == Subject::Lru) {
        let problem = "--canary=loss is for the subject allocator without --stop-cpu";
        return Err(UsageError(problem.to_owned()).into());
    }
    match (args.subject, args.stop_cpu) {
        (Subject::Allocator, false) => check_subject(args, play::play),
        (Subject::Allocator, true) => check_subject(args, stop::play),
        (Subject::Lru, false) => check_subject(args, lru::play),
        (Subject::Lru, true) => {
            let problem = "--stop-cpu is for the subject allocator: others are not checked yet";
            Err(UsageError(problem.to_owned()).into())
        }
    }
}

fn check_subject<T: Count>(
    args: &CheckArgs,
    play: fn(DesignName, &Scenario) -> Result<T>,
) -> Result<()> {
    let (first, count) = match args.seed {
        Some(seed) => (seed, 1),
        None => (args.first_seed, args.seeds),
    };
    if args.seed.is_none() {
        // The error says what failed; only a replay also says where, as panics do.
        std::panic::set_hook(Box::new(|_| ()));
    }
    let seeds: Vec<u64> = (0..count).map(|nth| first.wrapping_add(nth)).collect();
    let progress = Progress::new(count);
    progress.say("seeds");
    /// More than the largest scenario takes.
    const SCENARIO_BYTES: u64 = 64 << 20;
    let outcomes = run_all(&seeds, SCENARIO_BYTES, |&seed| {
        let outcome = play(args.design, &scenario(args, seed));
        progress.step();
        Ok(outcome)
    })?;
    progress.finish();

    let (subject, design) = (name_of(&args.subject), name_of(&args.design));
    let mut tally = T::default();
    for (seed, outcome) in seeds.iter().zip(outcomes) {
        match outcome {
            Ok(of_seed) => tally.add(&of_seed),
            Err(error) => {
                let scenario = scenario(args, *seed);
                bail!(
                    "seed {seed} failed: {error:#}\nscenario: {scenario}\nreplay: {}",
                    replay(args, *seed)
                );
            }
        }
    }
    let schema = "freehold.check/1";
    let document = Document { schema, subject, design, seeds: count, first_seed: first, tally };
    if args.json {
        out!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        let Document { design, tally, .. } = document;
        let subject = match args.subject {
            Subject::Allocator => design,
            Subject::Lru => format!("lru on {design}"),
        };
        out!("{subject}: {count} seeds from {first}, no failure.\n{tally}");
    }
    Ok(())
}

/// The command that replays a seed as `args` had it played.
fn replay(args: &CheckArgs, seed: u64) -> String {
    let mut command = format!("freehold check --seed {seed} --design {}", name_of(&args.design));
    if args.subject != Subject::Allocator {
        command += &format!(" --subject {}", name_of(&args.subject));
    }
    if !args.failures.is_empty() {
        let names: Vec<_> = args.failures.iter().map(name_of).collect();
        command += &format!(" --failures {}", names.join(","));
    }
    if args.stop_cpu {
        command += " --stop-cpu";
    }
    if let Some(canary) = args.canary {
        command += &format!(" --canary={}", name_of(&canary));
    }
    command
}

/// The scenario of a seed, as modified by `args`.
fn scenario(args: &CheckArgs, seed: u64) -> Scenario {
    let mut scenario = Scenario::draw(seed, &args.failures, args.stop_cpu);
    if args.stop_cpu {
        stop::add_stop(&mut scenario, args.canary.is_some());
        return scenario;
    }
    scenario.loses_a_frame = args.canary == Some(Canary::Loss);
    scenario.faults.torn = (args.canary == Some(Canary::Race)).then_some(match args.subject {
        // Allocators claim blocks by words of 32 bits.
        Subject::Allocator => Torn { bytes: 4, data: None },
        // The LRU's state of a frame is a word of 64 bits. The allocator beneath is sound.
        Subject::Lru => Torn { bytes: 8, data: Some("lru_frames") },
    });
    scenario
}

//! The page allocator among threads of this machine, by the seed: they hand stamped blocks to each
//! other, while other threads compact, take ranges, take memory away and add it again.
//!
//! The seed draws the ground, the settings and what each thread does. When each thread does it is
//! the machine's affair: a seed that failed once may pass the next time.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use freehold::{FrameCount, Immovable, Order, ZoneStats};
use freehold_conformance::{Torture, Worker};
use serde::Serialize;

use super::case::{Case, Cuts};
use super::ledger::Ledger;
use super::tally::Count;
use crate::cli::Subject;
use crate::host::tasks::start;
use crate::panics::message_of;
use disturb::{Disturber, steps_on};
use ground::{Ground, Trodden};

mod chaos;
mod disturb;
mod ground;
mod host;

/// What threads have done to an allocator on this machine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ThreadsTally {
    /// Steps of all threads, each of which allocates, frees, or both.
    operations: u64,
    allocations: u64,
    /// Allocations for which there was no memory, or not enough above a watermark.
    refusals: u64,
    frees: u64,
    /// The most threads of a seed.
    threads_max: u64,
    /// Seeds whose threads leased caches.
    leased: u64,
    /// Blocks that several threads freed at once, whole and in parts.
    fights: u64,
    compactions: u64,
    /// Blocks whose content was moved.
    moves: u64,
    ranges: u64,
    /// Free frames whose memory went back to the machine.
    purged: u64,
    /// Times that memory was taken away.
    removals: u64,
    /// Full checks of all invariants while threads worked.
    validations: u64,
}

impl Count for ThreadsTally {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.allocations += other.allocations;
        self.refusals += other.refusals;
        self.frees += other.frees;
        self.threads_max = self.threads_max.max(other.threads_max);
        self.leased += other.leased;
        self.fights += other.fights;
        self.compactions += other.compactions;
        self.moves += other.moves;
        self.ranges += other.ranges;
        self.purged += other.purged;
        self.removals += other.removals;
        self.validations += other.validations;
    }
}

impl fmt::Display for ThreadsTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ThreadsTally { compactions, moves, ranges, purged, removals, validations, .. } = self;
        write!(
            f,
            "{} operations of up to {} threads, {} allocations, {} refused, {} frees, {} seeds \
             with leases, {} racing frees,\n{compactions} compactions, {moves} blocks moved, \
             {ranges} ranges, {purged} frames purged, {removals} times memory removed,\n\
             {validations} checks in the middle.",
            self.operations,
            self.threads_max,
            self.allocations,
            self.refusals,
            self.frees,
            self.leased,
            self.fights
        )
    }
}

/// How many threads work, and for how long.
struct Crew {
    workers: usize,
    /// Threads beside them that make every rare call.
    disturbers: usize,
    /// How long these pause before each of their calls.
    pause: Duration,
    slots: usize,
    rounds: usize,
    /// Steps of each worker in a round.
    operations: usize,
}

impl Crew {
    fn cut(&mut self, cuts: &Cuts) {
        self.rounds = cuts.rounds.map_or(self.rounds, |most| self.rounds.min(most));
        self.operations = cuts.operations.map_or(self.operations, |most| self.operations.min(most));
    }
}

impl fmt::Display for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} threads with {} slots, {} rounds of {} operations, disturbed by {} more, each \
             every {} ms",
            self.workers,
            self.slots,
            self.rounds,
            self.operations,
            self.disturbers,
            self.pause.as_millis()
        )
    }
}

/// The scenario of a case, in words.
pub(super) fn describe(case: &Case) -> String {
    match case.subject {
        Subject::Chaos => chaos::describe(case),
        _ => format!("host: {}", host::Plan::of(case)),
    }
}

/// The rounds, steps and threads that a case has, of which shrinking may leave out some.
pub(super) fn parts(case: &Case) -> (usize, usize, usize) {
    let Crew { rounds, operations, workers, .. } = match case.subject {
        Subject::Chaos => chaos::Plan::of(case).crew,
        _ => host::Plan::of(case).crew,
    };
    (rounds, operations, workers)
}

/// The names of steps that shrinking may leave out.
pub(super) fn steps(subject: Subject) -> Vec<&'static str> {
    match subject {
        Subject::Chaos => [&steps_on(&chaos::STEPS)[..], &[chaos::FIGHT]].concat(),
        _ => steps_on(&host::STEPS),
    }
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Result<ThreadsTally> {
    match case.subject {
        Subject::Chaos => chaos::play(case),
        _ => host::play(case),
    }
}

/// Plays all rounds on a ground.
fn play_on<G: Ground>(case: &Case, crew: &Crew, ground: &G) -> Result<ThreadsTally> {
    let slots: Vec<_> = (0..crew.slots).map(|_| AtomicU64::new(0)).collect();
    let trodden = Trodden(ground);
    let torture = Torture::new(&trodden, &trodden, &slots);
    let free = torture.prepare().map_err(|failure| anyhow!("before all rounds: {failure}"))?;
    ground.arm();
    let threads_max = (crew.workers + crew.disturbers) as u64;
    let mut tally = ThreadsTally { threads_max, ..ThreadsTally::default() };
    for round in 0..crew.rounds {
        let seed = case.seed ^ (round as u64 + 1) << 42;
        let in_round = || format!("in round {round}");
        let of_round = play_round(case, crew, (ground, &torture), free, seed);
        tally.add(&of_round.with_context(in_round)?);
        tally.fights += ground.fight(crew, &case.cuts, seed).with_context(in_round)?;
    }
    Ok(tally)
}

fn play_round<G: Ground>(
    case: &Case,
    crew: &Crew,
    (ground, torture): (&G, &ground::Torture<'_, G>),
    free: FrameCount,
    seed: u64,
) -> Result<ThreadsTally> {
    let seed_of = |nth: usize| seed ^ (nth as u64 + 1) << 32;
    let at_work: Vec<_> =
        (0..crew.workers).filter(|worker| !case.cuts.idle_cpus.contains(worker)).collect();
    let is_over = &AtomicBool::new(false);
    let (mut workers, disturbed) = thread::scope(|scope| -> Result<_> {
        let disturb = |nth| {
            let (without, pause) = (&case.cuts.steps[..], crew.pause);
            let disturber = Disturber::new((ground, torture), (nth, seed_of(nth)), without, pause);
            start(scope, move || {
                let _inside = ground.enter(seed_of(nth));
                disturber.disturb(is_over)
            })
        };
        let work = |nth| {
            start(scope, move || {
                let _inside = ground.enter(seed_of(nth));
                let mut worker = Worker::new(seed_of(nth));
                for _ in 0..crew.operations {
                    ground.begin_call();
                    torture.step(&mut worker);
                }
                worker
            })
        };
        let others = crew.workers..crew.workers + crew.disturbers;
        let disturbers: Vec<_> = others.map(disturb).collect();
        let mut panics = Vec::new();
        let workers = join_all(at_work.iter().copied().map(work).collect(), &mut panics);
        // Relaxed: joining the thread orders all else.
        is_over.store(true, Relaxed);
        let disturbed = join_all(disturbers, &mut panics);
        check_none(&panics)?;
        Ok((workers, disturbed.into_iter().collect::<Result<Vec<_>>>()?))
    })?;
    ground.settle()?;
    let (tally, census) =
        torture.finish(&mut workers, free).map_err(|failure| anyhow!("{failure}"))?;
    ensure!(census.allocated.get() == 0, "{} are in use at the end", census.allocated);
    check_merged(ground)?;
    let mut sum = ThreadsTally {
        operations: (crew.operations * at_work.len()) as u64,
        allocations: tally.allocated,
        refusals: tally.out_of_memory + tally.below_watermark,
        frees: tally.freed,
        ..ThreadsTally::default()
    };
    disturbed.iter().for_each(|of_thread| sum.add(of_thread));
    Ok(sum)
}

/// Joins threads; returns what those have that did not panic, and adds what the others said. A
/// thread that gave up since another one panicked says nothing.
fn join_all<T>(threads: Vec<ScopedJoinHandle<'_, T>>, panics: &mut Vec<String>) -> Vec<T> {
    let mut done = Vec::new();
    for thread in threads {
        match thread.join() {
            Ok(result) => done.push(result),
            Err(panic) => panics.extend(message_of(&*panic).map(str::to_owned)),
        }
    }
    done
}

/// That no thread has panicked.
fn check_none(panics: &[String]) -> Result<()> {
    match panics.first() {
        Some(text) => bail!("a thread panicked: {text}"),
        None => Ok(()),
    }
}

/// That all free memory is merged. Frames may have been left unmerged by design: compaction merges
/// them, and moves nothing.
fn check_merged<G: Ground>(ground: &G) -> Result<()> {
    let compaction = ground.allocator().compact(&Immovable);
    ensure!(compaction.migrated.get() == 0, "free memory was compacted: {compaction:?}");
    let largest = |zone: ZoneStats| zone.free_blocks[Order::BUDDY_MAX.index()];
    let whole: u64 = ground.allocator().zones().map(largest).sum();
    let blocks = Ledger::new(&ground.ranges(), None).largest_blocks();
    ensure!(whole == blocks, "{whole} of {blocks} largest blocks are whole at the end");
    Ok(())
}

//! The page allocator on this machine, by the seed: threads hand blocks of real memory to each
//! other, whose frames say who owns them, while another thread compacts, takes ranges, gives free
//! memory back to the machine, and takes memory away and adds it again.
//!
//! The seed draws the arena, the settings and what each thread does. When each thread does it is
//! the machine's affair: a seed that failed once may pass the next time.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;
use freehold::{Design, FrameCount, Immovable, Order, Pfn};
use freehold_conformance::{Stamps, Torture, Worker};
use freehold_host::{FrameArena, Host, Leases};
use serde::Serialize;

use super::case::Case;
use super::scenario::draw_settings;
use super::tally::Count;
use crate::designs::{DesignName, with_design};
use crate::host::{HostDesign, arena};
use disturb::Disturber;
use subject::Arena;

mod disturb;
mod subject;

pub(super) use disturb::steps;

/// What threads have done to an allocator on this machine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct HostTally {
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
    #[serde(flatten)]
    disturbed: Disturbed,
}

/// What one more thread has done meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Disturbed {
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

impl Count for HostTally {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.allocations += other.allocations;
        self.refusals += other.refusals;
        self.frees += other.frees;
        self.threads_max = self.threads_max.max(other.threads_max);
        self.leased += other.leased;
        self.disturbed.add(&other.disturbed);
    }
}

impl Disturbed {
    fn add(&mut self, other: &Self) {
        self.compactions += other.compactions;
        self.moves += other.moves;
        self.ranges += other.ranges;
        self.purged += other.purged;
        self.removals += other.removals;
        self.validations += other.validations;
    }
}

impl fmt::Display for HostTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disturbed { compactions, moves, ranges, purged, removals, validations } =
            self.disturbed;
        write!(
            f,
            "{} operations of up to {} threads, {} allocations, {} refused, {} frees, {} seeds \
             with leases,\n{compactions} compactions, {moves} blocks moved, {ranges} ranges, \
             {purged} frames purged, {removals} times memory removed,\n{validations} checks in \
             the middle.",
            self.operations,
            self.threads_max,
            self.allocations,
            self.refusals,
            self.frees,
            self.leased
        )
    }
}

/// What a seed draws.
struct Plan {
    bytes: usize,
    threads: usize,
    cpus: usize,
    slots: usize,
    leases: Leases,
    rounds: usize,
    /// Steps of each thread in a round.
    operations: usize,
    /// How long the thread beside the workers pauses before each of its calls, which otherwise
    /// take almost all of the time: what it purges, each worker faults in again.
    pause: Duration,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x0005_4057);
        let threads = [1, 2, 2, 3, 4, 8, 16, 64][rng.usize(..8)];
        Plan {
            bytes: rng.usize(8..=64) << 20,
            threads,
            cpus: [1, 2, 4, 16][rng.usize(..4)],
            slots: [1, 16, 64, 256, 1024][rng.usize(..5)],
            leases: if rng.bool() { Leases::Auto } else { Leases::Off },
            rounds: rng.usize(1..=3),
            operations: rng.usize(100_000..1_000_000) / threads,
            pause: Duration::from_millis([1, 3, 10, 30][rng.usize(..4)]),
        }
    }

    fn of(case: &Case) -> Self {
        let mut plan = Plan::draw(case.seed);
        let cuts = &case.cuts;
        if case.design != DesignName::Freehold {
            // The others have none.
            plan.leases = Leases::Off;
        }
        plan.rounds = cuts.rounds.map_or(plan.rounds, |most| plan.rounds.min(most));
        plan.operations = cuts.operations.map_or(plan.operations, |most| plan.operations.min(most));
        plan
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} threads with {} slots on an arena of {} MiB for {} CPUs, leases {}, {} rounds of \
             {} operations, disturbed every {} ms",
            self.threads,
            self.slots,
            self.bytes >> 20,
            self.cpus,
            self.leases,
            self.rounds,
            self.operations,
            self.pause.as_millis()
        )
    }
}

/// The scenario of a case, in words.
pub(super) fn describe(case: &Case) -> String {
    Plan::of(case).to_string()
}

/// The rounds, steps and threads that a case has, of which shrinking may leave out some.
pub(super) fn parts(case: &Case) -> (usize, usize, usize) {
    let plan = Plan::of(case);
    (plan.rounds, plan.operations, plan.threads)
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Result<HostTally> {
    with_design!(case.design, Host, D => play_on::<D>(case))
}

fn play_on<D: HostDesign>(case: &Case) -> Result<HostTally> {
    let plan = Plan::of(case);
    let frames = arena::<D>()
        .bytes(plan.bytes)
        .nodes(1)
        .cpus(plan.cpus)
        .settings(draw_settings(case.seed))
        .leases(plan.leases)
        .build_frames()
        .with_context(|| format!("the scenario itself is wrong: {plan}"))?;
    let slots: Vec<_> = (0..plan.slots).map(|_| AtomicU64::new(0)).collect();
    let subject = Arena::new(&frames, case.canary);
    let stamps = Words(&frames);
    let torture = Torture::new(&subject, &stamps, &slots);
    let free = torture.prepare().map_err(|failure| anyhow!("before all rounds: {failure}"))?;
    subject.arm();
    let mut tally = HostTally { threads_max: plan.threads as u64, ..HostTally::default() };
    tally.leased = u64::from(frames.leases() == Leases::Auto);
    for round in 0..plan.rounds {
        let of_round = play_round(case, &plan, round, (&frames, &torture, free));
        tally.add(&of_round.with_context(|| format!("in round {round}"))?);
    }
    Ok(tally)
}

fn play_round<D: HostDesign>(
    case: &Case,
    plan: &Plan,
    round: usize,
    (frames, torture, free): (&FrameArena<D>, &Torture<'_, Arena<'_, D>, Words<'_, D>>, FrameCount),
) -> Result<HostTally> {
    let seed_of = |nth: usize| case.seed ^ ((round * 1000 + nth + 1) as u64) << 32;
    let at_work: Vec<_> =
        (0..plan.threads).filter(|thread| !case.cuts.idle_cpus.contains(thread)).collect();
    let (mut workers, is_over) = (Vec::new(), AtomicBool::new(false));
    let disturbed = thread::scope(|scope| -> Result<Disturbed> {
        let disturber = scope.spawn(|| {
            let rng = Rng::with_seed(seed_of(plan.threads));
            let (without, pause) = (&case.cuts.steps[..], plan.pause);
            Disturber { frames, torture, rng, without, pause }.disturb(&is_over)
        });
        let threads: Vec<_> = at_work
            .iter()
            .map(|&thread| {
                let mut worker = Worker::new(seed_of(thread));
                scope.spawn(move || {
                    (0..plan.operations).for_each(|_| torture.step(&mut worker));
                    worker
                })
            })
            .collect();
        let panicked = || anyhow!("a thread panicked; stderr has its message");
        let done: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // Relaxed: joining the thread orders all else.
        is_over.store(true, Relaxed);
        let disturbed = disturber.join().map_err(|_| panicked())?;
        for worker in done {
            workers.push(worker.map_err(|_| panicked())?);
        }
        disturbed
    })?;
    let (tally, census) =
        torture.finish(&mut workers, free).map_err(|failure| anyhow!("{failure}"))?;
    ensure!(census.allocated.get() == 0, "{} are in use at the end", census.allocated);
    // Frames may have been left unmerged by design: compaction merges them, and moves nothing.
    let compaction = frames.allocator().compact(&Immovable);
    ensure!(compaction.migrated.get() == 0, "free memory was compacted: {compaction:?}");
    let (whole, blocks) = largest_blocks(frames);
    ensure!(whole == blocks, "{whole} of {blocks} largest blocks are whole at the end");
    Ok(HostTally {
        operations: (plan.operations * at_work.len()) as u64,
        allocations: tally.allocated,
        refusals: tally.out_of_memory + tally.below_watermark,
        frees: tally.freed,
        disturbed,
        ..HostTally::default()
    })
}

/// How many of the largest blocks are free, and how many there are.
fn largest_blocks<D: HostDesign>(frames: &FrameArena<D>) -> (u64, u64) {
    let (largest, frames_each) = (Order::BUDDY_MAX.index(), Order::BUDDY_MAX.frames().get());
    let free = frames.allocator().zones().map(|zone| zone.free_blocks[largest]).sum();
    let within = frames.ranges().into_iter().map(|range| {
        let (start, end) = (range.start.get(), range.start.get() + range.frames.get());
        (end / frames_each).saturating_sub(start.div_ceil(frames_each))
    });
    (free, within.sum())
}

/// The second word of each frame, which says who owns the frame.
struct Words<'a, D: Design<Host>>(&'a FrameArena<D>);

impl<D: Design<Host>> Stamps for Words<'_, D> {
    fn read(&self, frame: Pfn) -> u64 {
        self.0.load_word(frame, 1)
    }

    fn write(&self, frame: Pfn, stamp: u64) {
        self.0.store_word(frame, 1, stamp);
    }
}

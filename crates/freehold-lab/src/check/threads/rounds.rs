//! The rounds of a case on a ground, and what must hold after each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use freehold::{FrameCount, Immovable, Order, ZoneStats};
use freehold_conformance::{Torture, Worker};

use super::crew::{Crew, check_none, join_all};
use super::disturb::{Disturbed, Disturber};
use super::ground::{self, Ground, Trodden};
use crate::check::case::Case;
use crate::check::ledger::Ledger;
use crate::check::tally::{Count, ThreadsTally};
use crate::host::tasks::start;

/// Plays all rounds on a ground.
pub(super) fn play_on<G: Disturbed>(case: &Case, crew: &Crew, ground: &G) -> Result<ThreadsTally> {
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
        tally.add(&of_round.with_context(in_round)?)?;
        tally.fights += ground.fight(crew, &case.cuts, seed).with_context(in_round)?;
    }
    Ok(tally)
}

fn play_round<G: Disturbed>(
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
    disturbed.iter().try_for_each(|of_thread| sum.add(of_thread))?;
    Ok(sum)
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

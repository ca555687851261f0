//! Scenarios in which one CPU stops forever in the middle of a call, and the permitted outcomes for
//! the others: they proceed, unless they wait for what the stopped one holds.

use std::rc::Rc;

use anyhow::Result;
use fastrand::Rng;
use freehold::{Error, Order, Request, Watermark, ZoneKind};
use freehold_sim::{Faults, Halt, Machine};

use super::actor::{Actor, World};
use super::frames::{CheckedFrames, set_up};
use super::ledger::Block;
use super::scenario::Scenario;
use super::tally::StopTally;
use crate::designs::DesignName;
use judge::Judge;
use watch::Watched;

mod judge;
mod watch;

/// So many accesses in one call, while no call ends, count as forever. More than the longest call
/// makes: one for a range, where a stopped call obstructs many places.
const PATIENCE_ACCESSES: u64 = 4_000_000;

/// Adds the CPU that stops to a scenario, and with it the bug to plant.
pub(super) fn add_stop(scenario: &mut Scenario, canary: bool) {
    let mut rng = Rng::with_seed(scenario.seed ^ 0x0570_bbed);
    let cpus = scenario.spec.cpus();
    let cpu = rng.usize(..cpus);
    scenario.rounds = 1;
    scenario.faults.interrupts_per_million = 0;
    // What would wait forever, or judges what is left half done.
    let without = ["look", "remove-memory", "validate", "lease"];
    scenario.without.extend(without.map(str::to_owned));
    scenario.faults.halt = Some(Halt {
        cpu,
        call: rng.u64(..scenario.operations as u64),
        // Most calls have few steps, and some have thousands.
        step: {
            let bits = rng.u32(0..=11);
            rng.u64(..1 << bits)
        },
        patience_accesses: PATIENCE_ACCESSES,
    });
    scenario.faults.hangs = canary.then(|| (cpu + rng.usize(1..cpus)) % cpus);
}

/// Plays a scenario with a CPU that stops.
pub(super) fn play(design: DesignName, scenario: &Scenario) -> Result<StopTally> {
    let mut machine = scenario.machine()?;
    let is_freehold = design == DesignName::Freehold;
    let is_lock_free = is_freehold || design == DesignName::Llfree;
    let frames = set_up(design, scenario, &mut machine)?;
    let cpus = scenario.spec.cpus();
    let watched = Rc::new(Watched::new(frames, cpus, &scenario.ranges, is_freehold));
    let frames: Rc<dyn CheckedFrames> = Rc::clone(&watched) as _;
    let world = Rc::new(World::new(scenario, frames, true));
    let (shared, operations) = (Rc::clone(&world), scenario.operations);
    scenario.play_round(&mut machine, 0, move |handle, seed| {
        Actor::new(Rc::clone(&shared), seed).work(handle, operations);
    })?;
    if machine.halted().is_some() {
        go_on(scenario, &mut machine, &world, &watched)?;
    }
    let (halted, waiting) = (machine.halted(), machine.waiting());
    machine.unwind_waiting();
    // The remaining sections are the stopped CPU's.
    let in_section = !watched.is_quiet();
    let judge = Judge { is_lock_free, watched: &watched, halted, waiting, in_section };
    judge.judge()?;
    let mut tally = StopTally { runs: 1, ..watched.tally() };
    if let Some(halted) = &judge.halted {
        tally.stopped = 1;
        tally.with_lock = u64::from(!halted.locks.is_empty());
        tally.in_section = u64::from(in_section);
        tally.irqs_off = u64::from(halted.irqs_off);
        tally.waited = judge.waiting.len() as u64;
    }
    Ok(tally)
}

/// One after the other, the remaining CPUs free what there is, allocate all memory, and free it.
fn go_on(
    scenario: &Scenario,
    machine: &mut Machine,
    world: &Rc<World>,
    watched: &Rc<Watched>,
) -> Result<()> {
    machine.set_faults(Faults::default());
    watched.go_alone();
    let mut rng = Rng::with_seed(scenario.seed ^ 0x0600_e50e);
    let cpus = scenario.spec.cpus();
    for takes in [true, false] {
        let halted = machine.halted().map(|halted| halted.cpu);
        let waiting = machine.waiting();
        let is_out =
            |cpu: usize| halted == Some(cpu) || waiting.iter().any(|waiting| waiting.cpu == cpu);
        let left: Vec<_> = (0..cpus).filter(|&cpu| !is_out(cpu)).collect();
        let Some(&cpu) = rng.choice(&left) else { return Ok(()) };
        let (world, nowait) = (Rc::clone(world), rng.bool());
        machine.spawn(cpu, move |_| {
            while world.free_left() {}
            world.probe();
            if takes {
                take_all(&world, nowait);
                world.probe();
                while world.free_left() {}
            }
        });
        machine.run()?;
    }
    Ok(())
}

/// Allocates frames until there are no more; leaves them for others to free.
fn take_all(world: &World, nowait: bool) {
    let request = Request::default().watermark(Watermark::Ignore);
    let request = if nowait { request.nowait() } else { request };
    let World { frames, flow, .. } = world;
    loop {
        match flow.allocating_block(Order::ZERO, || frames.alloc(request)) {
            Ok(pfn) => {
                let block = Block { pfn, order: Order::ZERO };
                let mut ledger = world.ledger.borrow_mut();
                ledger.enter(block, ZoneKind::Movable);
                ledger.pool.push(block);
            }
            Err(Error::OutOfMemory | Error::BelowWatermark) => return,
            Err(Error::WouldWait) if nowait => return,
            Err(error) => panic!("allocating {request:?}: {error}"),
        }
    }
}

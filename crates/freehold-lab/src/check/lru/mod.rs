//! Scenarios for the LRU: a page cache of several groups, whose frames are read, reclaimed, moved
//! between groups and by compaction, pinned and dropped, while groups are created and removed.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use freehold_lru::{LruLock, LruPolicy, LruSettings};
use freehold_sim::{Faults, LruCosts, Sim, SimLru};

use super::frames::set_up;
use super::scenario::Scenario;
use super::tally::LruTally;
use crate::designs::DesignName;
pub(super) use actor::steps;
use actor::{Actor, World};
pub(super) use shelf::Cache;
use shelf::Shelf;

mod actor;
mod shelf;

/// Settings of the LRU, drawn from the seed.
fn settings(seed: u64) -> LruSettings {
    let mut rng = Rng::with_seed(seed ^ 0x0001_1705);
    LruSettings::default()
        .lock([LruLock::Node, LruLock::Group, LruLock::Shards][rng.usize(..3)])
        .shard_waits([0, 1, 16][rng.usize(..3)])
        .shard_frames([0, 4, 128][rng.usize(..3)])
        .groups(rng.u32(2..=8))
        .batch([1, 2, 15, 31][rng.usize(..4)])
        .swappiness([0, 60, 100, 200][rng.usize(..4)])
        .policy([LruPolicy::TwoLists, LruPolicy::ScanResistant][rng.usize(..2)])
}

/// Plays a scenario to its end.
pub(super) fn play(design: DesignName, scenario: &Scenario) -> Result<LruTally> {
    let mut machine = scenario.machine()?;
    let frames = set_up(design, scenario, &mut machine)?;
    let tally = Rc::new(RefCell::new(LruTally::default()));
    let shelf = Shelf::new(Rc::clone(&frames) as _, Rc::clone(&tally));
    let settings = settings(scenario.seed);
    let cache =
        SimLru::new(&mut machine, Sim, &scenario.config(), &settings, LruCosts::default(), shelf);
    let cache = cache.with_context(|| scenario.wrong())?;
    let managed: u64 = scenario.ranges.iter().map(|range| range.frames.get()).sum();
    let world = Rc::new(World {
        frames,
        cache,
        groups: RefCell::default(),
        late: RefCell::new(scenario.late),
        tally,
        blocks: managed + managed / 2,
        without: scenario.without.clone(),
    });
    for round in 0..scenario.rounds {
        let (shared, operations) = (Rc::clone(&world), scenario.operations);
        scenario.play_round(&mut machine, round, move |handle, seed| {
            Actor::new(Rc::clone(&shared), seed).work(handle, operations);
        })?;
        world.check().with_context(|| format!("after round {round}"))?;
    }
    machine.set_faults(Faults::default());
    end(&world)?;
    let tally = *world.tally.borrow();
    Ok(tally)
}

/// No reader is left: every frame is released.
fn end(world: &World) -> Result<()> {
    let left = world.cache.owner().take_all();
    world.cache.put_bulk(&left).context("at the end")?;
    world.cache.drain_all();
    let census = world.cache.validate().context("at the end")?;
    ensure!(census.used.get() == 0, "{} are in use at the end", census.used);
    ensure!(census.stocked.get() == 0, "{} are charged ahead at the end", census.stocked);
    world.frames.drain_all();
    let census = world.frames.validate().context("at the end")?;
    ensure!(census.allocated.get() == 0, "{} were not freed", census.allocated);
    Ok(())
}

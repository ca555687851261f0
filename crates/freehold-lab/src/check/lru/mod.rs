//! Scenarios for the LRU: a page cache of several groups, whose frames are read, reclaimed, moved
//! between groups and by compaction, pinned and dropped, while groups are created and removed.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use freehold_lru::{LruLock, LruPolicy, LruSettings};
use freehold_sim::{Faults, Sim, SimLru};
use serde::Serialize;

use super::frames::set_up;
use super::scenario::Scenario;
use super::tally::Count;
use crate::designs::DesignName;
pub(super) use actor::steps;
use actor::{Actor, World};
use shelf::Shelf;

mod actor;
mod shelf;

/// The LRU under check.
pub(super) type Cache = SimLru<Shelf>;

/// The operations on an LRU.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct LruTally {
    operations: u64,
    /// Blocks that were looked up.
    reads: u64,
    /// Of these, blocks that were in the cache.
    hits: u64,
    /// Blocks of more than one frame that were added.
    large: u64,
    /// Frames that were released.
    released: u64,
    /// Frames that reclaim took.
    reclaimed: u64,
    /// Frames that were isolated.
    isolated: u64,
    /// Of these, frames that went to another group.
    regrouped: u64,
    /// Frames that were not isolated, since they were isolated already, or waited in a batch.
    busy: u64,
    /// Frames whose content was moved by compaction.
    moves: u64,
    /// Groups that were created.
    groups_made: u64,
    /// Groups that were removed.
    groups_removed: u64,
    /// Frames that went to the parent of a group that was removed.
    inherited: u64,
    /// Blocks that were read again after they were reclaimed.
    refaults: u64,
    /// Of these, blocks that were activated at once.
    restored: u64,
    /// Times that a frame was pinned.
    pins: u64,
    /// CPUs that left in the middle.
    departures: u64,
}

impl Count for LruTally {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.reads += other.reads;
        self.hits += other.hits;
        self.large += other.large;
        self.released += other.released;
        self.reclaimed += other.reclaimed;
        self.isolated += other.isolated;
        self.regrouped += other.regrouped;
        self.busy += other.busy;
        self.moves += other.moves;
        self.groups_made += other.groups_made;
        self.groups_removed += other.groups_removed;
        self.inherited += other.inherited;
        self.refaults += other.refaults;
        self.restored += other.restored;
        self.pins += other.pins;
        self.departures += other.departures;
    }
}

impl fmt::Display for LruTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} reads, {} hits, {} frames reclaimed, {} released, {} isolated,\n{} \
             found busy, {} to another group, {} moved by compaction, {} pinned, {} groups made,\n\
             {} removed with {} frames, {} blocks read again, {} of them soon, {} large,\n{} CPUs \
             departed.",
            self.operations,
            self.reads,
            self.hits,
            self.reclaimed,
            self.released,
            self.isolated,
            self.busy,
            self.regrouped,
            self.moves,
            self.pins,
            self.groups_made,
            self.groups_removed,
            self.inherited,
            self.refaults,
            self.restored,
            self.large,
            self.departures
        )
    }
}

/// Settings of the LRU, drawn from the seed.
fn settings(seed: u64) -> LruSettings {
    let mut rng = Rng::with_seed(seed ^ 0x0001_1705);
    LruSettings::default()
        .lock(if rng.bool() { LruLock::Group } else { LruLock::Node })
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
    let shelf = Shelf::new(Rc::clone(&frames), Rc::clone(&tally));
    let settings = settings(scenario.seed);
    let cache = SimLru::new(&mut machine, Sim, &scenario.config(), &settings, shelf);
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

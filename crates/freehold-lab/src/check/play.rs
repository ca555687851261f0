//! Plays a scenario: rounds of work and of racing frees, then the end, when everything must be
//! right.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use freehold::{Error, Immovable, MigrateType, NumaEvents, Order, Request, Watermark};
use freehold_sim::{Faults, Machine};

use super::actor::{Actor, World};
use super::frames::{may_be_interrupted, set_up};
use super::interrupts::Handlers;
use super::ledger::Block;
use super::scenario::Scenario;
use super::tally::Tally;
use crate::designs::DesignName;

/// Blocks that all CPUs free at once after each round.
const FIGHTS: usize = 6;

/// Plays a scenario to its end.
pub(super) fn play(design: DesignName, scenario: &Scenario) -> Result<Tally> {
    let mut machine = scenario.machine()?;
    let frames = set_up(design, scenario, &mut machine)?;
    let world = Rc::new(World::new(scenario, frames, false));
    let handlers = Rc::new(Handlers::new(Rc::clone(&world), scenario.spec.cpus(), scenario.seed));
    if may_be_interrupted(design, scenario) {
        let handlers = Rc::clone(&handlers);
        machine.set_handler(move |handle| handlers.run(handle));
    }
    let mut drama = Drama { scenario, machine, world };
    for round in 0..scenario.rounds {
        handlers.begin();
        drama.work(round)?;
        handlers.leave_all();
        drama.fight()?;
        drama.world.frames.validate().with_context(|| format!("after round {round}"))?;
        drama.count().with_context(|| format!("after round {round}"))?;
    }
    drama.end()?;
    let tally = *drama.world.tally.borrow();
    Ok(tally)
}

struct Drama<'a> {
    scenario: &'a Scenario,
    machine: Machine,
    world: Rc<World>,
}

impl Drama<'_> {
    fn cpus(&self) -> usize {
        self.scenario.spec.cpus()
    }

    /// All CPUs work, and fail, as drawn from the seed.
    fn work(&mut self, round: usize) -> Result<()> {
        let (world, operations) = (Rc::clone(&self.world), self.scenario.operations);
        self.scenario.play_round(&mut self.machine, round, move |handle, seed| {
            Actor::new(Rc::clone(&world), seed).work(handle, operations);
        })
    }

    /// All CPUs free the same blocks at once: each block is freed exactly once.
    fn fight(&mut self) -> Result<()> {
        // A handler could get a frame that one CPU has freed and another is about to: its free
        // would then take it from the handler, and rightly so.
        let interrupts_per_million = 0;
        self.machine.set_faults(Faults { interrupts_per_million, ..self.scenario.faults.clone() });
        let world = Rc::clone(&self.world);
        let frames = &world.frames;
        // Memory is scarce after a round.
        let prizes: Vec<_> = (0..FIGHTS)
            .filter_map(|nth| {
                let order = Order::new([0, 0, 1, 3, 4, 9][nth]);
                let request = Request::new(order)
                    .migratetype(MigrateType::ALL[nth % MigrateType::COUNT])
                    .watermark(Watermark::Ignore);
                let pfn = world.flow.allocating_block(order, || frames.alloc(request)).ok()?;
                Some((Block { pfn, order }, Rc::new(Cell::new(0))))
            })
            .collect();
        let late = || frames.events().double_frees_late.get();
        let late_before = late();
        for cpu in 0..self.cpus() {
            let (world, prizes) = (Rc::clone(&self.world), prizes.clone());
            self.machine.spawn(cpu, move |_| {
                for (block, freed) in &prizes {
                    match world.frames.free(block.pfn, block.order) {
                        Ok(()) => freed.set(freed.get() + 1),
                        Err(Error::DoubleFree) => {}
                        // A block of several frames that another CPU is just freeing.
                        Err(Error::WrongOrder) if block.order > Order::ZERO => {}
                        Err(error) => panic!("{block:?}, freed by several CPUs: {error}"),
                    }
                }
            });
        }
        self.machine.run()?;
        // A design that lets two frees of a single frame pass detects that when it harvests free
        // frames.
        self.drain().context("after blocks were freed by several CPUs")?;
        let found_late = late() - late_before;
        let mut passed = 0;
        for (block, freed) in &prizes {
            let freed = freed.get();
            let may_pass = if block.order == Order::ZERO { found_late } else { 0 };
            ensure!(
                (1..=1 + may_pass).contains(&freed),
                "{block:?}, freed by several CPUs at once, was freed {freed} times"
            );
            passed += freed - 1;
            world.flow.freeing(block.order.frames().get(), || ());
        }
        ensure!(passed == found_late, "{passed} double frees passed, {found_late} were found");
        self.world.tally.borrow_mut().fights += prizes.len() as u64;
        Ok(())
    }

    /// Drains all CPUs, on the machine, which detects if that never ends.
    fn drain(&mut self) -> Result<()> {
        self.machine.set_faults(Faults::default());
        let world = Rc::clone(&self.world);
        self.machine.spawn(0, move |_| world.frames.drain_all());
        self.machine.run()?;
        Ok(())
    }

    /// Nothing is under way: all counters are exact.
    fn count(&self) -> Result<()> {
        let World { frames, ledger, flow, .. } = &*self.world;
        let (events, used) = (frames.events(), ledger.borrow().used());
        ensure!(
            flow.allocated().contains(&events.allocated.get()),
            "of frames allocated, {:?} are possible, but the counters show {events:?}",
            flow.allocated()
        );
        ensure!(
            events.allocated == events.freed + used,
            "{used} are in use, but the counters show {events:?}"
        );
        let mut numa = NumaEvents::default();
        for of_zone in (0..).map_while(|zone| frames.numa_events(zone)) {
            numa.add(&of_zone);
        }
        let NumaEvents { hit, miss, foreign, local, other, interleave_hit } = numa;
        let counted = hit + miss == events.allocated
            && local + other == events.allocated
            && miss == foreign
            && interleave_hit <= hit;
        ensure!(
            counted,
            "{} were allocated, but the NUMA counters show {numa:?}",
            events.allocated
        );
        Ok(())
    }

    /// No more failures: all frames are freed, and all memory is merged again.
    fn end(&mut self) -> Result<()> {
        self.machine.set_faults(Faults::default());
        for cpu in 0..self.cpus() {
            let world = Rc::clone(&self.world);
            self.machine.spawn(cpu, move |_| {
                while world.free_left() {}
                world.frames.drain_all();
            });
        }
        self.machine.run()?;
        let world = &self.world;
        for range in world.late.take() {
            world.ledger.borrow_mut().add_memory(range);
            world.frames.add_memory(range)?;
        }
        // A CPU may have freed its last block to its own list after another one drained it, and
        // frames may have been left unmerged: compaction merges them, and moves nothing.
        world.frames.drain_all();
        let compaction = world.frames.compact(&Immovable);
        ensure!(compaction.migrated.get() == 0, "free memory was compacted: {compaction:?}");
        let census = world.frames.validate().context("at the end")?;
        let (used, managed) = (world.ledger.borrow().used(), world.ledger.borrow().managed());
        ensure!(used.get() == 0, "{used} are still in use at the end");
        ensure!(census.free == managed, "{} of {managed} are free again", census.free);
        let largest = |zone: freehold::ZoneStats| zone.free_blocks[Order::BUDDY_MAX.index()];
        let (whole, blocks) = (
            world.frames.zones().into_iter().map(largest).sum::<u64>(),
            world.ledger.borrow().largest_blocks(),
        );
        ensure!(whole == blocks, "{whole} of {blocks} largest blocks are whole at the end");
        self.count()?;
        self.hand_out_all()
    }

    /// Whatever the allocator says of itself: all frames that the ledger has are handed out when
    /// all are asked for, and free again afterwards.
    fn hand_out_all(&mut self) -> Result<()> {
        let (world, loses_a_frame) = (Rc::clone(&self.world), self.scenario.loses_a_frame);
        self.machine.spawn(0, move |_| {
            if loses_a_frame {
                let lost = world.frames.alloc(Request::default().watermark(Watermark::Ignore));
                lost.expect("all memory is free");
            }
            world.take_all();
        });
        self.machine.run().context("when all memory was asked for")?;
        let managed = self.world.ledger.borrow().managed();
        let (missing, first) = self.world.ledger.borrow().missing();
        if let Some(first) = first {
            let (lost, all) = (missing.get(), managed.get());
            bail!("lost frames: {lost} of {all}, the first at pfn {first:#x}; no count shows it");
        }
        let world = Rc::clone(&self.world);
        self.machine.spawn(0, move |_| {
            while world.free_left() {}
            world.frames.drain_all();
        });
        self.machine.run()?;
        let census = self.world.frames.validate().context("after all memory was handed out")?;
        ensure!(census.free == managed, "{} of {managed} are free once more", census.free);
        self.count()
    }
}

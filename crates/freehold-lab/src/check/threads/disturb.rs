//! A thread beside the workers, which makes every rare call of the allocator.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use freehold::{
    CpuId, Error, FrameCount, Migrate, MigrateError, Order, Pfn, RangeRequest, Request,
};

use super::ground::{Ground, Torture};
use crate::check::movers::refuse_two_in;
use crate::check::tally::ThreadsTally;

/// What it does on any ground, by the names that saved cases have.
const STEPS: [&str; 5] = ["compact", "range", "drain", "validate", "bulk"];

/// The names of its steps, with those that only some ground has.
pub(super) fn steps_on(own: &[&'static str]) -> Vec<&'static str> {
    [&STEPS[..], own].concat()
}

/// A ground that a disturber disturbs in ways of its own as well.
pub(super) trait Disturbed: Ground {
    /// The steps that only this ground has.
    const STEPS: &'static [&'static str];

    /// Does a step that only this ground has.
    fn step(&self, name: &str, by: &mut Disturber<'_, Self>) -> Result<()>;
}

/// The thread.
pub(super) struct Disturber<'a, G: Ground> {
    ground: &'a G,
    torture: &'a Torture<'a, G>,
    pub(super) rng: Rng,
    pub(super) tally: ThreadsTally,
    /// What it stamps frames with that it has.
    stamp: u64,
    /// Steps that are left out.
    without: &'a [String],
    /// How long it pauses before each step.
    pause: Duration,
}

impl<'a, G: Ground> Disturber<'a, G> {
    /// The nth thread, with its seed.
    pub(super) fn new(
        (ground, torture): (&'a G, &'a Torture<'a, G>),
        (nth, seed): (usize, u64),
        without: &'a [String],
        pause: Duration,
    ) -> Self {
        let (rng, tally) = (Rng::with_seed(seed), ThreadsTally::default());
        Disturber { ground, torture, rng, tally, stamp: 1 << 62 | nth as u64, without, pause }
    }

    /// The owner of what workers have in slots, who now and then refuses to move it.
    pub(super) fn owner(&mut self) -> Owner<'a, G> {
        Owner { torture: self.torture, rng: RefCell::new(self.rng.fork()) }
    }

    /// Compacts everything, or for one block.
    fn compact(&mut self) -> Result<()> {
        let (allocator, owner) = (self.ground.allocator(), self.owner());
        self.tally.compactions += 1;
        if self.rng.u8(..4) == 0 {
            self.tally.moves += allocator.compact(&owner).migrated.get();
            return Ok(());
        }
        let order = Order::new(self.rng.u8(1..=Order::BUDDY_MAX.get()));
        match allocator.alloc_compacting(Request::new(order), &owner) {
            Ok(first) => {
                self.look((0..order.frames().get()).map(|nth| first.offset(FrameCount::new(nth))))?;
                Ok(allocator.free(first, order)?)
            }
            Err(Error::OutOfMemory | Error::BelowWatermark) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a range, looks at its frames, and frees it, now and then in two parts.
    fn range(&mut self) -> Result<()> {
        let frames = FrameCount::new(self.rng.u64(1..=1500));
        let request = RangeRequest::new(frames).align(FrameCount::new(1 << self.rng.u8(..=9)));
        let allocator = self.ground.allocator();
        match allocator.alloc_range(request, &self.owner()) {
            Ok(first) => {
                self.look((first.get()..first.get() + frames.get()).map(Pfn::new))?;
                let part = FrameCount::new(self.rng.u64(1..=frames.get() * 2)).min(frames);
                allocator.free_range(first, part)?;
                if part < frames {
                    allocator.free_range(first.offset(part), frames - part)?;
                }
                self.tally.ranges += 1;
                Ok(())
            }
            Err(Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Allocates blocks in bulk, looks at them, and frees them in bulk.
    fn bulk(&mut self) -> Result<()> {
        let order = Order::new([0, 0, 1, 3][self.rng.usize(..4)]);
        let mut out = vec![Pfn::default(); self.rng.usize(1..=300) >> order.get()];
        let count = self.ground.allocator().alloc_bulk(Request::new(order), &mut out)?;
        let frames = |first: &Pfn| first.get()..first.get() + order.frames().get();
        self.look(out[..count].iter().flat_map(frames).map(Pfn::new))?;
        self.ground.allocator().free_bulk(&out[..count], order)?;
        Ok(())
    }

    /// Stamps frames that were handed out: all of them must say that they are free, and nothing
    /// else may stamp them meanwhile.
    pub(super) fn look(&self, frames: impl Iterator<Item = Pfn> + Clone) -> Result<()> {
        let (ground, ours) = (self.ground, self.stamp);
        for pfn in frames.clone() {
            let found = ground.owner(pfn);
            ensure!(found == 0, "{pfn} was handed out, but its owner is {found:#x}");
            ground.set_owner(pfn, ours);
        }
        for pfn in frames {
            let found = ground.owner(pfn);
            ensure!(found == ours, "{pfn} was written to by others: {found:#x}");
            ground.set_owner(pfn, 0);
        }
        Ok(())
    }
}

impl<G: Disturbed> Disturber<'_, G> {
    /// Does one thing after the other until the round is over.
    pub(super) fn disturb(mut self, is_over: &AtomicBool) -> Result<ThreadsTally> {
        let steps = steps_on(G::STEPS);
        // Relaxed: it only says when to end.
        while !is_over.load(Relaxed) {
            let step = steps[self.rng.usize(..steps.len())];
            if self.without.iter().any(|name| name == step) {
                thread::yield_now();
                continue;
            }
            thread::sleep(self.pause);
            self.ground.begin_call();
            self.step(step).with_context(|| format!("while other threads work: {step}"))?;
        }
        Ok(self.tally)
    }

    fn step(&mut self, step: &str) -> Result<()> {
        let allocator = self.ground.allocator();
        match step {
            "compact" => self.compact()?,
            "range" => self.range()?,
            "drain" => {
                let cpu = CpuId::new(self.rng.u32(..allocator.cpus() as u32));
                match self.rng.u8(..4) {
                    0 => allocator.drain_all(),
                    1 => allocator.offline_cpu(cpu)?,
                    2 => allocator.drain(cpu)?,
                    _ => allocator.tick(cpu)?,
                }
            }
            "validate" => {
                allocator.validate()?;
                self.tally.validations += 1;
            }
            "bulk" => self.bulk()?,
            _ => self.ground.step(step, self)?,
        }
        Ok(())
    }
}

/// The owner of what workers have.
pub(super) struct Owner<'a, G: Ground> {
    torture: &'a Torture<'a, G>,
    rng: RefCell<Rng>,
}

impl<G: Ground> Migrate for Owner<'_, G> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        refuse_two_in(&self.rng, 16)?;
        self.torture.migrate(from, to, order)
    }
}

//! The thread beside the workers, which makes every rare call of the allocator.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use freehold::{CpuId, Error, FrameCount, Order, Pfn, RangeRequest, Request};
use freehold_conformance::{Stamps, Torture};
use freehold_host::{FrameArena, HostError};

use super::subject::Arena;
use super::{Disturbed, Words};
use crate::host::HostDesign;

/// What it does, by the names that saved cases have.
const STEPS: [&str; 7] = ["compact", "range", "purge", "resize", "drain", "validate", "bulk"];

/// The names of its steps.
pub(in crate::check) fn steps() -> Vec<&'static str> {
    STEPS.to_vec()
}

/// The thread.
pub(super) struct Disturber<'a, D: HostDesign> {
    pub(super) frames: &'a FrameArena<D>,
    pub(super) torture: &'a Torture<'a, Arena<'a, D>, Words<'a, D>>,
    pub(super) rng: Rng,
    /// Steps that are left out.
    pub(super) without: &'a [String],
    pub(super) pause: Duration,
}

impl<D: HostDesign> Disturber<'_, D> {
    /// Does one thing after the other until the round is over.
    pub(super) fn disturb(mut self, is_over: &AtomicBool) -> Result<Disturbed> {
        let mut tally = Disturbed::default();
        let total = self.frames.total_frames();
        // Relaxed: it only says when to end.
        while !is_over.load(Relaxed) {
            let step = STEPS[self.rng.usize(..STEPS.len())];
            if self.without.iter().any(|name| name == step) {
                thread::yield_now();
                continue;
            }
            thread::sleep(self.pause);
            self.step(step, &mut tally)
                .with_context(|| format!("while other threads work: {step}"))?;
        }
        self.grow_to(total)?;
        Ok(tally)
    }

    fn step(&mut self, step: &str, tally: &mut Disturbed) -> Result<()> {
        let allocator = self.frames.allocator();
        match step {
            "compact" => {
                let done = allocator.compact(self.torture);
                tally.compactions += 1;
                tally.moves += done.migrated.get();
            }
            "range" => self.range(tally)?,
            "purge" => tally.purged += self.frames.purge()?.get(),
            "resize" => self.resize(tally)?,
            "drain" => match self.rng.u8(..3) {
                0 => allocator.drain_all(),
                1 => allocator.offline_cpu(CpuId::new(0))?,
                _ => allocator.tick(CpuId::new(0))?,
            },
            "validate" => {
                allocator.validate()?;
                tally.validations += 1;
            }
            _ => self.bulk()?,
        }
        Ok(())
    }

    /// Takes a range, looks at its frames, and frees it.
    fn range(&mut self, tally: &mut Disturbed) -> Result<()> {
        let frames = FrameCount::new(self.rng.u64(1..=1500));
        let request = RangeRequest::new(frames).align(FrameCount::new(1 << self.rng.u8(..=9)));
        match self.frames.allocator().alloc_range(request, self.torture) {
            Ok(first) => {
                self.look((first.get()..first.get() + frames.get()).map(Pfn::new))?;
                self.frames.allocator().free_range(first, frames)?;
                tally.ranges += 1;
                Ok(())
            }
            Err(Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Allocates frames in bulk, looks at them, and frees them in bulk.
    fn bulk(&mut self) -> Result<()> {
        let mut out = vec![Pfn::default(); self.rng.usize(1..=300)];
        let count = self.frames.allocator().alloc_bulk(Request::default(), &mut out)?;
        self.look(out[..count].iter().copied())?;
        self.frames.allocator().free_bulk(&out[..count], Order::ZERO)?;
        Ok(())
    }

    /// Writes to frames that were handed out: all of them must say that they are free, and nothing
    /// else may write to them meanwhile.
    fn look(&self, frames: impl Iterator<Item = Pfn> + Clone) -> Result<()> {
        const OURS: u64 = 1 << 62;
        let words = Words(self.frames);
        for pfn in frames.clone() {
            let found = words.read(pfn);
            ensure!(found == 0, "{pfn} was handed out, but its owner is {found:#x}");
            words.write(pfn, OURS);
        }
        for pfn in frames {
            let found = words.read(pfn);
            ensure!(found == OURS, "{pfn} was written to by others: {found:#x}");
            words.write(pfn, 0);
        }
        Ok(())
    }

    /// Takes memory away, or adds what is missing.
    fn resize(&mut self, tally: &mut Disturbed) -> Result<()> {
        let total = self.frames.total_frames();
        let bytes = self.rng.usize(1..=8) << 20;
        match self.frames.shrink(bytes, self.torture) {
            Ok(_) => {
                tally.removals += 1;
                self.grow_to(total)
            }
            Err(HostError::Allocator(
                Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy,
            )) => Ok(()),
            Err(HostError::BadSetting { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn grow_to(&self, total: FrameCount) -> Result<()> {
        let missing = total - self.frames.total_frames();
        if missing > FrameCount::ZERO {
            self.frames.grow(self.frames.frame_size().bytes_of(missing))?;
        }
        let now = self.frames.total_frames();
        if now != total {
            bail!("{now} instead of {total} after memory was added again");
        }
        Ok(())
    }
}

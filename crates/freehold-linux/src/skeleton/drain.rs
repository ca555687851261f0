//! Draining: blocks are returned from a CPU's lists to the zone.

use super::{LocalPages, Policy, Skeleton};
use freehold::config::MemoryRange;
use freehold::designs::Context;
use freehold::designs::traits::Upkeep;
use freehold::error::Error;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::{Pin, Platform, SharedCell};
use freehold::request::Request;
use freehold::units::{CpuId, FrameCount};

/// After so many idle ticks, a CPU returns what it caches of another node's zone.
pub(super) const EXPIRE_TICKS: u32 = 3;

impl<P: Platform, Y: Policy<P>> Upkeep<P> for Skeleton<P, Y> {
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error> {
        let hotplug = self.hotplug.get(0).begin(context.platform);
        ranges.iter().try_for_each(|&range| self.add_range(context, range, &hotplug))?;
        // Once for all ranges, since it visits every CPU.
        self.resize(context, &hotplug);
        Ok(())
    }

    fn drain(&self, context: Context<'_, P>, cpu: CpuId) {
        self.drain_cpu(context.platform, context.topology.fold(cpu));
    }

    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        for zone in self.zone_indexes() {
            Y::release_owned(self, context.platform, cpu, zone);
        }
        // After its ownership has ended, so that nothing is remembered for it.
        self.drain_cpu(context.platform, cpu);
    }

    /// Lets the high marks of an idle CPU decay, and returns what it caches of other nodes.
    fn tick(&self, context: Context<'_, P>, cpu: CpuId) {
        let home = context.topology.node_of(cpu);
        let cpu = context.topology.fold(cpu);
        for zone in self.zone_indexes() {
            let pages = self.lock_pcp(context.platform, cpu, zone);
            let mut excess = self.mode.decay(&pages.pcp);
            let batch = pages.pcp.batch.get();
            if self.zone(zone).node() != home && pages.has_expired() {
                excess = excess.max(batch);
            }
            if excess > 0 {
                pages.drain(excess, 0);
            }
        }
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Empties all lists of one CPU.
    pub(super) fn drain_cpu(&self, platform: &P, cpu: usize) {
        self.zone_indexes().for_each(|zone| self.drain_cpu_zone(platform, cpu, zone));
    }

    /// Empties one CPU's lists of a zone.
    fn drain_cpu_zone(&self, platform: &P, cpu: usize, zone: ZoneIndex) {
        // Other CPUs may use the lists between two holds of the lock.
        while self.lock_pcp(platform, cpu, zone).drain_all() {}
    }

    /// Empties the lists of all CPUs whose locks are free; returns whether all were. A call that
    /// has such a lock may be the one that the caller interrupted.
    fn try_drain_all_cpus(&self, context: Context<'_, P>) -> bool {
        let mut all = true;
        for cpu in 0..context.topology.cpus() {
            for zone in self.zone_indexes() {
                match self.try_lock_pinned(context.pin().1, cpu, zone) {
                    Some(pages) => {
                        pages.drain_all();
                    }
                    None => all = false,
                }
            }
        }
        all
    }

    /// Empties the lists of all CPUs, or if the request must not wait, of those whose locks are
    /// free; returns whether it was all.
    pub(super) fn drain_all_cpus_for(&self, context: Context<'_, P>, request: &Request) -> bool {
        match request.may_wait() {
            true => {
                self.drain_all_cpus(context);
                true
            }
            false => self.try_drain_all_cpus(context),
        }
    }

    /// Empties all lists of all CPUs.
    pub(super) fn drain_all_cpus(&self, context: Context<'_, P>) {
        (0..context.topology.cpus()).for_each(|cpu| self.drain_cpu(context.platform, cpu));
    }

    /// Empties all CPUs' lists of a zone.
    pub(super) fn drain_zone(&self, context: Context<'_, P>, zone: ZoneIndex) {
        let cpus = 0..context.topology.cpus();
        cpus.for_each(|cpu| self.drain_cpu_zone(context.platform, cpu, zone));
    }
}

impl<P: Platform, Y: Policy<P>> LocalPages<'_, P, Y> {
    /// Returns at least `frames` frames to the zone, or all that there are, in steps of what one
    /// hold of the zone lock may move. All locks are dropped in between, so that neither other CPUs
    /// nor interrupts wait for a whole list. If another call then has the lists locked, the rest is
    /// left to it. `just_used` is the list that a block was put on last.
    #[cold]
    pub(super) fn drain(mut self, frames: u32, just_used: usize) {
        let LocalPages { design, cpu, zone, .. } = self;
        let platform = self.pcp.platform();
        self.pcp.irqs_as_before(design.books);
        Y::begin_drain(&self);
        let mut left = frames;
        let mut locked = Some(self);
        while let Some(pages) = locked {
            let drained = pages.drain_once(left, just_used);
            drop(pages);
            left = left.saturating_sub(drained.get() as u32);
            if left == 0 || drained == FrameCount::ZERO {
                break;
            }
            locked = design.try_lock_pinned(Pin::new(platform).1, cpu, zone);
        }
    }

    /// Returns `frames` frames to the zone, or all that there are, or as many as one hold of the
    /// zone lock may move; returns how many.
    fn drain_once(&self, frames: u32, just_used: usize) -> FrameCount {
        let LocalPages { design, pcp, .. } = self;
        let wanted = frames.min(design.mode.hold_frames_max(pcp)).min(pcp.count.get());
        let drained = Y::drain(self, wanted, just_used);
        pcp.count.set(pcp.count.get() - drained.get() as u32);
        pcp.expire.set(EXPIRE_TICKS);
        design.books.note(pcp.platform(), || self.per_cpu.events.note_drain(drained));
        design.zone(self.zone).note_drained();
        drained
    }

    /// Empties the lists; returns whether there was something on them.
    fn drain_all(self) -> bool {
        let count = self.pcp.count.get();
        if count > 0 {
            self.drain(count, 0);
        }
        count > 0
    }

    /// Counts down the idle ticks of another node's pages; returns whether they have expired.
    fn has_expired(&self) -> bool {
        let expire = &self.pcp.expire;
        if self.pcp.count.get() == 0 || expire.get() == 0 {
            return false;
        }
        expire.set(expire.get() - 1);
        expire.get() == 0
    }
}

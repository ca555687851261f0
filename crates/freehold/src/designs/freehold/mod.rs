//! Freehold's own design: no zone lock, no free lists, no records of frames.
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | pageblock | 512 frames at an aligned place. Its free frames are bits of eight words |
//! | run | an aligned power of two of frames within a pageblock |
//! | holder | the only writer of a pageblock's bitmap: a CPU, a walker (one call), or none |
//! | CPU cache | the pageblocks that a CPU holds in a zone: active, partial, full, spare |
//! | pool | the whole pageblocks of a zone that no cache holds |
//! | orphan | a partial pageblock without a holder |
//! | level | the free frames of a zone in its pool and orphans |
//! | remote queue | full pageblocks of a cache in which other CPUs have freed frames |
//! | section | a stretch of a call in which it has free frames in hand |
//! | lease | the right of one thread to the caches of a CPU, without their lock |
//!
//! Everywhere else `block` means what users allocate and free.
//!
//! | verb | act |
//! |---|---|
//! | alloc, free | a call of a user, or a stage of one, for a whole block |
//! | take, put | frames out of the bitmap of a pageblock that the call holds, and into one |
//! | acquire, release | to become the holder of a pageblock, and to cease to be |
//! | collect | to move remote frees to the free frames |
//! | list, link; unlink | a pageblock in a list of its cache; out of it |
//! | mark, note | to set a bit that others look at; to count |
//!
//! # Layers
//!
//! `Pageblocks` has the bitmaps and states, and the protocol by which a pageblock changes hands.
//! `Zones` has what no cache holds: pools, orphans, levels. [`Freehold`] has the caches, and the
//! policy by which calls go through them. Each layer knows those below it alone.
//!
//! | a pageblock is | its free frames count as |
//! |---|---|
//! | whole, in the pool; an orphan | free: in the level of the zone |
//! | held by a cache | per-CPU |
//! | isolated: being emptied | isolated |
//! | huge: handed out whole | allocated |
//!
//! A cache takes pageblocks only while the zone stays above its low watermark. Before any call
//! takes frames from below that, all caches are drained, and until the level rises again frames go
//! to and from orphans. So the fast paths need no look at a watermark, and yet the reserves are
//! exact whenever no call is under way; while calls are, each CPU may hold one pageblock more than
//! it should.

use core::fmt;

use crate::Error;
use crate::allocator::PageAllocator;
use crate::config::Config;
use crate::designs::Design;
use crate::memmap::index::ZoneIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::platform::Platform;
use crate::topology::Topology;
use crate::units::{Order, ZoneKind};
use caches::cache::{Cold, CpuCache};
use caches::lock::PerCpu;
use pageblocks::Pageblocks;
use pageblocks::run::ORDER_MAX;
use zones::{Zones, ZonesPlan};

mod caches;
mod contiguous;
mod freeze;
mod inspect;
mod pageblocks;
mod reporting;
mod settings;
mod surplus;
mod zones;

#[cfg(test)]
mod tests;

pub use caches::{Lease, ParkedLease};
pub use settings::{DoubleFree, FreeholdSettings, Pick};

/// The design. What the fast paths read comes first, and fits a cache line with what a platform
/// needs to tell CPUs from each other: a second line, cold, would be waited for after the lock.
#[repr(C)]
pub struct Freehold<P: Platform> {
    /// One for each CPU.
    cpus: Table<PerCpu<P>>,
    zones: Zones<P>,
    /// All zones of CPU 0, then all of CPU 1, and so on.
    caches: Table<Cold<P>>,
}

/// Where the tables of the design lie.
pub struct FreeholdPlan<P: Platform> {
    cpus: TablePlan<PerCpu<P>>,
    caches: TablePlan<Cold<P>>,
    zones: ZonesPlan<P>,
    picks_at_random: bool,
}

impl<P: Platform> Freehold<P> {
    #[inline(always)]
    fn pageblocks(&self) -> &Pageblocks<P> {
        &self.zones.pageblocks
    }

    #[inline(always)]
    fn per_cpu(&self, cpu: usize) -> &PerCpu<P> {
        self.cpus.get(cpu)
    }

    fn cache(&self, cpu: usize, zone: ZoneIndex) -> CpuCache<'_, P> {
        self.cache_of(self.per_cpu(cpu), cpu, zone)
    }

    #[inline(always)]
    fn cache_of<'a>(
        &'a self,
        per_cpu: &'a PerCpu<P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> CpuCache<'a, P> {
        let cold = self.caches.get(self.zones.index_of(cpu, zone));
        CpuCache::new(per_cpu.hot_of(zone).unwrap_or(&cold.hot), cold)
    }
}

// SAFETY: a frame that is handed out had its bit among the free ones, where `add_memory` or a free
// has put it, and has none until it is freed. Tables are moved into the design, and live as long as
// it does.
#[expect(unsafe_code, reason = "states what frames are handed out")]
unsafe impl<P: Platform> Design<P> for Freehold<P> {
    const NAME: &'static str = "freehold";
    const ORDER_MAX: Order = ORDER_MAX;
    type Settings = FreeholdSettings;
    type Plan = FreeholdPlan<P>;

    fn plan(
        config: &Config<'_>,
        settings: &Self::Settings,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error> {
        let (zones, cpus) = (config.zones().count(), config.cpu_nodes.len());
        Ok(FreeholdPlan {
            cpus: layout.table(SectionKind::PerCpu, cpus)?,
            caches: layout.table(SectionKind::PerCpu, cpus * zones)?,
            zones: Zones::plan(config, settings, layout)?,
            picks_at_random: settings.pick == Pick::Random,
        })
    }

    // As all steps of `allocator/build.rs`.
    #[inline(never)]
    fn carve(
        plan: &Self::Plan,
        config: &Config<'_>,
        topology: &Topology,
        _settings: &Self::Settings,
        carver: &mut Carver,
    ) -> Self {
        let best = |cpu| ZoneKind::ALL.map(|limit| topology.best_zone(cpu, limit));
        Freehold {
            // The tables are carved in the order in which they were planned.
            cpus: carver.table(plan.cpus, |cpu| PerCpu::new(best(cpu), plan.picks_at_random)),
            caches: carver.table(plan.caches, |index| Cold::new(index as u64 + 1)),
            zones: Zones::carve(&plan.zones, config, carver),
        }
    }
}

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Whether no call is under way in a section: a stretch that others may have to wait for, like
    /// one in which a call has a lock. While all calls are stopped, the answer stays the same.
    ///
    /// Cost: a look at a word for each CPU and zone.
    pub fn is_quiet(&self) -> bool {
        self.design().zones.is_quiet()
    }
}

impl<P: Platform> fmt::Debug for Freehold<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freehold").finish_non_exhaustive()
    }
}

//! The skeleton of the designs after the kernel's: zones with one lock each, and per-CPU lists in
//! front of them. [`Parts`] is what a design has beside the data here, and [`Policy`] is what it
//! does in another way.
//!
//! Source: Linux 6.12 `mm/page_alloc.c`, and 4.16 for `pcp=fixed`. Deviations: `docs/designs.md`.

use core::fmt;

use crate::bookkeeping::{Bookkeeping, Counters};
use crate::buddy::Tables;
use crate::frame::FrameTable;
use crate::pageblock::BlockTable;
use crate::pcp::{PcpGuard, PerCpuPages};
use crate::pcp_tuning::PcpMode;
use crate::zone::{Zone, ZoneGuard};
use freehold::designs::Context;
use freehold::designs::hotplug::Hotplug;
use freehold::memmap::index::ZoneIndex;
use freehold::memmap::region::Table;
use freehold::platform::{CriticalSection, Pin, Platform};

mod alloc;
mod bulk;
mod compact;
mod counters;
mod drain;
mod free;
mod free_range;
mod freeze;
mod isolate;
mod late;
mod layout;
mod memory;
mod migrate;
mod parts;
mod policy;
mod range;
mod report;
mod settings;
mod validate;
mod walk;

use counters::{CpuEvents, CpuStat};
pub(super) use parts::{OwnTables, Parts};
pub(super) use policy::Policy;
pub(crate) use policy::{drain_lists, for_each_victim, refill_one_by_one};
pub(super) use settings::{NoneOfItsOwn, meaning, word};
pub use settings::{OwnSettings, Pcp, ZonedSettings};

/// A design with one lock per zone.
pub struct Skeleton<P: Platform, Y: Parts<P>> {
    pub(crate) frames: FrameTable<P>,
    pub(crate) blocks: BlockTable<P>,
    zones: Table<Zone<P>>,
    /// What each CPU caches of each zone: all zones of CPU 0, then all of CPU 1, and so on.
    cpus: Table<PerCpu<P, Y>>,
    hotplug: Table<Hotplug<P>>,
    /// In the order of `cpus`.
    stats: Table<CpuStat<P>>,
    pub(crate) mode: PcpMode,
    pub(crate) books: Bookkeeping,
    /// The settings that only this design has.
    pub(crate) own: Y::Settings,
    /// The tables that only this design has.
    pub(crate) tables: Y::Tables,
}

/// The lock of a zone, held, with the design's data beside its free lists.
pub(crate) type Guard<'a, P, Y> =
    ZoneGuard<'a, P, <<Y as Parts<P>>::Tables as OwnTables<P>>::Beside<'a>>;

/// What one CPU caches of one zone, and its counters on their own lines.
pub(crate) struct PerCpu<P: Platform, Y: Parts<P>> {
    pages: PerCpuPages<P>,
    events: CpuEvents<P>,
    pub(crate) own: Y::PerCpu,
}

impl<P: Platform, Y: Parts<P>> Skeleton<P, Y> {
    #[inline(always)]
    pub(crate) fn zone(&self, zone: ZoneIndex) -> &Zone<P> {
        self.zones.get(zone.index())
    }

    #[inline]
    pub(crate) fn lock_zone<'a>(&'a self, platform: &'a P, zone: ZoneIndex) -> Guard<'a, P, Y> {
        self.lock_zone_after(platform, self.books.enter_zone(platform), zone)
    }

    #[inline]
    fn lock_zone_after<'a>(
        &'a self,
        platform: &'a P,
        section: CriticalSection<'a, P>,
        zone: ZoneIndex,
    ) -> Guard<'a, P, Y> {
        let tables = Tables { frames: &self.frames, blocks: &self.blocks };
        self.zone(zone).lock(section, tables, self.tables.of_zone(platform, zone))
    }

    /// Drops a zone lock and counts what was done under it bypassing the lists of any CPU: with
    /// interrupts still off, if counts are to be exact.
    fn unlock_and_note(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        guard: Guard<'_, P, Y>,
        count: impl FnOnce(&CpuEvents<P>),
    ) {
        let cpu = context.cpu_here();
        let count = || count(&self.per_cpu(cpu, zone).events);
        match self.books.counters {
            Counters::Exact => guard.unlock_and_note(count),
            Counters::Relaxed => {
                drop(guard);
                count();
            }
        }
    }

    #[inline(always)]
    pub(crate) fn per_cpu(&self, cpu: usize, zone: ZoneIndex) -> &PerCpu<P, Y> {
        self.cpus.get(cpu * self.zones.len() + zone.index())
    }

    fn stat_of(&self, cpu: usize, zone: ZoneIndex) -> &CpuStat<P> {
        self.stats.get(cpu * self.zones.len() + zone.index())
    }

    /// Takes the lock of the running CPU's pages of a zone, if it is free.
    #[inline(always)]
    fn try_lock_here<'a>(
        &'a self,
        context: Context<'a, P>,
        zone: ZoneIndex,
    ) -> Option<LocalPages<'a, P, Y>> {
        let (cpu, pin) = context.pin();
        self.try_lock_pinned(pin, cpu, zone)
    }

    /// Takes the lock of a CPU's pages of a zone, if it is free, for a caller that is pinned.
    #[inline(always)]
    fn try_lock_pinned<'a>(
        &'a self,
        pin: Pin<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Option<LocalPages<'a, P, Y>> {
        let per_cpu = self.per_cpu(cpu, zone);
        let pcp = per_cpu.pages.try_lock_pinned(pin, self.books)?;
        Some(LocalPages { design: self, pcp, per_cpu, zone, cpu })
    }

    /// Waits for the lock of any CPU's pages of a zone.
    pub(crate) fn lock_pcp<'a>(
        &'a self,
        platform: &'a P,
        cpu: usize,
        zone: ZoneIndex,
    ) -> LocalPages<'a, P, Y> {
        let per_cpu = self.per_cpu(cpu, zone);
        let pcp = per_cpu.pages.lock(platform, self.books);
        LocalPages { design: self, pcp, per_cpu, zone, cpu }
    }

    pub(crate) fn zone_indexes(&self) -> impl Iterator<Item = ZoneIndex> + use<P, Y> {
        (0..self.zones.len() as u16).map(ZoneIndex)
    }
}

/// One CPU's pages of one zone, locked, with what goes with them.
pub struct LocalPages<'a, P: Platform, Y: Parts<P>> {
    pub(crate) design: &'a Skeleton<P, Y>,
    pub(crate) pcp: PcpGuard<'a, P>,
    pub(crate) per_cpu: &'a PerCpu<P, Y>,
    pub(crate) zone: ZoneIndex,
    pub(crate) cpu: usize,
}

impl<'a, P: Platform, Y: Parts<P>> LocalPages<'a, P, Y> {
    /// Takes the lock of their zone.
    #[inline]
    pub(crate) fn lock_zone(&self) -> Guard<'a, P, Y> {
        let LocalPages { design, pcp, zone, .. } = self;
        let section = design.books.enter_zone_from_lists(pcp.platform());
        design.lock_zone_after(pcp.platform(), section, *zone)
    }
}

impl<P: Platform, Y: Parts<P>> fmt::Debug for Skeleton<P, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skeleton").field("policy", &Y::NAME).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use crate::testing::TestPlatform;
    use crate::zone_lock::Baseline;

    #[test]
    fn lists_and_statistics_are_on_lines_of_their_own() {
        type Of = PerCpu<TestPlatform, Baseline>;
        let line_of = |offset: usize| offset / 64;
        let (pages, events) = (offset_of!(Of, pages), offset_of!(Of, events));
        let (pages_end, events_end) = (
            pages + size_of::<PerCpuPages<TestPlatform>>(),
            events + size_of::<CpuEvents<TestPlatform>>(),
        );
        assert!(
            line_of(pages_end - 1) < line_of(events) || line_of(events_end - 1) < line_of(pages)
        );
        // A CPU does not share its lines with the next one.
        assert_eq!((align_of::<Of>(), size_of::<Of>() % 64), (64, 0));
        assert_eq!(size_of::<CpuEvents<TestPlatform>>(), 64, "one line of statistics");
    }
}

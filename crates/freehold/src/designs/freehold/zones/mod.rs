//! The middle layer: memory that no CPU cache holds. It knows no CPU cache.
//!
//! A zone has a *pool*, the set of its whole pageblocks, and *orphans*: partial pageblocks without
//! a holder, in a set for each migratetype, and once more by their largest run. All are trees of
//! bits that need no lock. Its *level* counts the free frames in them. Beside them lies what each
//! CPU has in a zone that others write to as well: its remote queue and its counters.

use super::pageblocks::{FRAMES, PageblockIndex, Pageblocks, PageblocksPlan};
use super::settings::FreeholdSettings;
use crate::Error;
use crate::config::Config;
use crate::designs::hotplug::Hotplug;
use crate::designs::places::usable;
use crate::memmap::index::ZoneIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::memmap::stretches::StretchesPlan;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::MigrateType;
use crate::zone::watermark::Watermark;
use counters::CpuCounters;
use remote_queue::RemoteQueue;
use tree::{Forest, ForestPlan, Tree};
use zone::{Zone, ZoneTrees};

mod counters;
mod hotplug;
mod orphans;
mod pool;
mod remote_queue;
mod report;
mod runs;
mod sections;
mod tree;
pub(super) mod zone;

/// The zones, and the pageblocks in them. What the fast paths need comes first.
#[repr(C)]
pub(crate) struct Zones<P: Platform> {
    pub(crate) pageblocks: Pageblocks<P>,
    zones: Table<Zone<P>>,
    /// All zones of CPU 0, then all of CPU 1, and so on.
    cpu_zones: Table<CpuZone<P>>,
    pub(crate) forest: Forest<P>,
    hotplug: Table<Hotplug<P>>,
    cpus: usize,
}

/// What one CPU has in one zone that other CPUs write to.
pub(crate) struct CpuZone<P: Platform> {
    pub(crate) queue: RemoteQueue<P>,
    pub(crate) counters: CpuCounters<P>,
}

/// Where the tables will lie.
pub(crate) struct ZonesPlan<P: Platform> {
    zones: TablePlan<Zone<P>>,
    hotplug: TablePlan<Hotplug<P>>,
    cpu_zones: TablePlan<CpuZone<P>>,
    forest: ForestPlan<P>,
    pageblocks: PageblocksPlan<P>,
}

/// The trees of a zone: the pool, one a type, and those by runs.
pub(super) const TREES: usize = 1 + MigrateType::COUNT + runs::TREES;

/// The pageblocks that each zone may come to have, by the order of zones: the first, and how many.
///
/// A tree begins at a multiple of 64 pageblocks, counted from frame 0 rather than from the first
/// record, so that aligned runs of pageblocks lie within words. So the first pageblock may lie
/// before that record: then its index wraps.
fn spans<'a>(config: &'a Config<'a>) -> Result<impl Iterator<Item = (u32, usize)> + 'a, Error> {
    let stretches = StretchesPlan::new(config)?;
    let pageblock_of = |frames: u64| frames / u64::from(FRAMES);
    let (before, all) =
        (pageblock_of(stretches.first().get()), pageblock_of(stretches.frames().get()));
    Ok(config.zones().map(move |zone| {
        let places = stretches.places(config);
        let of_zone = places.filter(move |(range, _)| (range.node, range.zone) == zone);
        let ends = of_zone.map(|(_, place)| {
            let last = u64::from(place.end.0 - 1);
            (pageblock_of(place.first.0.into()), pageblock_of(last) + 1)
        });
        let both = ends.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        // Memory may be added anywhere if the configuration names a span or has room.
        let is_fixed = config.span.is_none() && config.room.is_none();
        let (start, end) = both.filter(|_| is_fixed).unwrap_or((0, all));
        let origin = (before + start) / 64 * 64;
        (origin.wrapping_sub(before) as u32, (before + end - origin) as usize)
    }))
}

impl<P: Platform> Zones<P> {
    pub(crate) fn plan(
        config: &Config<'_>,
        settings: &FreeholdSettings,
        layout: &mut LayoutBuilder,
    ) -> Result<ZonesPlan<P>, Error> {
        let (zones, cpus) = (config.zones().count(), config.cpu_nodes.len());
        let words = spans(config)?.map(|(_, pageblocks)| TREES * Tree::words(pageblocks)).sum();
        Ok(ZonesPlan {
            zones: layout.table(SectionKind::Zones, zones)?,
            hotplug: layout.table(SectionKind::Zones, 1)?,
            cpu_zones: layout.table(SectionKind::PerCpu, cpus * zones)?,
            forest: Forest::plan(words, layout)?,
            pageblocks: Pageblocks::plan(config, settings.double_free, layout)?,
        })
    }

    pub(crate) fn carve(plan: &ZonesPlan<P>, config: &Config<'_>, carver: &mut Carver) -> Self {
        let mut zones = config.zones();
        let mut spans = spans(config).expect("the plan has checked the span");
        let mut word = 0;
        Zones {
            // The tables are carved in the order in which they were planned.
            zones: carver.table(plan.zones, |_| {
                let (node, kind) = zones.next().expect("one zone for each planned record");
                let (first_pageblock, pageblocks) = spans.next().expect("one span for each zone");
                let mut tree = || {
                    let (tree, next) = Tree::new(word, pageblocks);
                    word = next;
                    tree
                };
                let (pool, orphans) = (tree(), core::array::from_fn(|_| tree()));
                let runs = tree();
                (1..runs::TREES).for_each(|_| {
                    tree();
                });
                Zone::new(node, kind, ZoneTrees { first_pageblock, pool, orphans, runs })
            }),
            hotplug: carver.table(plan.hotplug, |_| Hotplug::new(config)),
            cpu_zones: carver.table(plan.cpu_zones, |_| CpuZone {
                queue: RemoteQueue::new(),
                counters: CpuCounters::new(),
            }),
            forest: Forest::carve(&plan.forest, carver),
            pageblocks: Pageblocks::carve(&plan.pageblocks, config, carver),
            cpus: config.cpu_nodes.len(),
        }
    }

    /// How many zones there are.
    pub(crate) fn len(&self) -> usize {
        self.zones.len()
    }

    pub(crate) fn indexes(&self) -> impl Iterator<Item = ZoneIndex> + use<P> {
        (0..self.zones.len() as u16).map(ZoneIndex)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Zone<P>> {
        self.zones.iter()
    }

    #[inline(always)]
    pub(crate) fn zone(&self, zone: ZoneIndex) -> &Zone<P> {
        self.zones.get(zone.index())
    }

    #[inline(always)]
    pub(crate) fn try_zone(&self, zone: ZoneIndex) -> Option<&Zone<P>> {
        self.zones.try_get(zone.index())
    }

    /// The zone that a pageblock lies in.
    fn zone_of(&self, pageblock: PageblockIndex) -> &Zone<P> {
        self.zone(self.pageblocks.zone(pageblock))
    }

    pub(crate) fn cpu_count(&self) -> usize {
        self.cpus
    }

    /// The place of what a CPU has for a zone, in an array of them for all CPUs.
    #[inline(always)]
    pub(super) fn index_of(&self, cpu: usize, zone: ZoneIndex) -> usize {
        cpu * self.zones.len() + zone.index()
    }

    pub(crate) fn cpu_zone(&self, cpu: usize, zone: ZoneIndex) -> &CpuZone<P> {
        self.cpu_zones.get(self.index_of(cpu, zone))
    }

    /// The pageblocks of a zone.
    pub(crate) fn pageblocks_of(
        &self,
        zone: ZoneIndex,
    ) -> impl Iterator<Item = PageblockIndex> + '_ {
        let is_there =
            move |block: &PageblockIndex| self.pageblocks.zone_if_any(*block) == Some(zone);
        self.zone(zone).extent().map(PageblockIndex).filter(is_there)
    }

    /// The bit of a pageblock in the trees of its zone.
    #[inline]
    pub(crate) fn bit(&self, pageblock: PageblockIndex) -> usize {
        self.zone_of(pageblock).bit(pageblock)
    }

    /// The pageblock at a bit of the trees of a zone.
    pub(crate) fn pageblock_at(&self, zone: ZoneIndex, bit: usize) -> PageblockIndex {
        PageblockIndex(self.zone(zone).first_pageblock().wrapping_add(bit as u32))
    }

    /// Where a CPU begins to look for pageblocks of a tree: for movable content in a stretch of its
    /// own, and for other content at the bottom of the zone, so that what cannot move stays
    /// together and leaves room for large blocks.
    pub(crate) fn start(&self, tree: &Tree, cpu: usize, migratetype: MigrateType) -> usize {
        match migratetype {
            MigrateType::Movable => tree.stretch(cpu, self.cpus),
            _ => 0,
        }
    }

    /// The zones of the list that the request, whose node is filled in, may use.
    pub(crate) fn usable<'a>(
        &'a self,
        zones: &'a [u16],
        request: &'a Request,
    ) -> impl Iterator<Item = ZoneIndex> + 'a {
        usable(zones, request, |zone| self.zone(zone).node())
    }

    /// Whether the level of a zone lets a request go as deep as `class`.
    pub(crate) fn allows(&self, zone: ZoneIndex, request: &Request, class: Watermark) -> bool {
        let frames = request.order().frames().get();
        self.zone(zone).may_take(frames, class, request.effective_limit())
    }

    /// Whether a zone has a block in the pool or an orphan, and may give it.
    pub(crate) fn serves(&self, zone: ZoneIndex, request: &Request) -> bool {
        self.allows(zone, request, request.depth()) && self.has_run(zone, request.order())
    }
}

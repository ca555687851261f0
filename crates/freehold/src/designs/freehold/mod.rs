//! Freehold's own design: no lock over a zone, nor over anything else that two CPUs need at once.
//!
//! The state of the 512 frames of a pageblock is one bitmap in one cache line, and one CPU holds it
//! in its slot: it alone writes there, by plain loads and stores under a lock that nobody else
//! wants. Everybody else frees frames of it in a second bitmap, by one read-modify-write, which the
//! holder harvests when it runs dry. Buddies need not be merged, since a block is nothing but an
//! aligned run of bits, and no record of a frame is ever touched: there is none.
//!
//! Whole pageblocks wait in a tree of bits that needs no lock either. Those that are neither
//! whole nor held lie in trees by type, and whoever wants to use one becomes its holder first.
//!
//! | a pageblock is | its frames are counted |
//! |---|---|
//! | whole, in the pool | in the level of the zone |
//! | partial, held by nobody | in the level of the zone |
//! | held by a slot: current, on a shelf, aside or in reserve | as kept by the CPU |
//! | isolated: being emptied | as isolated |
//! | huge: handed out whole | not at all |
//!
//! A slot takes pageblocks only while the zone stays above its low watermark. Before anybody takes
//! frames from below that, all slots are drained, and until it rises again frames go to and from
//! pageblocks that nobody keeps. So the fast paths need no look at a watermark, and yet the
//! reserves are exact whenever no call is under way; while calls are, each CPU may hold one
//! pageblock more than it should.

use crate::Error;
use crate::compact::{Compaction, Migrate};
use crate::config::{Config, MemoryRange};
use crate::designs::traits::{Contiguous, Frames, Inspect, Upkeep};
use crate::designs::{Context, Design};
use crate::memmap::index::ZoneIndex;
use crate::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use crate::platform::{LockClass, Platform, RawLock};
use crate::request::{RangeRequest, Request};
use crate::stat::{Census, Events, FreeByType, NumaEvents, Violation, ZoneStats};
use crate::topology::Topology;
use crate::units::{CpuId, FrameCount, FrameSize, MigrateType, Order, Pfn, ZoneKind};

use blocks::{Blocks, BlocksPlan, FRAMES};
use guard::Home;
use slot::{Cold, Slot};
use tree::{Forest, ForestPlan, Tree};
use zone::{Zone, ZoneTrees};

mod alloc;
mod at_hand;
mod blocks;
mod bulk;
mod compact;
mod compactor;
mod direct;
mod drain;
mod empty;
mod free;
mod free_range;
mod freeze;
mod guard;
mod hold;
mod huge;
mod isolate;
mod lease;
mod memory;
mod mend;
mod migrate;
mod parts;
mod range;
mod refill;
mod report;
mod revocable;
mod runs;
mod sections;
mod settings;
mod slot;
mod span;
mod spares;
mod stat;
mod state;
mod tree;
mod validate;
mod zone;

pub use lease::Lease;
pub use revocable::{ParkedLease, RevocableLease};
pub use settings::{DoubleFree, FreeholdSettings, Pick};

/// The design. What the fast paths need comes first, and fits a cache line with what a platform
/// needs to tell CPUs from each other.
#[repr(C)]
pub struct Freehold<P: Platform> {
    blocks: Blocks<P>,
    /// One for each CPU.
    homes: Table<Home<P>>,
    zones: Table<Zone<P>>,
    /// All zones of CPU 0, then all of CPU 1, and so on.
    slots: Table<Cold<P>>,
    forest: Forest<P>,
    hotplug: Table<Hotplug<P>>,
}

/// What adding memory is done under: one addition at a time.
struct Hotplug<P: Platform> {
    lock: P::Lock,
    /// The configured `min_free`.
    min_free: Option<FrameCount>,
    frame_size: FrameSize,
}

/// Where the tables of the design lie.
pub struct FreeholdPlan<P: Platform> {
    zones: TablePlan<Zone<P>>,
    hotplug: TablePlan<Hotplug<P>>,
    homes: TablePlan<Home<P>>,
    slots: TablePlan<Cold<P>>,
    forest: ForestPlan<P>,
    blocks: BlocksPlan<P>,
    picks_at_random: bool,
}

/// The pageblocks that each zone may come to have, by the order of zones: the first, and how many.
///
/// A tree begins at a multiple of 64 pageblocks of all memory, not of the span, so that aligned
/// runs of them lie within words. So the first may lie before the span: its number wraps.
fn spans<'a>(config: &'a Config<'a>) -> Result<impl Iterator<Item = (u32, usize)> + 'a, Error> {
    let (first, frames) = config.span_of_blocks()?;
    let block_of = |pfn: Pfn| pfn.get() / u64::from(FRAMES);
    let whole = (block_of(first), block_of(first.offset(frames)));
    Ok(config.zones().map(move |zone| {
        let ranges = || config.ranges.iter().filter(move |range| (range.node, range.zone) == zone);
        let starts = ranges().map(|range| block_of(range.start));
        let ends = ranges().map(|range| block_of(Pfn::new(range.end().get() - 1)) + 1);
        // Memory may be added anywhere in a span that the configuration names.
        let (start, end) = match (config.span, starts.min(), ends.max()) {
            (None, Some(start), Some(end)) => (start, end),
            _ => whole,
        };
        let origin = start / 64 * 64;
        (origin.wrapping_sub(whole.0) as u32, (end - origin) as usize)
    }))
}

/// The trees of a zone: the pool, and one a type.
const TREES: usize = 1 + MigrateType::COUNT;

impl<P: Platform> Freehold<P> {
    #[inline(always)]
    fn zone(&self, zone: ZoneIndex) -> &Zone<P> {
        self.zones.get(zone.index())
    }

    #[inline(always)]
    fn home(&self, cpu: usize) -> &Home<P> {
        self.homes.get(cpu)
    }

    fn slot(&self, cpu: usize, zone: ZoneIndex) -> Slot<'_, P> {
        self.slot_of(self.home(cpu), cpu, zone)
    }

    #[inline(always)]
    fn slot_of<'a>(&'a self, home: &'a Home<P>, cpu: usize, zone: ZoneIndex) -> Slot<'a, P> {
        let cold = self.slots.get(cpu * self.zones.len() + zone.index());
        Slot::new(home.hot_of(zone).unwrap_or(&cold.hot), cold)
    }

    fn zone_indexes(&self) -> impl Iterator<Item = ZoneIndex> + use<P> {
        (0..self.zones.len() as u16).map(ZoneIndex)
    }

    fn pfn_of(&self, frame: u32) -> Pfn {
        self.blocks.pfn_of(frame)
    }

    fn cpus(&self) -> usize {
        self.homes.len()
    }
}

impl<P: Platform> Design<P> for Freehold<P> {
    const NAME: &'static str = "freehold";
    const ORDER_MAX: Order = Order::new(18);
    type Settings = FreeholdSettings;
    type Plan = FreeholdPlan<P>;

    fn plan(
        config: &Config<'_>,
        settings: &Self::Settings,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error> {
        let (zones, cpus) = (config.zones().count(), config.cpu_nodes.len());
        let words = spans(config)?.map(|(_, blocks)| TREES * Tree::words(blocks)).sum();
        Ok(FreeholdPlan {
            zones: layout.table(SectionKind::Zones, zones)?,
            hotplug: layout.table(SectionKind::Zones, 1)?,
            homes: layout.table(SectionKind::PerCpu, cpus)?,
            slots: layout.table(SectionKind::PerCpu, cpus * zones)?,
            forest: Forest::plan(words, layout)?,
            blocks: Blocks::plan(config, settings.double_free, layout)?,
            picks_at_random: settings.pick == Pick::Random,
        })
    }

    fn carve(
        plan: Self::Plan,
        config: &Config<'_>,
        topology: &Topology,
        _settings: &Self::Settings,
        carver: &mut Carver,
    ) -> Self {
        let best = |cpu| ZoneKind::ALL.map(|limit| topology.best_zone(cpu, limit));
        let mut zones = config.zones();
        let mut spans = spans(config).expect("the plan has checked the span");
        let mut word = 0;
        Freehold {
            // The tables are carved in the order in which they were planned.
            zones: carver.table(plan.zones, |_| {
                let (node, kind) = zones.next().expect("one zone for each planned record");
                let (first_block, blocks) = spans.next().expect("one span for each zone");
                let mut tree = || {
                    let (tree, next) = Tree::new(word, blocks);
                    word = next;
                    tree
                };
                let (pool, partial) = (tree(), core::array::from_fn(|_| tree()));
                Zone::new(node, kind, ZoneTrees { first_block, pool, partial })
            }),
            hotplug: carver.table(plan.hotplug, |_| Hotplug {
                lock: P::Lock::new(LockClass::Hotplug),
                min_free: config.min_free,
                frame_size: config.frame_size,
            }),
            homes: carver.table(plan.homes, |cpu| Home::new(best(cpu), plan.picks_at_random)),
            slots: carver
                .table(plan.slots, |index| Cold::new(index as u64 + 1, config.cpu_nodes.len())),
            forest: Forest::carve(&plan.forest, carver),
            blocks: Blocks::carve(&plan.blocks, carver),
        }
    }
}

impl<P: Platform> Frames<P> for Freehold<P> {
    #[inline(always)]
    fn alloc_at_hand(&self, context: Context<'_, P>, request: Request) -> Option<Pfn> {
        self.take_at_hand(context, request)
    }

    fn alloc(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
    ) -> Result<Pfn, Error> {
        self.alloc_slowly(context, zones, &request).map(|frame| self.blocks.pfn_of(frame))
    }

    #[inline(always)]
    fn free(&self, context: Context<'_, P>, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.free_block(context, pfn, order)
    }
}

impl<P: Platform> Contiguous<P> for Freehold<P> {
    fn alloc_compacting(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        self.alloc_or_compact(context, zones, &request, owner)
    }

    fn compact(&self, context: Context<'_, P>, owner: &dyn Migrate) -> Compaction {
        self.compact_all(context, owner)
    }

    fn alloc_range(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &RangeRequest,
        owner: &dyn Migrate,
    ) -> Result<Pfn, Error> {
        self.alloc_contiguous(context, zones, request, owner)
    }

    fn free_range(
        &self,
        context: Context<'_, P>,
        first: Pfn,
        frames: FrameCount,
    ) -> Result<(), Error> {
        self.free_contiguous(context, first, frames)
    }
}

impl<P: Platform> Upkeep<P> for Freehold<P> {
    fn add_memory(&self, context: Context<'_, P>, ranges: &[MemoryRange]) -> Result<(), Error> {
        ranges.iter().try_for_each(|&range| self.add_range(context, range))
    }

    fn drain(&self, context: Context<'_, P>, cpu: CpuId) {
        let cpu = context.topology.fold(cpu);
        for zone in self.zone_indexes() {
            self.drain_slot(context, cpu, zone);
        }
    }

    fn offline_cpu(&self, context: Context<'_, P>, cpu: CpuId) {
        self.retire(context, context.topology.fold(cpu));
    }

    fn tick(&self, context: Context<'_, P>, cpu: CpuId) {
        self.tidy(context, context.topology.fold(cpu));
    }

    fn freeze(&self, context: Context<'_, P>) {
        self.hold_all(context);
    }

    fn thaw(&self, context: Context<'_, P>) {
        self.let_all_go(context);
    }

    fn thaw_copy(&self, context: Context<'_, P>) {
        self.mend();
        self.let_all_go(context);
    }
}

impl<P: Platform> Inspect<P> for Freehold<P> {
    fn zone_stats(&self, _context: Context<'_, P>, index: usize) -> Option<ZoneStats> {
        (index < self.zones.len()).then(|| self.stats_of(ZoneIndex(index as u16)))
    }

    fn numa_events(&self, context: Context<'_, P>, index: usize) -> Option<NumaEvents> {
        self.numa_of(context, index)
    }

    fn free_by_type(&self, _context: Context<'_, P>, index: usize) -> Option<FreeByType> {
        (index < self.zones.len()).then(|| self.count_by_type(ZoneIndex(index as u16)))
    }

    fn events(&self, context: Context<'_, P>) -> Events {
        self.sum_events(context)
    }

    fn validate(&self, context: Context<'_, P>) -> Result<Census, Violation> {
        self.check_books(context)
    }
}

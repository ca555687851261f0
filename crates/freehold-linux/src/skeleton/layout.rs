//! Where the tables of a design lie in the metadata, and their first values.

use super::counters::{CpuEvents, CpuStat};
use super::{OwnTables, Parts, PerCpu, Policy, Skeleton, ZonedSettings};
use crate::bookkeeping::Bookkeeping;
use crate::frame::{FrameTable, FrameTablePlan};
use crate::pageblock::{BlockTable, BlockTablePlan};
use crate::pcp::PerCpuPages;
use crate::pcp_tuning::PcpMode;
use crate::zone::Zone;
use freehold::Error;
use freehold::config::Config;
use freehold::designs::Design;
use freehold::designs::hotplug::Hotplug;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, TablePlan};
use freehold::platform::Platform;
use freehold::topology::Topology;
use freehold::units::Order;

/// Where the tables of the design lie.
pub struct SkeletonPlan<P: Platform, Y: Parts<P>> {
    zones: TablePlan<Zone<P>>,
    hotplug: TablePlan<Hotplug<P>>,
    blocks: BlockTablePlan<P>,
    cpus: TablePlan<PerCpu<P, Y>>,
    tables: <Y::Tables as OwnTables<P>>::Plan,
    frames: FrameTablePlan<P>,
    stats: TablePlan<CpuStat<P>>,
    mode: PcpMode,
    books: Bookkeeping,
}

// SAFETY: a frame that is handed out was on a list, where `add_memory` or a free has put it, and is
// on none until it is freed. Tables are moved into the skeleton, and live as long as it does.
#[expect(unsafe_code, reason = "states what frames are handed out")]
unsafe impl<P: Platform, Y: Policy<P>> Design<P> for Skeleton<P, Y> {
    const NAME: &'static str = Y::NAME;
    const ORDER_MAX: Order = Order::BUDDY_MAX;
    type Settings = ZonedSettings<Y::Settings>;
    type Plan = SkeletonPlan<P, Y>;

    fn plan(
        config: &Config<'_>,
        settings: &Self::Settings,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error> {
        let zones = config.zones().count();
        let per_cpus = config.cpu_nodes.len() * zones;
        let mode = settings.mode()?;
        Ok(SkeletonPlan {
            mode,
            books: settings.bookkeeping(),
            zones: layout.table(SectionKind::Zones, zones)?,
            hotplug: layout.table(SectionKind::Zones, 1)?,
            blocks: BlockTablePlan::new(config, Y::MERGES_LATE, layout)?,
            cpus: layout.table(SectionKind::PerCpu, per_cpus)?,
            tables: Y::Tables::plan(config, mode, layout)?,
            frames: FrameTablePlan::new(config, layout)?,
            stats: layout.table(SectionKind::PerCpu, per_cpus)?,
        })
    }

    // As all steps of `allocator/build.rs`.
    #[inline(never)]
    fn carve(
        plan: &Self::Plan,
        config: &Config<'_>,
        _topology: &Topology,
        settings: &Self::Settings,
        carver: &mut Carver,
    ) -> Self {
        let mut zones = config.zones();
        Skeleton {
            // The tables are carved in the order in which they were planned.
            zones: carver.table(plan.zones, |_| {
                let (node, kind) = zones.next().expect("one zone for each planned record");
                Zone::new(node, kind)
            }),
            hotplug: carver.table(plan.hotplug, |_| Hotplug::new(config)),
            blocks: BlockTable::carve(&plan.blocks, carver),
            cpus: carver.table(plan.cpus, |_| PerCpu {
                pages: PerCpuPages::new(),
                events: CpuEvents::new(),
                own: Y::PerCpu::default(),
            }),
            tables: Y::Tables::carve(&plan.tables, config, plan.mode, carver),
            frames: FrameTable::carve(&plan.frames, config, carver),
            stats: carver.table(plan.stats, |_| CpuStat::new()),
            mode: plan.mode,
            books: plan.books,
            own: settings.own.clone(),
        }
    }
}

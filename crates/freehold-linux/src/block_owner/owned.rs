//! The partial blocks that a CPU remembers: pageblocks that it owns and whose free frames, or some
//! of them, are on the zone's lists, so that a refill can fetch them back.
//!
//! Owners and lists are written only under the zone lock. Any CPU that returns frames of an owned
//! block to the zone, the owner or another, makes the block remembered. When all its frames have
//! met there, it has no owner any more.

use crate::buddy::{Beside, Tables};
use crate::pageblock::BlockTable;
use crate::pcp_tuning::PcpMode;
use crate::skeleton::OwnTables;
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::End;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::memmap::stretches::StretchesPlan;
use freehold::platform::{Platform, SharedCell};
use freehold::units::Order;

/// The policy under which CPUs own pageblocks.
#[derive(Debug)]
pub struct Owners;

/// No block: the end of a list.
const NONE: u32 = u32::MAX;

/// The links of a block that its owner remembers.
struct Links<P: Platform> {
    next: P::Cell<u32>,
    prev: P::Cell<u32>,
    /// Whether the block is on its owner's list.
    listed: P::Cell<u32>,
}

/// The partial blocks of all CPUs.
pub struct OwnedBlocks<P: Platform> {
    /// By pageblock.
    links: Table<Links<P>>,
    /// The first block of each CPU's list: all zones of CPU 0, then all of CPU 1, and so on.
    heads: Table<P::Cell<u32>>,
    zones: usize,
}

/// Where the tables lie.
pub struct OwnedBlocksPlan<P: Platform> {
    links: TablePlan<Links<P>>,
    heads: TablePlan<P::Cell<u32>>,
    zones: usize,
}

impl<P: Platform> OwnTables<P> for OwnedBlocks<P> {
    type Plan = OwnedBlocksPlan<P>;
    type Beside<'a> = ZoneOwned<'a, P>;

    fn plan(
        config: &Config<'_>,
        _mode: PcpMode,
        layout: &mut LayoutBuilder,
    ) -> Result<OwnedBlocksPlan<P>, Error> {
        let frames = StretchesPlan::new(config)?.frames();
        let blocks = (frames.get() >> Order::PAGEBLOCK.get()) as usize;
        let zones = config.zones().count();
        Ok(OwnedBlocksPlan {
            links: layout.table(SectionKind::Blocks, blocks)?,
            heads: layout.table(SectionKind::PerCpu, config.cpu_nodes.len() * zones)?,
            zones,
        })
    }

    fn carve(
        plan: &OwnedBlocksPlan<P>,
        _config: &Config<'_>,
        _mode: PcpMode,
        carver: &mut Carver,
    ) -> Self {
        let cell = |value| P::Cell::new(value);
        let links = |_| Links { next: cell(NONE), prev: cell(NONE), listed: cell(0) };
        OwnedBlocks {
            links: carver.table(plan.links, links),
            heads: carver.table(plan.heads, |_| cell(NONE)),
            zones: plan.zones,
        }
    }

    fn of_zone<'a>(&'a self, _platform: &'a P, zone: ZoneIndex) -> ZoneOwned<'a, P> {
        ZoneOwned { table: self, zone }
    }
}

impl<P: Platform> OwnedBlocks<P> {
    fn links(&self, pageblock: FrameIndex) -> &Links<P> {
        self.links.get(pageblock.index() >> Order::PAGEBLOCK.get())
    }
}

/// The partial blocks of one zone, by CPU. All methods require the zone lock.
pub struct ZoneOwned<'a, P: Platform> {
    table: &'a OwnedBlocks<P>,
    zone: ZoneIndex,
}

impl<P: Platform> ZoneOwned<'_, P> {
    fn head(&self, cpu: usize) -> &P::Cell<u32> {
        self.table.heads.get(cpu * self.table.zones + self.zone.index())
    }

    /// The blocks that a CPU remembers, the latest first. The caller may change the list once it
    /// has asked for the next block.
    pub(super) fn remembered(&self, cpu: usize) -> impl Iterator<Item = FrameIndex> {
        let decode = |link: u32| (link != NONE).then_some(FrameIndex(link));
        let mut next = decode(self.head(cpu).get());
        core::iter::from_fn(move || {
            let block = next?;
            next = decode(self.table.links(block).next.get());
            Some(block)
        })
    }

    /// Puts a block on its owner's list, if it is not there.
    fn remember(&self, pageblock: FrameIndex, cpu: usize) {
        let links = self.table.links(pageblock);
        if links.listed.get() != 0 {
            return;
        }
        let head = self.head(cpu);
        links.listed.set(1);
        links.prev.set(NONE);
        links.next.set(head.get());
        if head.get() != NONE {
            self.table.links(FrameIndex(head.get())).prev.set(pageblock.0);
        }
        head.set(pageblock.0);
    }

    /// Takes a block off its owner's list, if it is there.
    pub(super) fn forget(&self, pageblock: FrameIndex, cpu: usize) {
        let links = self.table.links(pageblock);
        if links.listed.get() == 0 {
            return;
        }
        let (next, prev) = (links.next.get(), links.prev.get());
        match prev {
            NONE => self.head(cpu).set(next),
            prev => self.table.links(FrameIndex(prev)).next.set(next),
        }
        if next != NONE {
            self.table.links(FrameIndex(next)).prev.set(prev);
        }
        links.listed.set(0);
    }

    /// Ends the ownership of a block, if it has an owner.
    pub(super) fn disown(&self, blocks: &BlockTable<P>, pageblock: FrameIndex) {
        if let Some(cpu) = blocks.owner(pageblock) {
            self.forget(pageblock, cpu);
            blocks.set_owner(pageblock, None);
        }
    }
}

impl<P: Platform> Beside<P> for ZoneOwned<'_, P> {
    fn inserted(&self, tables: &Tables<'_, P>, block: FrameIndex, order: Order, _end: End) {
        if order < Order::PAGEBLOCK
            && let Some(cpu) = tables.blocks.owner(block)
        {
            self.remember(block.head(Order::PAGEBLOCK), cpu);
        }
    }

    fn completed(&self, tables: &Tables<'_, P>, pageblock: FrameIndex) {
        self.disown(tables.blocks, pageblock);
    }

    fn retyped(&self, tables: &Tables<'_, P>, pageblock: FrameIndex) {
        self.disown(tables.blocks, pageblock);
    }
}

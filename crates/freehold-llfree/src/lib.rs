//! The algorithm of LLFree as a design for [Freehold](freehold): no lock and no list.
//!
//! Source: L. Wrenger, F. Rommel, A. Halbuer, C. Dietrich, D. Lohmann, *LLFree: Scalable and
//! Optionally-Persistent Page-Frame Allocation*, USENIX ATC 2023. The code is our own.
//!
//! From the bottom: the entry of a child (`entry`), blocks as bits (`block`), the lower allocator
//! of both (`lower`, `release`), trees of 32 children (`trees`), what a CPU has reserved (`local`),
//! a zone (`zone`); then the calls (`alloc`, `free`, `upkeep`), content that moves (`isolate`,
//! `range`, `compact`), and what the design says of itself (`report`, `census`, `freeze`).
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | child | a pageblock: a bitfield, and an entry with the count of its free frames |
//! | tree | 32 children side by side, of one zone, and the count of what may be taken of them |
//! | to reserve | to take a tree's count, so that no other CPU chooses the tree |
//!
//! A count is a promise: whoever lowers it finds as many frames below. So an allocation lowers the
//! counts of the reservation or tree, then of a child, then takes bits; a free goes the other way.
//!
//! # Deviations
//!
//! What the allocator's other calls need, and the paper has not:
//!
//! * Entries are pairs in words of 32 bits, so that a block of two children is one step too.
//! * Two more bits a frame say which frames are one block, and which content cannot move. A single
//!   movable frame writes neither, and its free reads both. So a free of a part, of too much, or of
//!   what is free is refused or done as with the other designs.
//! * A block of more than a word (64 frames) and less than a child is freed or halved with its
//!   words marked and interrupts off: who frees one of its frames at the same time waits.
//! * Trees are of one zone, and zones may share their children: an allocation checks the child's.
//! * Watermarks are checked when a tree is reserved, against the sum of all trees' counts. The sum
//!   ends as soon as it is enough, so it costs a few lines, and all of the zone's trees (four bytes
//!   for 64 MiB) when memory is low. Below the low watermark nothing is reserved: every allocation
//!   takes from the count of a tree.
//! * No migratetypes: unmovable content goes wherever other content goes.
//! * Compaction isolates a child. For a request its content goes to any other one, as for a range;
//!   when all memory is compacted, further up. The paper leaves that to Linux.
//! * Bulk calls are loops.
//! * What was allocated and freed is counted by CPU: a locked step in each call, on its own line.
//! * A call that finds nothing waits for those that have frames in hand on the way from a tree to a
//!   reservation, or back; to say so takes two locked steps, on their own line.
//! * After four frees of one tree in a row a CPU reserves it, as in the paper, unless that would
//!   leave the zone below its low watermark.

#![no_std]
#![deny(unsafe_code)]

use core::fmt;

use crate::block::Word32;
use crate::local::Local;
use crate::lower::{Lower, LowerPlan};
use crate::trees::Trees;
use crate::zone::Zone;
use freehold::config::Config;
use freehold::designs::hotplug::Hotplug;
use freehold::designs::{Design, Setting, SettingError, Settings};
use freehold::memmap::index::ZoneIndex;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::Platform;
use freehold::topology::Topology;
use freehold::{Error, Order};

mod alloc;
mod block;
mod census;
mod compact;
mod entry;
mod free;
mod freeze;
mod isolate;
mod local;
mod lower;
mod range;
mod release;
mod report;
mod trees;
mod upkeep;
mod zone;

/// The example of the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The design.
pub struct Llfree<P: Platform> {
    lower: Lower<P>,
    trees: Trees<P>,
    zones: Table<Zone<P>>,
    /// All zones of CPU 0, then all of CPU 1, and so on.
    locals: Table<Local<P>>,
    hotplug: Table<Hotplug<P>>,
}

/// Where the tables of the design lie.
pub struct LlfreePlan<P: Platform> {
    lower: LowerPlan<P>,
    trees: TablePlan<Word32<P>>,
    zones: TablePlan<Zone<P>>,
    locals: TablePlan<Local<P>>,
    hotplug: TablePlan<Hotplug<P>>,
}

/// The settings: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LlfreeSettings;

impl Settings for LlfreeSettings {
    const TABLE: &'static [Setting] = &[];

    fn set(&mut self, _: &str, _: &str) -> Result<(), SettingError> {
        Err(SettingError::UnknownName)
    }

    fn for_each(&self, _: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {}
}

impl<P: Platform> Llfree<P> {
    fn zone(&self, zone: ZoneIndex) -> &Zone<P> {
        self.zones.get(zone.index())
    }

    fn zone_indexes(&self) -> impl Iterator<Item = ZoneIndex> + use<P> {
        (0..self.zones.len() as u16).map(ZoneIndex)
    }

    #[inline]
    fn local(&self, cpu: usize, zone: ZoneIndex) -> &Local<P> {
        self.locals.get(cpu * self.zones.len() + zone.index())
    }

    fn cpus(&self) -> usize {
        self.locals.len() / self.zones.len()
    }

    /// What all CPUs have of a zone.
    fn locals_of(&self, zone: ZoneIndex) -> impl Iterator<Item = &Local<P>> {
        self.locals.iter().skip(zone.index()).step_by(self.zones.len())
    }
}

// SAFETY: a frame that is handed out had a bit of its child's, or the child's whole entry, among
// the free ones, where `add_memory` or a free has put it, and one step took it from there. It is
// not free again until it is freed. Tables are moved into the design, and live as long as it does.
#[expect(unsafe_code, reason = "states what frames are handed out")]
unsafe impl<P: Platform> Design<P> for Llfree<P> {
    const NAME: &'static str = "llfree";
    const ORDER_MAX: Order = ORDER_MAX;
    type Settings = LlfreeSettings;
    type Plan = LlfreePlan<P>;

    fn plan(
        config: &Config<'_>,
        _settings: &Self::Settings,
        layout: &mut LayoutBuilder<'_>,
    ) -> Result<Self::Plan, Error> {
        let zones = config.zones().count();
        let lower = LowerPlan::new(config, layout)?;
        Ok(LlfreePlan {
            trees: layout.table(SectionKind::Bitmaps, lower.trees() * zones)?,
            lower,
            zones: layout.table(SectionKind::Zones, zones)?,
            locals: layout.table(SectionKind::PerCpu, config.cpu_nodes.len() * zones)?,
            hotplug: layout.table(SectionKind::Zones, 1)?,
        })
    }

    // As all steps of `allocator/build.rs`.
    #[inline(never)]
    fn carve(
        plan: &Self::Plan,
        config: &Config<'_>,
        _topology: &Topology,
        _settings: &Self::Settings,
        carver: &mut Carver,
    ) -> Self {
        let (mut zones, per_zone) = (config.zones(), plan.lower.trees() as u32);
        Llfree {
            // The tables are carved in the order in which they were planned.
            lower: Lower::carve(&plan.lower, config, carver),
            trees: Trees { table: carver.zero_table(plan.trees, |_| Word32::zero()), per_zone },
            zones: carver.table(plan.zones, |_| {
                let (node, kind) = zones.next().expect("one zone for each planned record");
                Zone::new(node, kind)
            }),
            locals: carver.table(plan.locals, |_| Local::new()),
            hotplug: carver.table(plan.hotplug, |_| Hotplug::new(config)),
        }
    }
}

/// The largest block: two children, or one if no larger block is of use.
const ORDER_MAX: Order = {
    let pair = Order::PAGEBLOCK.up();
    if pair.get() < Order::BUDDY_MAX.get() { pair } else { Order::BUDDY_MAX }
};

impl<P: Platform> fmt::Debug for Llfree<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Llfree").finish_non_exhaustive()
    }
}

//! An allocator or an LRU on a simulated machine: its metadata in a region, labelled and with home
//! nodes.

#![expect(unsafe_code, reason = "lends a region to an allocator, or an LRU, as its metadata")]

use std::ops::{Deref, Range};

use freehold::memmap::stretches::StretchesPlan;
use freehold::platform::Platform;
use freehold::{
    Config, Design, Error, Metadata, MetadataLayout, MetadataSection, NodeId, Order, PageAllocator,
    SectionKind,
};
use freehold_lru::{Lru, LruSettings, Owner};

use crate::machine::Machine;
use crate::platform::Sim;
use crate::region::{Home, Region};
use crate::spec::Picos;

/// An allocator whose metadata lies in a [`Region`] of a machine, so that every access to it is
/// charged.
///
/// Cache misses are reported by the sections of the layout. The records of frames, pageblocks and
/// zones have their home on the node of their frames, those of CPUs on the CPU's node, as in Linux.
pub struct SimFrames<D: Design<P>, P: Platform = Sim> {
    // Fields are dropped in this order: the allocator goes before the memory of its metadata.
    allocator: PageAllocator<P, D>,
    /// Keeps the metadata alive.
    _region: Region,
}

impl<D: Design<P>, P: Platform> SimFrames<D, P> {
    /// Builds an allocator on `machine`, outside virtual time and at no cost. `platform` is
    /// [`Sim`], or something that wraps its storage.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::layout`] and [`PageAllocator::new`].
    pub fn new(
        machine: &mut Machine,
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
    ) -> Result<Self, Error> {
        let layout = PageAllocator::<P, D>::layout(config, settings)?;
        let region = map(machine, config, &layout);
        // SAFETY: The region is new, no other code gets access to it, and this value keeps it until
        // the allocator is gone: see the order of the fields.
        let metadata = unsafe { Metadata::from_raw_parts(region.as_ptr(), region.len()) };
        let allocator = PageAllocator::new(platform, config, settings, metadata)?;
        Ok(SimFrames { allocator, _region: region })
    }
}

impl<D: Design<P>, P: Platform> Deref for SimFrames<D, P> {
    type Target = PageAllocator<P, D>;

    fn deref(&self) -> &PageAllocator<P, D> {
        &self.allocator
    }
}

impl<D: Design<P>, P: Platform> std::fmt::Debug for SimFrames<D, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimFrames")
    }
}

/// What Linux's LRU costs beside this library's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruCosts {
    /// Whether what it knows of a frame is in the line of the allocator's record of it, as both are
    /// in `struct page`; in a line of its own if the allocator has none of 64 bytes. Otherwise four
    /// frames share a line.
    pub in_page: bool,
    /// Computation that comes with each access of its data, in picoseconds.
    pub work_ps: Picos,
}

/// An LRU on a simulated machine, with its metadata in its own region.
pub struct SimLru<O: Owner, P: Platform = Sim> {
    // Dropped in this order, as in `SimFrames`.
    lru: Lru<P, O>,
    /// Keeps the metadata alive.
    _region: Region,
}

impl<O: Owner, P: Platform> SimLru<O, P> {
    /// Builds an LRU on `machine`, outside virtual time and at no cost.
    ///
    /// # Errors
    ///
    /// Those of [`Lru::layout`] and [`Lru::new`].
    pub fn new(
        machine: &mut Machine,
        platform: P,
        config: &Config<'_>,
        settings: &LruSettings,
        costs: LruCosts,
        owner: O,
    ) -> Result<Self, Error> {
        let layout = Lru::<P, O>::layout(config, settings)?;
        let region = map(machine, config, &layout);
        let records = layout.sections().find(|section| section.kind == SectionKind::LruFrames);
        if let (true, Some(records)) = (costs.in_page, records) {
            spread(machine, config, &region, &records);
        }
        let start = region.as_ptr().as_ptr() as usize;
        machine.state_mut().set_work(start, region.len(), costs.work_ps);
        // SAFETY: As in `SimFrames::new`.
        let metadata = unsafe { Metadata::from_raw_parts(region.as_ptr(), region.len()) };
        let lru = Lru::new(platform, config, settings, metadata, owner)?;
        Ok(SimLru { lru, _region: region })
    }
}

impl<O: Owner, P: Platform> Deref for SimLru<O, P> {
    type Target = Lru<P, O>;

    fn deref(&self) -> &Lru<P, O> {
        &self.lru
    }
}

impl<O: Owner, P: Platform> std::fmt::Debug for SimLru<O, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimLru")
    }
}

/// Maps a region for metadata, with labels and home nodes for its sections.
fn map(machine: &mut Machine, config: &Config<'_>, layout: &MetadataLayout) -> Region {
    let region = machine.map_region(layout.size(), layout.align());
    for section in layout.sections() {
        if section.kind == SectionKind::Frames && section.stride_bytes == 64 {
            let first = region.lines(whole(&section)).start;
            machine.state_mut().frame_lines = Some(first);
        }
        let kind = machine.kind(section.kind.name());
        machine.label(&region, whole(&section), kind);
        for (offsets, node) in homes(config, &section) {
            machine.home(&region, offsets, Home::Node(node));
        }
    }
    region
}

/// Gives each record of a frame the line of the allocator's record, or one of its own.
fn spread(machine: &mut Machine, config: &Config<'_>, region: &Region, records: &MetadataSection) {
    let kind = machine.kind(records.kind.name());
    let state = machine.state_mut();
    let first = state.frame_lines.unwrap_or_else(|| {
        let first = state.add_lines(records.len_bytes / records.stride_bytes);
        for (frames, node) in of_ranges(config, Order::ZERO) {
            let lines = first + frames.start..first + frames.end;
            state.hierarchy.lines[lines.clone()].iter_mut().for_each(|line| line.kind = kind.0);
            state.set_home(lines, Some(node));
        }
        first
    });
    let start = region.as_ptr().as_ptr() as usize + records.offset_bytes;
    state.spread(start, records.len_bytes, records.stride_bytes, first);
}

fn whole(section: &MetadataSection) -> Range<usize> {
    section.offset_bytes..section.offset_bytes + section.len_bytes
}

/// The home nodes of the parts of a section.
fn homes(config: &Config<'_>, section: &MetadataSection) -> Vec<(Range<usize>, NodeId)> {
    let records = |range: Range<usize>| {
        let at = |index: usize| section.offset_bytes + index * section.stride_bytes;
        at(range.start)..at(range.end)
    };
    let count = section.len_bytes.checked_div(section.stride_bytes).unwrap_or(0);
    match section.kind {
        SectionKind::Frames | SectionKind::LruFrames => {
            of_ranges(config, Order::ZERO).map(|(range, node)| (records(range), node)).collect()
        }
        SectionKind::Blocks => of_ranges(config, Order::PAGEBLOCK)
            .map(|(range, node)| (records(range), node))
            .collect(),
        SectionKind::PerCpu | SectionKind::LruPerCpu => {
            // All records of CPU 0, then all of CPU 1, and so on.
            let each = count / config.cpu_nodes.len();
            let cpus = config.cpu_nodes.iter().enumerate();
            cpus.map(|(cpu, &node)| (records(cpu * each..(cpu + 1) * each), node)).collect()
        }
        // One record per zone, in the order of nodes; what is not per zone stays on node 0.
        SectionKind::Zones => {
            let nodes = zone_nodes(config);
            let nodes = nodes.into_iter().chain(std::iter::repeat(NodeId::new(0)));
            (0..count).zip(nodes).map(|(zone, node)| (records(zone..zone + 1), node)).collect()
        }
        // Those of a node are contiguous.
        SectionKind::Lruvecs => {
            let of_ranges = config.ranges.iter().map(|range| range.node);
            let of_zones = config.spare_zones.iter().map(|zone| zone.0);
            let all = of_ranges.chain(of_zones).chain(config.cpu_nodes.iter().copied());
            let nodes = all.map(|node| node.index() + 1).max().unwrap_or(1);
            let each = count / nodes;
            let part = |node| (records(node * each..(node + 1) * each), NodeId::new(node as u16));
            (0..nodes).map(part).collect()
        }
        _ => vec![(whole(section), NodeId::new(0))],
    }
}

/// The records of units of `order` frames that stand for each range of memory.
fn of_ranges<'a>(
    config: &'a Config<'_>,
    order: Order,
) -> impl Iterator<Item = (Range<usize>, NodeId)> + 'a {
    let stretches = StretchesPlan::new(config).expect("the layout has been computed");
    stretches.places(config).map(move |(range, place)| {
        let (start, end, unit) = (place.first.0, place.end.0, order.frames().get() as u32);
        ((start / unit) as usize..end.div_ceil(unit) as usize, range.node)
    })
}

/// The node of each zone, in the order of the zone table: by node, then by kind.
fn zone_nodes(config: &Config<'_>) -> Vec<NodeId> {
    let of_ranges = config.ranges.iter().map(|range| (range.node, range.zone));
    let mut zones: Vec<_> = of_ranges.chain(config.spare_zones.iter().copied()).collect();
    zones.sort_unstable();
    zones.dedup();
    zones.into_iter().map(|(node, _)| node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Path, preset};
    use freehold::platform::Word;
    use freehold::{FrameCount, MemoryRange, Pfn, Request, ZoneKind};
    use freehold_linux::zone_lock::ZoneLock;
    use std::rc::Rc;
    use std::sync::atomic::Ordering::Relaxed;

    fn ranges() -> [MemoryRange; 3] {
        let range = |start, frames, node| {
            MemoryRange::new(Pfn::new(start), FrameCount::new(frames)).on_node(NodeId::new(node))
        };
        [range(1024, 1024, 0).in_zone(ZoneKind::Dma32), range(2048, 2048, 0), range(4096, 4096, 1)]
    }

    #[test]
    fn records_are_at_home_where_their_frames_are() {
        let (ranges, cpus) = (ranges(), [NodeId::new(0), NodeId::new(1)]);
        let config = Config::new(&ranges, &cpus).frame_record_bytes(64);
        type Frames = PageAllocator<Sim, ZoneLock<Sim>>;
        let layout = Frames::layout(&config, &Default::default()).unwrap();
        let section = |kind| layout.sections().find(|section| section.kind == kind).unwrap();
        let frames = section(SectionKind::Frames);
        let found = homes(&config, &frames);
        let node = |node| NodeId::new(node);
        let at = |frame: usize| frames.offset_bytes + frame * 64;
        assert_eq!(found[1], (at(1024)..at(3072), node(0)));
        assert_eq!(found[2], (at(3072)..at(7168), node(1)));
        let per_cpu = section(SectionKind::PerCpu);
        let found = homes(&config, &per_cpu);
        let half = per_cpu.len_bytes / 2;
        assert_eq!(found[1], (per_cpu.offset_bytes + half..whole(&per_cpu).end, node(1)));
        assert_eq!(zone_nodes(&config), [node(0), node(0), node(1)]);
    }

    #[test]
    fn records_can_be_spread_over_other_lines_and_cost_more() {
        let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
        let region = machine.map_region(192, 64);
        let start = region.as_ptr().as_ptr() as usize;
        let state = machine.state_mut();
        let first = state.add_lines(4);
        state.spread(start + 64, 64, 16, first);
        let line = |offset: usize| state.line_of(start + offset);
        let lines = [63, 64, 79, 80, 127, 128].map(line);
        let own = region.lines(0..192);
        let spread = [first, first, first + 1, first + 3];
        let expected =
            [own.start, spread[0], spread[1], spread[2], spread[3], own.start + 2].map(Some);
        assert_eq!(lines, expected);
        machine.state_mut().set_work(start, 192, 500);
        let words = region.clone();
        machine.spawn(0, move |_| {
            let load = |at: usize| words.words()[at].load(Relaxed);
            assert_eq!(load(8) + load(9), 0);
        });
        let report = machine.run().unwrap();
        assert_eq!(report.time.compute_ns, 1.0);
    }

    #[test]
    fn an_allocator_works_on_a_machine_and_is_charged() {
        let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(4096))];
        let cpus = [NodeId::new(0); 2];
        let config = Config::new(&ranges, &cpus).frame_record_bytes(64);
        let settings = Default::default();
        let frames = SimFrames::<ZoneLock<Sim>>::new(&mut machine, Sim, &config, &settings);
        let frames = Rc::new(frames.unwrap());
        for cpu in 0..2 {
            let frames = Rc::clone(&frames);
            machine.spawn(cpu, move |handle| {
                for _ in 0..1000 {
                    let pfn = handle.timed(Path::Alloc, || frames.alloc(Request::default()));
                    handle.timed(Path::Free, || frames.free(pfn.unwrap(), Order::ZERO)).unwrap();
                }
            });
        }
        let report = machine.run().unwrap();
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().free, FrameCount::new(4096));
        assert_eq!(report.latency_ns["alloc"].count, 2000);
        assert!(report.data.iter().any(|data| data.data == "frames" && data.accesses > 4000));
        // Once a call, and once more for each CPU's first, which finds its list empty.
        assert_eq!(report.lock("pcp_lock").unwrap().acquisitions, 4002);
    }
}

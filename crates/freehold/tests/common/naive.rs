//! A naive model of an allocator: which frames exist and which are in use, frame by frame.
//!
//! It has no free lists, buddies or per-CPU lists, and is slow. It models the contract: which calls
//! must fail and with which error, and from which zone a block must come.

use std::collections::BTreeMap;

use crate::common::TestPlatform;
use crate::designs::{is_lazy, uses_up_first};
use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::{
    Config, Error, FrameCount, FrameStatus, Marks, MemoryRange, MigrateType, NodeId, Order,
    PageAllocator, Pfn, Request, Watermark, ZoneKind, ZoneStats,
};
use freehold_linux::zone_lock::ZoneLock;

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const LARGEST: u64 = Order::BUDDY_MAX.frames().get();
pub(crate) const ORDERS: u8 = Order::BUDDY_MAX.get() + 1;

/// A request for a block: a [`Request`] whose fields a test can read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) order: u8,
    pub(crate) migratetype: MigrateType,
    pub(crate) node: Option<u16>,
    pub(crate) only_node: bool,
    pub(crate) interleaved: bool,
    pub(crate) limit: ZoneKind,
    pub(crate) watermark: Watermark,
}

impl Ask {
    /// A movable block without preferences.
    pub(crate) const fn new(order: u8) -> Self {
        Ask {
            order,
            migratetype: MigrateType::Movable,
            node: None,
            only_node: false,
            interleaved: false,
            limit: ZoneKind::Movable,
            watermark: Watermark::Min,
        }
    }

    pub(crate) fn request(&self) -> Request {
        let request = Request::new(Order::new(self.order))
            .migratetype(self.migratetype)
            .zone_limit(self.limit)
            .watermark(self.watermark);
        let request = if self.only_node { request.only_node() } else { request };
        match self.node {
            Some(node) if self.interleaved => request.interleaved(NodeId::new(node)),
            Some(node) => request.node(NodeId::new(node)),
            None => request,
        }
    }

    /// Only movable content goes to movable zones.
    fn effective_limit(&self) -> ZoneKind {
        match self.migratetype {
            MigrateType::Movable => self.limit,
            _ => self.limit.min(ZoneKind::Normal),
        }
    }
}

/// The model's state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Hole,
    Free,
    Used,
}

/// The model.
pub(crate) struct Naive {
    /// The first frame that the metadata covers.
    first: u64,
    frames: Vec<Frame>,
    /// The zone of each pageblock that has memory.
    pub(crate) block_zones: Vec<Option<usize>>,
    pub(crate) zones: Vec<(usize, ZoneKind)>,
    nodes: usize,
    distances: Vec<u8>,
    pub(crate) cpu_nodes: Vec<usize>,
    /// The blocks that users hold, by their first frame, with their order.
    pub(crate) held: BTreeMap<u64, u8>,
    allocated: u64,
    freed: u64,
}

impl Naive {
    /// The model of an allocator that was built for `config`, which is valid.
    pub(crate) fn new(config: &Config<'_>) -> Self {
        let ends = config.ranges.iter().map(|range| range.start.offset(range.frames).get());
        let starts = config.ranges.iter().map(|range| range.start.get());
        let (first, end) = match config.span {
            Some((first, frames)) => (first.get(), first.get() + frames.get()),
            None => (starts.min().unwrap_or(0), ends.max().unwrap_or(0)),
        };
        let (first, end) = (first / LARGEST * LARGEST, end.next_multiple_of(LARGEST));
        let of_ranges = config.ranges.iter().map(|range| (range.node.index(), range.zone));
        let spare = config.spare_zones.iter().map(|&(node, kind)| (node.index(), kind));
        let mut zones: Vec<_> = of_ranges.chain(spare).collect();
        zones.sort();
        zones.dedup();
        let cpu_nodes: Vec<_> = config.cpu_nodes.iter().map(|node| node.index()).collect();
        let of_zones = zones.iter().map(|zone| zone.0);
        let nodes = 1 + of_zones.chain(cpu_nodes.iter().copied()).max().unwrap_or(0);
        let mut model = Naive {
            first,
            frames: vec![Frame::Hole; (end - first) as usize],
            block_zones: vec![None; ((end - first) / PAGEBLOCK) as usize],
            zones,
            nodes,
            distances: config.distances.to_vec(),
            cpu_nodes,
            held: BTreeMap::new(),
            allocated: 0,
            freed: 0,
        };
        for &range in config.ranges {
            model.add_memory(range).expect("the configuration is in order");
        }
        model
    }

    /// The frame numbers from the first that the metadata covers to just past the last.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.first, self.first + self.frames.len() as u64)
    }

    pub(crate) fn frame(&self, pfn: u64) -> Frame {
        let at = pfn.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.frames.get(at)).copied().unwrap_or(Frame::Hole)
    }

    pub(crate) fn fill(&mut self, pfn: u64, order: u8, frame: Frame) {
        let at = (pfn - self.first) as usize;
        self.frames[at..at + (1 << order)].fill(frame);
    }

    pub(crate) fn zone_of(&self, pfn: u64) -> Option<usize> {
        self.block_zones[((pfn - self.first) / PAGEBLOCK) as usize]
    }

    /// Adds memory, or returns why that must be refused.
    pub(crate) fn add_memory(&mut self, range: MemoryRange) -> Result<(), Error> {
        let (start, frames) = (range.start.get(), range.frames.get());
        let end = start.checked_add(frames).filter(|_| frames > 0).ok_or(Error::BadRange)?;
        if range.node.index() >= self.nodes {
            return Err(Error::UnknownNode);
        }
        let zone = (range.node.index(), range.zone);
        let zone = self.zones.iter().position(|&of| of == zone).ok_or(Error::UnknownZone)?;
        let (first, last) = self.span();
        if start < first || end > last {
            return Err(Error::OutsideSpan);
        }
        for pfn in start..end {
            if self.frame(pfn) != Frame::Hole {
                return Err(Error::RangeOverlaps);
            }
            if self.zone_of(pfn).is_some_and(|of| of != zone) {
                return Err(Error::SharedPageblock);
            }
        }
        for pfn in start..end {
            self.fill(pfn, 0, Frame::Free);
            self.block_zones[((pfn - self.first) / PAGEBLOCK) as usize] = Some(zone);
        }
        Ok(())
    }

    /// Removes memory, or returns why that must be refused: [`Error::RangeBusy`] if there is
    /// content, which stands for any error that says so.
    pub(crate) fn remove_memory(&mut self, first: Pfn, frames: u64) -> Result<(), Error> {
        let all = first.get()..first.get() + frames;
        if frames == 0 {
            return Err(Error::BadRange);
        }
        if all.start < self.first || all.end > self.span().1 {
            return Err(Error::OutsideSpan);
        }
        let states = || all.clone().map(|pfn| self.frame(pfn));
        if states().any(|frame| frame == Frame::Hole) {
            return Err(Error::ForeignFrame);
        }
        if all.clone().any(|pfn| self.zone_of(pfn) != self.zone_of(all.start)) {
            return Err(Error::BadRange);
        }
        if states().any(|frame| frame == Frame::Used) {
            return Err(Error::RangeBusy);
        }
        for pfn in all.clone() {
            self.fill(pfn, 0, Frame::Hole);
        }
        // A pageblock without memory may come to another zone.
        for block in all.start / PAGEBLOCK..all.end.div_ceil(PAGEBLOCK) {
            let (start, end) = (block * PAGEBLOCK, (block + 1) * PAGEBLOCK);
            if (start..end).all(|pfn| self.frame(pfn) == Frame::Hole) {
                self.block_zones[((start - self.first) / PAGEBLOCK) as usize] = None;
            }
        }
        Ok(())
    }

    /// Notes frames that were allocated and freed again within a call.
    pub(crate) fn note_targets(&mut self, frames: u64) {
        self.allocated += frames;
        self.freed += frames;
    }

    /// What a frame is.
    pub(crate) fn status(&self, pfn: Pfn) -> FrameStatus {
        match self.frame(pfn.get()) {
            Frame::Hole => FrameStatus::Foreign,
            Frame::Free => FrameStatus::Free,
            Frame::Used => {
                let held = self.held.range(..=pfn.get()).next_back();
                let (&first, &order) = held.expect("a used frame is held");
                FrameStatus::Allocated { first: Pfn::new(first), order: Order::new(order) }
            }
        }
    }

    /// The zones that a request may use, best first, or why it is invalid.
    pub(crate) fn zonelist(&self, ask: &Ask, cpu: u32) -> Result<Vec<usize>, Error> {
        if ask.order >= ORDERS {
            return Err(Error::OrderTooLarge);
        }
        let near = self.cpu_nodes[cpu as usize % self.cpu_nodes.len()];
        let from = ask.node.map_or(near, usize::from);
        if from >= self.nodes {
            return Err(Error::UnknownNode);
        }
        let distance = |to: usize| match self.distances.get(from * self.nodes + to) {
            Some(&distance) => distance,
            None => 10 + 10 * u8::from(to != from),
        };
        let mut list: Vec<_> = (0..self.zones.len())
            .filter(|&zone| self.zones[zone].1 <= ask.effective_limit())
            .collect();
        if list.is_empty() {
            return Err(Error::UnknownZone);
        }
        // Near nodes first, ties in a ring, and the least restricted zone of each first.
        list.sort_by_key(|&zone| {
            let (node, kind) = self.zones[zone];
            (distance(node), (node + self.nodes - from) % self.nodes, std::cmp::Reverse(kind))
        });
        list.retain(|&zone| !ask.only_node || self.zones[zone].0 == from);
        Ok(list)
    }

    /// The free blocks of a zone by order, if all free memory were merged.
    pub(crate) fn merged(&self, zone: usize) -> [u64; ORDERS as usize] {
        let mut blocks = [0; ORDERS as usize];
        let (mut at, end) = self.span();
        let is_free = |pfn| self.frame(pfn) == Frame::Free && self.zone_of(pfn) == Some(zone);
        while at < end {
            if !is_free(at) {
                at += 1;
                continue;
            }
            let mut order = 0;
            while order + 1 < ORDERS
                && at.is_multiple_of(2 << order)
                && (at + (1 << order)..at + (2 << order)).all(|pfn| pfn < end && is_free(pfn))
            {
                order += 1;
            }
            blocks[usize::from(order)] += 1;
            at += 1 << order;
        }
        blocks
    }

    /// The zone that must serve a request in the current state, if any must.
    fn expect_at_once(&self, ask: &Ask, zones: &[usize], stats: &[ZoneStats]) -> Option<usize> {
        let first = match ask.watermark {
            Watermark::High => Watermark::High,
            _ => Watermark::Low,
        };
        let serves = |zone: usize, class| Level::of(&stats[zone]).allows(ask, class);
        [first, ask.watermark]
            .into_iter()
            .find_map(|class| zones.iter().copied().find(|&zone| serves(zone, class)))
    }

    /// The zone that must serve a request, or why it must fail, once all CPUs are drained and all
    /// free memory is merged.
    fn expect_at_last(
        &self,
        ask: &Ask,
        zones: &[usize],
        stats: &[ZoneStats],
    ) -> Result<usize, Error> {
        let level = |zone: usize| Level {
            free: stats[zone].free.get() + stats[zone].per_cpu.get(),
            blocks: self.merged(zone),
            marks: stats[zone].marks,
        };
        let mut error = Error::OutOfMemory;
        for &zone in zones {
            if level(zone).allows(ask, ask.watermark) {
                return Ok(zone);
            }
            if level(zone).allows(ask, Watermark::Ignore) {
                error = Error::BelowWatermark;
            }
        }
        Err(error)
    }

    /// Makes a request from this CPU, whose outcome must be the predicted one.
    pub(crate) fn alloc<P: Platform, D: Design<P>>(
        &mut self,
        allocator: &PageAllocator<P, D>,
        ask: &Ask,
        cpu: u32,
    ) {
        let stats: Vec<_> = allocator.zones().collect();
        let got = allocator.alloc(ask.request());
        let zones = match self.zonelist(ask, cpu) {
            Ok(zones) => zones,
            Err(error) => return assert_eq!(got, Err(error)),
        };
        let at_once = self.expect_at_once(ask, &zones, &stats);
        let late = at_once.is_none() && ask.order > 0 && is_lazy(D::NAME);
        let expected = at_once.map_or_else(|| self.expect_at_last(ask, &zones, &stats), Ok);
        match (got, expected) {
            // Which zone has enough after merging, before the CPUs are drained, is not predicted.
            (Ok(pfn), Ok(_)) if late => self.take(pfn, ask.order, &zones),
            (Ok(pfn), Ok(zone)) if uses_up_first(D::NAME) => {
                let has_kept = |&of: &usize| of == zone || stats[of].per_cpu > FrameCount::ZERO;
                let zones: Vec<_> = zones.iter().copied().filter(has_kept).collect();
                self.take(pfn, ask.order, &zones);
            }
            (Ok(pfn), Ok(zone)) => self.take(pfn, ask.order, &[zone]),
            (got, expected) => assert_eq!(got.err(), expected.err(), "{got:?}"),
        }
    }

    /// Notes that a block was allocated, which must be free, aligned, and in one of `zones`.
    pub(crate) fn take(&mut self, pfn: Pfn, order: u8, zones: &[usize]) {
        let size = 1 << order;
        let pfn = pfn.get();
        assert!(pfn.is_multiple_of(size), "a block of order {order} at {pfn:#x}");
        for frame in pfn..pfn + size {
            assert_eq!(self.frame(frame), Frame::Free, "frame {frame:#x} of a new block");
            let zone = self.zone_of(frame).expect("a free frame has a zone");
            assert!(zones.contains(&zone), "frame {frame:#x} in zone {zone}, not one of {zones:?}");
        }
        self.fill(pfn, order, Frame::Used);
        self.held.insert(pfn, order);
        self.allocated += size;
    }

    /// Frees a block or a part of one, or returns why that must be refused.
    pub(crate) fn free(&mut self, pfn: Pfn, order: u8) -> Result<(), Error> {
        let pfn = pfn.get();
        let (first, end) = self.span();
        if !(first..end).contains(&pfn) {
            return Err(Error::ForeignFrame);
        }
        if order >= ORDERS {
            return Err(Error::OrderTooLarge);
        }
        if !pfn.is_multiple_of(1 << order) {
            return Err(Error::Misaligned);
        }
        match self.frame(pfn) {
            Frame::Hole => return Err(Error::ForeignFrame),
            Frame::Free => return Err(Error::DoubleFree),
            Frame::Used => {}
        }
        let (&head, &of) = self.held.range(..=pfn).next_back().expect("a used frame is held");
        if of < order {
            return Err(Error::WrongOrder);
        }
        // The rest stays in the largest aligned blocks.
        self.held.remove(&head);
        let mut at = head;
        for half in (order..of).rev() {
            let upper = at + (1 << half);
            let rest = if pfn >= upper { at } else { upper };
            self.held.insert(rest, half);
            at = if pfn >= upper { upper } else { at };
        }
        self.fill(pfn, order, Frame::Free);
        self.freed += 1 << order;
        Ok(())
    }

    /// Checks the allocator's invariants, and that its state agrees with the model.
    pub(crate) fn check<P: Platform, D: Design<P>>(
        &self,
        allocator: &PageAllocator<P, D>,
    ) -> Vec<ZoneStats> {
        let census = allocator.validate().unwrap_or_else(|violation| panic!("{violation}"));
        let stats: Vec<_> = allocator.zones().collect();
        let events = allocator.events();
        let mut managed = vec![0; self.zones.len()];
        let mut used = vec![0; self.zones.len()];
        for (frames, zone) in self.frames.chunks(PAGEBLOCK as usize).zip(&self.block_zones) {
            let Some(zone) = *zone else { continue };
            let count = |of| frames.iter().filter(|&&frame| frame == of).count() as u64;
            managed[zone] += PAGEBLOCK - count(Frame::Hole);
            used[zone] += count(Frame::Used);
        }
        assert_eq!(stats.len(), self.zones.len());
        for (zone, of) in stats.iter().enumerate() {
            assert_eq!((of.node.index(), of.kind), self.zones[zone]);
            assert_eq!(of.managed.get(), managed[zone], "managed in zone {zone}");
            let free = of.free.get() + of.per_cpu.get();
            assert_eq!(free, managed[zone] - used[zone], "free in zone {zone}");
            let blocks = of.free_blocks.iter().enumerate();
            let in_blocks: u64 = blocks.map(|(order, blocks)| blocks << order).sum();
            assert_eq!(of.free.get(), in_blocks, "free in blocks of zone {zone}");
        }
        let sum = |of: fn(&ZoneStats) -> FrameCount| stats.iter().map(of).sum::<FrameCount>();
        assert_eq!(census.managed, sum(|zone| zone.managed));
        assert_eq!(census.free, sum(|zone| zone.free));
        assert_eq!(census.per_cpu, sum(|zone| zone.per_cpu));
        assert_eq!(census.allocated.get(), used.iter().sum::<u64>());
        assert_eq!(events.allocated.get(), self.allocated, "frames handed out");
        assert_eq!(events.freed.get(), self.freed, "frames taken back");
        // Frames that came onto per-CPU lists have left them again or are still there.
        let came = events.refilled + events.freed;
        let left = events.drained + events.freed_directly + events.allocated + census.per_cpu;
        assert_eq!(came + events.allocated_directly, left, "{events:?}");
        stats
    }

    /// Checks that nothing is allocated, no CPU caches frames, and everything is merged, unless the
    /// design is lazy: then the consistency check finds each frame that is neither merged nor
    /// marked as unmerged.
    pub(crate) fn check_whole<P: Platform, D: Design<P>>(&self, allocator: &PageAllocator<P, D>) {
        assert!(self.held.is_empty(), "blocks are still held");
        for of in &self.check(allocator) {
            assert_eq!(of.per_cpu, FrameCount::ZERO, "after a drain");
            assert_eq!(of.free, of.managed, "everything is free");
        }
        self.check_merged(allocator);
    }

    /// Checks that all free memory is merged, unless the design is lazy.
    pub(crate) fn check_merged<P: Platform, D: Design<P>>(&self, allocator: &PageAllocator<P, D>) {
        for (zone, of) in allocator.zones().enumerate() {
            if !is_lazy(D::NAME) {
                assert_eq!(of.free_blocks, self.merged(zone), "zone {zone} is merged");
            }
        }
    }
}

/// The level of a zone.
pub(crate) struct Level {
    pub(crate) free: u64,
    pub(crate) blocks: [u64; ORDERS as usize],
    pub(crate) marks: Marks,
}

impl Level {
    /// The level that the allocator reports.
    pub(crate) fn of(stats: &ZoneStats) -> Self {
        Level { free: stats.free.get(), blocks: stats.free_blocks, marks: stats.marks }
    }

    /// Whether a request may take a block here if it goes no deeper than `class`.
    pub(crate) fn allows(&self, ask: &Ask, class: Watermark) -> bool {
        let order = usize::from(ask.order);
        let has_block = self.blocks[order..].iter().any(|&blocks| blocks > 0);
        let min = self.marks.min.get();
        let half = min - min / 2;
        let mark = match class {
            Watermark::High => self.marks.high.get(),
            Watermark::Low => self.marks.low.get(),
            Watermark::Min => min,
            Watermark::MinHalf => half,
            Watermark::Atomic => half - half / 4,
            // `Ignore`, the only other one.
            _ => return has_block,
        };
        let reserve = self.marks.lowmem_reserve[ask.effective_limit().index()].get();
        has_block && self.free >= (1 << order) + mark + reserve
    }
}

// Some tests only need the free blocks after merging.
const _: () = {
    let _ = (Ask::new, Ask::request, Level::of, Naive::take, Naive::free, Naive::merged);
    let _ = (Naive::zonelist, Naive::remove_memory, Naive::note_targets, Naive::status);
    let _ = Naive::alloc::<TestPlatform, ZoneLock<TestPlatform>>;
    let _ = Naive::check_whole::<TestPlatform, ZoneLock<TestPlatform>>;
};

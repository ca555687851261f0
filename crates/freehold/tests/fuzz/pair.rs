//! Calls of an allocator, chosen before it is known what is allocated.

use std::cell::RefCell;

use crate::common::{TestPlatform, run_on};
use crate::counts::{Counts, counts, used};
use crate::machine::Machine;
use crate::naive::{Ask, Level, Naive};
use crate::setup::{PAGEBLOCK, Setup};
use freehold::designs::Design;
use freehold::{
    BulkFreeError, Config, CpuId, Error, FrameCount, FrameStatus, MemoryRange, Migrate,
    MigrateError, MigrateType, NodeId, Order, Pfn, RangeRequest, ZoneKind,
};

/// Something of a number of things that is not known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nth(pub(crate) u32);

impl Nth {
    /// Which of so many.
    fn of(self, count: usize) -> usize {
        ((u64::from(self.0) * count as u64) >> 32) as usize
    }
}

/// A contiguous range: where, if it matters, and at a multiple of which power of two.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) near: Ask,
    pub(crate) frames: u64,
    pub(crate) align: u8,
    pub(crate) at: Option<Nth>,
}

/// A call. Blocks and addresses are picked from what exists when the call is made.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Alloc(Ask),
    AllocMany(Ask, usize),
    Free(Nth),
    FreePart { block: Nth, order: u8, at: Nth },
    FreeInParts { block: Nth, order: u8, first: Nth },
    FreeMany { from: Nth, count: usize, same_order: bool, repeat: bool },
    FreeAnywhere { at: Nth, order: u8 },
    AddLater(Nth),
    AddAnywhere { at: Nth, frames: u64, node: u16, zone: ZoneKind },
    Remove { at: Nth, frames: u64, moves: bool },
    AllocRange { range: Range, moves: bool },
    FreeRange { at: Nth, frames: u64 },
    AllocCompacting(Ask),
    Compact,
    Offline(u32),
    Look(Nth),
    Drain(u32),
    DrainAll,
    Tick(u32),
    RunOn(u32),
}

/// An owner that moves all content, in the model too, or none.
struct Mover<'a, 'm> {
    model: &'a RefCell<&'m mut Naive>,
    moves: bool,
}

impl Migrate for Mover<'_, '_> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        if !self.moves {
            return Err(MigrateError::Failed);
        }
        self.model.borrow_mut().migrate(from, to, order);
        Ok(())
    }
}

/// Whether a call that makes sense may fail like this.
fn is_refusal(error: Error) -> bool {
    [Error::RangeBusy, Error::OutOfMemory, Error::BelowWatermark].contains(&error)
}

/// The machine and its model, side by side.
pub(crate) struct Pair<D: Design<TestPlatform>> {
    machine: Machine<TestPlatform, D>,
    model: Naive,
    later: Vec<MemoryRange>,
    cpus: u32,
    cpu: u32,
    /// Allocations as they have to be counted.
    counts: Counts,
}

impl<D: Design<TestPlatform>> Pair<D> {
    pub(crate) fn new(setup: &Setup<D::Settings>) -> Self {
        let all = || setup.ranges.iter().chain(&setup.later);
        let first = all().map(|range| range.start).min().expect("a machine has memory");
        let end = all().map(|range| range.start.offset(range.frames)).max();
        let end = end.expect("a machine has memory");
        let spare_zones: Vec<_> =
            setup.later.iter().map(|range| (range.node, range.zone)).collect();
        let config = Config::new(&setup.ranges, &setup.cpu_nodes)
            .distances(&setup.distances)
            .span((first, FrameCount::new(end.get() - first.get())))
            .spare_zones(&spare_zones)
            .frame_size(setup.frame_size)
            .frame_record_bytes(setup.frame_record_bytes)
            .min_free(setup.min_free.map(FrameCount::new));
        run_on(0);
        let model = Naive::new(&config);
        let pair = Pair {
            machine: Machine::new(TestPlatform, &config, &setup.settings),
            counts: vec![[0; 6]; model.zones.len()],
            model,
            later: setup.later.clone(),
            cpus: setup.cpu_nodes.len() as u32,
            cpu: 0,
        };
        pair.check();
        pair
    }

    /// Makes a call that allocates, and notes how it has to be counted.
    fn counted(&mut self, ask: &Ask, call: impl FnOnce(&mut Self)) {
        let books = |pair: &Self| (pair.machine.events().freed, used(&pair.machine));
        let (freed, before) = books(self);
        call(self);
        let (freed_then, after) = books(self);
        // Unless content has moved.
        if freed == freed_then {
            let got = after.iter().zip(before).map(|(after, before)| after - before);
            self.model.count(&mut self.counts, ask, self.cpu, &got.collect::<Vec<_>>());
        }
    }

    fn alloc_many(&mut self, ask: &Ask, count: usize) {
        const UNTOUCHED: Pfn = Pfn::new(u64::MAX);
        let mut out = vec![UNTOUCHED; count];
        let got = self.machine.alloc_bulk(ask.request(), &mut out);
        let zones = match self.model.zonelist(ask, self.cpu) {
            Ok(zones) => zones,
            Err(error) => return assert_eq!(got, Err(error)),
        };
        let got = got.expect("a bulk that makes sense");
        assert!(out[got..].iter().all(|&pfn| pfn == UNTOUCHED), "nothing behind the count");
        for &pfn in &out[..got] {
            self.model.take(pfn, ask.order, &zones);
        }
        if got < count {
            // The call ended with nothing left that it might have taken.
            let after: Vec<_> = self.machine.zones().collect();
            for zone in zones {
                assert_eq!(after[zone].per_cpu, FrameCount::ZERO);
                assert!(!Level::of(&after[zone]).allows(ask, ask.watermark), "zone {zone}");
            }
        }
    }

    fn free(&mut self, pfn: u64, order: u8) {
        let pfn = Pfn::new(pfn);
        let books = |pair: &Self| (pair.machine.events(), pair.machine.zones().collect::<Vec<_>>());
        let before = books(self);
        let expected = self.model.free(pfn, order);
        assert_eq!(self.machine.free(pfn, Order::new(order)), expected, "{pfn}, order {order}");
        if expected.is_err() {
            assert_eq!(books(self), before, "an error changes nothing");
        }
    }

    fn free_many(&mut self, blocks: &[Pfn], order: u8) {
        let mut expected = Ok(());
        for (freed, &pfn) in blocks.iter().enumerate() {
            if let Err(error) = self.model.free(pfn, order) {
                expected = Err(BulkFreeError { freed, error });
                break;
            }
        }
        assert_eq!(self.machine.free_bulk(blocks, Order::new(order)), expected);
    }

    /// Makes a call that may move content, if `moves`: the model follows each move.
    fn moving<T>(
        &mut self,
        moves: bool,
        call: impl FnOnce(&Machine<TestPlatform, D>, &dyn Migrate) -> T,
    ) -> T {
        let before = self.machine.events();
        let model = RefCell::new(&mut self.model);
        let got = call(&self.machine, &Mover { model: &model, moves });
        // Each target counts as an allocation, and it or what it was for as a free.
        let after = self.machine.events();
        let freed = after.freed.get() - before.freed.get();
        self.model.note_targets(freed);
        if freed > 0 {
            // Where content went is counted as well, and not predicted.
            self.counts = counts(&self.machine);
        }
        got
    }

    /// Removes memory: whole pageblocks, if so many frames are one.
    fn remove(&mut self, first: u64, frames: u64, moves: bool) {
        let first = if frames == PAGEBLOCK { first / PAGEBLOCK * PAGEBLOCK } else { first };
        let (first, count) = (Pfn::new(first), FrameCount::new(frames));
        let got = self.moving(moves, |machine, owner| machine.remove_memory(first, count, owner));
        // With moves, content may have left before the rest was refused.
        if moves && got.is_err_and(is_refusal) {
            return;
        }
        match self.model.remove_memory(first, frames) {
            // There may be no room for content, or it may be known not to move.
            Err(Error::RangeBusy) => assert!(got.is_err_and(is_refusal), "{first}: {got:?}"),
            expected => assert_eq!(got, expected, "{first}, {frames}"),
        }
    }

    fn alloc_range(&mut self, range: &Range, ask: &Ask, moves: bool) {
        let (count, align) = (FrameCount::new(range.frames), FrameCount::new(1 << range.align));
        let at = range.at.map(|at| Pfn::new(self.anywhere(at) >> range.align << range.align));
        let request = RangeRequest::new(count).align(align);
        let request = request.zone_limit(ask.limit).watermark(ask.watermark);
        let request = if ask.only_node { request.only_node() } else { request };
        let request = ask.node.map_or(request, |node| request.node(NodeId::new(node)));
        let request = at.map_or(request, |at| request.at(at));
        let got = self.moving(moves, |machine, owner| machine.alloc_range(request, owner));
        match (got, self.model.zonelist(ask, self.cpu)) {
            (Ok(first), Ok(zones)) => {
                assert!(at.is_none_or(|at| at == first), "{first} instead of {at:?}");
                assert!(first.get().is_multiple_of(align.get()), "{first}, {range:?}");
                self.model.take_range(first, count, &zones);
            }
            (Err(error), Ok(_)) if at.is_some() => {
                let of_place = [Error::OutsideSpan, Error::ForeignFrame, Error::BadRange];
                assert!(is_refusal(error) || of_place.contains(&error), "{error:?}, {range:?}");
            }
            (Err(error), Ok(_)) => {
                assert!(is_refusal(error) || range.frames == 0, "{error:?}, {range:?}");
            }
            (got, Err(error)) => assert!(got == Err(error) || range.frames == 0, "{got:?}"),
        }
    }

    fn free_range(&mut self, first: u64, frames: u64) {
        let before = self.machine.events();
        let all = first..first.saturating_add(frames);
        match self.machine.free_range(Pfn::new(first), FrameCount::new(frames)) {
            Ok(()) => {
                assert!(frames > 0);
                for pfn in all {
                    assert_eq!(self.model.free(Pfn::new(pfn), 0), Ok(()), "{pfn:#x} of a range");
                }
            }
            Err(error) => {
                let expected = [Error::BadRange, Error::ForeignFrame, Error::DoubleFree];
                assert!(expected.contains(&error), "{error:?}");
                assert!(!self.model.is_one_range(all), "{first:#x}, {frames}: {error:?}");
                let after = self.machine.events();
                assert_eq!((after.allocated, after.freed), (before.allocated, before.freed));
            }
        }
    }

    fn alloc_compacting(&mut self, ask: &Ask) {
        let request = ask.request();
        let got = self.moving(true, |machine, owner| machine.alloc_compacting(request, owner));
        match (got, self.model.zonelist(ask, self.cpu)) {
            (Ok(pfn), Ok(zones)) => self.model.take(pfn, ask.order, &zones),
            (Err(error), Ok(_)) => assert!(is_refusal(error), "{error:?}"),
            (got, Err(error)) => assert_eq!(got, Err(error)),
        }
    }

    /// A block that is held.
    fn held(&self, index: Nth) -> Option<(u64, u8)> {
        let held = &self.model.held;
        let nth = (!held.is_empty()).then(|| index.of(held.len()))?;
        held.iter().nth(nth).map(|(&pfn, &order)| (pfn, order))
    }

    /// A frame number within the span, or a little outside.
    fn anywhere(&self, index: Nth) -> u64 {
        let (first, end) = self.model.span();
        let low = first.saturating_sub(100);
        low + index.of((end + 100 - low) as usize) as u64
    }

    fn on_cpu(&self, cpu: u32, call: impl FnOnce(CpuId) -> Result<(), Error>) {
        let expected = if cpu < self.cpus { Ok(()) } else { Err(Error::UnknownCpu) };
        assert_eq!(call(CpuId::new(cpu)), expected);
    }

    pub(crate) fn run(&mut self, op: &Op) {
        match *op {
            Op::Alloc(ask) => {
                let ask = Ask { order: of_design::<D>(ask.order), ..ask };
                self.counted(&ask, |pair| pair.model.alloc(&pair.machine, &ask, pair.cpu));
            }
            Op::AllocMany(ask, count) => {
                let ask = Ask { order: of_design::<D>(ask.order), ..ask };
                self.counted(&ask, |pair| pair.alloc_many(&ask, count));
            }
            Op::Free(block) => {
                if let Some((pfn, order)) = self.held(block) {
                    self.free(pfn, order);
                }
            }
            Op::FreePart { block, order, at } => {
                if let Some((pfn, of)) = self.held(block) {
                    let order = order.min(of);
                    self.free(pfn + ((at.of(1 << (of - order)) as u64) << order), order);
                }
            }
            Op::FreeInParts { block, order, first } => {
                if let Some((pfn, of)) = self.held(block) {
                    // At most 32 parts, so that the largest blocks stay affordable.
                    let order = order.min(of).max(of.saturating_sub(5));
                    let parts = 1 << (of - order);
                    let first = first.of(parts);
                    for part in (0..parts).map(|part| (first + part) % parts) {
                        self.free(pfn + ((part as u64) << order), order);
                    }
                }
            }
            Op::FreeMany { from, count, same_order, repeat } => {
                let Some((first, order)) = self.held(from) else { return };
                let wanted = |&(_, &of): &(&u64, &u8)| !same_order || of == order;
                let held = self.model.held.range(first..).filter(wanted);
                let mut blocks: Vec<_> = held.take(count).map(|(&pfn, _)| Pfn::new(pfn)).collect();
                if repeat {
                    blocks.push(Pfn::new(first));
                }
                self.free_many(&blocks, order);
            }
            Op::FreeAnywhere { at, order } => {
                self.free(self.anywhere(at), of_design::<D>(order));
            }
            Op::AddLater(index) => {
                if !self.later.is_empty() {
                    let range = self.later[index.of(self.later.len())];
                    assert_eq!(self.machine.add_memory(range), self.model.add_memory(range));
                }
            }
            Op::AddAnywhere { at, frames, node, zone } => {
                let range = MemoryRange::new(Pfn::new(self.anywhere(at)), FrameCount::new(frames))
                    .on_node(NodeId::new(node))
                    .in_zone(zone);
                assert_eq!(self.machine.add_memory(range), self.model.add_memory(range));
            }
            Op::Remove { at, frames, moves } => self.remove(self.anywhere(at), frames, moves),
            Op::AllocRange { ref range, moves } => {
                let ask = Ask { migratetype: MigrateType::Unmovable, order: 0, ..range.near };
                let ask = Ask { interleaved: false, ..ask };
                self.counted(&ask, |pair| pair.alloc_range(range, &ask, moves));
            }
            Op::FreeRange { at, frames } => self.free_range(self.anywhere(at), frames),
            Op::AllocCompacting(ask) => {
                let ask = Ask { order: of_design::<D>(ask.order), ..ask };
                self.counted(&ask, |pair| pair.alloc_compacting(&ask));
            }
            Op::Compact => {
                let done = self.moving(true, |machine, owner| machine.compact(owner));
                assert_eq!((done.busy, done.failed), (0, 0), "the owner moves all");
            }
            Op::Offline(cpu) => self.on_cpu(cpu, |cpu| self.machine.offline_cpu(cpu)),
            Op::Look(at) => {
                let pfn = Pfn::new(self.anywhere(at));
                let status = self.model.status(pfn);
                assert_eq!(self.machine.status(pfn), status, "{pfn}");
                assert_eq!(self.machine.is_free(pfn), status == FrameStatus::Free);
                let order = match status {
                    FrameStatus::Allocated { first, order } if first == pfn => Some(order),
                    _ => None,
                };
                assert_eq!(self.machine.order_of(pfn), order, "{pfn}");
            }
            Op::Drain(cpu) => self.on_cpu(cpu, |cpu| self.machine.drain(cpu)),
            Op::DrainAll => {
                self.machine.drain_all();
                self.model.check_types(&self.machine);
            }
            Op::Tick(cpu) => self.on_cpu(cpu, |cpu| self.machine.tick(cpu)),
            Op::RunOn(cpu) => {
                self.cpu = cpu;
                run_on(cpu);
            }
        }
    }

    /// Checks the allocator's state against the model's.
    pub(crate) fn check(&self) {
        self.model.check(&self.machine);
        assert_eq!(counts(&self.machine), self.counts, "counted by node");
    }

    /// Frees what is left, and checks that all memory is whole again.
    pub(crate) fn finish(mut self) {
        while let Some((&pfn, &order)) = self.model.held.first_key_value() {
            self.free(pfn, order);
        }
        self.machine.drain_all();
        self.model.check_whole(&self.machine);
    }
}

/// Orders of blocks that pageblocks have, and one that is too large for the design.
pub(crate) fn of_design<D: Design<TestPlatform>>(order: u8) -> u8 {
    if order > Order::BUDDY_MAX.get() { D::ORDER_MAX.get() + 1 } else { order }
}

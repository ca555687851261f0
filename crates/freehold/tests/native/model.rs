//! Random lists of calls on random machines, against a naive model that predicts every outcome.
//!
//! A failing case is shrunk and printed with its machine and its calls. The cases are the same on
//! every run; `PROPTEST_CASES` asks for more, `PROPTEST_RNG_SEED` for others.

use crate::common::{TestPlatform, run_on};
use crate::designs::{fixed, variants};
use crate::machine::Machine;
use crate::naive::{Ask, Level, Naive};
use freehold::designs::{Design, Settings};
use freehold::{
    BulkFreeError, Config, CpuId, Error, FrameCount, FrameSize, FrameStatus, Immovable,
    MemoryRange, MigrateType, NodeId, Order, Pfn, Watermark, ZoneKind,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;

/// A machine to run on, and memory that may be added later.
#[derive(Clone, Debug)]
struct Setup<S> {
    ranges: Vec<MemoryRange>,
    later: Vec<MemoryRange>,
    cpu_nodes: Vec<NodeId>,
    distances: Vec<u8>,
    frame_size: FrameSize,
    frame_record_bytes: usize,
    min_free: Option<u64>,
    settings: S,
}

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

/// One to three pageblocks of one zone, more or less.
#[derive(Clone, Debug)]
struct Stretch {
    gap_blocks: u64,
    blocks: u64,
    trim_start: u64,
    trim_end: u64,
    hole: Option<(u64, u64)>,
    node: u16,
    zone: ZoneKind,
    later: bool,
}

fn stretch() -> impl Strategy<Value = Stretch> {
    let trim = || prop_oneof![2 => Just(0), 1 => 1..64u64, 1 => 64..256u64];
    let hole = prop::option::weighted(0.3, (1..200u64, 1..50u64));
    let zone = prop_oneof![3 => Just(ZoneKind::Normal), 2 => select(ZoneKind::ALL.as_slice())];
    let later = prop::bool::weighted(0.25);
    (0..3u64, 1..=3u64, trim(), trim(), hole, 0..3u16, zone, later).prop_map(
        |(gap_blocks, blocks, trim_start, trim_end, hole, node, zone, later)| Stretch {
            gap_blocks,
            blocks,
            trim_start,
            trim_end,
            hole,
            node,
            zone,
            later,
        },
    )
}

impl Stretch {
    /// The ranges of this stretch, which starts at the pageblock boundary at `at`; advances that.
    fn ranges(&self, nodes: u16, at: &mut u64) -> Vec<MemoryRange> {
        let start = *at + self.gap_blocks * PAGEBLOCK;
        *at = start + self.blocks * PAGEBLOCK;
        let (first, end) =
            (start + self.trim_start.min(PAGEBLOCK / 2), *at - self.trim_end.min(PAGEBLOCK / 2));
        let range = |first, end| {
            MemoryRange::new(Pfn::new(first), FrameCount::new(end - first))
                .on_node(NodeId::new(self.node % nodes))
                .in_zone(self.zone)
        };
        match self.hole {
            Some((offset, frames)) if first + offset + frames < end => {
                let hole = first + offset;
                vec![range(first, hole), range(hole + frames, end)]
            }
            _ if first < end => vec![range(first, end)],
            _ => vec![],
        }
    }
}

fn settings<S: Settings + 'static>() -> impl Strategy<Value = S> {
    // Lists of so many frames hold a whole pageblock, which a CPU can own then.
    let pageblock = PAGEBLOCK as u32;
    let more = prop_oneof![2 => 0..100u32, 1 => pageblock..3 * pageblock];
    let limits = prop::option::of((1..40u32, more));
    (select(variants::<S>()), limits).prop_map(|(own, limits)| match limits {
        None => own,
        Some((batch, more)) => fixed(&own, batch, batch + more),
    })
}

fn setup<S: Settings + 'static>() -> impl Strategy<Value = Setup<S>> {
    let stretches = prop::collection::vec(stretch(), 1..5);
    let cpus = prop::collection::vec(0..3u16, 1..=4);
    let distances = prop::option::of(prop::collection::vec(10..40u8, 9));
    let min_free = prop_oneof![Just(None), Just(Some(0)), (1..400u64).prop_map(Some)];
    let frame_size = (12..=16u32).prop_map(|shift| FrameSize::new(1 << shift).unwrap());
    let record_bytes = select([0usize, 64].as_slice());
    let numbers = (1..=3u16, 0..40u64, frame_size, record_bytes, min_free);
    (stretches, cpus, distances, numbers, settings()).prop_filter_map(
        "a machine has memory",
        |(stretches, cpus, distances, numbers, settings)| {
            let (nodes, base, frame_size, frame_record_bytes, min_free) = numbers;
            let (mut at, mut ranges, mut later) = (base * PAGEBLOCK, vec![], vec![]);
            for stretch in &stretches {
                let list = if stretch.later { &mut later } else { &mut ranges };
                list.extend(stretch.ranges(nodes, &mut at));
            }
            let cpu_nodes: Vec<_> = cpus.iter().map(|cpu| NodeId::new(cpu % nodes)).collect();
            let of_ranges = ranges.iter().chain(&later).map(|range| range.node);
            let nodes = of_ranges.chain(cpu_nodes.iter().copied()).max()?.index() + 1;
            let distances = distances.map_or(vec![], |all| all[..nodes * nodes].to_vec());
            (!ranges.is_empty()).then_some(Setup {
                ranges,
                later,
                cpu_nodes,
                distances,
                frame_size,
                frame_record_bytes,
                min_free,
                settings,
            })
        },
    )
}

/// A call. Blocks and addresses are picked from what exists when the call is made.
#[derive(Clone, Debug)]
enum Op {
    Alloc(Ask),
    AllocMany(Ask, usize),
    Free(Index),
    FreePart { block: Index, order: u8, at: Index },
    FreeInParts { block: Index, order: u8, first: Index },
    FreeMany { from: Index, count: usize, same_order: bool, repeat: bool },
    FreeAnywhere { at: Index, order: u8 },
    AddLater(Index),
    AddAnywhere { at: Index, frames: u64, node: u16, zone: ZoneKind },
    Remove { at: Index, frames: u64 },
    Look(Index),
    Drain(u32),
    DrainAll,
    Tick(u32),
    RunOn(u32),
}

fn ask(order: BoxedStrategy<u8>) -> impl Strategy<Value = Ask> {
    use Watermark::*;
    let watermark = prop_oneof![
        3 => Just(Min),
        3 => select([High, Low, MinHalf, Atomic, Ignore].as_slice()),
    ];
    let limit = prop_oneof![2 => Just(ZoneKind::Movable), 1 => select(ZoneKind::ALL.as_slice())];
    let migratetype = select(MigrateType::ALL.as_slice());
    // The last node is one too many on every machine.
    let node = prop::option::weighted(0.4, prop_oneof![20 => 0..3u16, 1 => 3..5u16]);
    (order, migratetype, node, prop::bool::weighted(0.3), limit, watermark).prop_map(
        |(order, migratetype, node, only_node, limit, watermark)| Ask {
            order,
            migratetype,
            node,
            only_node,
            limit,
            watermark,
        },
    )
}

fn op(order: impl Fn() -> BoxedStrategy<u8>, frees: u32) -> impl Strategy<Value = Op> {
    let any_order = || 0..=11u8;
    let index = || any::<Index>();
    let pick = (index(), any_order(), index());
    let many = (index(), 1..150usize, any::<bool>(), prop::bool::weighted(0.1));
    let range = (index(), 0..1500u64, 0..4u16, select(ZoneKind::ALL.as_slice()));
    let removed = prop_oneof![3 => 0..20u64, 2 => 20..600u64, 1 => Just(PAGEBLOCK)];
    prop_oneof![
        12 => ask(order()).prop_map(Op::Alloc),
        3 => (ask(order()), 0..150usize).prop_map(|(ask, count)| Op::AllocMany(ask, count)),
        frees => index().prop_map(Op::Free),
        frees => pick.clone().prop_map(|(block, order, at)| Op::FreePart { block, order, at }),
        2 => pick.prop_map(|(block, order, first)| Op::FreeInParts { block, order, first }),
        2 => many.prop_map(|(from, count, same_order, repeat)| {
            Op::FreeMany { from, count, same_order, repeat }
        }),
        3 => (index(), any_order()).prop_map(|(at, order)| Op::FreeAnywhere { at, order }),
        1 => index().prop_map(Op::AddLater),
        1 => range.prop_map(|(at, frames, node, zone)| Op::AddAnywhere { at, frames, node, zone }),
        2 => (index(), removed).prop_map(|(at, frames)| Op::Remove { at, frames }),
        4 => index().prop_map(Op::Look),
        1 => (0..6u32).prop_map(Op::Drain),
        1 => Just(Op::DrainAll),
        2 => (0..6u32).prop_map(Op::Tick),
        4 => (0..6u32).prop_map(Op::RunOn),
    ]
}

/// The machine and its model, side by side.
struct Pair<D: Design<TestPlatform>> {
    machine: Machine<TestPlatform, D>,
    model: Naive,
    later: Vec<MemoryRange>,
    cpus: u32,
    cpu: u32,
}

impl<D: Design<TestPlatform>> Pair<D> {
    fn new(setup: &Setup<D::Settings>) -> Self {
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
        let pair = Pair {
            machine: Machine::new(TestPlatform, &config, &setup.settings),
            model: Naive::new(&config),
            later: setup.later.clone(),
            cpus: setup.cpu_nodes.len() as u32,
            cpu: 0,
        };
        pair.model.check(&pair.machine);
        pair
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

    /// Removes memory whose content does not move: whole pageblocks, if so many frames are one.
    fn remove(&mut self, first: u64, frames: u64) {
        let first = if frames == PAGEBLOCK { first / PAGEBLOCK * PAGEBLOCK } else { first };
        let before = self.machine.events();
        let (first, count) = (Pfn::new(first), FrameCount::new(frames));
        let got = self.machine.remove_memory(first, count, &Immovable);
        match self.model.remove_memory(first, frames) {
            // There may be no room for content, or it may be known not to move.
            Err(Error::RangeBusy) => {
                let errors = [Error::RangeBusy, Error::OutOfMemory, Error::BelowWatermark];
                assert!(got.is_err_and(|error| errors.contains(&error)), "{first}: {got:?}");
                // Each target that was not used after all counts as an allocation and a free.
                let after = self.machine.events();
                self.model.note_targets(after.allocated.get() - before.allocated.get());
            }
            expected => assert_eq!(got, expected, "{first}, {frames}"),
        }
    }

    /// A block that is held.
    fn held(&self, index: Index) -> Option<(u64, u8)> {
        let held = &self.model.held;
        let nth = (!held.is_empty()).then(|| index.index(held.len()))?;
        held.iter().nth(nth).map(|(&pfn, &order)| (pfn, order))
    }

    /// A frame number within the span, or a little outside.
    fn anywhere(&self, index: Index) -> u64 {
        let (first, end) = self.model.span();
        let low = first.saturating_sub(100);
        low + index.index((end + 100 - low) as usize) as u64
    }

    fn on_cpu(&self, cpu: u32, call: impl FnOnce(CpuId) -> Result<(), Error>) {
        let expected = if cpu < self.cpus { Ok(()) } else { Err(Error::UnknownCpu) };
        assert_eq!(call(CpuId::new(cpu)), expected);
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Alloc(ask) => {
                let ask = Ask { order: of_design::<D>(ask.order), ..ask };
                self.model.alloc(&self.machine, &ask, self.cpu);
            }
            Op::AllocMany(ask, count) => {
                self.alloc_many(&Ask { order: of_design::<D>(ask.order), ..ask }, count);
            }
            Op::Free(block) => {
                if let Some((pfn, order)) = self.held(block) {
                    self.free(pfn, order);
                }
            }
            Op::FreePart { block, order, at } => {
                if let Some((pfn, of)) = self.held(block) {
                    let order = order.min(of);
                    self.free(pfn + ((at.index(1 << (of - order)) as u64) << order), order);
                }
            }
            Op::FreeInParts { block, order, first } => {
                if let Some((pfn, of)) = self.held(block) {
                    // At most 32 parts, so that the largest blocks stay affordable.
                    let order = order.min(of).max(of.saturating_sub(5));
                    let parts = 1 << (of - order);
                    let first = first.index(parts);
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
                    let range = self.later[index.index(self.later.len())];
                    assert_eq!(self.machine.add_memory(range), self.model.add_memory(range));
                }
            }
            Op::AddAnywhere { at, frames, node, zone } => {
                let range = MemoryRange::new(Pfn::new(self.anywhere(at)), FrameCount::new(frames))
                    .on_node(NodeId::new(node))
                    .in_zone(zone);
                assert_eq!(self.machine.add_memory(range), self.model.add_memory(range));
            }
            Op::Remove { at, frames } => self.remove(self.anywhere(at), frames),
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
            Op::DrainAll => self.machine.drain_all(),
            Op::Tick(cpu) => self.on_cpu(cpu, |cpu| self.machine.tick(cpu)),
            Op::RunOn(cpu) => {
                self.cpu = cpu;
                run_on(cpu);
            }
        }
    }

    /// Frees what is left, and checks that all memory is whole again.
    fn finish(mut self) {
        while let Some((&pfn, &order)) = self.model.held.first_key_value() {
            self.free(pfn, order);
        }
        self.machine.drain_all();
        self.model.check_whole(&self.machine);
    }
}

fn check<D: Design<TestPlatform>>(setup: &Setup<D::Settings>, ops: &[Op]) {
    let mut pair = Pair::<D>::new(setup);
    for op in ops {
        pair.run(op);
        pair.model.check(&pair.machine);
    }
    pair.finish();
}

fn small_orders() -> BoxedStrategy<u8> {
    prop_oneof![8 => Just(0u8), 4 => 1..=3u8, 2 => 4..=9u8].boxed()
}

/// Orders of blocks that pageblocks have, and one that is too large for the design.
fn of_design<D: Design<TestPlatform>>(order: u8) -> u8 {
    if order > Order::BUDDY_MAX.get() { D::ORDER_MAX.get() + 1 } else { order }
}

fn all_orders() -> BoxedStrategy<u8> {
    (0..=11u8).boxed()
}

fn ops(order: impl Fn() -> BoxedStrategy<u8>, frees: u32) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(order, frees), 0..400)
}

/// Checks a design on random machines with random lists of calls.
fn explore<D: Design<TestPlatform, Settings: 'static>>(ops: impl Strategy<Value = Vec<Op>>) {
    let default = ProptestConfig::default();
    // A failure prints in full what to turn into a separate test.
    let config = ProptestConfig { failure_persistence: None, ..default };
    let checked = TestRunner::new(config).run(&(setup(), ops), |(setup, ops)| {
        check::<D>(&setup, &ops);
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

fn small_blocks_come_and_go<D: Design<TestPlatform, Settings: 'static>>() {
    explore::<D>(ops(small_orders, 6));
}

fn memory_runs_out<D: Design<TestPlatform, Settings: 'static>>() {
    explore::<D>(ops(small_orders, 1));
}

fn blocks_of_all_orders_mix<D: Design<TestPlatform, Settings: 'static>>() {
    explore::<D>(ops(all_orders, 4));
}

test_designs!(TestPlatform: [
    small_blocks_come_and_go,
    memory_runs_out,
    blocks_of_all_orders_mix,
]);

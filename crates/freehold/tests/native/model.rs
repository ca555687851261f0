//! Random lists of calls on random machines, against a naive model that predicts every outcome.
//!
//! A failing case is shrunk and printed with its machine and its calls. The cases are the same on
//! every run; `PROPTEST_CASES` asks for more, `PROPTEST_RNG_SEED` for others.

use crate::common::TestPlatform;
use crate::designs::{fixed, variants};
use crate::naive::Ask;
use crate::pair::{Nth, Op, Pair, Range};
use crate::setup::{PAGEBLOCK, Setup, Stretch};
use freehold::designs::{Design, Settings};
use freehold::{FrameSize, MigrateType, Watermark, ZoneKind};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

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
            Setup::new(&stretches, &cpus, distances, numbers, settings)
        },
    )
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
    let index = || any::<u32>().prop_map(Nth);
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
        2 => (index(), removed, any::<bool>())
            .prop_map(|(at, frames, moves)| Op::Remove { at, frames, moves }),
        2 => contiguous(),
        4 => index().prop_map(Op::Look),
        1 => (0..6u32).prop_map(Op::Drain),
        1 => Just(Op::DrainAll),
        2 => (0..6u32).prop_map(Op::Tick),
        4 => (0..6u32).prop_map(Op::RunOn),
    ]
}

/// Calls that make memory contiguous, and those that follow.
fn contiguous() -> impl Strategy<Value = Op> {
    let index = || any::<u32>().prop_map(Nth);
    let frames = || prop_oneof![3 => 0..20u64, 2 => 20..1500u64];
    let range = (ask(Just(0).boxed()), frames(), 0..8u8, prop::option::of(index()))
        .prop_map(|(near, frames, align, at)| Range { near, frames, align, at });
    prop_oneof![
        4 => (range, any::<bool>()).prop_map(|(range, moves)| Op::AllocRange { range, moves }),
        2 => (index(), frames()).prop_map(|(at, frames)| Op::FreeRange { at, frames }),
        2 => ask(all_orders()).prop_map(Op::AllocCompacting),
        1 => Just(Op::Compact),
        1 => (0..6u32).prop_map(Op::Offline),
    ]
}

fn check<D: Design<TestPlatform>>(setup: &Setup<D::Settings>, ops: &[Op]) {
    let mut pair = Pair::<D>::new(setup);
    for op in ops {
        pair.run(op);
        pair.check();
    }
    pair.finish();
}

fn small_orders() -> BoxedStrategy<u8> {
    prop_oneof![8 => Just(0u8), 4 => 1..=3u8, 2 => 4..=9u8].boxed()
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

//! Machines at the limits of a configuration: each can be built, allocated to the last frame and
//! freed, or is refused with the documented error.

use freehold::geometry::CPUS_MAX;
use freehold::{
    Config, Error, FrameCount, MemoryRange, MigrateType, NodeId, Order, Pfn, Request, Watermark,
};

use crate::common::{TestPlatform, run_on};
use crate::tested::{TestDesign, Tested, check_whole, range};

test_designs!(TestPlatform: [
    all_memory_of_every_machine_can_be_had,
    min_free_at_its_limits,
    blocks_at_the_edges_of_memory,
]);

/// A machine, and the expected result for an allocator on it.
struct Case {
    name: &'static str,
    ranges: Vec<MemoryRange>,
    cpus: usize,
    /// The nodes of the CPUs lie so far apart.
    node_step: usize,
    span: Option<(u64, u64)>,
    outcome: Result<(), Error>,
}

impl Case {
    fn new(name: &'static str, ranges: &[MemoryRange]) -> Self {
        let ranges = ranges.to_vec();
        Case { name, ranges, cpus: 2, node_step: 0, span: None, outcome: Ok(()) }
    }

    fn cpus(self, cpus: usize) -> Self {
        Case { cpus, ..self }
    }

    fn refused(self, error: Error) -> Self {
        Case { outcome: Err(error), ..self }
    }
}

fn cases() -> Vec<Case> {
    let nodes: Vec<_> =
        (0..100).map(|i| range(i * 1024 + 3, 600).on_node(NodeId::new(i as u16))).collect();
    let shards: Vec<_> = (0..400).map(|i| range(i * 37 + 5, 11)).collect();
    // The last frame numbers that leave room for a whole block of the largest order below.
    let top = u64::MAX - (Order::BUDDY_MAX.frames().get() - 1);
    vec![
        Case::new("one frame", &[range(777, 1)]).cpus(1),
        Case::new("three frames across pageblocks", &[range(511, 3)]).cpus(1),
        Case::new("one pageblock", &[range(512, 512)]).cpus(1),
        Case::new("4096 CPUs", &[range(0, 512)]).cpus(4096),
        Case::new("as many CPUs as can be", &[range(0, 512)]).cpus(CPUS_MAX),
        Case::new("one more", &[range(0, 512)]).cpus(CPUS_MAX + 1).refused(Error::BadTopology),
        Case { node_step: 3, ..Case::new("100 nodes", &nodes).cpus(8) },
        Case { node_step: 65_535, ..Case::new("a CPU of the last node", &[range(0, 512)]) },
        Case::new("the last node", &[range(0, 512).on_node(NodeId::new(65_535))]),
        Case::new("400 shards", &shards).cpus(3),
        Case::new("near the top of the frame numbers", &[range(top - 4096, 2048)]),
        Case::new("at the top", &[range(top - 1500, 1500)]),
        Case::new("beyond the top", &[range(top - 10, 11)]).refused(Error::SpanTooLarge),
        Case::new("the last frame", &[range(u64::MAX - 1, 1)]).refused(Error::SpanTooLarge),
        Case::new("up to frame 2^32", &[range((1 << 32) - 4096, 4096)]),
        Case::new("across frame 2^32", &[range((1 << 32) - 700, 1400)]),
        Case { span: Some((0, 1 << 20)), ..Case::new("an empty span", &[range(700_000, 1)]) },
    ]
}

fn try_build<D: TestDesign>(case: &Case, min_free: Option<u64>) -> Result<Tested<D>, Error> {
    let cpus: Vec<_> =
        (0..case.cpus).map(|cpu| NodeId::new((cpu * case.node_step) as u16)).collect();
    let config = Config::new(&case.ranges, &cpus)
        .min_free(min_free.map(FrameCount::new))
        .span(case.span.map(|(first, frames)| (Pfn::new(first), FrameCount::new(frames))));
    Tested::try_new(TestPlatform, &config, &D::Settings::default())
}

/// Allocates blocks of falling orders until nothing is left.
fn take_all<D: TestDesign>(machine: &Tested<D>, migratetype: MigrateType) -> Vec<(Pfn, Order)> {
    let mut held = Vec::new();
    for order in (0..=D::ORDER_MAX.get()).rev().map(Order::new) {
        let request = Request::new(order).migratetype(migratetype).watermark(Watermark::Ignore);
        held.extend(std::iter::from_fn(|| machine.alloc(request).ok()).map(|pfn| (pfn, order)));
        assert_eq!(machine.alloc(request), Err(Error::OutOfMemory));
    }
    held
}

/// Frees all that is held and checks that all memory is free again.
fn give_all_back<D: TestDesign>(machine: &Tested<D>, held: Vec<(Pfn, Order)>, name: &str) {
    for (pfn, order) in held {
        assert_eq!(machine.free(pfn, order), Ok(()), "{name}: {pfn}");
    }
    check_whole(machine);
}

fn all_memory_of_every_machine_can_be_had<D: TestDesign>() {
    run_on(0);
    for case in cases() {
        let machine = match try_build::<D>(&case, None) {
            Ok(machine) => machine,
            Err(error) => {
                assert_eq!(Err(error), case.outcome, "{}", case.name);
                continue;
            }
        };
        assert_eq!(case.outcome, Ok(()), "{}", case.name);
        let total: u64 = case.ranges.iter().map(|range| range.frames.get()).sum();
        let managed: FrameCount = machine.zones().map(|zone| zone.managed).sum();
        assert_eq!(managed.get(), total, "{}", case.name);
        let held = take_all(&machine, MigrateType::Movable);
        let frames: FrameCount = held.iter().map(|(_, order)| order.frames()).sum();
        assert_eq!(frames.get(), total, "{}", case.name);
        let is_memory = |pfn: Pfn| {
            let holds =
                |range: &MemoryRange| range.start <= pfn && pfn < range.start.offset(range.frames);
            case.ranges.iter().any(holds)
        };
        assert!(held.iter().all(|&(pfn, _)| is_memory(pfn)), "{}", case.name);
        give_all_back(&machine, held, case.name);
    }
}

fn min_free_at_its_limits<D: TestDesign>() {
    run_on(0);
    let case = Case::new("two pageblocks", &[range(0, 1024)]);
    for (min_free, expected) in [
        (0, Ok(())),
        (512, Ok(())),
        (1024, Err(Error::BelowWatermark)),
        (1025, Err(Error::BelowWatermark)),
        (1 << 60, Err(Error::BelowWatermark)),
        (u64::MAX, Err(Error::BelowWatermark)),
    ] {
        let machine = try_build::<D>(&case, Some(min_free)).expect("it can be built");
        let marks = machine.zones().next().expect("there is a zone").marks;
        // More than there is means all of it.
        let kept = FrameCount::new(min_free.min(1024));
        assert_eq!(marks.min, kept, "min_free = {min_free}");
        let in_order = if min_free == 0 { marks.high == marks.min } else { marks.low > marks.min };
        assert!(in_order && marks.low <= marks.high, "min_free = {min_free}: {marks:?}");
        let ordinary = machine.alloc(Request::default());
        assert_eq!(ordinary.map(|_| ()), expected, "min_free = {min_free}");
        if let Ok(pfn) = ordinary {
            machine.free(pfn, Order::ZERO).expect("it is held");
        }
        let held = take_all(&machine, MigrateType::Unmovable);
        let frames: FrameCount = held.iter().map(|(_, order)| order.frames()).sum();
        assert_eq!(frames, FrameCount::new(1024), "min_free = {min_free}");
        give_all_back(&machine, held, "two pageblocks");
    }
}

/// Blocks of the largest order exist where all their frames are memory, and nowhere else.
fn blocks_at_the_edges_of_memory<D: TestDesign>() {
    run_on(0);
    let large = D::ORDER_MAX.frames().get();
    // The first frame and the number of frames, and the resulting number of largest blocks.
    for (first, frames, blocks) in [
        (large, large, 1),
        (large - 512, large + 1024, 1),
        (large - 512, large + 511, 0),
        (large + 512, 2 * large - 1024, 0),
        (large + 512, 2 * large - 512, 1),
        (3 * large + large / 4, 2 * large, 1),
    ] {
        let name = format!("{frames} frames from {first}");
        let case = Case::new("large blocks", &[range(first, frames)]);
        let machine = try_build::<D>(&case, Some(0)).expect("it can be built");
        let held = take_all(&machine, MigrateType::Movable);
        let taken: FrameCount = held.iter().map(|(_, order)| order.frames()).sum();
        assert_eq!(taken.get(), frames, "{name}");
        let largest =
            held.iter().filter(|&&(pfn, order)| order == D::ORDER_MAX && pfn.is_aligned(order));
        assert_eq!(largest.count(), blocks, "{name}");
        give_all_back(&machine, held, &name);
    }
}

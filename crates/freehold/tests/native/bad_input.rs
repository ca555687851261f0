//! Every error, by a call that a user could make, with a check that it changed nothing.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::common::TestPlatform;
use crate::designs::fixed;
use crate::machine::Machine;
use crate::tested::{TestDesign, Tested, range};
use freehold::{
    BulkFreeError, Census, Config, CpuId, Error, Events, FrameCount, MemoryRange, Metadata, NodeId,
    Order, PageAllocator, Pfn, Request, ZoneKind, ZoneStats,
};
use freehold_linux::zone_lock::ZoneLockSettings;
use freehold_linux::{Pcp, ZoneLock};

const CPUS: [NodeId; 2] = [NodeId::new(0), NodeId::new(1)];

/// A hole lies from 1024 to 2048, and no memory from 3000 on.
const RANGES: [MemoryRange; 3] = [
    range(0, 1024),
    range(2048, 952).on_node(NodeId::new(1)),
    range(4096, 1024).in_zone(ZoneKind::Dma32),
];

/// Lists that move four frames at a time.
fn settings<D: TestDesign>() -> D::Settings {
    fixed(&D::Settings::default(), 4, 8)
}

fn machine<D: TestDesign>() -> Tested<D> {
    let span = Some((Pfn::new(0), FrameCount::new(8192)));
    let config = Config::new(&RANGES, &CPUS).span(span);
    Machine::new(TestPlatform, &config, &settings::<D>())
}

fn books<D: TestDesign>(machine: &Tested<D>) -> (Events, Vec<ZoneStats>, Census) {
    let census = machine.validate().expect("the books are right");
    (machine.events(), machine.zones().collect(), census)
}

/// Checks that `call` fails with `error` and changes nothing.
#[track_caller]
fn refused<D: TestDesign, T: std::fmt::Debug>(
    machine: &Tested<D>,
    error: Error,
    call: impl Fn(&Tested<D>) -> Result<T, Error>,
) {
    let before = books(machine);
    assert_eq!(call(machine).expect_err("the call is refused"), error);
    assert_eq!(books(machine), before);
}

/// Checks that no allocator is built for `config`.
#[track_caller]
fn unbuildable<D: TestDesign>(error: Error, config: &Config<'_>) {
    let settings = D::Settings::default();
    let layout = PageAllocator::<TestPlatform, D>::layout(config, &settings);
    assert_eq!(layout.expect_err("the configuration is refused"), error);
    let built = Tested::<D>::try_new(TestPlatform, config, &settings);
    assert_eq!(built.err(), Some(error));
}

fn orders_too_large<D: TestDesign>() {
    let machine = machine::<D>();
    for order in [D::ORDER_MAX.get() + 1, 32, 63, 64, 255].map(Order::new) {
        let request = Request::new(order);
        refused(&machine, Error::OrderTooLarge, |machine| machine.alloc(request));
        refused(&machine, Error::OrderTooLarge, |machine| {
            machine.alloc_bulk(request, &mut [Pfn::default(); 2])
        });
        refused(&machine, Error::OrderTooLarge, |machine| machine.free(Pfn::new(0), order));
    }
}

fn unknown_nodes<D: TestDesign>() {
    let machine = machine::<D>();
    for node in [2, 3, 1000, u16::MAX].map(NodeId::new) {
        let request = Request::default().node(node);
        refused(&machine, Error::UnknownNode, |machine| machine.alloc(request));
        refused(&machine, Error::UnknownNode, |machine| machine.alloc_bulk(request, &mut []));
        let range = range(6144, 10).on_node(node);
        refused(&machine, Error::UnknownNode, |machine| machine.add_memory(range));
    }
}

fn unknown_cpus<D: TestDesign>() {
    let machine = machine::<D>();
    for cpu in [2, 3, u32::MAX].map(CpuId::new) {
        refused(&machine, Error::UnknownCpu, |machine| machine.drain(cpu));
        refused(&machine, Error::UnknownCpu, |machine| machine.tick(cpu));
    }
}

fn foreign_frees<D: TestDesign>() {
    let machine = machine::<D>();
    // In a hole, in an unmanaged tail of a pageblock, past all memory, outside the metadata.
    for pfn in [1024, 2047, 3000, 3071, 7000, 8192, 1 << 40, u64::MAX].map(Pfn::new) {
        refused(&machine, Error::ForeignFrame, |machine| machine.free(pfn, Order::ZERO));
    }
    let pfn = Pfn::new(1024);
    refused(&machine, Error::ForeignFrame, |machine| machine.free(pfn, Order::BUDDY_MAX));
}

fn a_bulk_free_stops_at_the_first_bad_block<D: TestDesign>() {
    let machine = machine::<D>();
    let mut blocks = [Pfn::default(); 200];
    assert_eq!(machine.alloc_bulk(Request::default(), &mut blocks), Ok(200));
    // At the front, within and at the border of a chunk, and at the end.
    for bad in [0, 1, 63, 64, 65, 130, 199] {
        let good = blocks[bad];
        for (pfn, error) in [
            (Pfn::new(1500), Error::ForeignFrame),
            (Pfn::new(u64::MAX), Error::ForeignFrame),
            (Pfn::new(2100), Error::DoubleFree),
        ] {
            blocks[bad] = pfn;
            let freed = machine.free_bulk(&blocks, Order::ZERO);
            assert_eq!(freed, Err(BulkFreeError { freed: bad, error }));
            let census = machine.validate().expect("the books are right");
            assert_eq!(census.allocated.get(), 200 - bad as u64);
            assert_eq!(machine.alloc_bulk(Request::default(), &mut blocks[..bad]), Ok(bad));
        }
        blocks[bad] = good;
    }
    // The same block twice in one bulk.
    blocks[150] = blocks[20];
    let expected = BulkFreeError { freed: 150, error: Error::DoubleFree };
    assert_eq!(machine.free_bulk(&blocks, Order::ZERO), Err(expected));
    machine.validate().expect("the books are right");
}

fn bad_ranges<D: TestDesign>() {
    let machine = machine::<D>();
    for range in [range(6144, 0), range(u64::MAX, 1), range(u64::MAX - 5, 10)] {
        refused(&machine, Error::BadRange, |machine| machine.add_memory(range));
    }
    unbuildable::<D>(Error::BadRange, &Config::new(&[range(0, 0)], &CPUS));
    unbuildable::<D>(Error::BadRange, &Config::new(&[range(0, 10), range(20, 0)], &CPUS));
    unbuildable::<D>(Error::BadRange, &Config::new(&[range(0, 10), range(u64::MAX, 5)], &CPUS));
    let span = Some((Pfn::new(u64::MAX), FrameCount::new(2)));
    unbuildable::<D>(Error::BadRange, &Config::new(&[range(0, 1)], &CPUS).span(span));
}

fn overlapping_ranges<D: TestDesign>() {
    let machine = machine::<D>();
    for range in [range(0, 1), range(1023, 2), range(1000, 1000), range(512, 10), range(0, 1024)] {
        refused(&machine, Error::RangeOverlaps, |machine| machine.add_memory(range));
    }
    let overlapping = [
        [range(0, 100), range(99, 10), range(300, 1)],
        [range(100, 100), range(500, 9), range(0, 101)],
        [range(0, 100), range(0, 100), range(200, 1)],
        [range(0, 1000), range(5, 1), range(900, 200)],
    ];
    for ranges in &overlapping {
        unbuildable::<D>(Error::RangeOverlaps, &Config::new(ranges, &CPUS));
    }
}

fn ranges_outside_the_span<D: TestDesign>() {
    let machine = machine::<D>();
    for range in [range(8192, 1), range(8191, 2), range(1 << 50, 10), range(6144, 1 << 50)] {
        refused(&machine, Error::OutsideSpan, |machine| machine.add_memory(range));
    }
    let span = Some((Pfn::new(1024), FrameCount::new(1024)));
    for range in [range(1023, 1), range(1000, 100), range(2000, 49), range(4096, 1)] {
        unbuildable::<D>(Error::OutsideSpan, &Config::new(&[range], &CPUS).span(span));
    }
}

fn zones_that_share_a_pageblock<D: TestDesign>() {
    let machine = machine::<D>();
    // The last pageblock of node 1 ends at 3072.
    for range in [range(3071, 1), range(3000, 500)] {
        refused(&machine, Error::SharedPageblock, |machine| machine.add_memory(range));
    }
    // A neighbour in the same zone is allowed.
    let neighbour = range(3000, 72).on_node(NodeId::new(1));
    assert_eq!(machine.add_memory(neighbour), Ok(()));
    let (other_node, other_kind) =
        (range(200, 10).on_node(NodeId::new(1)), range(1000, 1).in_zone(ZoneKind::Dma));
    let sharing = [
        [range(0, 100), other_node, range(4096, 1)],
        [range(4096, 1), other_node, range(0, 100)],
        [range(0, 1000), other_kind, range(4096, 1)],
        [range(0, 600), range(600, 100), other_kind],
    ];
    for ranges in &sharing {
        unbuildable::<D>(Error::SharedPageblock, &Config::new(ranges, &CPUS));
    }
}

fn spans_too_large<D: TestDesign>() {
    let too_large = [(0, 1 << 32), (0, 1 << 60), (1 << 62, (1 << 32) + 1), (u64::MAX - 9, 9)];
    for (first, frames) in too_large {
        let span = Some((Pfn::new(first), FrameCount::new(frames)));
        let spare_zones = [(NodeId::new(0), ZoneKind::Normal)];
        let config = Config::new(&[], &CPUS).span(span).spare_zones(&spare_zones);
        unbuildable::<D>(Error::SpanTooLarge, &config);
    }
    let too_much = [range(0, 1 << 31), range(1 << 33, 1 << 31)];
    unbuildable::<D>(Error::SpanTooLarge, &Config::new(&too_much, &CPUS));
    // The largest span that links can name.
    let span = Some((Pfn::new(0), FrameCount::new((1 << 32) - 1024)));
    let config = Config::new(&RANGES, &CPUS).span(span);
    assert!(PageAllocator::<TestPlatform, D>::layout(&config, &D::Settings::default()).is_ok());
}

fn records_of_frames_too_far_apart<D: TestDesign>() {
    if ["freehold", "llfree"].contains(&D::NAME) {
        return; // They have no such records.
    }
    for frame_record_bytes in [usize::MAX, usize::MAX - 14, isize::MAX as usize, usize::MAX / 1024]
    {
        unbuildable::<D>(
            Error::SpanTooLarge,
            &Config::new(&RANGES, &CPUS).frame_record_bytes(frame_record_bytes),
        );
    }
}

fn topologies_without_memory_or_cpus<D: TestDesign>() {
    unbuildable::<D>(Error::BadTopology, &Config::new(&RANGES, &[]));
    unbuildable::<D>(Error::BadTopology, &Config::new(&[], &CPUS));
    // Room for memory, but no zone that it could belong to.
    let span = Some((Pfn::new(0), FrameCount::new(1024)));
    unbuildable::<D>(Error::BadTopology, &Config::new(&[], &CPUS).span(span));
}

fn too_many_zones<D: TestDesign>() {
    let spare_zones: Vec<_> =
        (0..1025u16).flat_map(|node| ZoneKind::ALL.map(|kind| (NodeId::new(node), kind))).collect();
    unbuildable::<D>(Error::BadTopology, &Config::new(&RANGES, &CPUS).spare_zones(&spare_zones));
}

fn distance_tables_of_a_wrong_length<D: TestDesign>() {
    for len in [1, 3, 5, 9] {
        let distances = vec![10; len];
        unbuildable::<D>(Error::BadDistances, &Config::new(&RANGES, &CPUS).distances(&distances));
    }
}

/// The settings that all designs have are checked in one place, so one design suffices.
#[test]
fn settings_out_of_range() {
    type Allocator = PageAllocator<TestPlatform, ZoneLock<TestPlatform>>;
    for (batch, high) in [(0, 0), (0, 10), (2, 1), (1, 0), (1, (1 << 20) + 1), (u32::MAX, u32::MAX)]
    {
        let config = Config::new(&RANGES, &CPUS);
        let settings = ZoneLockSettings { pcp: Pcp::Fixed, batch, high, ..Default::default() };
        assert_eq!(Allocator::layout(&config, &settings).err(), Some(Error::BadSetting));
        let built = Machine::<_, ZoneLock<_>>::try_new(TestPlatform, &config, &settings);
        assert_eq!(built.err(), Some(Error::BadSetting));
        // They do not matter if they are not used.
        let tuned = ZoneLockSettings { pcp: Pcp::Auto, ..settings };
        assert!(Allocator::layout(&config, &tuned).is_ok());
    }
}

fn metadata_too_small_or_misaligned<D: TestDesign>() {
    let config = Config::new(&RANGES, &CPUS);
    let settings = D::Settings::default();
    let size =
        PageAllocator::<TestPlatform, D>::layout(&config, &settings).expect("in order").size();
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); size + 128];
    let skip = buffer.as_ptr().align_offset(64);
    let base: NonNull<u8> = NonNull::from(&mut buffer[skip..]).cast();
    let (small, misaligned) = (Error::MetadataTooSmall, Error::MetadataMisaligned);
    for (offset, len, error) in [
        (0, 0, small),
        (0, size - 1, small),
        (1, size, misaligned),
        (8, size + 55, misaligned),
        (32, size, misaligned),
    ] {
        let start = NonNull::new(base.as_ptr().wrapping_add(offset)).expect("within the buffer");
        // SAFETY: the bytes lie within the buffer, which outlives the allocator, if any is built.
        let metadata = unsafe { Metadata::from_raw_parts(start, len) };
        let built = PageAllocator::<_, D>::new(TestPlatform, &config, &settings, metadata);
        assert_eq!(built.err(), Some(error), "{len} bytes at {offset}");
    }
    // Another aligned address works, and so does any if there is room for an aligned one.
    for (offset, len) in [(64, size), (1, size + 63), (63, size + 1)] {
        let start = NonNull::new(base.as_ptr().wrapping_add(offset)).expect("within the buffer");
        // SAFETY: as above.
        let metadata = unsafe { Metadata::from_raw_parts(start, len) };
        let built = PageAllocator::<_, D>::new(TestPlatform, &config, &settings, metadata);
        built.expect("in order").validate().expect("the books are right");
    }
}

test_designs!(TestPlatform: [
    orders_too_large,
    unknown_nodes,
    unknown_cpus,
    foreign_frees,
    a_bulk_free_stops_at_the_first_bad_block,
    bad_ranges,
    overlapping_ranges,
    ranges_outside_the_span,
    zones_that_share_a_pageblock,
    spans_too_large,
    records_of_frames_too_far_apart,
    topologies_without_memory_or_cpus,
    too_many_zones,
    distance_tables_of_a_wrong_length,
    metadata_too_small_or_misaligned,
]);

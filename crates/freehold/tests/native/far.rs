//! Memory that lies far apart: as much metadata as for memory in one piece, and the same results;
//! memory that is added anywhere.

use crate::common::{TestPlatform, run_on};
use crate::designs::with;
use crate::random::Random;
use crate::tested::{TestDesign, Tested, build_as, frames, range};
use freehold::designs::Settings;
use freehold::{
    Config, CpuId, Error, FrameStatus, Immovable, MemoryRange, MigrateType, NodeId, Order,
    PageAllocator, Pfn, RangeRequest, Request, Watermark, ZoneKind,
};

test_designs!(TestPlatform: [
    address_space_without_memory_costs_next_to_nothing,
    results_are_the_same_however_far_memory_lies,
    what_lies_between_is_foreign,
    ranges_lie_in_one_stretch,
    memory_comes_at_any_address_for_which_there_is_room,
    there_may_be_nothing_but_room,
]);

const GIB: u64 = 1 << 18;
const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const CPUS: [NodeId; 2] = [NodeId::new(0), NodeId::new(1)];

/// How far apart the parts of memory lie.
const FAR: u64 = 1000 * GIB;

fn build<D: TestDesign>(ranges: &[MemoryRange]) -> Tested<D> {
    // Shorter paths may choose other frames, and are for the longest part of memory alone.
    let settings = match D::Settings::TABLE.iter().any(|setting| setting.name == "double_free") {
        true => with(&Default::default(), "double_free", "exact"),
        false => Default::default(),
    };
    build_as(ranges, &[0, 1], 16, &settings)
}

/// The second part of memory begins at `at`: half of it is another node's.
fn parts(at: u64) -> [MemoryRange; 4] {
    let second = range(at + 3, 4 * PAGEBLOCK - 3);
    let third = range(at + 6 * PAGEBLOCK, 2 * PAGEBLOCK).on_node(NodeId::new(1));
    let fourth = range(at + 8 * PAGEBLOCK, PAGEBLOCK + 7).on_node(NodeId::new(1));
    [range(0, 10 * PAGEBLOCK), second, third, fourth]
}

fn address_space_without_memory_costs_next_to_nothing<D: TestDesign>() {
    let bytes = |ranges: &[MemoryRange]| {
        let config = Config::new(ranges, &CPUS);
        let layout = PageAllocator::<TestPlatform, D>::layout(&config, &Default::default());
        layout.expect("there is room").size()
    };
    // RAM of a server with one socket, as its firmware has it; and of one with two.
    let at_8_tib = [range(GIB * 2, 2 * GIB), range(8192 * GIB, 254 * GIB)];
    let two = [at_8_tib[0], at_8_tib[1], range(65536 * GIB, 256 * GIB).on_node(NodeId::new(1))];
    let highest = [range(0, GIB), range((1 << 40) - GIB, GIB)];
    for (ranges, gib) in [(&at_8_tib[..], 256), (&two, 512), (&highest, 2)] {
        let nodes = ranges.iter().map(|range| range.node).max().expect("there is memory");
        let half = gib / 2 * GIB;
        let whole = [range(0, half), range(half, half).on_node(nodes)];
        let (of_parts, of_whole, of_gib) = (bytes(ranges), bytes(&whole), bytes(&[range(0, GIB)]));
        // What a part costs for its alignment.
        let gaps = (ranges.len() - 1) * 2 * of_gib;
        assert!(of_parts <= of_whole + gaps, "{of_parts} bytes, {of_whole} in one piece");
    }
}

/// Two machines, whose memory has the same indexes, are asked for the same.
fn results_are_the_same_however_far_memory_lies<D: TestDesign>() {
    let (near, far) = (build::<D>(&parts(GIB)), build::<D>(&parts(GIB + FAR)));
    let there = |pfn: Pfn| if pfn.get() < GIB { pfn } else { pfn.offset(frames(FAR)) };
    let mut random = Random(1);
    let (mut held, mut ranges) = (Vec::new(), Vec::new());
    let mut served = [0_u32; 3];
    for _ in 0..20_000 {
        run_on(random.below(2) as u32);
        let order = [0, 0, 0, 0, 3, 5, 9][random.below(7)];
        let migratetype = MigrateType::ALL[random.below(3)];
        let request = Request::new(Order::new(order)).migratetype(migratetype);
        let request = request.watermark(Watermark::Ignore);
        match random.below(100) {
            0..50 => {
                let got = near.alloc(request);
                assert_eq!(far.alloc(request), got.map(there));
                held.extend(got.map(|pfn| (pfn, order)));
                served[0] += u32::from(got.is_ok_and(|pfn| pfn.get() >= GIB));
            }
            50..92 if !held.is_empty() => {
                let (pfn, order) = held.swap_remove(random.below(held.len()));
                assert_eq!(near.free(pfn, Order::new(order)), Ok(()));
                assert_eq!(far.free(there(pfn), Order::new(order)), Ok(()));
            }
            92..95 => {
                let request = RangeRequest::new(frames(1 + random.below(700) as u64));
                let request = request.align(frames(1 << random.below(10)));
                let got = near.alloc_range(request, &Immovable);
                assert_eq!(far.alloc_range(request, &Immovable), got.map(there));
                ranges.extend(got.map(|pfn| (pfn, request.frames())));
                served[1] += u32::from(got.is_ok());
            }
            95..98 if !ranges.is_empty() => {
                let (pfn, count) = ranges.swap_remove(random.below(ranges.len()));
                assert_eq!(near.free_range(pfn, count), Ok(()));
                assert_eq!(far.free_range(there(pfn), count), Ok(()));
            }
            98 => {
                let first = Pfn::new(GIB + random.below(9) as u64 * PAGEBLOCK);
                let removed = near.remove_memory(first, frames(PAGEBLOCK), &Immovable);
                let of_far = far.remove_memory(there(first), frames(PAGEBLOCK), &Immovable);
                assert_eq!(of_far, removed);
                if removed.is_ok() {
                    let node = NodeId::new(u16::from(first.get() >= GIB + 6 * PAGEBLOCK));
                    let again = |first: Pfn| range(first.get(), PAGEBLOCK).on_node(node);
                    assert_eq!(near.add_memory(again(first)), Ok(()));
                    assert_eq!(far.add_memory(again(there(first))), Ok(()));
                    served[2] += 1;
                }
            }
            _ => {
                let cpu = CpuId::new(random.below(2) as u32);
                assert_eq!((near.drain(cpu), far.drain(cpu)), (Ok(()), Ok(())));
            }
        }
    }
    assert!(served.iter().all(|&count| count > 0), "{served:?}");
    assert_eq!(near.validate(), far.validate());
    assert!(near.validate().is_ok());
}

fn what_lies_between_is_foreign<D: TestDesign>() {
    let machine = build::<D>(&parts(GIB + FAR));
    // Numbers that lie as far behind the first part as indexes of the second one do, and others.
    let between = [10 * PAGEBLOCK, 11 * PAGEBLOCK, GIB, GIB + 3, GIB + FAR - 1, GIB + FAR + 2];
    let behind = [GIB + FAR + 9 * PAGEBLOCK + 7, 2 * GIB + FAR, u64::MAX];
    for pfn in between.into_iter().chain(behind).map(Pfn::new) {
        assert_eq!(machine.free(pfn, Order::ZERO), Err(Error::ForeignFrame), "{pfn}");
        assert_eq!(machine.status(pfn), FrameStatus::Foreign, "{pfn}");
    }
    for first in between {
        let added = machine.add_memory(range(first / PAGEBLOCK * PAGEBLOCK + 100 * PAGEBLOCK, 1));
        assert_eq!(added, Err(Error::OutsideSpan), "{first}");
    }
}

fn ranges_lie_in_one_stretch<D: TestDesign>() {
    // The first part ends where its GiB does, and the second begins with one.
    let ranges = [range(0, GIB), range(FAR, 2 * PAGEBLOCK)];
    let machine = build::<D>(&ranges);
    let most = machine.alloc_range(RangeRequest::new(frames(GIB + 1)), &Immovable);
    assert!(most.is_err(), "there is no such range");
    let second = RangeRequest::new(frames(PAGEBLOCK)).at(Pfn::new(FAR + 5));
    assert_eq!(machine.alloc_range(second, &Immovable), Ok(Pfn::new(FAR + 5)));
    let beyond = RangeRequest::new(frames(2 * PAGEBLOCK)).at(Pfn::new(GIB - PAGEBLOCK));
    assert_eq!(machine.alloc_range(beyond, &Immovable), Err(Error::OutsideSpan));
    assert_eq!(machine.free_range(Pfn::new(FAR), frames(4 * PAGEBLOCK)), Err(Error::ForeignFrame));
    assert_eq!(machine.free_range(Pfn::new(FAR + 5), frames(PAGEBLOCK)), Ok(()));
    // The largest block of a design lies within a part.
    let largest = Request::new(D::ORDER_MAX).watermark(Watermark::Ignore);
    let block = machine.alloc(largest).expect("the first part is free");
    let end = block.get() + D::ORDER_MAX.frames().get();
    assert!(end <= GIB || (block.get() >= FAR && end <= FAR + 2 * PAGEBLOCK));
}

/// Allocates and frees all frames of a machine; returns how many it got.
fn use_up<D: TestDesign>(machine: &Tested<D>) -> u64 {
    let request = Request::default().watermark(Watermark::Ignore);
    let all: Vec<_> = std::iter::from_fn(|| machine.alloc(request).ok()).collect();
    all.iter().for_each(|&pfn| machine.free(pfn, Order::ZERO).expect("it is held"));
    machine.drain_all();
    machine.validate().expect("the accounting is right");
    all.len() as u64
}

fn memory_comes_at_any_address_for_which_there_is_room<D: TestDesign>() {
    /// As much as the last piece grows by at once.
    const BLOCK: u64 = 1 << 15;
    let (start, last) = (range(5, 10 * PAGEBLOCK), (1 << 40) - 2 * PAGEBLOCK);
    let movable = [(NodeId::new(1), ZoneKind::Movable)];
    let config = Config::new(std::slice::from_ref(&start), &CPUS)
        .min_free(frames(0))
        .span((Pfn::new(0), frames(1 << 40)))
        .spare_zones(&movable)
        .room((frames(3 * BLOCK), 3));
    let machine = Tested::<D>::new(TestPlatform, &config, &Default::default());
    let mut total = 10 * PAGEBLOCK;
    let mut add = |range: MemoryRange| {
        machine.add_memory(range)?;
        total += range.frames.get();
        assert_eq!(use_up(&machine), total, "{range:?}");
        assert_eq!(machine.status(range.start.offset(range.frames)), FrameStatus::Foreign);
        Ok(())
    };
    // One piece, in parts that adjoin; the first one lies in the middle of it.
    assert_eq!(add(range(FAR + 3, 2 * PAGEBLOCK)), Ok(()));
    assert_eq!(add(range(FAR + BLOCK - PAGEBLOCK, 2 * PAGEBLOCK)), Ok(()), "the piece grows");
    assert_eq!(add(range(FAR + 4 * PAGEBLOCK, PAGEBLOCK)), Ok(()));
    // Another node's, at the end of the span; and one just above what there was at first.
    let highest = range(last, 2 * PAGEBLOCK).on_node(NodeId::new(1)).in_zone(ZoneKind::Movable);
    let refused = range(last + PAGEBLOCK, PAGEBLOCK).on_node(NodeId::new(1));
    assert_eq!(add(refused), Err(Error::UnknownZone));
    assert_eq!(add(highest), Ok(()));
    assert_eq!(add(highest), Err(Error::RangeOverlaps));
    assert_eq!(add(range(5 + 10 * PAGEBLOCK, 1)), Ok(()), "records lie beside the first memory");
    assert_eq!(add(range(11 * PAGEBLOCK, 21 * PAGEBLOCK)), Err(Error::OutsideSpan), "partly");
    assert_eq!(add(range(32 * PAGEBLOCK, PAGEBLOCK)), Ok(()));
    // No room for a fourth piece, nor beyond the span; but where memory was before.
    assert_eq!(add(range(FAR + 10 * BLOCK, 1)), Err(Error::OutsideSpan));
    assert_eq!(add(range((1 << 40) - 1, 2)), Err(Error::OutsideSpan));
    machine.remove_memory(Pfn::new(FAR + 3), frames(PAGEBLOCK), &Immovable).expect("it is free");
    assert_eq!(machine.status(Pfn::new(FAR + 3)), FrameStatus::Foreign);
    total -= PAGEBLOCK;
    assert_eq!(use_up(&machine), total);
    machine.add_memory(range(FAR + 3, PAGEBLOCK)).expect("it was there before");
    assert_eq!(use_up(&machine), total + PAGEBLOCK);
    // Across both parts that the first piece has grown by.
    let across = RangeRequest::exactly(Pfn::new(FAR + BLOCK - 7), frames(14));
    assert_eq!(machine.alloc_range(across, &Immovable), Ok(Pfn::new(FAR + BLOCK - 7)));
    assert_eq!(machine.free_range(Pfn::new(FAR + BLOCK - 7), frames(14)), Ok(()));
}

fn there_may_be_nothing_but_room<D: TestDesign>() {
    run_on(0);
    let zone = [(NodeId::new(0), ZoneKind::Normal)];
    let config = Config::new(&[], &CPUS).min_free(frames(0)).spare_zones(&zone);
    let config = config.room((frames(4 * PAGEBLOCK), 1));
    let machine = Tested::<D>::new(TestPlatform, &config, &Default::default());
    assert_eq!(machine.alloc(Request::default()), Err(Error::OutOfMemory));
    assert_eq!(machine.add_memory(range(u64::MAX - 10, 10)), Err(Error::OutsideSpan));
    machine.add_memory(range(FAR + 77, 4 * PAGEBLOCK)).expect("there is room");
    assert_eq!(use_up(&machine), 4 * PAGEBLOCK);
    assert_eq!(machine.add_memory(range(2 * FAR, 1)), Err(Error::OutsideSpan));
}

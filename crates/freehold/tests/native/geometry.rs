//! Frames of 16 and 64 KiB, with every design: what Linux computes from bytes comes out as Linux
//! has it, and all else does not care. Whatever the order of a pageblock.

use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;

use crate::common::{TestPlatform, run_on};
use crate::owner::{Owner, check_books, settle};
use crate::tested::{TestDesign, Tested, build, range};
use freehold::geometry::{FRAME_BYTES, STACKS_MAX};
use freehold::{
    Config, FrameCount, FrameSize, Marks, NodeId, Order, Pfn, RangeRequest, Request, Watermark,
};

test_designs!(TestPlatform: [
    watermarks_follow_the_memory_in_bytes,
    batches_have_as_many_bytes,
    memory_is_handed_out_moved_and_merged,
]);

/// Of three sizes of frames: the size in KiB, and how many make a GiB.
const SIZES: [(usize, u64); 3] = [(4, 262_144), (16, 65_536), (64, 16_384)];

fn size(kib: usize) -> FrameSize {
    FrameSize::new(kib << 10).expect("a power of two from 4 KiB on")
}

fn machine<D: TestDesign>(config: &Config<'_>) -> Tested<D> {
    run_on(0);
    Tested::new(TestPlatform, config, &D::Settings::default())
}

fn marks<D: TestDesign>(machine: &Tested<D>) -> [u64; 3] {
    let Marks { min, low, high, .. } = machine.zones().next().expect("there is a zone").marks;
    [min, low, high].map(FrameCount::get)
}

fn watermarks_follow_the_memory_in_bytes<D: TestDesign>() {
    let with_two_gib = SIZES.map(|(kib, gib)| {
        let (ranges, cpus) = ([range(0, gib)], [NodeId::new(0)]);
        let config = Config::new(&ranges, &cpus)
            .frame_size(size(kib))
            .span((Pfn::new(0), FrameCount::new(2 * gib)));
        let machine = machine::<D>(&config);
        // sqrt(16 * 1048576 KiB) is 4096 KiB. The gap is a quarter of that, or a thousandth of the
        // zone if that is more.
        let of_one_gib = match kib {
            4 => [1024, 1024 + 262, 1024 + 2 * 262],
            16 => [256, 256 + 65, 256 + 2 * 65],
            _ => [64, 64 + 16, 64 + 2 * 16],
        };
        assert_eq!(marks(&machine), of_one_gib, "{kib} KiB");
        machine.add_memory(range(gib, gib)).unwrap();
        marks(&machine)
    });
    // sqrt(16 * 2097152 KiB) is 5792 KiB, in whole frames.
    let expected =
        [[1448, 1448 + 524, 1448 + 1048], [362, 362 + 131, 362 + 262], [90, 90 + 32, 90 + 64]];
    assert_eq!(with_two_gib, expected);
}

/// What the first allocation of a CPU leaves on its lists is a batch less one.
fn batches_have_as_many_bytes<D: TestDesign>() {
    for ((kib, gib), batch) in SIZES.into_iter().zip([63, 15, 3]) {
        let (ranges, cpus) = ([range(0, 4 * gib)], [NodeId::new(0)]);
        let config = Config::new(&ranges, &cpus).frame_size(size(kib));
        let machine = machine::<D>(&config);
        machine.alloc(Request::default()).unwrap();
        let listed = machine.zones().next().expect("there is a zone").per_cpu.get();
        match D::NAME {
            // A CPU of these holds the rest of a pageblock.
            "freehold" => assert_eq!(listed + 1, Order::PAGEBLOCK.frames().get()),
            // And of these the rest of 32.
            "llfree" => assert_eq!(listed + 1, 32 * Order::PAGEBLOCK.frames().get()),
            "block-owner" => assert!(listed + 1 >= batch, "{kib} KiB: {listed}"),
            _ => assert_eq!(listed + 1, batch, "{kib} KiB"),
        }
    }
}

/// Fills memory with movable blocks, gives half of them back, and makes pageblocks of the holes.
fn memory_is_handed_out_moved_and_merged<D: TestDesign>() {
    let pageblock = Order::PAGEBLOCK.frames().get();
    let span = 12 * pageblock;
    for kib in [16, 64] {
        let (ranges, cpus) = ([range(0, span)], [NodeId::new(0); 2]);
        let frame_size = size(kib);
        let config = Config::new(&ranges, &cpus).frame_size(frame_size).min_free(FrameCount::ZERO);
        let machine = machine::<D>(&config);
        let owner = Owner::new(span as usize, span);
        let mut held = HashMap::new();
        for slot in 0..owner.slots() {
            let order = [0, 0, 1, 0, 3, 0][slot % 6];
            run_on(slot as u32 % 2);
            if let Ok(pfn) = owner.alloc(&machine, slot, Request::new(Order::new(order))) {
                held.insert(slot, pfn);
            }
        }
        assert!(owner.check() > span * 9 / 10, "memory was full");
        let slots: Vec<_> = held.into_keys().filter(|slot| slot % 3 != 0).collect();
        slots.into_iter().for_each(|slot| {
            owner.free(&machine, slot);
        });
        let used = owner.check();
        check_books(&*machine, used);

        machine.drain_all();
        let report = machine.compact(&owner);
        assert!(report.migrated.get() > 0 && owner.moves.load(SeqCst) > 0);
        assert_eq!(owner.check(), used, "all content is there");
        machine.drain_all();
        let request = Request::new(Order::PAGEBLOCK).watermark(Watermark::Ignore);
        let huge = machine.alloc_compacting(request, &owner).unwrap();
        assert!(huge.is_aligned(Order::PAGEBLOCK));
        machine.free(huge, Order::PAGEBLOCK).unwrap();
        let frames = FrameCount::new(pageblock + 3);
        let first = machine.alloc_range(RangeRequest::new(frames), &owner).unwrap();
        machine.free_range(first, frames).unwrap();

        assert_eq!(owner.check(), used);
        (0..owner.slots()).for_each(|slot| owner.free(&machine, slot));
        settle(&*machine);
        check_books(&*machine, 0);
        let pageblocks: u64 = machine.zones().map(|zone| zone.free_pageblocks()).sum();
        assert_eq!(pageblocks, 12, "everything merges again");
    }
}

#[test]
fn a_frame_size_is_a_power_of_two_from_4_kib_to_1_gib() {
    for bytes in [0, 1, 2048, 4095, 4097, 12 << 10, 1 << 31, usize::MAX] {
        assert_eq!(FrameSize::new(bytes), None, "{bytes}");
    }
    assert_eq!(FrameSize::new(4096), Some(FrameSize::MIN));
    assert_eq!(FrameSize::new(1 << 30), Some(FrameSize::MAX));
    let large = size(64);
    assert_eq!((large.bytes(), large.kib(), large.to_string()), (65_536, 64, "64 KiB".into()));
    assert_eq!(large.bytes_of(FrameCount::new(3)), 196_608);
    assert_eq!(large.bytes_of(FrameCount::new(u64::MAX)), usize::MAX);
    assert_eq!(FrameSize::default().bytes(), FRAME_BYTES);
    let (ranges, cpus) = ([range(0, 1)], [NodeId::new(0)]);
    assert_eq!(Config::new(&ranges, &cpus).frame_size, FrameSize::DEFAULT);
}

/// Many CPUs free in the pageblocks of one, with as many stacks as there are.
#[test]
fn frees_by_others_come_home_through_all_stacks() {
    let memory = [range(0, 64 << Order::PAGEBLOCK.get())];
    let machine = build::<freehold::designs::Freehold<TestPlatform>>(&memory, &[0; 20], 0);
    let pageblocks = 2 * STACKS_MAX as u64;
    let all: Vec<_> = (0..pageblocks << Order::PAGEBLOCK.get())
        .map(|_| machine.alloc(Request::default()).unwrap())
        .collect();
    for pfn in all {
        run_on(1 + (pfn.get() % 19) as u32);
        machine.free(pfn, Order::ZERO).unwrap();
    }
    settle(&*machine);
    check_books(&*machine, 0);
}

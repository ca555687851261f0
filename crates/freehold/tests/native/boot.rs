//! Allocators out of maps of firmware: each frame is what all entries together make of it.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::common::{TestPlatform, run_on};
use crate::random::Random;
use freehold::designs::Design;
use freehold::{
    BootMap, BootReport, Config, Error, FrameCount, FrameSize, FrameStatus, MemoryRange, Metadata,
    NodeId, Order, PageAllocator, Pfn, ZoneKind,
};

test_designs!(TestPlatform: [
    frames_are_what_all_entries_make_of_them,
    maps_that_cannot_be_are_refused,
]);

const SIZE: FrameSize = FrameSize::MIN;
const FRAME: u64 = SIZE.bytes() as u64;
const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const FRAMES: u64 = 24 * PAGEBLOCK;
const CPUS: [NodeId; 2] = [NodeId::new(0), NodeId::new(1)];

type Booted<D> = (PageAllocator<TestPlatform, D>, BootReport, Vec<MemoryRange>);

fn boot<D: Design<TestPlatform>>(map: &BootMap<'_>, room: usize) -> Result<Booted<D>, Error> {
    run_on(0);
    let config = Config::new(&[], &CPUS).min_free(FrameCount::ZERO);
    let mut ranges = vec![MemoryRange::new(Pfn::new(0), FrameCount::ZERO); room];
    let at = |place: MemoryRange| {
        // Frames are aligned, but vectors are not.
        let bytes = SIZE.bytes_of(place.frames) + 64;
        Metadata::from_static(vec![MaybeUninit::uninit(); bytes].leak())
    };
    let settings = Default::default();
    let (frames, report) =
        PageAllocator::boot(TestPlatform, &config, &settings, map, &mut ranges, at)?;
    ranges.truncate(report.ranges);
    Ok((frames, report, ranges))
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.below(bound as usize) as u64
}

/// Random bytes with edges at quarters of frames, some of them at the end of a pageblock.
fn bytes(random: &mut Random) -> Range<u64> {
    let mut edge = || match random.below(4) {
        0 => below(random, FRAMES / PAGEBLOCK + 1) * PAGEBLOCK * FRAME,
        1 => below(random, FRAMES + 1) * FRAME,
        _ => below(random, 4 * FRAMES + 1) * FRAME / 4,
    };
    let edges = [edge(), edge()];
    edges[0].min(edges[1])..edges[0].max(edges[1])
}

fn frames_are_what_all_entries_make_of_them<D: Design<TestPlatform>>() {
    let mut random = Random(11);
    let (mut several, mut left_out, mut shared) = (0, 0, 0);
    for case in 0..60 {
        let mut all =
            |most| (0..random.below(most)).map(|_| bytes(&mut random)).collect::<Vec<_>>();
        let (mut usable, reserved, nodes) = (all(6), all(5), all(4));
        usable.push(FRAMES / 2 * FRAME..FRAMES * FRAME);
        let nodes: Vec<_> = nodes.into_iter().map(|bytes| (bytes, NodeId::new(1))).collect();
        let zone_ends = [
            (below(&mut random, FRAMES) * FRAME / 4, ZoneKind::Dma),
            (FRAMES / 3 * FRAME, ZoneKind::Dma32),
        ];
        let map = BootMap::new(&usable, &reserved).nodes(&nodes).zone_ends(&zone_ends);
        let room = usable.len() + 2 * nodes.len() + zone_ends.len();
        let (frames, report, ranges) = match boot::<D>(&map, room) {
            Ok(booted) => booted,
            Err(Error::OutOfMemory) => continue,
            Err(error) => panic!("{case}: {error}: {map:?}"),
        };
        frames.validate().expect("the accounting is right");

        // The same from each byte's point of view.
        let of = |at: u64| {
            let node = nodes.iter().any(|(bytes, _)| bytes.contains(&at));
            let zone = zone_ends.iter().find(|&&(end, _)| at < end);
            let zone = zone.map_or(ZoneKind::Normal, |&(_, zone)| zone);
            let is_usable = usable.iter().any(|bytes| bytes.contains(&at));
            is_usable.then_some((NodeId::new(u16::from(node)), zone))
        };
        let quarters = |frame: u64| (0..4).map(move |nth| frame * FRAME + nth * FRAME / 4);
        let whole = |frame: u64| {
            let mut kinds = quarters(frame).map(of);
            let first = kinds.next()?;
            if kinds.all(|kind| kind == first) { first } else { None }
        };
        let metadata = report.metadata.expect("it lies somewhere");
        let metadata = metadata.start..metadata.start + metadata.frames;
        let (mut memory, mut taken, mut owner) = (0, 0, None);
        for frame in 0..FRAMES {
            if frame.is_multiple_of(PAGEBLOCK) {
                owner = None;
            }
            let kind = whole(frame).filter(|kind| owner.is_none_or(|owner| owner == *kind));
            owner = owner.or(kind);
            shared += u64::from(kind.is_none() && whole(frame).is_some());
            let is_reserved =
                quarters(frame).any(|at| reserved.iter().any(|bytes| bytes.contains(&at)));
            let pfn = Pfn::new(frame);
            let expected = kind.map(|_| !is_reserved && !metadata.contains(&pfn));
            let status = frames.status(pfn);
            let got = (status != FrameStatus::Foreign).then(|| frames.is_free(pfn));
            assert_eq!(got, expected, "{case}: {pfn}, {status:?}: {map:?} {report}");
            let range = ranges
                .iter()
                .find(|range| (range.start..range.start + range.frames).contains(&pfn));
            assert_eq!(range.map(|range| (range.node, range.zone)), kind);
            memory += u64::from(kind.is_some());
            taken += u64::from(kind.is_some() && is_reserved);
        }
        assert_eq!((report.memory.get(), report.reserved.get()), (memory, taken));
        let bytes = (0..4 * FRAMES).filter(|quarter| of(quarter * FRAME / 4).is_some()).count();
        assert_eq!(report.left_out_bytes, bytes as u64 * FRAME / 4 - memory * FRAME);
        several += u64::from(ranges.len() > 3);
        left_out += u64::from(report.left_out_bytes > 0);
    }
    assert!(several > 10 && left_out > 10 && shared > 0, "{several} {left_out} {shared}");
}

fn maps_that_cannot_be_are_refused<D: Design<TestPlatform>>() {
    let refused = |usable: &[Range<u64>], reserved: &[Range<u64>], room| {
        boot::<D>(&BootMap::new(usable, reserved), room).err()
    };
    let (memory, none) = (0..FRAMES * FRAME, 0..0);
    let backwards = Range { start: 2, end: 1 };
    assert_eq!(refused(&[memory.clone(), none.clone()], std::slice::from_ref(&none), 1), None);
    for (usable, reserved) in [(&backwards, &none), (&memory, &backwards)] {
        let error = refused(&[memory.clone(), usable.clone()], std::slice::from_ref(reserved), 2);
        assert_eq!(error, Some(Error::BadRange));
    }
    let apart = [0..FRAME * PAGEBLOCK, 2 * FRAME * PAGEBLOCK..4 * FRAME * PAGEBLOCK];
    assert_eq!(refused(&apart, &[], 1), Some(Error::TooManyRanges));
    assert_eq!(refused(&[], &[], 1), Some(Error::BadTopology));
    let no_whole_frame = [1..FRAME, FRAME + 1..2 * FRAME];
    assert_eq!(refused(&no_whole_frame, &[], 1), Some(Error::BadTopology));
    let all_reserved = [0..u64::MAX, 5..u64::MAX];
    assert_eq!(refused(&apart, &all_reserved, 2), Some(Error::OutOfMemory));
    // The metadata lies where the boot has mapped memory.
    let map = BootMap::new(std::slice::from_ref(&memory), &[]).metadata_end(FRAMES / 2 * FRAME);
    let place = boot::<D>(&map, 1).expect("there is room").1.metadata.expect("it lies somewhere");
    assert_eq!((place.start + place.frames).get(), FRAMES / 2);
    let nowhere = map.metadata_end(FRAME);
    assert_eq!(boot::<D>(&nowhere, 1).err(), Some(Error::OutOfMemory));
}

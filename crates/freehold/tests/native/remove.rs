//! Removing memory: what is there moves away or the call is refused; and what a frame is.

use crate::common::TestPlatform;
use crate::owner::{Owner, Picky, check_books};
use crate::random::Random;
use crate::ranges::{CPUS, ask, with};
use crate::tested::{TestDesign, Tested, frames, range};
use freehold::{
    Config, Error, FrameCount, FrameSize, FrameStatus, Immovable, MemoryRange, MigrateError,
    MigrateType, NodeId, Order, PageAllocator, Pfn, Request, ZoneKind,
};

test_designs!(TestPlatform: [
    content_moves_out_of_memory_that_is_removed,
    a_refused_removal_leaves_all_frames_in_use,
    whole_pageblocks_may_go_to_another_zone,
    an_owner_may_add_memory_while_its_content_moves,
    what_is_used_already_is_reserved,
    metadata_has_a_place_in_a_boot_memory_map,
]);

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

fn managed<D: TestDesign>(machine: &Tested<D>) -> u64 {
    machine.zones().map(|zone| zone.managed.get()).sum()
}

fn content_moves_out_of_memory_that_is_removed<D: TestDesign>() {
    const FRAMES: u64 = 6 * PAGEBLOCK;
    for order in [Order::ZERO, Order::new(3), Order::PAGEBLOCK] {
        let machine = with::<D>(&[range(0, FRAMES)], 0);
        let owner = Owner::new((FRAMES / 2 / order.frames().get()) as usize, FRAMES);
        for slot in 0..owner.slots() {
            owner.alloc(&machine, slot, Request::new(order)).unwrap();
        }
        let removed = frames(2 * PAGEBLOCK);
        let occupied =
            (0..owner.slots()).filter_map(|slot| owner.block(slot)).map(|block| block.0).min();
        let first = Pfn::new(occupied.unwrap().get() / PAGEBLOCK * PAGEBLOCK);
        machine.remove_memory(first, removed, &owner).unwrap();
        assert!(owner.moves.load(std::sync::atomic::Ordering::SeqCst) > 0, "content was there");
        check_books(&*machine, owner.check());
        assert_eq!(managed(&machine), FRAMES - removed.get());
        // There is room for the rest of the content, but not for two pageblocks less.
        let next = Pfn::new(first.get() + removed.get());
        let error = machine.remove_memory(next, removed, &owner).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory | Error::BelowWatermark), "{error}");
        check_books(&*machine, owner.check());
        assert_eq!(managed(&machine), FRAMES - removed.get());
        (0..owner.slots()).for_each(|slot| owner.free(&machine, slot));
        check_books(&*machine, 0);
    }
}

fn a_refused_removal_leaves_all_frames_in_use<D: TestDesign>() {
    const FRAMES: u64 = 4 * PAGEBLOCK;
    let machine =
        with::<D>(&[range(0, FRAMES), range(FRAMES, PAGEBLOCK).in_zone(ZoneKind::Movable)], 0);
    let remove = |first, count| machine.remove_memory(Pfn::new(first), frames(count), &Immovable);
    assert_eq!(remove(0, 0), Err(Error::BadRange));
    assert_eq!(remove(FRAMES - 1, 2), Err(Error::BadRange), "two zones");
    assert_eq!(remove(FRAMES, 3 * PAGEBLOCK), Err(Error::OutsideSpan));
    assert_eq!(remove(1 << 40, 1), Err(Error::OutsideSpan));
    let stone = machine.alloc_range(ask(1).at(Pfn::new(PAGEBLOCK + 7)), &Immovable).unwrap();
    assert_eq!(remove(0, 2 * PAGEBLOCK), Err(Error::RangeBusy));
    let owner = Owner::new(1, FRAMES + PAGEBLOCK);
    let at = owner.alloc(&machine, 0, Request::default().migratetype(MigrateType::Movable));
    let at = at.unwrap();
    let stays = Picky(&owner, |_, _, _| Err(MigrateError::Failed));
    assert_eq!(machine.remove_memory(at, frames(1), &stays), Err(Error::RangeBusy));
    assert_eq!(machine.order_of(at), Some(Order::ZERO));
    check_books(&*machine, 2);
    assert_eq!(managed(&machine), FRAMES + PAGEBLOCK);
    machine.remove_memory(at, frames(1), &owner).unwrap();
    assert_eq!((machine.status(at), owner.check()), (FrameStatus::Foreign, 1));
    machine.free(stone, Order::ZERO).unwrap();
    owner.free(&machine, 0);
    check_books(&*machine, 0);
}

fn whole_pageblocks_may_go_to_another_zone<D: TestDesign>() {
    let spare_zones = [(NodeId::new(1), ZoneKind::Movable)];
    let ranges = [range(0, 4 * PAGEBLOCK)];
    let config = Config::new(&ranges, &CPUS).spare_zones(&spare_zones).min_free(frames(0));
    let machine = Tested::<D>::new(TestPlatform, &config, &D::Settings::default());
    let other =
        |first, count| range(first, count).on_node(NodeId::new(1)).in_zone(ZoneKind::Movable);
    machine.remove_memory(Pfn::new(PAGEBLOCK), frames(1), &Immovable).unwrap();
    assert_eq!(machine.add_memory(other(PAGEBLOCK, 1)), Err(Error::SharedPageblock));
    machine.remove_memory(Pfn::new(PAGEBLOCK + 1), frames(PAGEBLOCK - 1), &Immovable).unwrap();
    machine.add_memory(other(PAGEBLOCK, PAGEBLOCK)).unwrap();
    let managed: Vec<_> = machine.zones().map(|zone| zone.managed.get()).collect();
    assert_eq!(managed, [3 * PAGEBLOCK, PAGEBLOCK]);
    let there = Request::new(Order::PAGEBLOCK).node(NodeId::new(1)).only_node();
    assert_eq!(machine.alloc(there), Ok(Pfn::new(PAGEBLOCK)));
    check_books(&*machine, PAGEBLOCK);
}

fn an_owner_may_add_memory_while_its_content_moves<D: TestDesign>() {
    const FRAMES: u64 = 2 * PAGEBLOCK;
    let config = Config::new(&[], &CPUS).span((Pfn::new(0), frames(2 * FRAMES)));
    let spare_zones = [(NodeId::new(0), ZoneKind::Normal)];
    let config = config.spare_zones(&spare_zones).min_free(frames(0));
    let machine = Tested::<D>::new(TestPlatform, &config, &D::Settings::default());
    machine.add_memory(range(0, FRAMES)).unwrap();
    let owner = Owner::new(1, 2 * FRAMES);
    let pfn = owner.alloc(&machine, 0, Request::default()).unwrap();
    let grows = Picky(&owner, |_, _, _| {
        machine.add_memory(range(FRAMES, FRAMES)).map_err(|_| MigrateError::Failed)
    });
    let first = Pfn::new(pfn.get() / PAGEBLOCK * PAGEBLOCK);
    machine.remove_memory(first, frames(PAGEBLOCK), &grows).unwrap();
    assert_eq!(managed(&machine), 2 * FRAMES - PAGEBLOCK);
    check_books(&*machine, owner.check());
}

fn what_is_used_already_is_reserved<D: TestDesign>() {
    const FRAMES: u64 = 4 * PAGEBLOCK;
    let movable = range(FRAMES, PAGEBLOCK).in_zone(ZoneKind::Movable);
    // All but a few frames are kept back, which does not matter here.
    let machine = with::<D>(&[range(0, FRAMES), movable], FRAMES - 8);
    let reserve = |first, count| machine.reserve(Pfn::new(first), frames(count));
    assert_eq!(reserve(3, PAGEBLOCK), Ok(()));
    assert_eq!(reserve(2 * PAGEBLOCK, PAGEBLOCK), Ok(()));
    assert_eq!(reserve(FRAMES + 7, 1), Ok(()), "in a zone for movable content as well");
    assert_eq!(reserve(3, 1), Err(Error::RangeBusy));
    assert_eq!(reserve(0, 0), Err(Error::BadRange));
    assert_eq!(reserve(FRAMES - 2, 10), Err(Error::RangeBusy), "the last of them is used");
    assert_eq!(reserve(FRAMES - 2, PAGEBLOCK + 3), Err(Error::ForeignFrame));
    check_books(&*machine, 2 * PAGEBLOCK + 1);
    assert_eq!(reserve(FRAMES - PAGEBLOCK + 1, PAGEBLOCK + 6), Ok(()), "two zones");
    machine.free_range(Pfn::new(FRAMES - PAGEBLOCK + 1), frames(PAGEBLOCK - 1)).unwrap();
    machine.free_range(Pfn::new(FRAMES), frames(7)).unwrap();
    assert_eq!(reserve(FRAMES + PAGEBLOCK, 1), Err(Error::ForeignFrame));
    assert_eq!(reserve(1 << 40, 1), Err(Error::OutsideSpan));
    check_books(&*machine, 2 * PAGEBLOCK + 1);
    assert_eq!(machine.free_range(Pfn::new(3), frames(PAGEBLOCK)), Ok(()));
    check_books(&*machine, PAGEBLOCK + 1);
}

fn metadata_has_a_place_in_a_boot_memory_map<D: TestDesign>() {
    for seed in 0..50 {
        let random = &mut Random(seed);
        let (mut at, mut map) = (0, Vec::new());
        for _ in 0..1 + random.below(6) {
            at += 2 * PAGEBLOCK * random.below(3) as u64;
            let len = 1 + random.below(4 * PAGEBLOCK as usize) as u64;
            let kind = if random.below(4) == 0 { ZoneKind::Movable } else { ZoneKind::Normal };
            map.push(range(at, len).in_zone(kind));
            at = (at + len).next_multiple_of(PAGEBLOCK);
        }
        let settings = D::Settings::default();
        let layout = |map: &[MemoryRange]| {
            PageAllocator::<TestPlatform, D>::layout(&Config::new(map, &CPUS), &settings).unwrap()
        };
        let needed = layout(&map);
        let last = map.last().unwrap().start.get();
        let reserved: Vec<_> = (0..random.below(4))
            .map(|_| (Pfn::new(random.below(last as usize + 600) as u64), 1 + random.below(900)))
            .map(|(first, count)| (first, frames(count as u64)))
            .collect();
        let count = needed.size().div_ceil(4096) as u64;
        let clashes = |start: u64| {
            let within = |(first, frames): &(Pfn, FrameCount)| {
                first.get() < start + count && first.offset(*frames).get() > start
            };
            reserved.iter().any(within)
        };
        // The highest place, found by trying all.
        let of_kind = |normal: bool| {
            let of_kind = map.iter().filter(|range| (range.zone == ZoneKind::Normal) == normal);
            let starts = of_kind.flat_map(|range| {
                let (first, end) = (range.start.get(), (range.start + range.frames).get());
                (first..end.saturating_sub(count - 1)).filter(|&start| !clashes(start))
            });
            starts.max()
        };
        let expected = of_kind(true).or(of_kind(false));
        let place = needed.place_in(&map, &reserved, FrameSize::MIN);
        assert_eq!(place.map(|place| place.start.get()).ok(), expected, "seed {seed}");
        if let Ok(place) = place {
            let machine = &*Tested::<D>::new(TestPlatform, &Config::new(&map, &CPUS), &settings);
            assert_eq!(place.frames, frames(count));
            machine.reserve(place.start, place.frames).unwrap();
            check_books(machine, count);
        }
    }
}

//! The LRU and the page allocator under memory pressure: allocation that reclaims, that compacts
//! through isolation, and balancing by watermark.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{TestPlatform, run_on};
use crate::fixed;
use crate::machine::Machine;
use crate::room::Room;
use crate::shelf::forget;
use freehold::{
    Config, Error, FrameCount, MemoryRange, MigrateError, MigrateType, NodeId, Order,
    PageAllocator, Pfn, Request, Watermark, ZoneKind, ZoneStats,
};
use freehold_linux::ZoneLock;
use freehold_lru::{BATCH_MAX, Claim, GroupId, Kind, LruSettings, Owner, Scope, Verdict};

const FRAMES: u64 = 2048;

type Frames = PageAllocator<TestPlatform, ZoneLock<TestPlatform>>;

/// Frames whose content can be dropped, unless the cache is told to keep it.
struct Cache<'a> {
    frames: &'a Frames,
    index: Mutex<BTreeSet<Pfn>>,
    keeps: bool,
    /// Whether content can be moved to another frame.
    moves: bool,
}

impl Owner for Cache<'_> {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        if self.keeps { Verdict::Keep } else { Verdict::Drop }
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        forget(&self.index, frame, claim);
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        self.frames.free_bulk(frames, order).expect("the frames were ours");
    }

    fn migrate(&self, from: Pfn, to: Pfn, claim: Claim<'_>) -> Result<(), MigrateError> {
        if !self.moves {
            return Err(MigrateError::Failed);
        }
        let mut index = self.index.lock().unwrap();
        if !index.contains(&from) {
            return Err(MigrateError::Busy);
        }
        let Some(claimed) = claim.take() else { return Err(MigrateError::Busy) };
        index.remove(&from);
        index.insert(to);
        claimed.commit();
        Ok(())
    }
}

/// Runs `test` on a machine of two CPUs, and checks what it leaves behind.
fn machine(
    memory: u64,
    (keeps, moves): (bool, bool),
    test: impl FnOnce(&Frames, &Room<TestPlatform, Cache<'_>>),
) {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(memory))];
    let cpus = [NodeId::new(0); 2];
    let config = Config::new(&ranges, &cpus);
    configured([&config; 2], (keeps, moves), test);
}

/// The same on one of these configurations, with an LRU that covers the other one: all of it or a
/// part.
fn configured(
    [config, of_lru]: [&Config<'_>; 2],
    (keeps, moves): (bool, bool),
    test: impl FnOnce(&Frames, &Room<TestPlatform, Cache<'_>>),
) {
    let frames = Machine::<_, ZoneLock<_>>::new(TestPlatform, config, &fixed(4, 8));
    let owner = Cache { frames: &frames, index: Mutex::default(), keeps, moves };
    let lru = Room::new(TestPlatform, of_lru, &LruSettings::default(), owner);
    run_on(0);
    test(&frames, &lru);
    lru.drain_all();
    let census = lru.check();
    assert_eq!(census.used.get(), lru.owner().index.lock().unwrap().len() as u64);
    frames.validate().expect("the allocator's books are right");
}

/// Runs `test` on a machine whose memory is cached to the last available frame, all of it in the
/// batches and on the lists of CPU 1.
fn full(keeps: bool, test: impl FnOnce(&Frames, &Room<TestPlatform, Cache<'_>>)) {
    machine(FRAMES, (keeps, true), |frames, lru| {
        run_on(1);
        while cache(frames, lru, Request::default()).is_some() {}
        run_on(0);
        test(frames, lru);
    });
}

#[test]
fn an_allocation_reclaims() {
    full(false, |frames, lru| {
        for _ in 0..FRAMES / 2 {
            lru.alloc_reclaiming(frames, Request::default()).expect("something can be dropped");
        }
    });
}

#[test]
fn a_high_order_reclaims_and_compacts() {
    full(false, |frames, lru| {
        let block = lru.alloc_reclaiming(frames, Request::new(Order::new(6)));
        block.expect("something can be dropped, and something moved");
    });
}

#[test]
fn content_moves_through_the_lru() {
    full(false, |frames, lru| {
        // Every other frame is dropped, so that no two free ones are adjacent.
        lru.drain_all();
        for frame in (0..FRAMES).step_by(2).map(Pfn::new) {
            if lru.owner().index.lock().unwrap().remove(&frame) {
                lru.put(frame).expect("the index had a reference");
            }
        }
        frames.drain_all();
        let held = lru.owner().index.lock().unwrap().len();
        let moved = frames.compact(&**lru).migrated;
        assert!(moved.get() > 100, "{moved}");
        assert_eq!(lru.owner().index.lock().unwrap().len(), held, "moved, and not dropped");
        frames.alloc(Request::new(Order::PAGEBLOCK)).expect("free memory lies together");
    });
}

#[test]
fn an_allocation_fails_when_nothing_can_be_dropped() {
    full(true, |frames, lru| {
        let refused = lru.alloc_reclaiming(frames, Request::default());
        assert!(matches!(refused, Err(Error::OutOfMemory | Error::BelowWatermark)), "{refused:?}");
        let too_large = lru.alloc_reclaiming(frames, Request::new(Order::new(11)));
        assert_eq!(too_large, Err(Error::OrderTooLarge));
        assert_eq!(lru.balance(frames).reclaimed, 0);
    });
}

#[test]
fn upkeep_goes_from_the_low_watermark_to_the_high_one() {
    full(false, |frames, lru| {
        let zone = || frames.zones().next().expect("one zone");
        frames.drain_all();
        assert!(zone().free < zone().marks.low);
        let done = lru.balance(frames);
        assert!(done.reclaimed > 0 && zone().free >= zone().marks.high, "{done:?}");
        assert!(zone().free.get() < zone().marks.high.get() + 64, "and not much beyond");
        assert_eq!(lru.balance(frames), Default::default(), "nothing is to be done any more");
        while zone().free >= zone().marks.high {
            frames.alloc(Request::default()).expect("it is far above the mark");
            frames.drain_all();
        }
        assert!(zone().free >= zone().marks.low);
        assert_eq!(lru.balance(frames), Default::default(), "it is not short yet");
    });
}

/// A driver has all frames of a zone for devices. That is no reason to reclaim content in a zone
/// that has memory to spare.
#[test]
fn upkeep_leaves_a_node_alone_that_has_a_zone_with_room() {
    of_two_zones(ZoneKind::Dma32, ZoneKind::Normal, |frames, lru| {
        let of_devices = Request::default().zone_limit(ZoneKind::Dma32);
        while frames.alloc(of_devices.watermark(Watermark::Ignore)).is_ok() {}
        (0..FRAMES / 2).for_each(|_| _ = cache(frames, lru, Request::default()).expect("half"));
        frames.drain_all();
        assert!(frames.zones().any(|zone| zone.free < zone.marks.low));
        assert_eq!(lru.balance(frames), Default::default());
        // It is short once both zones are.
        while cache(frames, lru, Request::default()).is_some() {}
        frames.drain_all();
        let ordinary = || zone(frames, ZoneKind::Normal);
        assert!(ordinary().free < ordinary().marks.low);
        lru.balance(frames);
        assert!(ordinary().free >= ordinary().marks.high);
        assert!(ordinary().free.get() < ordinary().marks.high.get() + 64, "and not much beyond");
    });
}

/// Runs `test` on a machine with as much memory in one zone as in another.
fn of_two_zones(
    low: ZoneKind,
    high: ZoneKind,
    test: impl FnOnce(&Frames, &Room<TestPlatform, Cache<'_>>),
) {
    let range = |start| MemoryRange::new(Pfn::new(start), FrameCount::new(FRAMES));
    let ranges = [range(0).in_zone(low), range(FRAMES).in_zone(high)];
    let cpus = [NodeId::new(0); 2];
    let config = Config::new(&ranges, &cpus);
    configured([&config; 2], (false, true), test);
}

/// Caches content in a frame, if there is one.
fn cache(frames: &Frames, lru: &Room<TestPlatform, Cache<'_>>, request: Request) -> Option<Pfn> {
    let frame = frames.alloc(request).ok()?;
    keep(lru, frame);
    Some(frame)
}

/// Fills both zones to the last frame. Those of the higher one were used less recently.
fn fill(frames: &Frames, lru: &Room<TestPlatform, Cache<'_>>, low: ZoneKind) {
    let request = Request::default().watermark(Watermark::Ignore);
    let mut of_low = Vec::new();
    while let Ok(frame) = frames.alloc(request.zone_limit(low)) {
        of_low.push(frame);
    }
    while cache(frames, lru, request).is_some() {}
    of_low.into_iter().for_each(|frame| keep(lru, frame));
    lru.drain_all();
    frames.drain_all();
}

fn zone(frames: &Frames, kind: ZoneKind) -> ZoneStats {
    frames.zones().find(|zone| zone.kind == kind).expect("the machine has it")
}

fn cached_from(lru: &Room<TestPlatform, Cache<'_>>, first: u64) -> usize {
    lru.owner().index.lock().unwrap().range(Pfn::new(first)..).count()
}

#[test]
fn an_allocation_gives_up_only_what_is_of_use_to_it() {
    of_two_zones(ZoneKind::Dma32, ZoneKind::Normal, |frames, lru| {
        fill(frames, lru, ZoneKind::Dma32);
        let before = cached_from(lru, FRAMES);
        let request = Request::default().zone_limit(ZoneKind::Dma32).watermark(Watermark::Ignore);
        lru.alloc_reclaiming(frames, request).expect("something can be dropped");
        assert_eq!(cached_from(lru, FRAMES), before);
    });
    of_two_zones(ZoneKind::Normal, ZoneKind::Movable, |frames, lru| {
        fill(frames, lru, ZoneKind::Normal);
        let before = cached_from(lru, FRAMES);
        let request = Request::default().migratetype(MigrateType::Unmovable);
        lru.alloc_reclaiming(frames, request).expect("something can be dropped");
        assert_eq!(cached_from(lru, FRAMES), before);
    });
}

#[test]
fn upkeep_gives_up_only_what_is_of_use() {
    of_two_zones(ZoneKind::Normal, ZoneKind::Movable, |frames, lru| {
        fill(frames, lru, ZoneKind::Normal);
        let before = cached_from(lru, FRAMES);
        lru.balance(frames);
        let normal = zone(frames, ZoneKind::Normal);
        assert!(normal.free >= normal.marks.high);
        assert_eq!(cached_from(lru, FRAMES), before);
    });
}

#[test]
fn an_allocation_reclaims_from_far_below_the_watermark() {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(8 * FRAMES))];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(FRAMES));
    configured([&config; 2], (false, true), |frames, lru| {
        while cache(frames, lru, Request::default().watermark(Watermark::Ignore)).is_some() {}
        lru.alloc_reclaiming(frames, Request::default()).expect("something can be dropped");
        assert!(cached_from(lru, 0) as u64 > 4 * FRAMES, "and not all of it was");
    });
}

/// Runs `test` on a machine of two nodes, of which the LRU covers the first or both.
fn of_two_nodes(covered: usize, test: impl FnOnce(&Frames, &Room<TestPlatform, Cache<'_>>)) {
    let range = |node| {
        let start = Pfn::new(u64::from(node) * FRAMES);
        MemoryRange::new(start, FrameCount::new(FRAMES)).on_node(NodeId::new(node))
    };
    let (ranges, cpus) = ([range(0), range(1)], [NodeId::new(0), NodeId::new(1)]);
    let config = Config::new(&ranges, &cpus);
    let of_lru = Config::new(&ranges[..covered], &cpus[..covered]);
    configured([&config, &of_lru], (false, true), test);
}

#[test]
fn an_allocation_on_one_node_takes_from_no_other() {
    of_two_nodes(2, |frames, lru| {
        let on = |node| Request::default().node(NodeId::new(node)).only_node();
        for node in 0..2 {
            while cache(frames, lru, on(node)).is_some() {}
        }
        let of_node_0 = || cached_from(lru, 0) - cached_from(lru, FRAMES);
        let before = of_node_0();
        for _ in 0..FRAMES / 2 {
            lru.alloc_reclaiming(frames, on(1)).expect("something can be dropped");
        }
        assert_eq!(of_node_0(), before);
    });
}

#[test]
fn an_allocation_that_prefers_a_node_takes_from_all() {
    of_two_nodes(2, |frames, lru| {
        let preferred = Request::default().node(NodeId::new(1));
        while frames.alloc(preferred.only_node()).is_ok() {}
        while cache(frames, lru, Request::default()).is_some() {}
        let before = cached_from(lru, 0);
        let frame = lru.alloc_reclaiming(frames, preferred).expect("node 0 has content to drop");
        assert!(frame.get() < FRAMES && cached_from(lru, 0) < before);
    });
}

/// An owner that gives back every other frame, as one does whose I/O takes time.
struct Late<'a>(Cache<'a>, AtomicU64);

impl Owner for Late<'_> {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        self.0.reclaim(frame)
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        self.0.forget(frame, claim);
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        for frame in frames {
            if self.1.fetch_add(1, Relaxed).is_multiple_of(2) {
                self.0.release(&[*frame], order);
            }
        }
    }
}

#[test]
fn upkeep_goes_on_until_enough_is_free() {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(8 * FRAMES))];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(FRAMES));
    let frames = Machine::<_, ZoneLock<_>>::new(TestPlatform, &config, &fixed(4, 8));
    let cache = Cache { frames: &frames, index: Mutex::default(), keeps: false, moves: true };
    let owner = Late(cache, AtomicU64::new(0));
    let lru = Room::new(TestPlatform, &config, &LruSettings::default(), owner);
    run_on(0);
    while let Ok(frame) = frames.alloc(Request::default().watermark(Watermark::Min)) {
        lru.add(frame, GroupId::ROOT, Kind::File).expect("it is new");
        lru.owner().0.index.lock().unwrap().insert(frame);
    }
    lru.drain_all();
    frames.drain_all();
    let zone = || frames.zones().next().expect("one zone");
    let missing = zone().marks.high.get() - zone().free.get();
    assert!(missing > 100, "{missing}");
    let done = lru.balance(&frames);
    // The last frame that is missing may be one that comes late.
    assert!(zone().free.get() + 1 >= zone().marks.high.get(), "{done:?}");
    assert!(done.reclaimed >= 2 * missing - 2 && done.reclaimed < 3 * missing, "{done:?}");
}

/// The LRU may cover fewer nodes than the allocator.
#[test]
fn a_node_without_frames_to_give_is_refused() {
    of_two_nodes(1, |frames, lru| {
        let request = Request::default().node(NodeId::new(1)).only_node();
        while frames.alloc(request).is_ok() {}
        assert!(lru.alloc_reclaiming(frames, request).is_err());
    });
}

/// The last frame of a zone waits in a batch of another CPU, while others can be dropped.
#[test]
fn an_allocation_finds_the_frame_that_a_batch_hides_among_others() {
    of_two_zones(ZoneKind::Dma32, ZoneKind::Normal, |frames, lru| {
        let request = Request::default().zone_limit(ZoneKind::Dma32).watermark(Watermark::Ignore);
        let frame = cache(frames, lru, request).expect("memory is free");
        while frames.alloc(request).is_ok() {}
        lru.drain_all();
        while cache(frames, lru, Request::default()).is_some() {}
        run_on(1);
        lru.activate(frame).expect("it is in use");
        lru.owner().index.lock().unwrap().remove(&frame);
        lru.put(frame).expect("the index had a reference");
        run_on(0);
        assert_eq!(lru.alloc_reclaiming(frames, request), Ok(frame));
    });
}

/// The last free frame waits in a batch of another CPU: its user has given it up.
#[test]
fn an_allocation_finds_the_frame_that_a_batch_hides() {
    full(true, |frames, lru| {
        let request = Request::default().watermark(Watermark::Ignore);
        run_on(1);
        lru.drain_all();
        while let Ok(frame) = frames.alloc(request) {
            lru.add(frame, GroupId::ROOT, Kind::Anon).expect("it is new");
            lru.owner().index.lock().unwrap().insert(frame);
        }
        lru.drain_all();
        let frame = *lru.owner().index.lock().unwrap().first().expect("memory is full");
        lru.activate(frame).expect("it is in use");
        lru.owner().index.lock().unwrap().remove(&frame);
        lru.put(frame).expect("the index had a reference");
        run_on(0);
        assert_eq!(frames.alloc(request), Err(Error::OutOfMemory), "the batch has it");
        assert_eq!(lru.alloc_reclaiming(frames, request), Ok(frame));
    });
}

/// One frame in each block belongs to no cache, so that no block can ever be had.
#[test]
fn a_request_that_compaction_cannot_satisfy_costs_little() {
    for order in [4, 9] {
        let block = 1 << order;
        machine(16 * FRAMES, (false, true), |frames, lru| {
            let request = Request::default().watermark(Watermark::Ignore);
            while let Ok(frame) = frames.alloc(request) {
                if frame.get() % block != 3 {
                    keep(lru, frame);
                }
            }
            let low = zone(frames, ZoneKind::Normal).marks.low.get() as usize;
            let mut cached = cached_from(lru, 0);
            for most in [2 * block as usize + low + BATCH_MAX, 0, 0] {
                let refused = lru.alloc_reclaiming(frames, Request::new(Order::new(order)));
                refused.expect_err("each block has a frame that stays");
                let left = cached_from(lru, 0);
                assert!(cached - left <= most, "{} frames for order {order}", cached - left);
                cached = left;
            }
        });
    }
}

/// A zone that is smaller than what compaction needs is no reason to reclaim.
#[test]
fn a_request_that_no_zone_is_large_enough_for_costs_nothing() {
    full(false, |frames, lru| {
        let before = cached_from(lru, 0);
        let request = Request::new(Order::new(10));
        lru.alloc_reclaiming(frames, request).expect_err("compaction has no place to work");
        assert_eq!(cached_from(lru, 0), before);
    });
}

/// Content that does not move gives way to small blocks none the less.
#[test]
fn a_small_block_is_had_by_reclaim_alone() {
    machine(FRAMES, (false, false), |frames, lru| {
        let ignore = |order| Request::new(Order::new(order)).watermark(Watermark::Ignore);
        let mut all = Vec::new();
        while let Ok(frame) = frames.alloc(ignore(0)) {
            all.push(frame);
        }
        // More than compaction needs goes before the first two neighbours do.
        let low = zone(frames, ZoneKind::Normal).marks.low.get();
        let apart = low + 50;
        all.sort_by_key(|frame| (frame.get() / (2 * apart), frame.get() % 2, *frame));
        all.iter().for_each(|&frame| keep(lru, frame));
        lru.drain_all();
        lru.alloc_reclaiming(frames, ignore(1)).expect("there are two neighbours to reclaim");
        let left = cached_from(lru, 0) as u64;
        assert!(left + low + 5 * 32 >= FRAMES, "{left}: not worth more");
    });
}

/// Puts a frame into the cache.
fn keep(lru: &Room<TestPlatform, Cache<'_>>, frame: Pfn) {
    lru.add(frame, GroupId::ROOT, Kind::File).expect("it is new");
    lru.owner().index.lock().unwrap().insert(frame);
}

/// A request for a full zone leaves the order of all other frames as it is.
#[test]
fn a_request_for_a_zone_without_cached_frames_turns_no_list() {
    of_two_zones(ZoneKind::Dma32, ZoneKind::Normal, |frames, lru| {
        let request = Request::default().zone_limit(ZoneKind::Dma32).watermark(Watermark::Ignore);
        while frames.alloc(request).is_ok() {}
        let mut cached = Vec::new();
        for _ in 0..FRAMES / 2 {
            cached.extend(cache(frames, lru, Request::default()));
        }
        lru.drain_all();
        for _ in 0..10 {
            lru.alloc_reclaiming(frames, request).expect_err("none of its frames is cached");
        }
        lru.reclaim(Scope::All, FrameCount::new(40)).expect("it is the whole machine");
        let index = lru.owner().index.lock().unwrap();
        assert!(cached[..40].iter().all(|frame| !index.contains(frame)), "the oldest went");
        assert!(cached[40..].iter().all(|frame| index.contains(frame)));
    });
}

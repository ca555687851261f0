//! Blocks of frames on the LRU: charged, counted, reclaimed, moved and released as a whole.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::common::{TestPlatform, run_on};
use crate::fixed;
use crate::machine::Machine;
use crate::owner::Nervous;
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn, room};
use crate::shelf::Shelf;
use freehold::designs::{Freehold, FreeholdSettings};
use freehold::{Config, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_linux::ZoneLock;
use freehold_lru::{Claim, GroupId, Kind, LruError, LruSettings, Owner, Scope, Verdict};

const FRAMES: u64 = 8192;

type Cache = Room<TestPlatform, Shelf>;
type Baseline = Machine<TestPlatform, ZoneLock<TestPlatform>>;
type Flagship = Machine<TestPlatform, Freehold<TestPlatform>>;

fn build<O: Owner>(owner: O) -> Room<TestPlatform, O> {
    room(FRAMES, 2, &LruSettings::default(), owner)
}

/// Adds a block, which is in the index from then on.
fn add(lru: &Cache, at: u64, order: u8, group: GroupId) -> Result<(), LruError> {
    let order = Order::new(order);
    lru.add_block(pfn(at), order, group, Kind::File)?;
    let mut contents = lru.owner().contents();
    contents.index.insert(pfn(at), at);
    contents.orders.insert(pfn(at), order);
    Ok(())
}

#[test]
fn a_block_has_memory_and_an_order_that_can_be() {
    let lru = build(Shelf::default());
    add(&lru, 8, 3, ROOT).unwrap();
    assert_eq!(lru.remove_memory(pfn(11), count(1)), Err(LruError::FrameBusy));
    // A block that would overlap it.
    assert_eq!(add(&lru, 0, 4, ROOT), Err(LruError::AlreadyAdded));
    (0..8).for_each(|at| add(&lru, at, 0, ROOT).expect("a refused block has left nothing"));
    assert_eq!(add(&lru, 1 << 12, 15, ROOT), Err(LruError::OrderTooLarge));
    assert_eq!(add(&lru, 8, 63, ROOT), Err(LruError::AlreadyAdded));
    lru.remove_memory(pfn(FRAMES - 1), count(1)).unwrap();
    assert_eq!(add(&lru, FRAMES - 64, 6, ROOT), Err(LruError::ForeignFrame));
    assert_eq!(add(&lru, FRAMES - 64, 5, ROOT), Ok(()));
    lru.check();
}

#[test]
fn a_limit_holds_for_blocks_and_a_block_beyond_it_evicts_nothing() {
    let lru = build(Shelf::default());
    let parent = lru.create_group(ROOT, Some(count(300))).unwrap();
    let group = lru.create_group(parent, Some(count(200))).unwrap();
    (0..200).for_each(|at| add(&lru, at, 0, group).unwrap());
    assert_eq!(add(&lru, 256, 1, group), Err(LruError::GroupLimit(group)));
    let add_reclaiming =
        |at, order| lru.add_block_reclaiming(pfn(at), Order::new(order), group, Kind::File);
    // A block of 256 fits below the limit of the parent, but not of the group.
    assert_eq!(add_reclaiming(256, 8), Err(LruError::GroupLimit(group)));
    assert_eq!(lru.owner().contents().asked, [], "nothing was evicted for it");
    lru.owner().contents().orders.insert(pfn(256), Order::new(6));
    assert_eq!(add_reclaiming(256, 6), Ok(()));
    let released = lru.owner().take_released().len() as u64;
    assert!((64..64 + 31).contains(&released), "{released} made room for 64");
    assert!(lru.group_stats(group).unwrap().charged <= count(200));
    lru.check();
    // Under a large limit, below a small one: as hopeless.
    lru.set_max(group, None).unwrap();
    lru.owner().contents().asked.clear();
    assert_eq!(add_reclaiming(512, 9), Err(LruError::GroupLimit(parent)));
    assert_eq!(lru.owner().contents().asked, []);
}

#[test]
fn reclaim_counts_frames_and_takes_blocks_whole() {
    let lru = build(Shelf::default());
    (0..8).for_each(|nth| add(&lru, nth * 16, 4, ROOT).unwrap());
    lru.drain_all();
    let done = lru.reclaim(Scope::All, count(20)).unwrap();
    assert_eq!((done.reclaimed, done.scanned), (32, 32), "two blocks of 16");
    assert_eq!(lru.owner().take_released(), [0, 16]);
    lru.owner().contents().verdicts.insert(pfn(32), Verdict::Keep);
    lru.owner().contents().verdicts.insert(pfn(48), Verdict::Failed);
    lru.owner().contents().dirty.insert(pfn(64));
    let done = lru.reclaim(Scope::All, count(1000)).unwrap();
    assert_eq!((done.reclaimed, done.written), (64, 16));
    assert_eq!((done.kept % 16, done.failed % 16, done.scanned % 16), (0, 0, 0));
    assert!(done.kept > 0 && done.failed > 0);
    lru.check();
}

/// Groups of the same size pay alike, whatever their blocks are.
#[test]
fn blocks_and_frames_pay_alike() {
    for at_a_time in [1, 31, 200] {
        let lru = build(Shelf::default());
        let orders = [0, 3, 5, 6];
        let groups = orders.map(|_| lru.create_group(ROOT, None).unwrap());
        let each = FRAMES / 4;
        for (nth, (&group, &order)) in groups.iter().zip(&orders).enumerate() {
            let first = nth as u64 * each;
            let blocks = (first..first + each).step_by(1 << order);
            blocks.for_each(|at| add(&lru, at, order, group).unwrap());
        }
        lru.drain_all();
        let mut reclaimed = 0;
        while reclaimed < 3000 {
            reclaimed += lru.reclaim(Scope::All, count(at_a_time)).unwrap().reclaimed;
        }
        let fair = reclaimed as f64 / 4.0;
        for (group, order) in groups.iter().zip(orders) {
            let left = lru.group_stats(*group).unwrap().charged;
            let paid = each - left.get();
            // A tenth, and the last block.
            let most = fair / 10.0 + Order::new(order).frames().get() as f64 + at_a_time as f64;
            let off = (paid as f64 - fair).abs();
            assert!(off <= most, "order {order} paid {paid}, {fair} is fair, {at_a_time} a time");
        }
        lru.check();
    }
}

/// Compaction of memory in which blocks lie as well.
#[test]
fn compaction_moves_blocks() {
    let ranges = [MemoryRange::new(pfn(0), count(4096))];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    run_on(0);
    let frames = Flagship::new(TestPlatform, &config, &FreeholdSettings::default());
    let lru: Cache = Room::new(TestPlatform, &config, &LruSettings::default(), Shelf::default());
    let order = Order::new(2);
    let request = Request::new(order);
    let blocks: Vec<Pfn> = std::iter::from_fn(|| frames.alloc(request).ok()).collect();
    assert!(blocks.len() > 1000);
    for (nth, &block) in blocks.iter().enumerate() {
        // One in three stays, so that there is no large block.
        match nth % 3 {
            0 => add(&lru, block.get(), 2, ROOT).unwrap(),
            _ => frames.free(block, order).unwrap(),
        }
    }
    lru.drain_all();
    frames.drain_all();
    let large = Request::new(Order::PAGEBLOCK);
    let got = frames.alloc_compacting(large, &*lru).expect("two thirds are free");
    assert!(lru.owner().contents().index.iter().any(|(at, content)| at.get() != *content));
    let in_block = |at: &Pfn| (got.get()..got.get() + 512).contains(&at.get());
    assert!(!lru.owner().contents().index.keys().any(in_block));
    lru.check();
    frames.free(got, Order::PAGEBLOCK).unwrap();
    let left: Vec<Pfn> = lru.owner().contents().index.keys().copied().collect();
    lru.put_bulk(&left).unwrap();
    lru.drain_all();
    left.iter().for_each(|&block| frames.free(block, order).unwrap());
    assert_eq!(lru.check().used, count(0));
    frames.validate().unwrap();
}

/// A removed group's blocks count in the group that inherits them.
#[test]
fn a_group_inherits_blocks() {
    let lru = build(Shelf::default());
    let parent = lru.create_group(ROOT, None).unwrap();
    for round in 0..200 {
        // More groups than there are slots, so that frames get the heir's number.
        let group = lru.create_group(parent, None).unwrap();
        add(&lru, round * 32, 5, group).unwrap();
        add(&lru, FRAMES - 1 - round, 0, group).unwrap();
        lru.drain_all();
        lru.remove_group(group).unwrap();
        assert_eq!(lru.group_stats(parent).unwrap().charged, count(33 * (round + 1)));
    }
    lru.check();
    lru.remove_group(parent).unwrap();
    lru.put_bulk(&[pfn(0), pfn(FRAMES - 1)]).unwrap();
    assert_eq!(lru.check().used, count(33 * 199));
}

#[test]
fn a_panic_loses_no_block_of_another_order() {
    let lru = build(Nervous(Order::new(2), Mutex::default()));
    let blocks = [(0, 0), (4, 2), (8, 2), (16, 4), (1, 0)].map(|(at, order)| {
        lru.add_block(pfn(at), Order::new(order), ROOT, Kind::File).unwrap();
        (pfn(at), Order::new(order))
    });
    lru.drain_all();
    let pfns = blocks.map(|(at, _)| at);
    let outcome = catch_unwind(AssertUnwindSafe(|| lru.put_bulk(&pfns)));
    assert!(outcome.is_err(), "the panic comes out");
    assert_eq!(*lru.owner().1.lock().unwrap(), blocks, "each was handed over once");
    assert_eq!(lru.check().used, count(0));
    assert_eq!(lru.group_stats(ROOT).unwrap().charged, count(0));
}

/// A request for a block, served by reclaim of blocks.
#[test]
fn blocks_make_room_for_blocks() {
    let ranges = [MemoryRange::new(pfn(0), count(2048))];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    run_on(0);
    let frames = Baseline::new(TestPlatform, &config, &fixed(8, 32));
    let lru = Room::new(TestPlatform, &config, &LruSettings::default(), Freeing(&frames));
    let order = Order::new(6);
    for _ in 0..300 {
        let request = Request::new(order);
        let block = lru.alloc_reclaiming(&frames, request).expect("all can be reclaimed");
        lru.add_block(block, order, ROOT, Kind::File).unwrap();
    }
    lru.drain_all();
    assert!(lru.check().used > count(1024), "most of memory is in use");
    let done = lru.reclaim(Scope::All, count(2048)).unwrap();
    assert_eq!((done.reclaimed % 64, lru.check().used), (0, count(0)));
    frames.drain_all();
    assert_eq!(frames.validate().unwrap().allocated, count(0));
}

/// An owner whose index is the frames themselves.
struct Freeing<'a>(&'a Baseline);

impl Owner for Freeing<'_> {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, _frame: Pfn, claim: Claim<'_>) {
        claim.take().map(|claimed| claimed.commit());
    }

    fn release(&self, blocks: &[Pfn], order: Order) {
        self.0.free_bulk(blocks, order).expect("they came from there");
    }
}

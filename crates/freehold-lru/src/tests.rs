//! An LRU for the unit tests of its parts; and tests of what counts there, and of the checks that
//! would find it wrong.

extern crate std;

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::string::ToString;
use std::vec;

use crate::frames::state::{Motion, State};
use crate::id::{NO_SLOT, Place};
use crate::reclaim::hunt::Round;
use crate::testing::{TestPlatform, run_on};
use crate::{
    Claim, GroupId, Kind, List, Lru, LruError, LruRule, LruSettings, LruViolation, Owner,
    PutBulkError, Reclaimed, Verdict,
};
use freehold::config::{Config, MemoryRange};
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::LinkTable;
use freehold::memmap::region::Metadata;
use freehold::platform::SharedCell;
use freehold::units::{FrameCount, NodeId, Order, Pfn, ZoneKind};

/// An owner that says the same of each frame.
pub(crate) struct Says(pub(crate) Verdict);

impl Owner for Says {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        self.0
    }

    fn forget(&self, _frame: Pfn, claim: Claim<'_>) {
        if let Some(claimed) = claim.take() {
            claimed.commit();
        }
    }

    fn release(&self, _blocks: &[Pfn], _order: Order) {}
}

type Bench = Lru<TestPlatform, Says>;

/// The lists of the root group on the first node.
pub(crate) const ROOT_0: Place = Place { slot: 0, node: 0 };

pub(crate) const ROUND: Round =
    Round { pass: 0, priority: 0, skips_refused: false, passes_by: false };

/// Two nodes of 4,096 frames.
pub(crate) fn lru<O: Owner>(owner: O, settings: LruSettings) -> Lru<TestPlatform, O> {
    run_on(0);
    let range = |node: u16| {
        let start = Pfn::new(u64::from(node) * 4096);
        MemoryRange::new(start, FrameCount::new(4096)).on_node(NodeId::new(node))
    };
    let (ranges, cpus) = ([range(0), range(1)], [NodeId::new(0); 2]);
    let config = Config::new(&ranges, &cpus);
    let layout = Lru::<TestPlatform, O>::layout(&config, &settings).unwrap();
    let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
    Lru::new(TestPlatform, &config, &settings, Metadata::from_static(buffer), owner).unwrap()
}

/// Adds frames, which come to the inactive list.
pub(crate) fn fill<O: Owner>(lru: &Lru<TestPlatform, O>, frames: Range<u64>, group: GroupId) {
    frames.for_each(|frame| lru.add(Pfn::new(frame), group, Kind::File).expect("it is new"));
    lru.drain_all();
}

fn new(verdict: Verdict) -> Bench {
    lru(Says(verdict), LruSettings::default())
}

/// What a check says once this has been broken: two frames and a block of two are there, and a
/// group with a frame.
fn broken(how: impl FnOnce(&Bench, GroupId)) -> Option<LruRule> {
    let lru = new(Verdict::Drop);
    let group = lru.create_group(GroupId::ROOT, None).unwrap();
    fill(&lru, 0..2, GroupId::ROOT);
    fill(&lru, 8..9, group);
    lru.add_block(Pfn::new(16), Order::new(1), GroupId::ROOT, Kind::File).unwrap();
    lru.drain_all();
    lru.validate().expect("the books are in order");
    how(&lru, group);
    lru.validate().err().map(|violation| violation.rule)
}

#[test]
fn a_check_finds_what_is_wrong() {
    let state = |lru: &Bench, frame, change: fn(u64) -> u64| {
        lru.frames.update(FrameIndex(frame), |state| State(change(state.0)));
    };
    let relink = |lru: &Bench, to: Option<(Place, State)>| {
        let before = lru.frames.state(FrameIndex(0));
        lru.vecs.lock_at(&TestPlatform, ROOT_0.shard(0)).unlink(&lru.frames, FrameIndex(0), before);
        if let Some((place, state)) = to {
            let lock = lru.vecs.lock_at(&TestPlatform, place.shard(0));
            lock.link(&lru.frames, FrameIndex(0), state, Motion::Keep);
        }
    };
    assert_eq!(broken(|_, _| {}), None);
    let link = broken(|lru, _| lru.frames.links(FrameIndex(0)).prev.set(7));
    assert_eq!(link, Some(LruRule::LinksAgree));
    let marks = broken(|lru, _| state(lru, 0, |bits| bits ^ 1 << 31));
    assert_eq!(marks, Some(LruRule::ListMatchesMarks));
    let size = broken(|lru, _| {
        let one = lru.frames.state(FrameIndex(0));
        relink(lru, Some((ROOT_0, State(one.0 | 1 << 26))));
    });
    assert_eq!(size, Some(LruRule::SizeCounted));
    assert_eq!(broken(|lru, _| relink(lru, None)), Some(LruRule::MarkedIsListed));
    let part = broken(|lru, _| lru.frames.free(FrameIndex(17)));
    assert_eq!(part, Some(LruRule::BlockWhole));
    let stray = broken(|lru, _| _ = lru.frames.change(FrameIndex(40), State::joined));
    assert_eq!(stray, Some(LruRule::BlockWhole));
    let unreferenced = broken(|lru, _| state(lru, 0, |bits| bits & !((1 << 18) - 1)));
    assert_eq!(unreferenced, Some(LruRule::UsedIsReferenced));
    let charge = broken(|lru, group| lru.groups.charge(group, 1).unwrap());
    assert_eq!(charge, Some(LruRule::ChargeCounted));
    let pins = broken(|lru, group| lru.groups.pin(group.slot(), 1));
    assert_eq!(pins, Some(LruRule::PinsCounted));
    let removed = broken(|lru, group| {
        let place = Place { slot: group.slot(), node: 0 };
        lru.remove_group(group).unwrap();
        relink(lru, Some((place, lru.frames.state(FrameIndex(0)))));
    });
    assert_eq!(removed, Some(LruRule::RemovedHasNoLists));
    let tree = broken(|lru, _| lru.groups.get(0).first_below.store(u32::from(NO_SLOT), Relaxed));
    assert_eq!(tree, Some(LruRule::TreeLinked));
    let violation = LruViolation { rule: LruRule::SizeCounted, at: Pfn::new(16) };
    assert!(violation.to_string().starts_with("the size of a list is wrong, seen at"));
    let put = PutBulkError { put: 7, error: LruError::NotPinned };
    assert_eq!(put.to_string(), "frame 7 of the bulk: the frame is not locked in memory");
}

#[test]
fn each_verdict_is_counted_and_costs() {
    let reclaimed = |verdict| {
        let lru = new(verdict);
        fill(&lru, 0..2000, GroupId::ROOT);
        let few = lru.take(ROOT_0, List::InactiveFile, ZoneKind::Movable, ROUND, 3);
        let done = lru.evict(ROOT_0, Kind::File, few.few);
        let [anon, file] = lru.vecs.costs(ROOT_0);
        assert_eq!(anon, 0);
        lru.validate().expect("the books are in order");
        (done, file)
    };
    let scanned = Reclaimed { scanned: 3, ..Reclaimed::default() };
    let dropped = Reclaimed { reclaimed: 3, ..scanned };
    assert_eq!(reclaimed(Verdict::Drop), (dropped, 0));
    // Writing a frame back costs as much as looking at 32.
    assert_eq!(reclaimed(Verdict::Written), (Reclaimed { written: 3, ..dropped }, 96));
    let kept = Reclaimed { kept: 3, ..scanned };
    assert_eq!([Verdict::Keep, Verdict::Activate].map(reclaimed), [(kept, 3); 2]);
    assert_eq!(reclaimed(Verdict::Failed), (Reclaimed { failed: 3, ..scanned }, 3));
}

/// An owner may want all of them gone: to those in use, and to pinned ones, it gets no claim.
#[test]
fn frames_in_use_and_pinned_ones_stay() {
    let lru = new(Verdict::Drop);
    fill(&lru, 0..4, GroupId::ROOT);
    let held = lru.hold(Pfn::new(1)).expect("it is there");
    lru.pin(Pfn::new(2)).expect("it is there");
    let few = lru.take(ROOT_0, List::InactiveFile, ZoneKind::Movable, ROUND, 4);
    // The batch gives its reference back, and only the pin is left.
    lru.drain_all();
    let done = lru.evict(ROOT_0, Kind::File, few.few);
    assert_eq!((done.scanned, done.reclaimed, done.kept), (4, 2, 2));
    let is_there = [0, 1, 2, 3].map(|frame| lru.frame_stats(Pfn::new(frame)).is_ok());
    assert_eq!(is_there, [false, true, true, false]);
    drop(held);
    lru.validate().expect("the books are in order");
}

/// Uses a frame after it has said that the frame may go, as a lookup does: every other frame has a
/// reference more, and the others are pinned.
struct Reader(Cell<Option<&'static Lru<TestPlatform, Reader>>>);

impl Owner for Reader {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Drop
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        let lru = self.0.get().expect("it was set");
        let held = match frame.get() % 2 {
            0 => Some(lru.hold(frame).expect("it is there")),
            _ => {
                lru.pin(frame).expect("it is there");
                lru.drain_all();
                None
            }
        };
        assert!(claim.take().is_none(), "{frame} is in use");
        drop(held);
    }

    fn release(&self, blocks: &[Pfn], _order: Order) {
        panic!("{blocks:?} are in use");
    }
}

#[test]
fn a_frame_that_is_used_after_all_stays() {
    let lru: &_ = Box::leak(Box::new(lru(Reader(Cell::new(None)), LruSettings::default())));
    lru.owner().0.set(Some(lru));
    fill(lru, 0..4, GroupId::ROOT);
    let few = lru.take(ROOT_0, List::InactiveFile, ZoneKind::Movable, ROUND, 4);
    let done = lru.evict(ROOT_0, Kind::File, few.few);
    assert_eq!((done.scanned, done.reclaimed, done.kept), (4, 0, 4));
    lru.validate().expect("the books are in order");
}

/// Blocks of two orders and groups, one of which has another user.
#[test]
fn a_bulk_releases_what_has_no_user_left() {
    let lru = new(Verdict::Drop);
    let [one, two] = [(); 2].map(|()| lru.create_group(GroupId::ROOT, None).unwrap());
    fill(&lru, 0..3, one);
    for block in [8, 16] {
        lru.add_block(Pfn::new(block), Order::new(2), two, Kind::File).unwrap();
    }
    lru.drain_all();
    let held = lru.hold(Pfn::new(1)).expect("it is there");
    lru.put_bulk(&[0, 1, 2, 8, 16].map(Pfn::new)).expect("all are there");
    let is_there = [0, 1, 2, 8, 16].map(|frame| lru.frame_stats(Pfn::new(frame)).is_ok());
    assert_eq!(is_there, [false, true, false, false, false]);
    lru.drain_all();
    let charged = [one, two].map(|group| lru.group_stats(group).unwrap().charged.get());
    assert_eq!(charged, [1, 0]);
    lru.validate().expect("the books are in order");
    drop(held);
    assert_eq!(lru.validate().expect("the books are in order").used, FrameCount::ZERO);
}

#[test]
fn old_costs_decay() {
    let lru = new(Verdict::Drop);
    fill(&lru, 0..100, GroupId::ROOT);
    let after = |kind, cost| {
        lru.vecs.note_cost(ROOT_0, kind, cost);
        lru.vecs.costs(ROOT_0)
    };
    assert_eq!(after(Kind::File, 20), [0, 20]);
    assert_eq!(after(Kind::Anon, 5), [5, 20], "a quarter of the frames");
    assert_eq!(after(Kind::Anon, 0), [5, 20]);
    assert_eq!(after(Kind::Anon, 1), [3, 10]);
}

#[test]
fn scans_are_counted_while_they_last() {
    let lru = new(Verdict::Drop);
    let scans = [(); 2].map(|()| lru.vecs.shard(ROOT_0.shard(0)).begin_scan());
    assert!(lru.vecs.is_scanned(ROOT_0) && !lru.vecs.is_scanned(Place { node: 1, ..ROOT_0 }));
    drop(scans);
    assert!(!lru.vecs.is_scanned(ROOT_0));
}

#[test]
fn an_owner_waits_so_often() {
    assert_eq!([0, 15, 16].map(|waits| Says(Verdict::Drop).wait(waits)), [true, true, false]);
}

#[test]
fn a_stock_that_is_full_keeps_half() {
    let lru = new(Verdict::Drop);
    let group = lru.create_group(GroupId::ROOT, None).unwrap();
    let (cpu, slot) = (lru.cpus.here(&TestPlatform), group.slot());
    assert_eq!(cpu.restock(slot, 3), 3, "none is of this group");
    assert_eq!(cpu.set_stock(group, 10, 20), None);
    assert_eq!((cpu.restock(slot, 10), cpu.stock()), (0, Some((slot, 20))));
    assert_eq!((cpu.restock(0, 1), cpu.restock(slot, 1)), (1, 11));
    assert_eq!(cpu.drain_stock(), Some((slot, 10)));
}

/// What is charged ahead at a time, and how much of what comes back stays.
#[test]
fn a_cpu_charges_some_frames_ahead() {
    let lru = new(Verdict::Drop);
    let group = lru.create_group(GroupId::ROOT, None).unwrap();
    lru.add(Pfn::new(0), group, Kind::File).expect("it is new");
    assert_eq!(lru.cpus.here(&TestPlatform).stock(), Some((group.slot(), 31)));
    assert_eq!(lru.group_stats(group).unwrap().charged, FrameCount::new(32));
    // What comes back stays, up to twice as much; then half of it does.
    let uncharged = |frames| {
        let before = lru.group_stats(group).unwrap().charged.get();
        lru.uncharge(group.slot(), frames);
        before - lru.group_stats(group).unwrap().charged.get()
    };
    (1..5).for_each(|frame| lru.add(Pfn::new(frame), group, Kind::File).expect("it is new"));
    lru.groups.charge(group, 38).expect("there is no limit");
    assert_eq!((uncharged(37), uncharged(1)), (0, 33));
    assert_eq!(lru.cpus.here(&TestPlatform).stock(), Some((group.slot(), 32)));
}

/// The clock that distances are measured by advances with frames that become active.
#[test]
fn only_frames_that_become_active_advance_the_clock() {
    let lru = new(Verdict::Drop);
    fill(&lru, 0..10, GroupId::ROOT);
    let clock = || lru.vecs.history(ROOT_0, Kind::File).clock(lru.policy, false, [0; 2]);
    let activate = |frames: Range<u64>| {
        frames.for_each(|frame| lru.activate(Pfn::new(frame)).expect("it is there"));
        lru.drain_all();
    };
    activate(0..3);
    assert_eq!(clock(), 3);
    activate(0..3);
    assert_eq!(clock(), 3);
    (0..2).for_each(|frame| lru.deactivate(Pfn::new(frame)).expect("it is there"));
    lru.drain_all();
    assert_eq!(clock(), 3);
    activate(0..4);
    assert_eq!(clock(), 6);
}

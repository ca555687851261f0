//! An LRU and its naive model, side by side.

use std::collections::BTreeMap;

use crate::common::{TestPlatform, run_on};
use crate::naive::{Frame, Naive};
use crate::room::Room;
use crate::shelf::Shelf;
use freehold::{Config, FrameCount, MemoryRange, Migrate, NodeId, Order, Pfn};
use freehold_lru::{GroupId, GroupRef, Isolated, Kind, Lru, LruError, LruLock, LruSettings, Scope};

/// Frames of the machine; those above are foreign. Small, so that calls meet.
pub(crate) const MEMORY: u64 = 14;
pub(crate) const SLOTS: usize = 5;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Add(u64, Order, usize, bool),
    Get(u64),
    Put(u64),
    Accessed(u64),
    Activate(u64),
    Deactivate(u64),
    Rotate(u64),
    Pin(u64),
    Unpin(u64),
    Isolate(u64),
    /// Moves one of the isolated frames.
    Move(usize, usize),
    PutBack(usize),
    Create(usize, Option<u64>),
    Remove(usize),
    Limit(usize, Option<u64>),
    Enter(usize),
    Leave,
    Reclaim(Option<usize>, u64),
    /// Moves a frame or block, perhaps as one of a wrong order.
    Migrate(u64, u64, Option<Order>),
    Drain,
}

/// An LRU and its model.
struct Pair<'a> {
    lru: &'a Lru<TestPlatform, Shelf>,
    naive: Naive,
    /// The groups by their numbers in the model.
    groups: Vec<GroupId>,
    isolated: Vec<Isolated<'a, TestPlatform, Shelf>>,
    visits: Vec<(usize, GroupRef<'a, TestPlatform>)>,
    /// Whether batches hold one frame, so that the model knows every list.
    exact: bool,
}

impl Pair<'_> {
    /// The identifier of a group.
    fn group(&self, number: usize) -> GroupId {
        // Group 1 was removed at the start, and is as unknown as one that never was.
        self.groups.get(number).copied().unwrap_or(self.groups[1])
    }

    /// Checks which frame the LRU has released, and takes it out of the index.
    fn expect_released(&mut self, expected: Option<u64>) {
        assert_eq!(self.lru.owner().take_released(), Vec::from_iter(expected));
        if let Some(frame) = expected {
            self.lru.owner().contents().index.remove(&Pfn::new(frame));
        }
    }

    fn play(&mut self, call: Call) {
        let (lru, naive) = (self.lru, &mut self.naive);
        let pfn = Pfn::new;
        match call {
            Call::Add(frame, order, group, file) => {
                let kind = if file { Kind::File } else { Kind::Anon };
                let expected = naive.add(frame, order, group, kind);
                let added = lru.add_block(pfn(frame), order, self.group(group), kind);
                assert_eq!(added, expected);
                if added.is_ok() {
                    let mut contents = lru.owner().contents();
                    contents.index.insert(pfn(frame), frame);
                    contents.orders.insert(pfn(frame), order);
                }
            }
            Call::Get(frame) => assert_eq!(lru.get(pfn(frame)), naive.get(frame)),
            // An isolation's reference is not the caller's to put.
            Call::Put(frame)
                if naive.frames.get(&frame).is_some_and(|it| it.isolated && it.refs == 1) => {}
            Call::Put(frame) => {
                let expected = naive.put(frame);
                assert_eq!(lru.put(pfn(frame)), expected.map(|_| ()));
                self.settle();
                let last = expected == Ok(true);
                self.expect_released(last.then_some(frame));
            }
            Call::Accessed(frame) => {
                assert_eq!(lru.mark_accessed(pfn(frame)), naive.mark_accessed(frame));
            }
            Call::Activate(frame) => assert_eq!(lru.activate(pfn(frame)), naive.go(frame, true)),
            Call::Deactivate(frame) => {
                assert_eq!(lru.deactivate(pfn(frame)), naive.go(frame, false));
            }
            Call::Rotate(frame) => assert_eq!(lru.rotate(pfn(frame)), naive.go(frame, false)),
            Call::Pin(frame) => assert_eq!(lru.pin(pfn(frame)), naive.pin(frame)),
            Call::Unpin(frame) => assert_eq!(lru.unpin(pfn(frame)), naive.unpin(frame)),
            Call::Isolate(frame) => {
                self.settle();
                let isolated = self.lru.isolate(pfn(frame));
                let expected = self.naive.isolate(frame);
                assert_eq!(isolated.as_ref().err(), expected.as_ref().err());
                self.isolated.extend(isolated);
            }
            Call::Move(nth, group) => {
                let group_id = self.group(group);
                let Some(isolated) = self.isolated.get_mut(nth) else { return };
                let expected = self.naive.move_to(isolated.pfn().get(), group);
                assert_eq!(isolated.move_to(group_id), expected);
            }
            Call::PutBack(nth) if nth < self.isolated.len() => {
                let isolated = self.isolated.swap_remove(nth);
                let frame = isolated.pfn().get();
                let last = naive.put_back(frame);
                drop(isolated);
                self.settle();
                self.expect_released(last.then_some(frame));
            }
            Call::PutBack(_) => {}
            Call::Create(parent, limit) => {
                let parent_id = self.group(parent);
                let made = lru.create_group(parent_id, limit.map(FrameCount::new));
                match (self.naive.live(parent), made) {
                    (Ok(()), Ok(made)) => {
                        assert!(!self.naive.is_full(), "{made:?} has no slot");
                        assert!(!self.groups.contains(&made), "{made:?} was there before");
                        self.naive.create(made, parent, limit);
                        self.groups.push(made);
                    }
                    (Ok(()), Err(error)) => {
                        assert_eq!(error, LruError::TooManyGroups);
                        assert!(!self.naive.has_room(), "there is a slot");
                    }
                    (expected, made) => assert_eq!(made.err(), expected.err()),
                }
            }
            Call::Remove(group) => {
                let expected = naive.remove(group);
                assert_eq!(lru.remove_group(self.group(group)), expected);
            }
            Call::Limit(group, limit) => {
                let expected = naive.set_max(group, limit);
                assert_eq!(lru.set_max(self.group(group), limit.map(FrameCount::new)), expected);
            }
            Call::Enter(group) => {
                let expected = naive.live(group);
                let visit = self.lru.enter(self.group(group));
                assert_eq!(visit.as_ref().err(), expected.as_ref().err());
                if let Ok(visit) = visit {
                    self.naive.groups[group].readers += 1;
                    self.visits.push((group, visit));
                }
            }
            Call::Leave => {
                if let Some((group, _)) = self.visits.pop() {
                    self.naive.groups[group].readers -= 1;
                }
            }
            Call::Reclaim(group, count) => self.reclaim(group, count),
            Call::Migrate(from, to, order) => self.migrate(from, to, order),
            Call::Drain => lru.drain_all(),
        }
    }

    /// If batches hold more than one frame, drains them, so that frames in transit arrive.
    fn settle(&self) {
        if !self.exact {
            self.lru.drain_all();
        }
    }

    /// The model predicts how much reclaim takes, but not which of the reclaimable frames.
    fn reclaim(&mut self, group: Option<usize>, count: u64) {
        let scope = group.map_or(Scope::All, |group| Scope::Group(self.group(group)));
        self.settle();
        let outcome = self.lru.reclaim(scope, FrameCount::new(count));
        if let Some(Err(error)) = group.map(|group| self.naive.live(group)) {
            assert_eq!(outcome, Err(error));
            return;
        }
        let outcome = outcome.expect("the group exists");
        let released = self.lru.owner().take_released();
        let naive = &mut self.naive;
        let can_go = |frame: &Frame| {
            let spare = frame.refs == 1 && frame.pins == 0 && !frame.isolated;
            spare && naive.is_below(frame.group, group.unwrap_or(0))
        };
        let spare = || naive.frames.values().filter(|&frame| can_go(frame)).map(Frame::frames);
        let (all, largest) = (spare().sum::<u64>(), spare().max().unwrap_or(1));
        // The last one may be a block.
        let expected = all.min(count)..=all.min(count - 1 + largest);
        assert!(expected.contains(&outcome.reclaimed), "{outcome:?}, {expected:?}");
        let frames = |pfn| naive.frames.get(pfn).map_or(0, Frame::frames);
        assert_eq!(outcome.reclaimed, released.iter().map(frames).sum::<u64>());
        assert!(released.iter().all(|pfn| naive.frames.get(pfn).is_some_and(can_go)));
        released.iter().for_each(|pfn| _ = naive.frames.remove(pfn));
        // Ageing moves frames to inactive lists: the model learns which.
        for (&pfn, frame) in &mut self.naive.frames {
            let list = self.lru.frame_stats(Pfn::new(pfn)).expect("it is in use").list;
            if frame.active && list != frame.list() {
                (frame.active, frame.referenced) = (false, false);
            } else if frame.active && frame.referenced && !frame.isolated {
                // Another turn costs the mark. A frame that had no turn still has it, as has one
                // that only its holder can take off a list.
                frame.referenced = false;
                self.lru.activate(Pfn::new(pfn)).expect("it is in use");
            }
        }
        self.settle();
    }

    fn migrate(&mut self, from: u64, to: u64, order: Option<Order>) {
        self.settle();
        let own = self.naive.frames.get(&from).map_or(Order::ZERO, |frame| frame.order);
        let order = order.unwrap_or(own);
        let moved = self.lru.migrate(Pfn::new(from), Pfn::new(to), order);
        assert_eq!(moved.is_ok(), self.naive.migrate(from, to, order), "{moved:?}");
    }

    fn compare(&self) {
        let census = self.lru.validate().unwrap_or_else(|violation| panic!("{violation}"));
        let used: u64 = self.naive.frames.values().map(Frame::frames).sum();
        assert_eq!(census.used.get(), used);
        for (&pfn, frame) in &self.naive.frames {
            let stats = self.lru.frame_stats(Pfn::new(pfn)).expect("it is in use");
            assert_eq!((stats.pins, stats.order), (frame.pins, frame.order), "{pfn}");
            if self.exact {
                assert_eq!(stats.references.map_or(0, |refs| refs.get()), frame.refs, "{pfn}");
                assert_eq!(stats.list, frame.list(), "{pfn}: {frame:?}");
            }
        }
        let mut listed = BTreeMap::new();
        for frame in self.naive.frames.values().filter(|frame| !frame.isolated) {
            *listed.entry(self.naive.holder(frame.group)).or_insert(0) += frame.frames();
        }
        for (number, &group) in self.groups.iter().enumerate() {
            let stats = self.lru.group_stats(group);
            assert_eq!(stats.as_ref().err(), self.naive.live(number).as_ref().err());
            let Ok(stats) = stats else { continue };
            assert_eq!(stats.pinned.get(), self.naive.pinned(number));
            assert!(stats.charged.get() >= self.naive.charged(number));
            let on_lists: u64 = stats.listed.iter().map(|count| count.get()).sum();
            if self.exact {
                assert_eq!(on_lists, listed.get(&number).copied().unwrap_or(0));
            }
        }
    }
}

/// Makes the calls in turns on CPUs of two shards, with batches of so many frames.
pub(crate) fn run(lock: LruLock, batch: u32, calls: &[Call]) {
    run_on(0);
    let range = MemoryRange::new(Pfn::new(0), FrameCount::new(MEMORY));
    let (ranges, cpus) = ([range], [NodeId::new(0); 3]);
    let settings = LruSettings::default().lock(lock).batch(batch).groups(SLOTS as u32);
    let settings = settings.shard_waits(0).shard_frames(4);
    let room = Room::new(TestPlatform, &Config::new(&ranges, &cpus), &settings, Shelf::default());
    let mut pair = Pair {
        lru: &room,
        naive: Naive::new(MEMORY, SLOTS),
        groups: vec![GroupId::ROOT],
        isolated: vec![],
        visits: vec![],
        exact: batch == 1,
    };
    // So that there is always an identifier of a removed group.
    let gone = room.create_group(GroupId::ROOT, None).expect("a slot is free");
    room.remove_group(gone).expect("it is empty");
    pair.groups.push(gone);
    pair.naive.create(gone, 0, None);
    pair.naive.remove(1).expect("it is empty");
    for (number, &call) in calls.iter().enumerate() {
        run_on(number as u32 % 2);
        pair.play(call);
        if pair.exact {
            pair.compare();
        }
    }
    pair.settle();
    pair.compare();
    pair.visits.clear();
    pair.isolated.clear();
    room.drain_all();
    for (&pfn, frame) in &pair.naive.frames {
        let refs = frame.refs - u32::from(frame.isolated);
        (0..refs).for_each(|_| room.put(Pfn::new(pfn)).expect("it is in use"));
    }
    room.drain_all();
    let census = room.check();
    assert_eq!((census.used.get(), census.stocked.get()), (0, 0), "everything is back");
}

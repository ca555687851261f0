//! The work of one CPU in a round: operations drawn from the seed, each checked at once.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::ensure;
use fastrand::Rng;
use freehold::{FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_lru::{GroupId, Kind, LruError, Scope};
use freehold_sim::CpuHandle;

use super::super::frames::CheckedFrames;
use super::super::menu::{self, Dish};
use super::super::round::goes_away;
use super::super::tally::LruTally;
use super::shelf::{Cache, ORDER_MAX, order_of};

/// How many blocks are frequently read.
const OFTEN: u64 = 40;

/// The state that all CPUs of a scenario share.
pub(super) struct World {
    pub(super) frames: Rc<dyn CheckedFrames>,
    pub(super) cache: Cache,
    pub(super) groups: RefCell<Vec<GroupId>>,
    /// Memory still to be added.
    pub(super) late: RefCell<Option<MemoryRange>>,
    pub(super) tally: Rc<RefCell<LruTally>>,
    /// How many blocks there are: more than memory holds.
    pub(super) blocks: u64,
    /// Kinds of steps that are left out.
    pub(super) without: Vec<String>,
}

impl World {
    /// Checks all invariants at a time when no CPU runs.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let census = self.cache.validate()?;
        let shelf = self.cache.owner();
        ensure!(
            census.used == shelf.stamped_frames(),
            "{} in the LRU, {} were allocated",
            census.used,
            shelf.stamped_frames()
        );
        // The others were dropped from the index while a batch still has them.
        let unlisted = shelf.stamped() - shelf.indexed();
        ensure!(census.batched.get() >= unlisted as u64, "{unlisted} frames are lost");
        self.frames.validate()?;
        Ok(())
    }
}

/// What a CPU does in a step.
static MENU: [Dish<Actor>; 12] = [
    Dish::new("read", 40, Actor::read),
    Dish::new("put", 15, |actor| _ = actor.put()),
    Dish::new("remove", 7, Actor::remove),
    Dish::new("isolate", 10, Actor::isolate),
    Dish::new("pin", 6, Actor::pin),
    Dish::new("reclaim", 6, Actor::reclaim),
    Dish::new("drain", 2, |actor| actor.world.cache.drain_all()),
    Dish::new("compact", 2, |actor| _ = actor.world.frames.compact(&*actor.world.cache)),
    Dish::new("regroup", 6, Actor::regroup),
    Dish::new("visit", 2, Actor::visit),
    Dish::new("add-memory", 1, Actor::add_memory),
    Dish::new("misuse", 3, Actor::misuse),
];

/// The names of these steps.
pub(in crate::check) fn steps() -> Vec<&'static str> {
    MENU.iter().map(|dish| dish.name).collect()
}

/// One CPU, and the references that it holds.
pub(super) struct Actor {
    world: Rc<World>,
    seed: u64,
    /// Steps that it has taken.
    steps: usize,
    /// Of the present step.
    rng: Rng,
    held: Vec<(u64, Pfn)>,
}

impl Actor {
    pub(super) fn new(world: Rc<World>, seed: u64) -> Self {
        Actor { world, seed, steps: 0, rng: Rng::with_seed(seed), held: Vec::new() }
    }

    /// Does so many operations, or fewer if the CPU leaves, and puts its references.
    pub(super) fn work(mut self, handle: &CpuHandle, operations: usize) {
        if goes_away(handle, operations, || self.step()) {
            self.world.tally.borrow_mut().departures += 1;
        }
        while self.put() {}
    }

    fn step(&mut self) {
        self.world.tally.borrow_mut().operations += 1;
        self.rng = menu::of_step(self.seed, self.steps);
        self.steps += 1;
        let world = Rc::clone(&self.world);
        if let Some(dish) = menu::draw(&MENU, &mut self.rng, &world.without) {
            dish.act(self);
        }
    }

    fn block(&mut self) -> u64 {
        // Few blocks are read often, so that CPUs meet, and many others evict them.
        let span = if self.rng.bool() { self.world.blocks } else { OFTEN };
        self.rng.u64(..span)
    }

    fn group(&mut self) -> GroupId {
        let groups = self.world.groups.borrow();
        let nth = self.rng.usize(..=groups.len());
        groups.get(nth).copied().unwrap_or(GroupId::ROOT)
    }

    /// Looks a block up and takes a reference.
    fn find(&self, block: u64) -> Option<Pfn> {
        let cache = &self.world.cache;
        let locked = cache.owner().lock();
        let frame = locked.index().find(block)?;
        let got = cache.get(frame);
        assert_eq!(got, Ok(()), "{frame} is in the index, whose lock is held");
        Some(frame)
    }

    fn read(&mut self) {
        let block = self.block();
        self.world.tally.borrow_mut().reads += 1;
        let found = self.find(block);
        self.world.tally.borrow_mut().hits += u64::from(found.is_some());
        let Some(frame) = found.or_else(|| self.fill(block)) else { return };
        let cache = &self.world.cache;
        cache.mark_accessed(frame).expect("a reference is held");
        match self.rng.u8(..8) {
            0 => cache.activate(frame).expect("a reference is held"),
            1 => cache.deactivate(frame).expect("a reference is held"),
            2 => cache.rotate(frame).expect("a reference is held"),
            _ => {}
        }
        self.held.push((block, frame));
    }

    /// Reads a block in; returns its frame, with a reference.
    fn fill(&mut self, block: u64) -> Option<Pfn> {
        let world = Rc::clone(&self.world);
        let (cache, shelf) = (&world.cache, world.cache.owner());
        let order = order_of(block);
        let frame = world.frames.alloc_reclaiming(cache, Request::new(order)).ok()?;
        shelf.stamp(frame, block);
        let kind = if block.is_multiple_of(3) { Kind::Anon } else { Kind::File };
        let group = self.group();
        let added = match self.rng.bool() {
            true => cache.add_block(frame, order, group, kind),
            false => cache.add_block_reclaiming(frame, order, group, kind),
        };
        match added {
            Ok(()) => world.tally.borrow_mut().large += u64::from(order > Order::ZERO),
            Err(LruError::GroupLimit(_) | LruError::UnknownGroup | LruError::ForeignFrame) => {
                shelf.unstamp(frame);
                world.frames.free(frame, order).expect("it was just allocated");
                return None;
            }
            Err(error) => panic!("adding {frame}: {error}"),
        }
        let shadow = shelf.lock().index().take_shadow(block);
        if let Some(shadow) = shadow {
            let is_soon = cache.refault(frame, shadow).expect("a reference is held");
            world.tally.borrow_mut().refaults += 1;
            world.tally.borrow_mut().restored += u64::from(is_soon);
        }
        let locked = shelf.lock();
        let other = locked.index().find(block);
        if other.is_some() {
            drop(locked);
            // Another CPU read the block first.
            cache.put(frame).expect("a reference is held");
            return self.find(block);
        }
        cache.get(frame).expect("a reference is held");
        locked.index().enter(block, frame);
        Some(frame)
    }

    /// Puts a reference, after checking the frame's content; returns whether there was one.
    fn put(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let (block, frame) = self.held.swap_remove(self.rng.usize(..self.held.len()));
        let there = self.world.cache.owner().block_in(frame);
        assert_eq!(there, Some(block), "{frame} was released while a reference is held");
        self.world.cache.put(frame).expect("a reference is held");
        true
    }

    /// Removes a block from the index.
    fn remove(&mut self) {
        let block = self.block();
        let world = &self.world;
        let removed = {
            let locked = world.cache.owner().lock();
            locked.index().remove(block)
        };
        if let Some(frame) = removed {
            world.cache.put_bulk(&[frame]).expect("the index had a reference");
        }
    }

    /// Isolates a frame, and moves it to another group now and then.
    fn isolate(&mut self) {
        let world = Rc::clone(&self.world);
        let frame = {
            let locked = world.cache.owner().lock();
            locked.index().find(self.rng.u64(..OFTEN))
        };
        let Some(frame) = frame else { return };
        let mut isolated = match world.cache.isolate(frame) {
            Ok(isolated) => isolated,
            Err(LruError::FrameBusy) => return world.tally.borrow_mut().busy += 1,
            Err(LruError::NotAdded) => return,
            Err(error) => panic!("isolating {frame}: {error}"),
        };
        world.tally.borrow_mut().isolated += 1;
        let there = world.cache.owner().block_in(frame);
        assert!(there.is_some(), "{frame} is isolated, but not in use");
        match isolated.move_to(self.group()) {
            Ok(()) => world.tally.borrow_mut().regrouped += 1,
            Err(LruError::GroupLimit(_) | LruError::UnknownGroup) => {}
            Err(error) => panic!("moving {frame}: {error}"),
        }
        assert_eq!(world.cache.owner().block_in(frame), there, "{frame} changed while isolated");
    }

    fn pin(&mut self) {
        let block = self.block();
        let Some(frame) = self.find(block) else { return };
        let cache = &self.world.cache;
        cache.pin(frame).expect("a reference is held");
        self.world.tally.borrow_mut().pins += 1;
        if self.rng.bool() {
            cache.drain_all();
        }
        assert_eq!(cache.owner().block_in(frame), Some(block), "{frame} went while pinned");
        cache.unpin(frame).expect("it was pinned");
        cache.put(frame).expect("a reference is held");
    }

    fn reclaim(&mut self) {
        let scope = match self.rng.u8(..3) {
            0 => Scope::All,
            1 => Scope::Node(NodeId::new(0)),
            _ => Scope::Group(self.group()),
        };
        let count = FrameCount::new(self.rng.u64(1..60));
        match self.world.cache.reclaim(scope, count) {
            Ok(done) => {
                // The last one may be a block.
                let most = count + ORDER_MAX.frames() - FrameCount::new(1);
                assert!(done.frames() <= most, "{done:?} of {count}");
            }
            Err(error) => assert_eq!(error, LruError::UnknownGroup),
        }
        if self.rng.u8(..4) == 0 {
            self.world.frames.balance(&self.world.cache);
        }
        if self.rng.u8(..4) == 0 {
            self.world.cache.balance_groups();
        }
    }

    /// Creates a group, removes one, or changes its bounds.
    fn regroup(&mut self) {
        let (world, group) = (Rc::clone(&self.world), self.group());
        let limit = Some(FrameCount::new(self.rng.u64(1..world.blocks)));
        match self.rng.u8(..4) {
            0..2 => match world.cache.create_group(group, limit) {
                Ok(made) => {
                    world.groups.borrow_mut().push(made);
                    world.tally.borrow_mut().groups_made += 1;
                }
                Err(error) => {
                    assert!(matches!(error, LruError::TooManyGroups | LruError::UnknownGroup));
                }
            },
            2 => match self.remove_group(group) {
                Ok(frames) => {
                    world.groups.borrow_mut().retain(|&other| other != group);
                    world.tally.borrow_mut().groups_removed += 1;
                    world.tally.borrow_mut().inherited += frames;
                }
                Err(error) => {
                    assert!(matches!(error, LruError::GroupInUse | LruError::UnknownGroup));
                }
            },
            _ => {
                let few = FrameCount::new(self.rng.u64(..world.blocks / 8));
                let set = match self.rng.u8(..6) {
                    0 => world.cache.set_min(group, few),
                    1 => world.cache.set_low(group, few),
                    2 => world.cache.set_high(group, limit),
                    _ => world.cache.set_max(group, limit),
                };
                match set {
                    Ok(()) => {}
                    Err(
                        LruError::GroupInUse | LruError::UnknownGroup | LruError::LimitBelowPinned,
                    ) => {}
                    Err(error) => panic!("setting a bound: {error}"),
                }
            }
        }
    }

    /// Removes a group; returns how many frames were on its lists just before.
    fn remove_group(&self, group: GroupId) -> Result<u64, LruError> {
        let stats = self.world.cache.group_stats(group)?;
        self.world.cache.remove_group(group)?;
        Ok(stats.listed.iter().map(|frames| frames.get()).sum())
    }

    /// A group that has readers cannot be removed.
    fn visit(&mut self) {
        let group = self.group();
        let Ok(visit) = self.world.cache.enter(group) else { return };
        assert_eq!(self.world.cache.remove_group(group), Err(LruError::GroupInUse));
        drop(visit);
    }

    fn add_memory(&mut self) {
        let late = self.world.late.borrow_mut().take();
        if let Some(range) = late {
            self.world.frames.add_memory(range).expect("there is room for it");
            self.world.cache.add_memory(range).expect("there is room for it");
        }
    }

    /// Calls that are refused.
    fn misuse(&mut self) {
        let cache = &self.world.cache;
        if let Some(&(block, frame)) = self.held.first() {
            assert_eq!(cache.add(frame, GroupId::ROOT, Kind::File), Err(LruError::AlreadyAdded));
            assert_eq!(cache.owner().block_in(frame), Some(block));
            if order_of(block) > Order::ZERO {
                let part = frame + FrameCount::new(1);
                assert_eq!(cache.add(part, GroupId::ROOT, Kind::File), Err(LruError::AlreadyAdded));
                assert_eq!(cache.get(part), Err(LruError::NotAdded));
            }
        }
        assert_eq!(cache.get(Pfn::new(1 << 50)), Err(LruError::ForeignFrame));
        assert_eq!(cache.remove_group(GroupId::ROOT), Err(LruError::GroupInUse));
    }
}

//! One CPU, what it shares with the others, and its operations, each checked at once.

use std::cell::RefCell;
use std::rc::Rc;

use fastrand::Rng;
use freehold::designs::ParkedLease;
use freehold::{
    CpuId, Error, FrameCount, FrameStatus, MemoryRange, MigrateType, NodeId, Order, Pfn, Request,
    Watermark, ZoneKind,
};

use super::flow::Flow;
use super::frames::CheckedFrames;
use super::leases::{Ending, Leased, Terms};
use super::ledger::{Block, Ledger};
use super::scenario::Scenario;
use super::tally::Tally;

/// Whether a request must not wait for other calls.
pub(super) fn is_nowait(request: &Request) -> bool {
    request.nowait() == *request
}

/// The state that all CPUs of a scenario share.
pub(super) struct World {
    pub(super) frames: Rc<dyn CheckedFrames>,
    pub(super) ledger: RefCell<Ledger>,
    pub(super) flow: Flow,
    pub(super) tally: RefCell<Tally>,
    /// Memory still to be added, for the first time or again.
    pub(super) late: RefCell<Vec<MemoryRange>>,
    pub(super) nodes: u16,
    /// Leases that are parked, for any CPU to resume.
    pub(super) parked: RefCell<Vec<ParkedLease>>,
    pub(super) slots: u32,
    /// Kinds of steps that are left out.
    pub(super) without: Vec<String>,
    /// Whether a CPU stops forever, so that others may have to wait for it.
    pub(super) stops: bool,
}

impl World {
    /// The initial state of a scenario.
    pub(super) fn new(scenario: &Scenario, frames: Rc<dyn CheckedFrames>, stops: bool) -> Self {
        World {
            frames,
            ledger: RefCell::new(Ledger::new(&scenario.ranges, scenario.late)),
            flow: Flow::default(),
            tally: RefCell::new(Tally::default()),
            late: RefCell::new(scenario.late.into_iter().collect()),
            nodes: scenario.spec.nodes() as u16,
            parked: RefCell::default(),
            slots: scenario.cpu_nodes.len() as u32,
            without: scenario.without.clone(),
            stops,
        }
    }

    /// Frees a block that has been removed from the ledger.
    fn free_block(&self, block: Block) {
        self.flow.freeing_block(block, || self.frames.free(block.pfn, block.order));
    }

    /// Frees a block left for others; returns whether there was one.
    pub(super) fn free_left(&self) -> bool {
        let left = self.ledger.borrow_mut().pool.pop();
        if let Some(block) = left {
            self.ledger.borrow_mut().strike(block);
            self.free_block(block);
        }
        left.is_some()
    }

    /// Asks for all memory, in blocks as large as there are, and leaves them for any CPU to free.
    pub(super) fn take_all(&self) {
        for order in (0..=Order::BUDDY_MAX.get()).rev().map(Order::new) {
            let request = Request::new(order).watermark(Watermark::Ignore);
            let take = || self.frames.alloc(request);
            while let Ok(pfn) = self.flow.allocating_block(order, take) {
                let (block, mut ledger) = (Block { pfn, order }, self.ledger.borrow_mut());
                ledger.enter(block, ZoneKind::Movable);
                ledger.pool.push(block);
            }
        }
    }

    /// Reads the counters: they deviate no more than calls under way can explain.
    pub(super) fn probe(&self) {
        let World { frames, flow, tally, .. } = self;
        let mark = flow.mark();
        let events = frames.events();
        let Some((least, most)) = flow.bounds_since(&mark) else { return };
        let used = events.allocated.get().cast_signed() - events.freed.get().cast_signed();
        assert!(
            (least..=most).contains(&used),
            "counters show {used} frames in use, of {least} to {most} possible: {events:?}"
        );
        tally.borrow_mut().probes += 1;
    }
}

/// One CPU and the blocks that it holds.
pub(super) struct Actor {
    pub(super) world: Rc<World>,
    pub(super) seed: u64,
    /// Steps that it has taken.
    pub(super) steps: usize,
    /// Of the present step.
    pub(super) rng: Rng,
    pub(super) held: Vec<Block>,
}

impl Actor {
    pub(super) fn new(world: Rc<World>, seed: u64) -> Self {
        Actor { world, seed, steps: 0, rng: Rng::with_seed(seed), held: Vec::new() }
    }

    fn order(&mut self) -> Order {
        let small = self.rng.u8(0..=3);
        let any = self.rng.u8(0..=Order::BUDDY_MAX.get());
        Order::new(match self.rng.u8(..8) {
            0..5 => 0,
            5..7 => small,
            _ => any,
        })
    }

    pub(super) fn request(&mut self, order: Order) -> (Request, ZoneKind) {
        let migratetype = *self.rng.choice(&MigrateType::ALL).expect("not empty");
        let marks = [Watermark::Low, Watermark::Min, Watermark::Atomic, Watermark::Ignore];
        let watermark = *self.rng.choice(&marks).expect("not empty");
        let request = Request::new(order).migratetype(migratetype).watermark(watermark);
        let request = match self.rng.u8(..4) {
            0 => request.node(NodeId::new(self.rng.u16(..self.world.nodes))),
            _ => request,
        };
        let request = if self.world.stops && self.rng.bool() { request.nowait() } else { request };
        let limit = match migratetype {
            MigrateType::Movable => ZoneKind::Movable,
            _ => ZoneKind::Normal,
        };
        (request, limit)
    }

    pub(super) fn alloc(&mut self) {
        let world = Rc::clone(&self.world);
        self.alloc_by(&|request| world.frames.alloc(request));
    }

    /// Allocates a block by a call of the allocator or of a lease.
    fn alloc_by(&mut self, call: &dyn Fn(Request) -> Result<Pfn, Error>) {
        let order = self.order();
        let (request, limit) = self.request(order);
        match self.world.flow.allocating_block(order, || call(request)) {
            Ok(pfn) => self.take(Block { pfn, order }, limit),
            Err(Error::OutOfMemory | Error::BelowWatermark) => {
                self.world.tally.borrow_mut().refusals += 1;
            }
            Err(Error::WouldWait) if is_nowait(&request) => {}
            Err(error) => panic!("allocating {request:?}: {error}"),
        }
    }

    pub(super) fn take(&mut self, block: Block, limit: ZoneKind) {
        self.world.ledger.borrow_mut().enter(block, limit);
        self.world.tally.borrow_mut().allocations += 1;
        self.held.push(block);
    }

    /// Removes a block from the CPU's blocks and from the ledger.
    fn let_go(&mut self) -> Option<Block> {
        if self.held.is_empty() {
            return None;
        }
        let block = self.held.swap_remove(self.rng.usize(..self.held.len()));
        self.world.ledger.borrow_mut().strike(block);
        Some(block)
    }

    pub(super) fn free(&mut self) {
        let world = Rc::clone(&self.world);
        self.free_by(&|block| world.frames.free(block.pfn, block.order));
    }

    /// Frees a block by a call of the allocator or of a lease.
    fn free_by(&mut self, call: &dyn Fn(Block) -> Result<(), Error>) {
        if let Some(block) = self.let_go() {
            self.world.flow.freeing_block(block, || call(block));
        }
    }

    /// Frees an aligned part of a block and keeps the rest: the halves around it.
    pub(super) fn free_part(&mut self) {
        let Some(Block { mut pfn, order }) = self.let_go() else { return };
        let part = Order::new(self.rng.u8(..=order.get()));
        for half in (part.get()..order.get()).rev().map(Order::new) {
            let upper = pfn.offset(half.frames());
            let (kept, rest) = if self.rng.bool() { (pfn, upper) } else { (upper, pfn) };
            let kept = Block { pfn: kept, order: half };
            self.world.ledger.borrow_mut().enter(kept, ZoneKind::Movable);
            self.held.push(kept);
            pfn = rest;
        }
        self.world.free_block(Block { pfn, order: part });
    }

    /// Leaves a block for others to free.
    pub(super) fn leave(&mut self) {
        if !self.held.is_empty() {
            let block = self.held.swap_remove(self.rng.usize(..self.held.len()));
            self.world.ledger.borrow_mut().pool.push(block);
        }
    }

    pub(super) fn alloc_bulk(&mut self) {
        let order = Order::new(self.rng.u8(..=2));
        let (request, limit) = self.request(order);
        let wanted = self.rng.usize(1..=80);
        let way = self.rng.u8(..4);
        let World { frames, flow, .. } = &*self.world;
        let got = |blocks: &Vec<Pfn>| (blocks.len() as u64) << order.get();
        let call = || match way {
            0 => {
                let mut slots = vec![None; wanted];
                let full = frames.alloc_into_slots(request, &mut slots);
                let blocks: Vec<_> = slots.into_iter().flatten().collect();
                assert_eq!(full, Ok(blocks.len()), "slots are filled from the front");
                blocks
            }
            1 => {
                let mut list = Vec::new();
                let added = frames.alloc_onto_list(request, wanted, &mut list);
                assert_eq!(added, Ok(list.len()));
                list
            }
            _ => {
                let mut blocks = vec![Pfn::default(); wanted];
                let count = frames.alloc_bulk(request, &mut blocks);
                blocks.truncate(count.expect("the request is in order"));
                blocks
            }
        };
        for pfn in flow.allocating((wanted as u64) << order.get(), call, got) {
            self.take(Block { pfn, order }, limit);
        }
    }

    pub(super) fn free_bulk(&mut self) {
        let Some(order) = self.held.first().map(|block| block.order) else { return };
        let (bulk, rest): (Vec<_>, Vec<_>) =
            self.held.drain(..).partition(|block| block.order == order);
        self.held = rest;
        self.give_back(&bulk, order);
    }

    /// Frees blocks of one order in bulk.
    fn give_back(&self, bulk: &[Block], order: Order) {
        for &block in bulk {
            self.world.ledger.borrow_mut().strike(block);
        }
        let frames: Vec<_> = bulk.iter().map(|block| block.pfn).collect();
        let World { frames: allocator, flow, .. } = &*self.world;
        let count = (frames.len() as u64) << order.get();
        let freed = flow.freeing(count, || allocator.free_bulk(&frames, order));
        assert_eq!(freed, Ok(()), "freeing {bulk:?} in bulk");
    }

    pub(super) fn upkeep(&mut self) {
        let cpu = CpuId::new(self.rng.u32(..self.world.slots));
        let done = match self.rng.u8(..4) {
            0 => {
                self.world.frames.drain_all();
                Ok(())
            }
            1 => self.world.frames.drain(cpu),
            _ => self.world.frames.tick(cpu),
        };
        assert_eq!(done, Ok(()));
    }

    /// Frees what must not be freed.
    pub(super) fn misuse(&mut self) {
        let foreign = self.world.ledger.borrow().foreign();
        let frames = &self.world.frames;
        assert_eq!(frames.free(foreign, Order::ZERO), Err(Error::ForeignFrame));
        let Some(block) = self.held.first() else { return };
        let larger = block.order.up();
        let refused = match block.pfn.is_aligned(larger) {
            _ if larger > frames.order_max() => Error::OrderTooLarge,
            true => Error::WrongOrder,
            false => Error::Misaligned,
        };
        assert_eq!(frames.free(block.pfn, larger), Err(refused), "freeing {block:?} as {larger}");
    }

    /// Briefly takes all memory, so that others are refused.
    pub(super) fn hog(&mut self) {
        let request = Request::default().watermark(Watermark::Ignore);
        let mut hoarded = Vec::new();
        let mut frames = [Pfn::default(); 64];
        loop {
            let World { frames: allocator, flow, .. } = &*self.world;
            let count = flow.allocating(
                frames.len() as u64,
                || allocator.alloc_bulk(request, &mut frames).expect("the request is in order"),
                |&count| count as u64,
            );
            let got = &frames[..count];
            if got.is_empty() {
                break;
            }
            for &pfn in got {
                let block = Block { pfn, order: Order::ZERO };
                self.world.ledger.borrow_mut().enter(block, ZoneKind::Movable);
                hoarded.push(block);
            }
        }
        self.world.tally.borrow_mut().allocations += hoarded.len() as u64;
        for bulk in hoarded.chunks(64) {
            self.give_back(bulk, Order::ZERO);
        }
    }

    pub(super) fn add_memory(&mut self) {
        let late = self.world.late.borrow_mut().pop();
        if let Some(range) = late {
            self.world.ledger.borrow_mut().add_memory(range);
            assert_eq!(self.world.frames.add_memory(range), Ok(()), "adding {range:?}");
        }
    }

    /// Asks what a frame of the CPU's blocks is.
    pub(super) fn look(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let Block { pfn, order } = self.held[self.rng.usize(..self.held.len())];
        let frame = pfn.offset(FrameCount::new(self.rng.u64(..order.frames().get())));
        let status = self.world.frames.status(frame);
        assert_eq!(status, FrameStatus::Allocated { first: pfn, order }, "{frame}");
    }

    pub(super) fn validate(&self) {
        if let Err(violation) = self.world.frames.validate() {
            panic!("an invariant is violated: {violation}");
        }
        self.world.tally.borrow_mut().validations += 1;
    }

    /// Works through a lease for a while.
    pub(super) fn lease(&mut self) {
        let world = Rc::clone(&self.world);
        let cpu = CpuId::new(self.rng.u32(..world.slots));
        let parked = if self.rng.bool() { world.parked.borrow_mut().pop() } else { None };
        let terms = match parked {
            Some(parked) => Terms::Resumed(parked),
            None => Terms::New(cpu),
        };
        let mut work = |lease: &mut dyn Leased| {
            for _ in 0..self.rng.usize(1..=30) {
                self.lease_step(lease);
            }
            self.rng.bool()
        };
        match world.frames.with_lease(terms, &mut work) {
            Ending::Unsupported => {}
            Ending::Refused(error) => assert_eq!(error, Error::Leased),
            Ending::Ended => world.tally.borrow_mut().leases += 1,
            Ending::Parked(parked) => {
                world.tally.borrow_mut().leases += 1;
                world.parked.borrow_mut().push(parked);
            }
        }
    }

    fn lease_step(&mut self, lease: &mut dyn Leased) {
        match self.rng.u8(..16) {
            0..8 => self.alloc_by(&|request| lease.alloc(request)),
            8..13 => self.free_by(&|block| lease.free(block.pfn, block.order)),
            13..15 => self.alloc_own(lease),
            _ => lease.renew(),
        }
    }

    fn alloc_own(&mut self, lease: &dyn Leased) {
        let (request, limit) = self.request(Order::ZERO);
        let mut out = vec![Pfn::default(); self.rng.usize(1..=80)];
        let wanted = out.len() as u64;
        let call = || lease.alloc_own(request, &mut out);
        let count = self.world.flow.allocating(wanted, call, |&count| count as u64);
        for &pfn in &out[..count] {
            self.take(Block { pfn, order: Order::ZERO }, limit);
        }
    }
}

//! Compaction and ranges in a scenario: the CPU that requests them moves the blocks left for
//! others, and now and then refuses to.

use std::cell::RefCell;
use std::rc::Rc;

use fastrand::Rng;
use freehold::{
    CpuId, Error, FrameCount, Migrate, MigrateError, Order, Pfn, RangeRequest, ZoneKind,
};

use super::actor::{Actor, World, is_nowait};
use super::ledger::Block;

/// Who frees what content was moved out of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frees {
    Allocator,
    Mover,
    MoverLater,
}

/// Moves blocks of the pool.
struct Mover {
    world: Rc<World>,
    rng: RefCell<Rng>,
    frees: Frees,
    /// Whether it is asked to move what was allocated as unmovable.
    knows_content: bool,
    /// Blocks that it still has to free.
    left: RefCell<Vec<Block>>,
}

impl Migrate for Mover {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        refuse_two_in(&self.rng, 16)?;
        // No access to the simulated machine in between, so that this is one step.
        let mut ledger = self.world.ledger.borrow_mut();
        let held = Block { pfn: from, order };
        let place = ledger.place_of(held).ok_or(MigrateError::Busy)?;
        let moved = Block { pfn: to, order };
        ledger.enter(moved, ZoneKind::Movable);
        ledger.strike(held);
        ledger.pool[place] = moved;
        self.world.tally.borrow_mut().moves += 1;
        self.world.flow.note_move(order.frames().get());
        drop(ledger);
        match self.frees {
            Frees::Allocator => {}
            Frees::Mover => self.free(held),
            Frees::MoverLater => self.left.borrow_mut().push(held),
        }
        Ok(())
    }

    fn frees_source(&self) -> bool {
        self.frees != Frees::Allocator
    }

    fn knows_content(&self) -> bool {
        self.knows_content
    }

    /// Now and then wrongly.
    fn can_move(&self, _block: Pfn, _order: Order) -> bool {
        self.knows_content && self.rng.borrow_mut().bool()
    }

    fn evict(&self, from: Pfn, order: Order) -> Result<(), MigrateError> {
        // Who does not free what moves frees nothing.
        if self.frees == Frees::Allocator {
            return Err(MigrateError::Failed);
        }
        refuse_two_in(&self.rng, 4)?;
        let mut ledger = self.world.ledger.borrow_mut();
        let held = Block { pfn: from, order };
        let place = ledger.place_of(held).ok_or(MigrateError::Busy)?;
        ledger.pool.swap_remove(place);
        ledger.strike(held);
        drop(ledger);
        self.world.flow.freeing_block(held, || self.world.frames.free(from, order));
        self.world.tally.borrow_mut().moves += 1;
        Ok(())
    }
}

/// Fails in two of so many calls.
pub(in crate::check) fn refuse_two_in(rng: &RefCell<Rng>, calls: u8) -> Result<(), MigrateError> {
    match rng.borrow_mut().u8(..calls) {
        0 => Err(MigrateError::Busy),
        1 => Err(MigrateError::Failed),
        _ => Ok(()),
    }
}

impl Mover {
    fn free(&self, block: Block) {
        assert_eq!(self.world.frames.free(block.pfn, block.order), Ok(()), "freeing {block:?}");
    }
}

impl Actor {
    /// Makes a call that may move blocks.
    fn moving<R>(&mut self, call: impl FnOnce(&Mover) -> R) -> R {
        let rng = RefCell::new(Rng::with_seed(self.rng.u64(..)));
        let ways = [Frees::Allocator, Frees::Mover, Frees::MoverLater];
        // Where a CPU has stopped for good, what it has yet to free would be missing.
        let frees = match self.world.stops {
            true => Frees::Allocator,
            false => *self.rng.choice(&ways).expect("not empty"),
        };
        let mover = Mover {
            world: Rc::clone(&self.world),
            rng,
            frees,
            knows_content: self.rng.bool(),
            left: RefCell::default(),
        };
        self.world.flow.moving(|| {
            let result = call(&mover);
            mover.left.take().into_iter().for_each(|block| mover.free(block));
            result
        })
    }

    /// Compacts everything, or for one request.
    pub(super) fn compact(&mut self) {
        let world = Rc::clone(&self.world);
        let whole = self.rng.u8(..8);
        if whole < 2 {
            let unusable_max = self.rng.u32(..1000);
            self.moving(|mover| match whole {
                0 => world.frames.compact(mover),
                _ => world.frames.compact_proactively(unusable_max, mover),
            });
            return;
        }
        let order = Order::new(self.rng.u8(1..=Order::BUDDY_MAX.get()));
        let (request, limit) = self.request(order);
        let World { frames, flow, .. } = &*world;
        let got = self.moving(|mover| {
            flow.allocating_block(order, || frames.alloc_compacting(request, mover))
        });
        match got {
            Ok(pfn) => self.take(Block { pfn, order }, limit),
            Err(Error::OutOfMemory | Error::BelowWatermark) => {
                self.world.tally.borrow_mut().refusals += 1;
            }
            Err(Error::WouldWait) if is_nowait(&request) => {}
            Err(error) => panic!("allocating {request:?} with compaction: {error}"),
        }
    }

    /// Requests a range and frees it, as a whole or block by block; or makes an invalid request.
    pub(super) fn range(&mut self) {
        let most = if self.rng.u8(..4) == 0 { 2500 } else { 700 };
        let frames = FrameCount::new(self.rng.u64(1..=most));
        // If a CPU has stopped, it may obstruct each place, and each takes long to give up.
        let least = if self.world.stops { 8 } else { 0 };
        let align = FrameCount::new(1 << self.rng.u8(least..=10));
        let request = RangeRequest::new(frames).align(align);
        let world = Rc::clone(&self.world);
        let flow = &world.flow;
        let count = |result: &Result<_, _>| if result.is_ok() { frames.get() } else { 0 };
        let got = self.moving(|mover| {
            flow.allocating(frames.get(), || world.frames.alloc_range(request, mover), count)
        });
        match got {
            Ok(first) => {
                assert_eq!(first.get() % align.get(), 0, "{request:?} was given {first}");
                world.tally.borrow_mut().ranges += 1;
                let blocks = blocks_of(first, frames, world.frames.order_max());
                for &block in &blocks {
                    world.ledger.borrow_mut().enter(block, ZoneKind::Normal);
                }
                if self.rng.bool() {
                    self.held.extend(blocks);
                } else {
                    for &block in &blocks {
                        world.ledger.borrow_mut().strike(block);
                    }
                    let call = || world.frames.free_range(first, frames);
                    assert_eq!(flow.freeing(frames.get(), call), Ok(()));
                }
            }
            Err(Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy) => {
                world.tally.borrow_mut().refusals += 1;
            }
            Err(error) => panic!("allocating {request:?}: {error}"),
        }
        let mut refused = |request, error| {
            let got = self.moving(|mover| world.frames.alloc_range(request, mover));
            assert_eq!(got, Err(error), "{request:?}");
        };
        refused(RangeRequest::new(FrameCount::ZERO), Error::BadRange);
        refused(request.align(FrameCount::new(3)), Error::BadAlignment);
        refused(RangeRequest::new(FrameCount::new(1 << 40)), Error::OutOfMemory);
    }

    /// Removes memory: a few frames, or up to several pageblocks. It may be added again.
    pub(super) fn remove_memory(&mut self) {
        let world = Rc::clone(&self.world);
        let most = if self.rng.bool() { 8 } else { 1200 };
        let range = world.ledger.borrow().pick(&mut self.rng, most);
        let got = self.moving(|mover| world.frames.remove_memory(range, mover));
        match got {
            Ok(()) => {
                world.ledger.borrow_mut().remove_memory(range);
                world.late.borrow_mut().push(range);
                world.tally.borrow_mut().removals += 1;
            }
            Err(Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy) => {}
            Err(Error::ForeignFrame) => {}
            Err(error) => panic!("removing {range:?}: {error}"),
        }
    }

    /// A CPU goes offline for a while.
    pub(super) fn offline(&mut self) {
        let cpu = CpuId::new(self.rng.u32(..self.world.slots));
        assert_eq!(self.world.frames.offline_cpu(cpu), Ok(()));
    }
}

/// The largest aligned blocks that make up a range, in a design that has blocks up to some order.
fn blocks_of(first: Pfn, frames: FrameCount, most: Order) -> Vec<Block> {
    let (mut at, end) = (first.get(), first.get() + frames.get());
    let mut blocks = Vec::new();
    while at < end {
        let fitting = (end - at).ilog2().min(at.trailing_zeros());
        let order = Order::new(fitting.min(u32::from(most.get())) as u8);
        blocks.push(Block { pfn: Pfn::new(at), order });
        at += order.frames().get();
    }
    blocks
}

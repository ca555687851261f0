//! Handlers in a scenario: what interrupts a CPU frees what it has, and allocates without waiting.

use std::cell::RefCell;
use std::rc::Rc;

use fastrand::Rng;
use freehold::{Error, MigrateType, Order, Pfn, Request, Watermark, ZoneKind};
use freehold_sim::CpuHandle;

use super::actor::World;
use super::ledger::Block;

/// Handlers of a CPU do something so often in a round. Without an end, a call that is interrupted
/// at every tenth step would take as long as ten others each time, and those are long when memory
/// is short.
const ROUND_INTERRUPTS: u32 = 200;

/// The handlers of all CPUs.
pub(super) struct Handlers {
    world: Rc<World>,
    rng: RefCell<Rng>,
    /// The block that each CPU's handler has until it runs again.
    held: RefCell<Vec<Option<Block>>>,
    /// How often each CPU's handler will still do something.
    left: RefCell<Vec<u32>>,
}

impl Handlers {
    pub(super) fn new(world: Rc<World>, cpus: usize, seed: u64) -> Self {
        let rng = RefCell::new(Rng::with_seed(seed ^ 0x1417_e44a));
        let (held, left) = (RefCell::new(vec![None; cpus]), RefCell::new(vec![0; cpus]));
        Handlers { world, rng, held, left }
    }

    /// A round begins.
    pub(super) fn begin(&self) {
        self.left.borrow_mut().fill(ROUND_INTERRUPTS);
    }

    /// Runs on a CPU that is interrupted.
    pub(super) fn run(&self, handle: &CpuHandle) {
        let cpu = handle.cpu().index();
        match &mut self.left.borrow_mut()[cpu] {
            0 => return,
            left => *left -= 1,
        }
        self.world.tally.borrow_mut().interrupts += 1;
        let held = self.held.borrow_mut()[cpu].take();
        let (order, migratetype, is_bulk) = {
            let mut rng = self.rng.borrow_mut();
            let migratetype = *rng.choice(&MigrateType::ALL).expect("not empty");
            (Order::new([0, 0, 0, 1, 3, 9][rng.usize(..6)]), migratetype, rng.u8(..4) == 0)
        };
        if let Some(block) = held {
            self.world.ledger.borrow_mut().strike(block);
            let World { frames, flow, .. } = &*self.world;
            let freed = flow.freeing(block.order.frames().get(), || match is_bulk {
                true => frames.free_bulk(&[block.pfn], block.order).map_err(|error| error.error),
                false => frames.free(block.pfn, block.order),
            });
            assert_eq!(freed, Ok(()), "a handler frees {block:?}");
        }
        let request = Request::new(order).migratetype(migratetype).watermark(Watermark::Atomic);
        let taken = self.alloc(request.nowait(), order, is_bulk);
        let taken = taken.map(|pfn| Block { pfn, order });
        if let Some(block) = taken {
            let limit = match migratetype {
                MigrateType::Movable => ZoneKind::Movable,
                _ => ZoneKind::Normal,
            };
            self.world.ledger.borrow_mut().enter(block, limit);
        }
        self.held.borrow_mut()[cpu] = taken;
    }

    /// Allocates a block, by a bulk of one now and then.
    fn alloc(&self, request: Request, order: Order, is_bulk: bool) -> Option<Pfn> {
        let World { frames, flow, .. } = &*self.world;
        let mut one = [Pfn::default()];
        let call = || match is_bulk {
            true => match frames.alloc_bulk(request, &mut one)? {
                1 => Ok(one[0]),
                // It does not say why.
                _ => Err(Error::OutOfMemory),
            },
            false => frames.alloc(request),
        };
        match flow.allocating_block(order, call) {
            Ok(pfn) => Some(pfn),
            Err(Error::OutOfMemory | Error::BelowWatermark | Error::WouldWait) => None,
            Err(error) => panic!("a handler allocates {request:?}: {error}"),
        }
    }

    /// Leaves what all handlers have for CPUs to free.
    pub(super) fn leave_all(&self) {
        let held = self.held.borrow_mut().iter_mut().filter_map(Option::take).collect::<Vec<_>>();
        self.world.ledger.borrow_mut().pool.extend(held);
    }
}

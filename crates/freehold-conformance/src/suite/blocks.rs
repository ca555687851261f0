//! Blocks, one at a time: their orders, their parts, their content.

use freehold::{Error, FrameStatus, MigrateType, Order, Pfn, Request};

use super::{Suite, is_scarcity};
use crate::failure::{Checker, Failure, Outcome};
use crate::stamps::{self, Stamps};
use crate::subject::Subject;

/// The largest order of the blocks that are held at once.
const MIXED_ORDER_MAX: u8 = 10;

impl<A: Subject, S: Stamps> Suite<'_, A, S> {
    pub(super) fn orders(&mut self, checker: Checker) -> Result<(), Failure> {
        let orders_end = self.subject.order_max().get() + 1;
        let too_large = self.subject.alloc(Request::new(Order::new(orders_end)));
        checker.refused("allocation above the largest order", too_large, Error::OrderTooLarge)?;
        let mut is_refused = false;
        for order in (0..orders_end).map(Order::new) {
            let before = self.subject.counts();
            let first = match self.subject.alloc(Request::new(order)) {
                Err(error) if order > Order::ZERO && is_scarcity(error) => {
                    is_refused = true;
                    continue;
                }
                result => checker.done("allocation of a block", result)?,
            };
            checker.number("larger blocks than one that was refused", is_refused.into(), 0)?;
            checker.number(
                "the remainder of a frame number by its block's size",
                first.get() % order.frames().get(),
                0,
            )?;
            let held = FrameStatus::Allocated { first, order };
            let last = Pfn::new(first.get() + order.frames().get() - 1);
            for frame in [first, last] {
                self.is(checker, frame, held)?;
            }
            let frames = order.frames().get() as i64;
            self.moved(checker, before, frames)?;
            checker.done("free of a block", self.subject.free(first, order))?;
            self.moved(checker, before, 0)?;
            self.report.orders = order.get() + 1;
        }
        self.mixed(checker)
    }

    /// Holds as many blocks of mixed orders as there is room for: none overlaps another.
    fn mixed(&mut self, checker: Checker) -> Result<(), Failure> {
        let orders = self.report.orders.min(MIXED_ORDER_MAX + 1);
        let order_of = |nth: usize| Order::new((nth % usize::from(orders)) as u8);
        let mut held = 0;
        while held < self.scratch.len() {
            let order = order_of(held);
            match self.subject.alloc(Request::new(order)) {
                Ok(first) => {
                    self.stamp(first, order, held as u64 + 1);
                    self.scratch[held] = first;
                }
                Err(error) if is_scarcity(error) => break,
                result => drop(checker.done("allocation of one of many blocks", result)?),
            }
            held += 1;
        }
        for nth in 0..held {
            let block = (self.scratch[nth], order_of(nth));
            self.unstamp(checker, block, nth as u64 + 1)?;
        }
        for nth in 0..held {
            let freed = self.subject.free(self.scratch[nth], order_of(nth));
            checker.done("free of one of many blocks", freed)?;
        }
        self.report.blocks = held as u64;
        Ok(())
    }

    /// Frees a block of eight frames as 4, 1, 2 and 1.
    pub(super) fn parts(&mut self, checker: Checker) -> Result<(), Failure> {
        let whole = Order::new(3.min(self.report.orders - 1));
        let first = checker.done("allocation", self.subject.alloc(Request::new(whole)))?;
        let mut left = whole;
        while left > Order::ZERO {
            let before = self.subject.counts();
            // The upper half, and what is left is a block of its own.
            left = Order::new(left.get() - 1);
            let upper = first + left.frames();
            checker.done("free of a part", self.subject.free(upper, left))?;
            self.moved(checker, before, -(left.frames().get() as i64))?;
            for frame in stamps::frames(upper, left) {
                self.is(checker, frame, FrameStatus::Free)?;
            }
            self.is(checker, first, FrameStatus::Allocated { first, order: left })?;
        }
        checker.done("free of the last frame", self.subject.free(first, left))
    }

    pub(super) fn migratetypes(&mut self, checker: Checker) -> Result<(), Failure> {
        let larger = Order::new(3.min(self.report.orders - 1));
        for migratetype in MigrateType::ALL {
            for order in [Order::ZERO, larger] {
                let request = Request::new(order).migratetype(migratetype);
                let first = checker.done("allocation", self.subject.alloc(request))?;
                self.is(checker, first, FrameStatus::Allocated { first, order })?;
                checker.done("free", self.subject.free(first, order))?;
            }
        }
        Ok(())
    }

    /// That a frame is what it should be.
    pub(super) fn is(
        &self,
        checker: Checker,
        frame: Pfn,
        expected: FrameStatus,
    ) -> Result<(), Failure> {
        let found = Outcome::Status(self.subject.status(frame));
        checker.same("the status of a frame", found, Outcome::Status(expected))
    }
}

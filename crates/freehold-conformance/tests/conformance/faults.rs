//! An allocator with a defect, one at a time.

use std::cell::Cell;

use freehold::{
    BulkFreeError, Census, Error, FrameCount, FrameStatus, Order, Pfn, RangeRequest, Request, Rule,
    Violation, Watermark,
};
use freehold_conformance::{Counts, Subject};

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Blocks begin one frame too late.
    Misaligned,
    /// In place of the last frame, the one before it is handed out again.
    RepeatsAtTheEnd,
    /// Every tenth pair is the one before it again.
    HandsOutPairsTwice,
    /// Pairs are single frames.
    TooSmall,
    /// No order is too large.
    ServesAnyOrder,
    /// Order 2 is refused, larger ones are not.
    RefusesAnOrder,
    /// A free of a pair frees its first frame.
    FreesHalf,
    /// A free of a frame does nothing, now and then.
    Leaks,
    /// A free of what is in use is refused, now and then.
    RefusesFrees,
    /// An allocation is refused for a node that it did not ask for, now and then.
    NamesANode,
    /// A double free is taken for a success.
    AcceptsDoubleFrees,
    /// A free of too large an order frees a single frame.
    IgnoresOrders,
    /// Any mistake is called a double free.
    ConfusesErrors,
    /// A refusal changes a count.
    CountsRefusals,
    /// Unmovable content is refused.
    MovableOnly,
    /// Requests that do not wait are refused.
    NeverWithoutWaiting,
    /// Memory ends early.
    EndsEarly,
    /// What an ordinary request leaves, no request gets.
    KeepsOne,
    /// The end of memory is called a watermark.
    CallsTheEndAWatermark,
    /// The watermark is called the end of memory.
    CallsTheWatermarkTheEnd,
    /// A free of a part of a block frees all of it.
    FreesTheWhole,
    /// A bulk allocation stops one block early.
    BulkStopsEarly,
    /// A bulk allocation hands out its first block again.
    BulkRepeats,
    /// A bulk free goes on behind a bad block.
    BulkGoesOn,
    /// Ranges of no frames are served.
    ServesEmptyRanges,
    /// Ranges ignore their alignment.
    RangesAskew,
    /// Frees of ranges can be repeated.
    RangesFreedTwice,
    /// A reservation does nothing.
    ReservesNothing,
    /// A reservation of what is in use is accepted.
    ReservesAnything,
    /// A drain does nothing.
    DrainsNothing,
    /// The books always say the same.
    FrozenBooks,
    /// The metadata is not valid after a while.
    TurnsInvalid,
}

/// An allocator with a defect.
pub(crate) struct Faulty<A> {
    pub(crate) inner: A,
    pub(crate) fault: Fault,
    calls: Cell<u64>,
    /// What was handed out last.
    last: Cell<Pfn>,
    refused: Cell<u64>,
    frozen: Cell<Option<Counts>>,
}

impl<A: Subject> Faulty<A> {
    pub(crate) fn new(inner: A, fault: Fault) -> Self {
        let (calls, refused) = (Cell::new(0), Cell::new(0));
        Faulty { inner, fault, calls, refused, last: Cell::default(), frozen: Cell::new(None) }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Whether it is the time for a fault that shows now and then.
    fn now_and_then(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.calls.get().is_multiple_of(10)
    }
}

impl<A: Subject> Subject for Faulty<A> {
    fn order_max(&self) -> Order {
        self.inner.order_max()
    }

    fn counts(&self) -> Counts {
        let mut counts = self.inner.counts();
        counts.free += FrameCount::new(self.refused.get());
        if self.has(Fault::FrozenBooks) {
            counts = self.frozen.get().unwrap_or(counts);
            self.frozen.set(Some(counts));
        }
        counts
    }

    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        let order = request.order();
        // A request tells others by its equality alone.
        let with = |change: fn(Request) -> Request| change(request) == request;
        if self.has(Fault::NamesANode) && self.now_and_then() {
            return Err(Error::UnknownNode);
        }
        let mut made = request;
        match self.fault {
            Fault::TooSmall if order == Order::new(1) => made = request.with_order(Order::ZERO),
            Fault::ServesAnyOrder if order > self.order_max() => {
                made = request.with_order(Order::ZERO);
            }
            Fault::RefusesAnOrder if order == Order::new(2) => return Err(Error::OutOfMemory),
            Fault::MovableOnly
                if with(|request| request.migratetype(freehold::MigrateType::Unmovable)) =>
            {
                return Err(Error::OutOfMemory);
            }
            Fault::NeverWithoutWaiting if with(Request::nowait) => return Err(Error::WouldWait),
            Fault::EndsEarly if self.inner.counts().free.get() < 10 => {
                return Err(Error::OutOfMemory);
            }
            Fault::KeepsOne => made = request.watermark(Watermark::Min),
            _ => {}
        }
        let result = self.inner.alloc(made);
        match (self.fault, result) {
            (Fault::Misaligned, Ok(first)) if order > Order::ZERO => Ok(first + FrameCount::new(1)),
            (Fault::CallsTheWatermarkTheEnd, Err(Error::BelowWatermark)) => Err(Error::OutOfMemory),
            (Fault::CallsTheEndAWatermark, Err(Error::OutOfMemory)) => Err(Error::BelowWatermark),
            (Fault::RepeatsAtTheEnd, Ok(first)) if self.inner.counts().free == FrameCount::ZERO => {
                Ok(self.last.replace(first))
            }
            (Fault::HandsOutPairsTwice, Ok(first)) if order == Order::new(1) => {
                let last = self.last.replace(first);
                Ok(if self.now_and_then() { last } else { first })
            }
            (_, Ok(first)) => {
                self.last.set(first);
                Ok(first)
            }
            (_, refused) => refused,
        }
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), Error> {
        if self.has(Fault::Leaks) && self.now_and_then() {
            return Ok(());
        }
        if self.has(Fault::RefusesFrees) && self.now_and_then() {
            return Err(Error::ForeignFrame);
        }
        if self.has(Fault::FreesHalf) && order == Order::new(1) {
            return self.inner.free(first, Order::ZERO);
        }
        if self.has(Fault::FreesTheWhole)
            && let FrameStatus::Allocated { first, order: whole } = self.inner.status(first)
            && whole > order
        {
            return self.inner.free(first, whole);
        }
        let result = self.inner.free(first, order);
        match (self.fault, result) {
            (Fault::AcceptsDoubleFrees, Err(Error::DoubleFree)) => Ok(()),
            (Fault::IgnoresOrders, Err(Error::WrongOrder)) => self.inner.free(first, Order::ZERO),
            (Fault::ConfusesErrors, Err(_)) => Err(Error::DoubleFree),
            (Fault::CountsRefusals, Err(error)) => {
                self.refused.set(self.refused.get() + 1);
                Err(error)
            }
            (_, result) => result,
        }
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        let most = out.len() - usize::from(self.has(Fault::BulkStopsEarly));
        let count = self.inner.alloc_bulk(request, &mut out[..most])?;
        if self.has(Fault::BulkRepeats) {
            self.inner.free(out[count - 1], request.order())?;
            out[count - 1] = out[0];
            // So that the counts agree.
            self.inner.alloc(request)?;
        }
        Ok(count)
    }

    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        let result = self.inner.free_bulk(blocks, order);
        if let Err(BulkFreeError { freed, .. }) = result
            && self.has(Fault::BulkGoesOn)
        {
            self.inner.free_bulk(&blocks[freed + 1..], order)?;
        }
        result
    }

    fn alloc_range(&self, request: RangeRequest) -> Result<Pfn, Error> {
        match self.fault {
            Fault::ServesEmptyRanges if request.frames() == FrameCount::ZERO => {
                self.inner.alloc_range(RangeRequest::new(FrameCount::new(1)))
            }
            Fault::RangesAskew if request.frames() > FrameCount::new(1) => {
                let first = self.inner.alloc_range(request)?;
                Ok(first + FrameCount::new(1))
            }
            _ => self.inner.alloc_range(request),
        }
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        match self.inner.free_range(first, frames) {
            Err(Error::DoubleFree) if self.has(Fault::RangesFreedTwice) => Ok(()),
            result => result,
        }
    }

    fn reserve(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        if self.has(Fault::ReservesNothing) && self.inner.status(first) == FrameStatus::Free {
            return Ok(());
        }
        match self.inner.reserve(first, frames) {
            Err(Error::RangeBusy) if self.has(Fault::ReservesAnything) => Ok(()),
            result => result,
        }
    }

    fn drain_all(&self) {
        if !self.has(Fault::DrainsNothing) {
            self.inner.drain_all();
        }
    }

    fn status(&self, frame: Pfn) -> FrameStatus {
        self.inner.status(frame)
    }

    fn validate(&self) -> Result<Census, Violation> {
        if self.has(Fault::TurnsInvalid) && self.now_and_then() {
            return Err(Violation { rule: Rule::LinksAgree, at: Pfn::new(3) });
        }
        self.inner.validate()
    }
}

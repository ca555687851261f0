//! The allocator under check, with a record of the calls under way: the machine may stop one of
//! them forever, and the outcomes of the others are checked against that.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use freehold::{
    BulkFreeError, Census, Compaction, CpuId, Error, Events, FrameCount, FrameStatus, MemoryRange,
    Migrate, MigrateType, NumaEvents, Order, Pfn, RangeRequest, Request, Violation, Watermark,
    ZoneKind, ZoneLevel, ZoneStats,
};
use freehold_host::Snapshot;
use freehold_sim::Sim;

use super::super::frames::CheckedFrames;
use super::super::leases::{Ending, Leased, Terms};
use super::super::lru::Cache;
use super::super::tally::StopTally;
use crate::frames::Frames;

/// The kind of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// An allocation, of one block or in bulk.
    Alloc(Request),
    /// A free of these blocks, of this order.
    Free(Vec<Pfn>, Order),
    /// One that moves content, and has isolated pageblocks meanwhile.
    Move,
    /// Anything else.
    Other,
}

/// A call that is under way.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) about: About,
    /// How many frames it requests.
    asked: u64,
    /// The most frames that others may have had at any time since it began.
    most_taken: u64,
    /// Whether free frames may have been where they are not available to allocations.
    is_disturbed: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match &self.about {
            About::Alloc(request) => write!(f, " ({request:?})"),
            About::Free(blocks, order) => {
                let first = blocks.first().copied().unwrap_or_default();
                write!(f, " ({} blocks of {order}, the first at {first})", blocks.len())
            }
            About::Move | About::Other => Ok(()),
        }
    }
}

/// An allocator and the calls that are under way.
pub(super) struct Watched {
    frames: Rc<dyn CheckedFrames>,
    /// By CPU.
    calls: RefCell<Vec<Option<Call>>>,
    /// Frames that users hold, or calls under way may have allocated or may not have freed.
    taken: Cell<u64>,
    /// Frames of all zones, and of those that are not restricted to movable content.
    managed: Cell<(u64, u64)>,
    /// Whether allocations fail only for lack of memory even while other calls are under way.
    is_strict: bool,
    /// Whether only one CPU makes calls.
    is_alone: Cell<bool>,
    /// Allocations that failed rather than wait, while only one CPU was running.
    refused_alone: Cell<u64>,
    tally: RefCell<StopTally>,
}

impl Watched {
    pub(super) fn new(
        frames: Rc<dyn CheckedFrames>,
        cpus: usize,
        ranges: &[MemoryRange],
        is_strict: bool,
    ) -> Self {
        let watched = Watched {
            frames,
            calls: RefCell::new(vec![None; cpus]),
            taken: Cell::new(0),
            managed: Cell::new((0, 0)),
            is_strict,
            is_alone: Cell::new(false),
            refused_alone: Cell::new(0),
            tally: RefCell::default(),
        };
        ranges.iter().for_each(|range| watched.note_memory(range));
        watched
    }

    /// From now on, one CPU at a time is running.
    pub(super) fn go_alone(&self) {
        self.is_alone.set(true);
    }

    /// The call that a CPU is in.
    pub(super) fn call_of(&self, cpu: usize) -> Option<Call> {
        self.calls.borrow()[cpu].clone()
    }

    pub(super) fn tally(&self) -> StopTally {
        *self.tally.borrow()
    }

    /// How many allocations would have waited while only one CPU was running.
    pub(super) fn refused_alone(&self) -> u64 {
        self.refused_alone.get()
    }

    fn note_memory(&self, range: &MemoryRange) {
        let (all, unmovable) = self.managed.get();
        let frames = range.frames.get();
        let unmovable = unmovable + if range.zone <= ZoneKind::Normal { frames } else { 0 };
        self.managed.set((all + frames, unmovable));
    }

    /// Notes that a call begins that requests so many frames.
    pub(super) fn begin(&self, cpu: usize, name: &'static str, about: About, asked: u64) {
        let moves = about == About::Move;
        let mut calls = self.calls.borrow_mut();
        let taken = self.taken.get();
        self.taken.set(taken + asked);
        let mut is_disturbed = moves || !self.is_strict && !self.is_alone.get();
        for other in calls.iter_mut().flatten() {
            other.most_taken = other.most_taken.max(taken + asked - other.asked);
            other.is_disturbed |= moves;
            is_disturbed |= other.about == About::Move;
        }
        calls[cpu] = Some(Call { name, about, asked, most_taken: taken, is_disturbed });
    }

    /// Makes a call that may be stopped; `got` returns how many frames it allocated, and how many
    /// it freed.
    fn call<R>(
        &self,
        (name, about, asked): (&'static str, About, u64),
        make: impl FnOnce() -> R,
        got: impl FnOnce(&R) -> (u64, u64),
    ) -> (R, Call) {
        Sim.in_call(|cpu| {
            self.begin(cpu, name, about, asked);
            let result = make();
            let call = self.calls.borrow_mut()[cpu].take().expect("it has begun");
            let (taken, freed) = got(&result);
            self.taken.set(self.taken.get() + taken - asked - freed);
            (result, call)
        })
    }

    /// Makes a call that neither allocates nor frees frames.
    fn other<R>(&self, name: &'static str, make: impl FnOnce() -> R) -> R {
        self.call((name, About::Other, 0), make, |_| (0, 0)).0
    }

    /// Makes a call that allocates one block, or a range of so many frames.
    fn allocate(
        &self,
        (name, about, asked): (&'static str, About, u64),
        make: impl FnOnce() -> Result<Pfn, Error>,
    ) -> Result<Pfn, Error> {
        let (result, call) =
            self.call((name, about, asked), make, |result| (asked * u64::from(result.is_ok()), 0));
        if Sim.has_halted() {
            let mut tally = self.tally.borrow_mut();
            match result {
                Ok(_) => tally.served += 1,
                Err(Error::OutOfMemory | Error::BelowWatermark) => tally.short += 1,
                Err(Error::WouldWait) => tally.would_wait += 1,
                Err(_) => {}
            }
        }
        match result {
            Err(error @ (Error::OutOfMemory | Error::BelowWatermark)) => {
                self.expect_shortage(&call, error);
            }
            Err(Error::WouldWait) if self.is_alone.get() => {
                self.refused_alone.set(self.refused_alone.get() + 1);
            }
            _ => {}
        }
        result
    }

    /// Makes a call that allocates up to so many blocks.
    fn bulk(
        &self,
        name: &'static str,
        request: Request,
        wanted: usize,
        make: impl FnOnce() -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let frames = |blocks: usize| (blocks as u64) << request.order().get();
        let got = |result: &Result<usize, Error>| (result.map_or(0, frames), 0);
        let (result, _) = self.call((name, About::Alloc(request), frames(wanted)), make, got);
        self.note_served(result.is_ok_and(|blocks| blocks > 0));
        result
    }

    /// Makes a call that frees these blocks, of so many frames.
    fn release<E>(
        &self,
        (name, blocks, order): (&'static str, Vec<Pfn>, Order),
        frames: FrameCount,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let freed = |result: &Result<_, _>| (0, frames.get() * u64::from(result.is_ok()));
        let (result, _) = self.call((name, About::Free(blocks, order), 0), make, freed);
        self.note_served(result.is_ok());
        result
    }

    fn note_served(&self, is_served: bool) {
        self.tally.borrow_mut().served += u64::from(is_served && Sim.has_halted());
    }

    /// An allocation has failed: if it could have had any frame, there was none.
    fn expect_shortage(&self, call: &Call, error: Error) {
        let About::Alloc(request) = &call.about else { return };
        let has_no_mark = request.watermark(Watermark::Ignore) == *request;
        let has_any = request.order() == Order::ZERO && has_no_mark;
        if call.is_disturbed || !has_any {
            return;
        }
        let (all, unmovable) = self.managed.get();
        let managed =
            if request.migratetype(MigrateType::Movable) == *request { all } else { unmovable };
        assert!(
            call.most_taken >= managed,
            "{request:?}: {error}, although of {managed} frames at most {} were taken all the time",
            call.most_taken
        );
        self.tally.borrow_mut().shortages += u64::from(Sim.has_halted());
    }
}

impl Frames for Watched {
    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        let asked = request.order().frames().get();
        let about = ("alloc", About::Alloc(request), asked);
        self.allocate(about, || self.frames.alloc(request))
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        let wanted = out.len();
        self.bulk("alloc_bulk", request, wanted, || self.frames.alloc_bulk(request, out))
    }

    fn alloc_compacting(&self, request: Request, owner: &dyn Migrate) -> Result<Pfn, Error> {
        let about = ("alloc_compacting", About::Move, request.order().frames().get());
        self.allocate(about, || self.frames.alloc_compacting(request, owner))
    }

    fn compact_proactively(&self, unusable_max: u32, owner: &dyn Migrate) -> Compaction {
        let call = || self.frames.compact_proactively(unusable_max, owner);
        self.call(("compact_proactively", About::Move, 0), call, |_| (0, 0)).0
    }

    fn alloc_range(&self, request: RangeRequest, owner: &dyn Migrate) -> Result<Pfn, Error> {
        let about = ("alloc_range", About::Move, request.frames().get());
        self.allocate(about, || self.frames.alloc_range(request, owner))
    }

    fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.release(("free", vec![pfn], order), order.frames(), || self.frames.free(pfn, order))
    }

    fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
        let frames = FrameCount::new((blocks.len() as u64) << order.get());
        let about = ("free_bulk", blocks.to_vec(), order);
        self.release(about, frames, || self.frames.free_bulk(blocks, order))
    }

    fn free_range(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        let each = (0..frames.get()).map(|nth| first.offset(FrameCount::new(nth)));
        let about = ("free_range", each.collect(), Order::ZERO);
        self.release(about, frames, || self.frames.free_range(first, frames))
    }

    fn drain_all(&self) {
        self.other("drain_all", || self.frames.drain_all());
    }

    fn levels(&self) -> Vec<ZoneLevel> {
        self.other("levels", || self.frames.levels())
    }

    fn zones(&self) -> Vec<ZoneStats> {
        self.other("zones", || self.frames.zones())
    }

    fn events(&self) -> Events {
        self.other("events", || self.frames.events())
    }

    fn snapshot(&self) -> Snapshot {
        self.other("snapshot", || self.frames.snapshot())
    }

    fn validate(&self) -> Result<Census, Violation> {
        self.other("validate", || self.frames.validate())
    }
}

impl CheckedFrames for Watched {
    fn order_max(&self) -> Order {
        self.frames.order_max()
    }

    fn alloc_into_slots(
        &self,
        request: Request,
        slots: &mut [Option<Pfn>],
    ) -> Result<usize, Error> {
        let wanted = slots.len();
        let call = || self.frames.alloc_into_slots(request, slots);
        self.bulk("alloc_into_slots", request, wanted, call)
    }

    fn alloc_onto_list(
        &self,
        request: Request,
        count: usize,
        list: &mut Vec<Pfn>,
    ) -> Result<usize, Error> {
        let call = || self.frames.alloc_onto_list(request, count, list);
        self.bulk("alloc_onto_list", request, count, call)
    }

    fn compact(&self, owner: &dyn Migrate) -> Compaction {
        self.call(("compact", About::Move, 0), || self.frames.compact(owner), |_| (0, 0)).0
    }

    fn add_memory(&self, range: MemoryRange) -> Result<(), Error> {
        let added = self.other("add_memory", || self.frames.add_memory(range));
        if added.is_ok() {
            self.note_memory(&range);
        }
        added
    }

    /// Not made on a machine with a CPU that stops.
    fn remove_memory(&self, range: MemoryRange, owner: &dyn Migrate) -> Result<(), Error> {
        self.frames.remove_memory(range, owner)
    }

    fn status(&self, pfn: Pfn) -> FrameStatus {
        self.frames.status(pfn)
    }

    fn drain(&self, cpu: CpuId) -> Result<(), Error> {
        self.other("drain", || self.frames.drain(cpu))
    }

    fn offline_cpu(&self, cpu: CpuId) -> Result<(), Error> {
        self.other("offline_cpu", || self.frames.offline_cpu(cpu))
    }

    fn tick(&self, cpu: CpuId) -> Result<(), Error> {
        self.other("tick", || self.frames.tick(cpu))
    }

    fn numa_events(&self, zone: usize) -> Option<NumaEvents> {
        self.frames.numa_events(zone)
    }

    /// None: one of a CPU that stops would be kept forever, which its user has to expect.
    fn with_lease(&self, _: Terms, _: &mut dyn FnMut(&mut dyn Leased) -> bool) -> Ending {
        Ending::Unsupported
    }

    fn is_quiet(&self) -> bool {
        self.frames.is_quiet()
    }

    fn alloc_reclaiming(&self, cache: &Cache, request: Request) -> Result<Pfn, Error> {
        self.frames.alloc_reclaiming(cache, request)
    }

    fn balance(&self, cache: &Cache) {
        self.frames.balance(cache);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use freehold::designs::Freehold;

    use super::super::super::frames::set_up_as;
    use super::super::super::scenario::Scenario;
    use super::*;

    /// What so many CPUs do in a scenario.
    pub(crate) fn watched_by(cpus: usize) -> (Watched, Scenario) {
        let scenario = Scenario::draw(1, &[], true);
        let mut machine = scenario.machine().unwrap();
        let frames = set_up_as::<Freehold<Sim>>(&scenario, &mut machine).unwrap();
        (Watched::new(frames, cpus, &scenario.ranges, true), scenario)
    }

    /// An allocation of one frame fails, while others had all but so many of them, and another call
    /// is under way.
    fn fails(left: u64, meanwhile: About) {
        let (watched, scenario) = watched_by(3);
        let request = Request::default().watermark(Watermark::Ignore);
        watched.begin(0, "alloc", About::Alloc(request), 1);
        let managed: u64 = scenario.ranges.iter().map(|range| range.frames.get()).sum();
        watched.begin(1, "other", meanwhile, managed - left);
        let call = watched.call_of(0).unwrap();
        watched.expect_shortage(&call, Error::OutOfMemory);
    }

    #[test]
    fn an_allocation_may_fail_if_all_frames_were_taken() {
        fails(0, About::Other);
    }

    #[test]
    #[should_panic(expected = "were taken all the time")]
    fn an_allocation_must_not_fail_while_a_frame_is_free() {
        fails(1, About::Other);
    }

    #[test]
    fn what_a_mover_has_is_promised_to_nobody() {
        fails(1, About::Move);
    }
}

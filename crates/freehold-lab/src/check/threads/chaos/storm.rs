//! Memory whose owners are noted beside it, and an allocator for it that is asked in all ways.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, Result};
use freehold::{
    CpuId, Design, Error, FrameCount, FrameStatus, MemoryRange, NodeId, Order, PageAllocator, Pfn,
    Request, Settings, Watermark, ZoneKind,
};

use super::super::crew::Crew;
use super::super::disturb::{Disturbed, Disturber};
use super::super::ground::Ground;
use super::fights::Fights;
use super::plan::Plan;
use super::platform::{Chaos, Entered, Weather, begin_call, draw, enter, is_rough};
use crate::check::case::Cuts;
use crate::check::frames::as_freehold;
use crate::check::leases::{Leased, Terms, with_lease};
use crate::check::ledger::Ledger;
use crate::check::scenario::span;

/// The steps that only a storm has.
pub(in super::super) const STEPS: [&str; 2] = ["resize", "lease"];

/// The owner of a frame that is no memory.
const GONE: u64 = u64::MAX;

/// The ground.
pub(super) struct Storm<D: Design<Chaos>> {
    allocator: PageAllocator<Chaos, D>,
    weather: Weather,
    ranges: Vec<MemoryRange>,
    ledger: Ledger,
    /// The owner of each frame, by its place in the span.
    owners: Vec<AtomicU64>,
    first: u64,
    /// Memory to be added again.
    gone: Mutex<Vec<MemoryRange>>,
    nodes: u64,
    /// Whether of two racing frees of a single frame one fails.
    is_exact: bool,
}

impl<D: Design<Chaos> + Sync> Storm<D> {
    pub(super) fn new(
        plan: &Plan,
        allocator: PageAllocator<Chaos, D>,
        settings: &D::Settings,
    ) -> Result<Self> {
        let mut is_exact = true;
        settings.for_each(&mut |name, value| {
            is_exact &= name != "double_free" || value.to_string() != "fast";
        });
        let (first, frames) = span(&plan.ranges, plan.late);
        let storm = Storm {
            allocator,
            weather: plan.weather,
            ranges: plan.ranges.iter().copied().chain(plan.late).collect(),
            ledger: Ledger::new(&plan.ranges, plan.late),
            owners: (0..frames.get()).map(|_| AtomicU64::new(GONE)).collect(),
            first: first.get(),
            gone: Mutex::new(plan.late.into_iter().collect()),
            nodes: plan.nodes.into(),
            is_exact,
        };
        // What is late comes before any thread.
        plan.ranges.iter().for_each(|&range| storm.change_owners(range, GONE, 0));
        storm.settle()?;
        Ok(storm)
    }

    fn place(&self, frame: Pfn) -> &AtomicU64 {
        let place = frame.get().checked_sub(self.first).map(|place| place as usize);
        let owner = place.and_then(|place| self.owners.get(place));
        owner.unwrap_or_else(|| panic!("{frame} is no memory, but was handed out"))
    }

    /// Notes of all frames of a range that they have another owner than this one.
    fn change_owners(&self, range: MemoryRange, from: u64, to: u64) {
        for nth in 0..range.frames.get() {
            let frame = range.start.offset(FrameCount::new(nth));
            // Sequentially consistent, as all accesses to owners: they add no race of their own.
            let owner = self.place(frame).swap(to, SeqCst);
            assert!(owner == from, "{frame} of {range:?} has the owner {owner:#x}, not {from:#x}");
        }
    }

    /// Takes memory away, or adds what was taken away.
    fn resize(&self, by: &mut Disturber<'_, Self>) -> Result<()> {
        let gone = if by.rng.bool() { self.lock_gone().pop() } else { None };
        if let Some(range) = gone {
            return self.add(range);
        }
        let most = [1, 64, 600, 2000][by.rng.usize(..4)];
        let range = self.ledger.pick(&mut by.rng, most);
        match self.allocator.remove_memory(range.start, range.frames, &by.owner()) {
            Ok(()) => {
                self.change_owners(range, 0, GONE);
                self.lock_gone().push(range);
                by.tally.removals += 1;
                Ok(())
            }
            Err(Error::OutOfMemory | Error::BelowWatermark) => Ok(()),
            Err(Error::RangeBusy | Error::ForeignFrame) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn add(&self, range: MemoryRange) -> Result<()> {
        self.change_owners(range, GONE, 0);
        self.allocator.add_memory(range).with_context(|| format!("adding {range:?}"))
    }

    fn lock_gone(&self) -> MutexGuard<'_, Vec<MemoryRange>> {
        self.gone.lock().expect("no thread panics with it")
    }

    /// Works through a lease for a while.
    fn lease(&self, by: &mut Disturber<'_, Self>) -> Result<()> {
        let Some(allocator) = as_freehold(&self.allocator) else { return Ok(()) };
        let cpu = CpuId::new(by.rng.u32(..self.weather.cpus));
        let mut result = Ok(());
        with_lease(allocator, Terms::New(cpu), &mut |lease| {
            result = self.use_lease(lease, by);
            false
        });
        result
    }

    /// Allocates frames out of a lease and by it, and frees them by it or without it.
    fn use_lease(&self, lease: &mut dyn Leased, by: &mut Disturber<'_, Self>) -> Result<()> {
        for _ in 0..by.rng.usize(1..=4) {
            let mut frames = vec![Pfn::default(); by.rng.usize(1..=80)];
            let count = lease.alloc_own(Request::default(), &mut frames);
            frames.truncate(count);
            let more = (0..by.rng.usize(..20)).map_while(|_| lease.alloc(Request::default()).ok());
            frames.extend(more);
            by.look(frames.iter().copied())?;
            for frame in frames {
                match by.rng.u8(..4) {
                    0 => self.allocator.free(frame, Order::ZERO)?,
                    _ => lease.free(frame, Order::ZERO)?,
                }
            }
            lease.renew();
        }
        Ok(())
    }
}

impl<D: Design<Chaos> + Sync> Ground for Storm<D> {
    type Platform = Chaos;
    type Design = D;
    type Inside = Entered;

    fn allocator(&self) -> &PageAllocator<Chaos, D> {
        &self.allocator
    }

    fn ranges(&self) -> Vec<MemoryRange> {
        self.ranges.clone()
    }

    fn enter(&self, seed: u64) -> Entered {
        enter(self.weather, seed)
    }

    fn begin_call(&self) {
        begin_call();
    }

    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        let node = NodeId::new(draw(self.nodes) as u16);
        // 0 is drawn where it is calm.
        self.allocator.alloc(match draw(16) {
            1 => request.node(node),
            2 => request.node(node).only_node(),
            3 => request.interleaved(node),
            4 => request.watermark(Watermark::Ignore),
            5 => request.watermark(Watermark::Atomic),
            6 => request.nowait(),
            7 => request.zone_limit(ZoneKind::Normal),
            _ => request,
        })
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), Error> {
        let allocator = &self.allocator;
        let frames = order.frames();
        let frame = first.offset(FrameCount::new(draw(frames.get())));
        let status = allocator.status(frame);
        // A worker frees some blocks in two halves: the first one is then part of the block.
        let has_block = |of: Order| {
            let whole = first.get() & !(of.frames().get() - 1);
            status == FrameStatus::Allocated { first: Pfn::new(whole), order: of }
        };
        let is_right = has_block(order) || has_block(order.up());
        assert!(is_right, "{frame} is {status:?}, and its owner has {first} of {order}");
        match draw(12) {
            1 => allocator.free_range(first, frames),
            2 if order > Order::ZERO => {
                let part = FrameCount::new(1 + draw(frames.get() - 1));
                let front = allocator.free_range(first, part);
                front.and(allocator.free_range(first.offset(part), frames - part))
            }
            3 => {
                let part = Order::new(order.get() - draw(4).min(order.get().into()) as u8);
                (0..frames.get())
                    .step_by(part.frames().get() as usize)
                    .try_for_each(|nth| allocator.free(first.offset(FrameCount::new(nth)), part))
            }
            _ => allocator.free(first, order),
        }
    }

    fn owner(&self, frame: Pfn) -> u64 {
        self.place(frame).load(SeqCst)
    }

    fn set_owner(&self, frame: Pfn, owner: u64) {
        let before = self.place(frame).swap(owner, SeqCst);
        // Where it is calm, all frames are linked by what is noted.
        let is_right = !is_rough() || (before == 0) != (owner == 0);
        assert!(is_right, "{frame} was handed out twice: to {before:#x} and {owner:#x}");
    }

    fn settle(&self) -> Result<()> {
        let gone = std::mem::take(&mut *self.lock_gone());
        gone.into_iter().try_for_each(|range| self.add(range))
    }

    fn fight(&self, crew: &Crew, cuts: &Cuts, seed: u64) -> Result<u64> {
        let Storm { allocator, weather, is_exact, .. } = self;
        let fights = Fights { allocator, weather: *weather, is_exact: *is_exact };
        fights.fight(crew, cuts, seed)
    }
}

impl<D: Design<Chaos> + Sync> Disturbed for Storm<D> {
    const STEPS: &'static [&'static str] = &STEPS;

    fn step(&self, name: &str, by: &mut Disturber<'_, Self>) -> Result<()> {
        match name {
            "resize" => self.resize(by),
            _ => self.lease(by),
        }
    }
}

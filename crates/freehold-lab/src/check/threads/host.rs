//! An arena of real memory: calls of threads go through their leases.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use freehold::{Error, FrameCount, MemoryRange, Order, PageAllocator, Pfn, Request};
use freehold_host::{FrameArena, Host, HostError, Leases};

use super::crew::Crew;
use super::disturb::{Disturbed, Disturber};
use super::ground::Ground;
use super::rounds::play_on;
use crate::check::case::Case;
use crate::check::scenario::draw_settings;
use crate::check::tally::ThreadsTally;
use crate::cli::Canary;
use crate::designs::{DesignName, with_design};
use crate::host::{HostDesign, arena};

/// The steps that only an arena has.
pub(super) const STEPS: [&str; 2] = ["purge", "resize"];

/// What a seed draws.
pub(super) struct Plan {
    bytes: usize,
    cpus: usize,
    leases: Leases,
    pub(super) crew: Crew,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x0005_4057);
        let workers = [1, 2, 2, 3, 4, 8, 16, 64][rng.usize(..8)];
        Plan {
            bytes: rng.usize(8..=64) << 20,
            cpus: [1, 2, 4, 16][rng.usize(..4)],
            leases: if rng.bool() { Leases::Auto } else { Leases::Off },
            crew: Crew {
                workers,
                slots: [1, 16, 64, 256, 1024][rng.usize(..5)],
                rounds: rng.usize(1..=3),
                operations: rng.usize(100_000..1_000_000) / workers,
                disturbers: 1,
                // Its calls otherwise take almost all of the time: what it purges, each worker
                // faults in again.
                pause: Duration::from_millis([1, 3, 10, 30][rng.usize(..4)]),
            },
        }
    }

    pub(super) fn of(case: &Case) -> Self {
        let mut plan = Plan::draw(case.seed);
        if case.design != DesignName::Freehold {
            // The others have none.
            plan.leases = Leases::Off;
        }
        plan.crew.cut(&case.cuts);
        plan
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { bytes, cpus, leases, crew } = self;
        let mib = bytes >> 20;
        write!(f, "an arena of {mib} MiB for {cpus} CPUs, leases {leases}, {crew}")
    }
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Result<ThreadsTally> {
    with_design!(case.design, Host, D => play_design::<D>(case))
}

fn play_design<D: HostDesign>(case: &Case) -> Result<ThreadsTally> {
    let plan = Plan::of(case);
    let frames = arena::<D>()
        .bytes(plan.bytes)
        .nodes(1)
        .cpus(plan.cpus)
        .settings(draw_settings(case.seed))
        .leases(plan.leases)
        .build_frames()
        .with_context(|| format!("the scenario itself is wrong: {plan}"))?;
    let leased = u64::from(frames.leases() == Leases::Auto);
    let tally = play_on(case, &plan.crew, &Arena::new(frames, case.canary))?;
    Ok(ThreadsTally { leased, ..tally })
}

/// Of so many calls, one does what a planted bug says.
const CANARY_CALLS: u64 = 1000;

/// An arena.
struct Arena<D: HostDesign> {
    frames: FrameArena<D>,
    /// How many frames it has, but for a moment.
    total: FrameCount,
    canary: Option<Canary>,
    /// Whether the bug is there by now.
    is_armed: AtomicBool,
    calls: AtomicU64,
    /// The frame that was allocated last.
    last: AtomicU64,
}

impl<D: HostDesign> Arena<D> {
    fn new(frames: FrameArena<D>, canary: Option<Canary>) -> Self {
        let (total, calls, last) = (frames.total_frames(), AtomicU64::new(0), AtomicU64::new(0));
        Arena { frames, total, canary, is_armed: AtomicBool::new(false), calls, last }
    }

    /// Whether this call has the planted bug.
    fn is_wrong(&self, bug: Canary) -> bool {
        // Relaxed: it only counts.
        self.canary == Some(bug)
            && self.is_armed.load(Relaxed)
            && self.calls.fetch_add(1, Relaxed) % CANARY_CALLS == CANARY_CALLS - 1
    }

    /// Takes memory away, and adds it again.
    fn resize(&self, by: &mut Disturber<'_, Self>) -> Result<()> {
        let bytes = by.rng.usize(1..=8) << 20;
        match self.frames.shrink(bytes, &by.owner()) {
            Ok(_) => {
                by.tally.removals += 1;
                self.settle()
            }
            Err(HostError::Allocator(
                Error::OutOfMemory | Error::BelowWatermark | Error::RangeBusy,
            )) => Ok(()),
            Err(HostError::BadSetting { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<D: HostDesign> Ground for Arena<D> {
    type Platform = Host;
    type Design = D;
    type Inside = ();

    fn allocator(&self) -> &PageAllocator<Host, D> {
        self.frames.allocator()
    }

    fn ranges(&self) -> Vec<MemoryRange> {
        self.frames.ranges()
    }

    fn arm(&self) {
        // Relaxed: threads that start later see it.
        self.is_armed.store(true, Relaxed);
    }

    fn enter(&self, _seed: u64) {}

    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        let pfn = self.frames.alloc(request)?;
        if self.canary.is_some() && request.order() == Order::ZERO {
            // Relaxed: the frame's new user takes it from the allocator, in whatever order.
            let last = self.last.swap(pfn.get(), Relaxed);
            if self.is_wrong(Canary::Race) {
                return Ok(Pfn::new(last));
            }
        }
        Ok(pfn)
    }

    fn free(&self, first: Pfn, order: Order) -> Result<(), Error> {
        if self.is_wrong(Canary::Loss) {
            return Ok(());
        }
        self.frames.free(first, order)
    }

    // The second word of each frame.
    fn owner(&self, frame: Pfn) -> u64 {
        self.frames.load_word(frame, 1)
    }

    fn set_owner(&self, frame: Pfn, owner: u64) {
        self.frames.store_word(frame, 1, owner);
    }

    fn settle(&self) -> Result<()> {
        let missing = self.total - self.frames.total_frames();
        if missing > FrameCount::ZERO {
            self.frames.grow(self.frames.frame_size().bytes_of(missing))?;
        }
        let now = self.frames.total_frames();
        if now != self.total {
            bail!("{now} instead of {} after memory was added again", self.total);
        }
        Ok(())
    }
}

impl<D: HostDesign> Disturbed for Arena<D> {
    const STEPS: &'static [&'static str] = &STEPS;

    fn step(&self, name: &str, by: &mut Disturber<'_, Self>) -> Result<()> {
        match name {
            "purge" => by.tally.purged += self.frames.purge()?.get(),
            _ => self.resize(by)?,
        }
        Ok(())
    }
}

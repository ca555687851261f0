//! Per-CPU state: batches of frames on their way to a list, and a stock of frames charged ahead.
//! Batches take the lock of an lruvec once for many frames; the stock does the same for the
//! counters that all CPUs share.

use core::num::NonZero;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::LruError;
use crate::frames::few::Few;
use crate::frames::sharding::Sharding;
use crate::frames::state::Motion;
use crate::id::{GroupId, NO_SLOT};
use crate::settings::BATCH_MAX;
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::FrameIndex;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{LockClass, Pin, Platform, RawLock, SharedCell, Word};
use freehold::units::CpuId;

/// How many reclaims that began on one CPU may be under way. An owner that reclaims from within its
/// methods would otherwise overflow the stack.
const HUNTS_MAX: u32 = 32;

/// A stock of no group.
const NO_GROUP: u64 = u64::MAX;

/// The operation that a batch applies to its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// They are new, and on no list yet.
    Add = 0,
    Activate = 1,
    Deactivate = 2,
    Rotate = 3,
    /// They were pinned or unpinned: the list depends on which.
    Pin = 4,
}

impl Batch {
    const COUNT: usize = 5;

    pub(crate) const ALL: [Self; Self::COUNT] =
        [Self::Add, Self::Activate, Self::Deactivate, Self::Rotate, Self::Pin];

    /// Where the frames go.
    pub(crate) const fn motion(self) -> Motion {
        match self {
            Batch::Add | Batch::Pin => Motion::Keep,
            Batch::Activate => Motion::Activate,
            Batch::Deactivate => Motion::Deactivate,
            Batch::Rotate => Motion::Rotate,
        }
    }
}

/// The state of one CPU. What changes is guarded by `lock`, unless it says otherwise.
#[repr(C, align(64))]
struct PerCpu<P: Platform> {
    lock: P::Lock,
    /// The shard that the CPU adds to, and reclaims from first.
    shard: u32,
    /// The group that the charged-ahead frames are charged to.
    stocked: P::LocalCell<u64>,
    /// How many frames are charged ahead.
    stock: P::LocalCell<u32>,
    /// The most of them.
    stock_max: P::LocalCell<u32>,
    /// Whether the CPU took from them, or gave some back, since it was last asked for them.
    stock_used: P::LocalCell<u32>,
    /// The slot of the group within which the CPU has last reclaimed, and where it stopped. Not
    /// guarded: hints.
    turn_within: P::U32,
    turn: P::U64,
    /// How many reclaims that began here are under way.
    hunts: P::LocalCell<u32>,
    lens: [P::LocalCell<u32>; Batch::COUNT],
    batches: [[P::LocalCell<u32>; BATCH_MAX]; Batch::COUNT],
}

/// The state of all CPUs.
pub(crate) struct Cpus<P: Platform> {
    table: Table<PerCpu<P>>,
    batch: u32,
}

/// Where it will lie.
pub(crate) struct CpusPlan<P: Platform>(TablePlan<PerCpu<P>>);

impl<P: Platform> CpusPlan<P> {
    pub(crate) fn new(cpus: usize, layout: &mut LayoutBuilder) -> Result<Self, Error> {
        Ok(CpusPlan(layout.table(SectionKind::LruPerCpu, cpus)?))
    }
}

impl<P: Platform> Cpus<P> {
    pub(crate) fn carve(
        plan: &CpusPlan<P>,
        config: &Config<'_>,
        sharding: Sharding,
        batch: u32,
        carver: &mut Carver,
    ) -> Self {
        let zero = || P::LocalCell::new(0);
        let table = carver.table(plan.0, |cpu| PerCpu {
            lock: P::Lock::new(LockClass::LruBatch),
            shard: sharding.of_cpu(config, CpuId::new(cpu as u32)) as u32,
            stocked: P::LocalCell::new(NO_GROUP),
            stock: zero(),
            stock_max: zero(),
            stock_used: zero(),
            turn_within: P::U32::new(u32::from(NO_SLOT)),
            turn: P::U64::new(0),
            hunts: zero(),
            lens: core::array::from_fn(|_| zero()),
            batches: core::array::from_fn(|_| core::array::from_fn(|_| zero())),
        });
        Cpus { table, batch }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The state of the running CPU, locked.
    pub(crate) fn here<'a>(&'a self, platform: &'a P) -> CpuGuard<'a, P> {
        let (cpu, pin) = Pin::new(platform);
        self.locked(pin, self.number(cpu))
    }

    /// The shard of the running CPU.
    pub(crate) fn near(&self, platform: &P) -> usize {
        self.unlocked(platform).shard as usize
    }

    /// Where the last reclaim within a group has stopped on the running CPU, if that was its last
    /// one.
    pub(crate) fn turn(&self, platform: &P, within: u16) -> Option<u64> {
        let cpu = self.unlocked(platform);
        // Relaxed: hints, here and below. A turn that belongs to another group is no place below
        // this one, or as good as any.
        (cpu.turn_within.load(Relaxed) == u32::from(within)).then(|| cpu.turn.load(Relaxed))
    }

    /// Notes where a reclaim within a group stops; returns group and turn of another one that is
    /// forgotten by this.
    pub(crate) fn set_turn(&self, platform: &P, within: u16, turn: u64) -> Option<(u16, u64)> {
        let cpu = self.unlocked(platform);
        let before = (cpu.turn_within.load(Relaxed) as u16, cpu.turn.load(Relaxed));
        cpu.turn_within.store(u32::from(within), Relaxed);
        cpu.turn.store(turn, Relaxed);
        (before.0 != NO_SLOT && before.0 != within).then_some(before)
    }

    /// The state of the running CPU, for what its lock does not guard.
    fn unlocked(&self, platform: &P) -> &PerCpu<P> {
        self.table.get(self.number(platform.cpu()))
    }

    fn number(&self, cpu: CpuId) -> usize {
        let cpu = cpu.index();
        // Nearly always in range, and a comparison is cheaper than a division.
        if cpu < self.len() { cpu } else { NonZero::new(self.len()).map_or(0, |cpus| cpu % cpus) }
    }

    /// Counts a reclaim that begins on the running CPU, until the guard is dropped on whatever CPU
    /// that is.
    pub(crate) fn begin_hunt<'a>(
        &'a self,
        platform: &'a P,
    ) -> Result<CountedHunt<'a, P>, LruError> {
        let (cpu, pin) = Pin::new(platform);
        let cpu = self.number(cpu);
        let guard = self.locked(pin, cpu);
        match guard.cpu.hunts.get() {
            HUNTS_MAX => Err(LruError::TooManyReclaims),
            hunts => {
                guard.cpu.hunts.set(hunts + 1);
                Ok(CountedHunt { cpus: self, platform, cpu })
            }
        }
    }

    /// The state of any CPU, locked.
    pub(crate) fn of<'a>(&'a self, platform: &'a P, cpu: usize) -> CpuGuard<'a, P> {
        self.locked(Pin::new(platform).1, cpu)
    }

    fn locked<'a>(&'a self, pin: Pin<'a, P>, cpu: usize) -> CpuGuard<'a, P> {
        let cpu = self.table.get(cpu);
        cpu.lock.lock();
        CpuGuard { cpu, _pin: pin, batch: self.batch }
    }
}

/// A reclaim under way, counted on the CPU that it began on.
pub(crate) struct CountedHunt<'a, P: Platform> {
    cpus: &'a Cpus<P>,
    platform: &'a P,
    cpu: usize,
}

impl<P: Platform> Drop for CountedHunt<'_, P> {
    fn drop(&mut self) {
        let guard = self.cpus.of(self.platform, self.cpu);
        // In the child of a fork the count may have begun anew.
        let hunts = guard.cpu.hunts.get().saturating_sub(1);
        guard.cpu.hunts.set(hunts);
    }
}

/// The state of one CPU, locked. Unlocks and unpins when dropped.
pub(crate) struct CpuGuard<'a, P: Platform> {
    cpu: &'a PerCpu<P>,
    _pin: Pin<'a, P>,
    batch: u32,
}

impl<P: Platform> CpuGuard<'_, P> {
    /// Puts a frame into a batch. If that fills the batch, takes its frames out and returns them.
    pub(crate) fn push(&self, batch: Batch, frame: FrameIndex) -> Option<Few> {
        let len = self.cpu.lens[batch as usize].get();
        self.cpu.batches[batch as usize][len as usize].set(frame.0);
        self.cpu.lens[batch as usize].set(len + 1);
        (len + 1 >= self.batch).then(|| self.take(batch))
    }

    /// Takes all frames out of a batch.
    pub(crate) fn take(&self, batch: Batch) -> Few {
        let mut few = Few::new();
        let len = self.cpu.lens[batch as usize].get();
        for cell in &self.cpu.batches[batch as usize][..len as usize] {
            few.push(FrameIndex(cell.get()));
        }
        if len > 0 {
            self.cpu.lens[batch as usize].set(0);
        }
        few
    }

    /// How many frames are in a batch.
    pub(crate) fn len(&self, batch: Batch) -> u32 {
        self.cpu.lens[batch as usize].get()
    }

    /// Takes frames from the stock of this group; returns whether there were so many.
    pub(crate) fn take_stock(&self, group: GroupId, frames: u32) -> bool {
        let stock = self.cpu.stock.get();
        if stock < frames || self.cpu.stocked.get() != group.bits() {
            return false;
        }
        self.cpu.stock.set(stock - frames);
        self.note_use();
        true
    }

    fn note_use(&self) {
        if self.cpu.stock_used.get() == 0 {
            self.cpu.stock_used.set(1);
        }
    }

    /// Whether the stock was not used since this was last asked.
    pub(crate) fn is_stock_idle(&self) -> bool {
        let is_idle = self.cpu.stock_used.get() == 0;
        if !is_idle {
            self.cpu.stock_used.set(0);
        }
        is_idle
    }

    /// Stocks frames charged to this group, up to `most`; returns slot and number of those stocked
    /// before.
    pub(crate) fn set_stock(&self, group: GroupId, frames: u32, most: u32) -> Option<(u16, u32)> {
        let before = self.stock();
        self.cpu.stocked.set(group.bits());
        self.cpu.stock.set(frames);
        self.cpu.stock_max.set(most);
        before
    }

    /// Empties the stock; returns its slot and number of frames.
    pub(crate) fn drain_stock(&self) -> Option<(u16, u32)> {
        let before = self.stock();
        self.cpu.stocked.set(NO_GROUP);
        self.cpu.stock.set(0);
        before
    }

    /// The slot of the stock, and its number of frames. A stock does not outlive its group, since
    /// removing a group empties all of its stocks.
    pub(crate) fn stock(&self) -> Option<(u16, u32)> {
        let stocked = self.cpu.stocked.get();
        (stocked != NO_GROUP).then(|| (GroupId::from_bits(stocked).slot(), self.cpu.stock.get()))
    }

    /// Returns frames of a slot to the stock, which keeps half once it is full; returns how many
    /// must be uncharged.
    pub(crate) fn restock(&self, slot: u16, frames: u32) -> u32 {
        let Some((_, stock)) = self.stock().filter(|&(stocked, _)| stocked == slot) else {
            return frames;
        };
        let (all, most) = (stock + frames, self.cpu.stock_max.get());
        let kept = if all > most { most / 2 } else { all };
        self.cpu.stock.set(kept);
        self.note_use();
        all - kept
    }
}

impl<P: Platform> Drop for CpuGuard<'_, P> {
    fn drop(&mut self) {
        self.cpu.lock.unlock();
    }
}

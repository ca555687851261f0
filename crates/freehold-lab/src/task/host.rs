//! Tasks on the host: threads bound to CPUs.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use freehold::{CpuId, FrameCount, Pfn};
use freehold_host::{FrameArena, Host};
use freehold_sim::{Key, Path};

use super::calls::Meter;
use super::ring::{HostRing, RingPlan};
use super::workload::{self, Finished, Returned, TaskWorkload, finish};
use super::{Block, Place, Task, abandoned};
use crate::cell::HostCell;
use crate::designs::with_design;
use crate::frames::Frames;
use crate::host::tasks::bind;
use crate::host::yardstick::clock_ns;
use crate::host::{HostDesign, arena, check_memory};
use crate::machine::FRAME_BYTES;

/// One of so many calls is timed, since reading the clock costs more than a call. A prime, so that
/// the timed calls hit all phases of a batch.
const TIMED_EVERY: u64 = 13;

/// The memory behind the frames, whatever the design of their allocator.
trait Memory: Sync {
    /// Writes one byte of each frame.
    fn touch(&self, block: Block);

    /// Copies the content of a block.
    fn copy(&self, from: Block, to: Pfn);
}

impl<D: HostDesign> Memory for FrameArena<D> {
    fn touch(&self, block: Block) {
        for frame in 0..block.order.frames().get() {
            self.store_byte(block.pfn.offset(FrameCount::new(frame)), 1);
        }
    }

    fn copy(&self, from: Block, to: Pfn) {
        self.copy_block(from.pfn, to, from.order);
    }
}

/// An arena, whatever its design.
#[derive(Clone, Copy)]
struct Ground<'a> {
    frames: &'a (dyn Frames + Sync),
    memory: &'a dyn Memory,
    managed: FrameCount,
}

/// The state that the tasks share.
struct Shared<'a> {
    ground: Ground<'a>,
    rings: Vec<HostRing>,
    meeting: Meeting,
    began: Instant,
    /// The cost of reading the clock twice.
    clock_ns: f64,
    error: Mutex<Option<anyhow::Error>>,
}

impl<'a> Shared<'a> {
    fn new(ground: Ground<'a>, rings: &[RingPlan], tasks: usize) -> Self {
        Shared {
            ground,
            rings: rings.iter().map(HostRing::new).collect(),
            meeting: Meeting::new(tasks),
            began: Instant::now(),
            clock_ns: clock_ns(),
            error: Mutex::new(None),
        }
    }
}

/// A barrier that fails when a task fails, so that no task waits for one that never arrives.
struct Meeting {
    parties: usize,
    state: Mutex<Arrivals>,
    changed: Condvar,
    failed: AtomicBool,
}

#[derive(Default)]
struct Arrivals {
    arrived: usize,
    round: u64,
}

impl Meeting {
    fn new(parties: usize) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Meeting { parties, state, changed, failed: AtomicBool::new(false) }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    fn fail(&self) {
        // Under the lock, so that no waiter misses it between its check and its sleep.
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.failed.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        if state.arrived == self.parties {
            state.arrived = 0;
            state.round += 1;
            self.changed.notify_all();
        } else {
            let round = state.round;
            let here = |state: &mut Arrivals| state.round == round && !self.has_failed();
            state = self.changed.wait_while(state, here).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if self.has_failed() { Err(abandoned()) } else { Ok(()) }
    }
}

pub(super) struct HostTask<'a> {
    shared: &'a Shared<'a>,
    place: Place,
    meter: Meter,
    /// How often the task has spun since it last yielded its CPU.
    spins: Cell<u32>,
}

impl<'a> HostTask<'a> {
    fn new(shared: &'a Shared<'a>, place: Place) -> Self {
        HostTask { shared, place, meter: Meter::default(), spins: Cell::new(0) }
    }
}

impl Task for HostTask<'_> {
    fn place(&self) -> Place {
        self.place
    }

    #[inline]
    fn allocator(&self) -> &dyn Frames {
        self.shared.ground.frames
    }

    #[inline]
    fn timed<R>(&self, path: Path, call: impl FnOnce() -> R) -> R {
        if !self.meter.count(path).is_multiple_of(TIMED_EVERY) {
            return call();
        }
        let start = Instant::now();
        let result = call();
        let ns = start.elapsed().as_nanos() as f64;
        self.meter.enter(path, ns - self.shared.clock_ns);
        result
    }

    fn clear(&self, block: Block) {
        self.shared.ground.memory.touch(block);
    }

    fn copy(&self, from: Block, to: Pfn) {
        self.shared.ground.memory.copy(from, to);
    }

    fn charge(&self, _works: &[Key]) {}

    fn idle_ns(&self, ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
    }

    fn compute_ns(&self, _ns: u64) {}

    fn now_ns(&self) -> u64 {
        self.shared.began.elapsed().as_nanos() as u64
    }

    fn in_order(&self) {}

    fn pause(&self) -> Result<()> {
        /// How often a waiter spins before it yields its CPU: more tasks than CPUs may wait.
        const SPINS: u32 = 100;
        let spins = self.spins.get();
        self.spins.set((spins + 1) % SPINS);
        if spins + 1 == SPINS {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if self.shared.meeting.has_failed() { Err(abandoned()) } else { Ok(()) }
    }

    fn meet(&self) -> Result<()> {
        self.shared.meeting.wait()
    }

    fn start_measuring(&self) -> Result<()> {
        self.meter.clear();
        self.meet()
    }

    fn try_send(&self, ring: usize, frames: &[Pfn]) -> usize {
        self.shared.rings[ring].try_send(frames)
    }

    fn try_receive(&self, ring: usize, frames: &mut [Pfn]) -> usize {
        self.shared.rings[ring].try_receive(frames)
    }

    fn leave(&self, ring: usize) {
        self.shared.rings[ring].leave();
    }

    fn is_closed(&self, ring: usize) -> bool {
        self.shared.rings[ring].is_closed()
    }
}

/// Runs the tasks of a cell.
pub(super) fn run<W: TaskWorkload>(cell: &HostCell<'_>, work: &W) -> Result<Finished> {
    let bytes = arena_bytes(work.memory());
    check_memory(cell.cpus.len(), bytes, &format!("--cpus or --set {}", W::SIZE))?;
    with_design!(cell.design, Host, D => {
        let builder = arena::<D>().bytes(usize::try_from(bytes)?);
        let arena = builder.settings(cell.assignments.of_design()?).build_frames()?;
        let (frames, managed) = (&arena.allocator(), arena.total_frames());
        run_on(Ground { frames, memory: &arena, managed }, cell, work)
    })
}

fn arena_bytes(needed: workload::Memory) -> u64 {
    match needed {
        // A quarter more, so that watermarks and the frames on per-CPU lists leave enough.
        workload::Memory::AtLeast(frames) => {
            (frames.get() + frames.get() / 4) * FRAME_BYTES + (64 << 20)
        }
        workload::Memory::Exactly(frames) => frames.get() * FRAME_BYTES,
    }
}

fn run_on<W: TaskWorkload>(ground: Ground<'_>, cell: &HostCell<'_>, work: &W) -> Result<Finished> {
    let shared = Shared::new(ground, &work.rings(), cell.cpus.len());
    let returned: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (cell.cpus.iter().enumerate())
            .map(|(index, &cpu)| {
                let (shared, place) = (&shared, Place { index, seed: cell.seed });
                scope.spawn(move || run_task(shared, work, place, cpu))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no task panics")).collect()
    });
    if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.context("a task could not go on"));
    }
    finish(work, ground.frames, ground.managed, returned)
}

fn run_task<W: TaskWorkload>(
    shared: &Shared<'_>,
    work: &W,
    place: Place,
    cpu: CpuId,
) -> Returned<W::Outcome> {
    let task = HostTask::new(shared, place);
    let mut held = Vec::new();
    let outcome = bind(cpu).and_then(|()| work.run(&task, &mut held));
    let outcome = outcome.map_err(|error| {
        shared.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        shared.meeting.fail();
    });
    Returned { outcome: outcome.ok(), held, calls: task.meter.calls() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use freehold::designs::zone_lock::ZoneLock;

    /// Runs the work of one task, for tests of what tasks use.
    pub(in crate::task) fn on_host(work: impl FnOnce(&HostTask<'_>)) {
        let builder = arena::<ZoneLock<Host>>().bytes(16 << 20);
        let arena = builder.build_frames().expect("16 MiB can be mapped");
        on_arena(&arena, &arena.allocator(), work);
    }

    /// The same in an arena whose allocator is called through a wrapper.
    fn on_arena<R>(
        arena: &FrameArena<ZoneLock<Host>>,
        frames: &(dyn Frames + Sync),
        work: impl FnOnce(&HostTask<'_>) -> R,
    ) -> R {
        let ground = Ground { frames, memory: arena, managed: arena.total_frames() };
        let shared = Shared::new(ground, &[], 1);
        work(&HostTask::new(&shared, Place { index: 0, seed: 1 }))
    }

    /// Runs one task of a workload in an arena whose allocator is called through a wrapper.
    pub(crate) fn run_one<W: TaskWorkload>(
        arena: &FrameArena<ZoneLock<Host>>,
        frames: &(dyn Frames + Sync),
        work: &W,
    ) -> Result<W::Outcome> {
        on_arena(arena, frames, |task| work.run(task, &mut Vec::new()))
    }

    #[test]
    fn a_meeting_waits_for_all_and_ends_when_one_fails() {
        let meeting = Meeting::new(3);
        let came = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        came.fetch_add(1, Relaxed);
                        meeting.wait().unwrap();
                        assert!(came.load(Relaxed) >= 3 * round);
                        meeting.wait().unwrap();
                    }
                });
            }
        });
        thread::scope(|scope| {
            let waiter = scope.spawn(|| meeting.wait());
            meeting.fail();
            assert!(waiter.join().unwrap().is_err());
        });
        assert!(meeting.wait().is_err(), "no task waits forever after that");
    }
}

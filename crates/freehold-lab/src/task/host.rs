//! Tasks on the host: threads bound to CPUs.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use freehold::{CpuId, FrameCount, Order, Pfn};
use freehold_host::{FrameArena, Host, HostLru};
use freehold_lru::{GroupId, Lru};
use freehold_sim::{Key, Path};

use super::calls::Meter;
use super::lru::{AnyLru, HostKeeper, Lists, ReclaimingFrames};
use super::meeting::{Meeting, Watch};
use super::reach::{Direct, Ground, Indirect, Memory, Reach};
use super::ring::{HostRing, RingPlan};
use super::workload::{self, Ended, Finished, HostRun, Returned, TaskWorkload};
use super::{Block, Content, Place, Task, abandoned};
use crate::cell::HostCell;
use crate::designs::with_design;
use crate::host::tasks::{bind, start};
use crate::host::yardstick::{Yardstick, clock_ns};
use crate::host::{HostDesign, arena, check_memory};
use crate::machine::FRAME_BYTES;
use crate::report::progress::Progress;

/// One of so many calls is timed, since reading the clock costs more than a call. A prime, so that
/// the timed calls hit all phases of a batch.
const TIMED_EVERY: u64 = 13;

/// The state that the tasks share.
struct Shared<'a, R: Reach> {
    ground: Ground<'a, R>,
    lists: Option<Lists<HostLru<HostKeeper<'a>>>>,
    rings: Vec<HostRing>,
    meeting: Meeting,
    began: Instant,
    /// The cost of reading the clock twice.
    clock_ns: f64,
    error: Mutex<Option<anyhow::Error>>,
}

impl<'a, R: Reach> Shared<'a, R> {
    fn new(ground: Ground<'a, R>, rings: &[RingPlan], tasks: usize) -> Self {
        Shared {
            ground,
            lists: None,
            rings: rings.iter().map(HostRing::new).collect(),
            meeting: Meeting::new(tasks),
            began: Instant::now(),
            clock_ns: clock_ns(),
            error: Mutex::new(None),
        }
    }
}

pub(super) struct HostTask<'a, R: Reach> {
    shared: &'a Shared<'a, R>,
    place: Place,
    meter: Meter,
    /// How often the task has spun since it last yielded its CPU.
    spins: Cell<u32>,
}

impl<'a, R: Reach> HostTask<'a, R> {
    fn new(shared: &'a Shared<'a, R>, place: Place) -> Self {
        HostTask { shared, place, meter: Meter::default(), spins: Cell::new(0) }
    }

    fn lists(&self) -> &Lists<HostLru<HostKeeper<'a>>> {
        self.shared.lists.as_ref().expect("the workload has planned an LRU")
    }
}

impl<'a, R: Reach> Task for HostTask<'a, R> {
    type Frames = R::Frames;
    type Platform = Host;
    type Owner = HostKeeper<'a>;

    fn place(&self) -> Place {
        self.place
    }

    #[inline]
    fn allocator(&self) -> &R::Frames {
        self.shared.ground.frames
    }

    fn lru(&self) -> &Lru<Host, HostKeeper<'a>> {
        &self.lists().lru
    }

    fn any_lru(&self) -> AnyLru<'_, '_> {
        AnyLru::Host(self.lru())
    }

    fn group(&self, number: usize) -> GroupId {
        self.lists().group(number)
    }

    fn unlist(&self, frames: &[Pfn]) -> Result<()> {
        self.lru().put_bulk(frames)?;
        let released = self.lru().owner().take_released();
        self.free_released(&released, self.lists().frees)
    }

    #[inline]
    fn timed<T>(&self, path: Path, call: impl FnOnce() -> T) -> T {
        if !R::TIMED || !self.meter.count(path).is_multiple_of(TIMED_EVERY) {
            return call();
        }
        let start = Instant::now();
        let result = call();
        let ns = start.elapsed().as_nanos() as f64;
        let began_ns = start.duration_since(self.shared.began).as_nanos() as f64;
        self.meter.enter(path, began_ns, ns - self.shared.clock_ns);
        result
    }

    #[inline]
    fn clear(&self, block: Block) {
        for frame in 0..block.order.frames().get() {
            self.touch(block.pfn.offset(FrameCount::new(frame)));
        }
    }

    #[inline]
    fn touch(&self, pfn: Pfn) {
        self.shared.ground.memory.touch(pfn);
    }

    fn fill(&self, pfn: Pfn, content: impl FnOnce(&mut Content) -> Result<()>) -> Result<()> {
        let mut filled = [0; FRAME_BYTES as usize];
        content(&mut filled)?;
        self.shared.ground.memory.write(pfn, &filled);
        Ok(())
    }

    fn copy_out(&self, pfn: Pfn, check: impl FnOnce(&Content) -> Result<()>) -> Result<()> {
        let mut found = [0; FRAME_BYTES as usize];
        self.shared.ground.memory.read(pfn, &mut found);
        check(&found)
    }

    fn copy(&self, from: Block, to: Pfn) {
        self.shared.ground.memory.copy(from, to);
    }

    fn restamp(&self, block: Block, from: u64, to: u64) -> Result<()> {
        self.shared.ground.memory.restamp(block, from, to).map_err(|pfn| {
            anyhow!("frame {pfn} of a block of order {} does not bear its stamp", block.order)
                .context("somebody else has used it: the allocator has handed it out twice")
        })
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
        self.meter.clear(f64::INFINITY);
        self.meet()
    }

    fn start_measuring_for(&self, ns: u64) -> Result<()> {
        self.meet()?;
        self.meter.clear((self.now_ns() + ns) as f64);
        Ok(())
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

/// A cell whose arena is built.
struct Run<'a, W> {
    cell: &'a HostCell<'a>,
    work: &'a W,
    progress: &'a Progress,
}

/// Runs the tasks of a cell.
pub(super) fn run<W: TaskWorkload>(
    cell: &HostCell<'_>,
    work: &W,
    progress: &Progress,
) -> Result<Finished> {
    let bytes = arena_bytes(work.memory(), cell.cpus.len() as u64);
    check_memory(cell.cpus.len(), bytes, &format!("--cpus or --set {}", W::SIZE))?;
    let run = Run { cell, work, progress };
    with_design!(cell.design, Host, D => {
        let builder = arena::<D>().bytes(usize::try_from(bytes)?);
        let builder = builder.huge_pages(work.huge_pages());
        let arena = builder.settings(cell.assignments.of_design()?).build_frames()?;
        let finished = W::run_on_host(&run, &arena)?;
        Ok(Finished { metadata_bytes: arena.metadata_bytes() as u64, ..finished })
    })
}

fn arena_bytes(needed: workload::Memory, tasks: u64) -> u64 {
    // A quarter more, so that watermarks and the frames on per-CPU lists leave enough.
    let with_reserve = |frames: u64| (frames + frames / 4) * FRAME_BYTES + (64 << 20);
    match needed {
        workload::Memory::AtLeast(frames) => with_reserve(frames.get()),
        workload::Memory::Near(frames) => with_reserve(frames.get() * tasks),
        workload::Memory::Exactly(frames) => frames.get() * FRAME_BYTES,
    }
}

impl<W: TaskWorkload> HostRun for Run<'_, W> {
    fn indirectly<D: HostDesign>(&self, arena: &FrameArena<D>) -> Result<Finished> {
        let frames = &arena.allocator();
        let ground = Ground::<Indirect<'_>> { frames, memory: arena };
        self.run_on(ground, frames, arena.total_frames(), None)
    }

    fn directly<D: HostDesign>(&self, arena: &FrameArena<D>) -> Result<Finished> {
        let yardstick = Yardstick::measure(arena, self.cell.cpus[0])?;
        self.progress.step();
        let frames = &arena.allocator();
        let ground = Ground::<Direct<'_, D>> { frames, memory: arena };
        self.run_on(ground, frames, arena.total_frames(), Some(yardstick))
    }
}

impl<W: TaskWorkload> Run<'_, W> {
    fn run_on<'a, R: Reach>(
        &self,
        ground: Ground<'a, R>,
        allocator: &'a (dyn ReclaimingFrames + Sync),
        managed: FrameCount,
        yardstick: Option<Yardstick>,
    ) -> Result<Finished> {
        let Run { cell, work, progress } = *self;
        let mut shared = Shared::new(ground, &work.rings(), cell.cpus.len());
        if let Some(plan) = work.lru() {
            let keeper = HostKeeper::new(&plan, allocator);
            let lru = shared.ground.memory.lru(&plan, keeper)?;
            shared.lists = Some(Lists::new(lru, &plan)?);
        }
        let returned: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (cell.cpus.iter().enumerate())
                .map(|(index, &cpu)| {
                    let (shared, place) = (&shared, Place { index, seed: cell.seed });
                    start(scope, move || run_task(shared, work, place, cpu))
                })
                .collect();
            work.watch(&Watch { progress, meeting: &shared.meeting });
            threads.into_iter().map(|thread| thread.join().expect("no task panics")).collect()
        });
        if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.context("a task could not go on"));
        }
        let ended = Ended { allocator, managed, elapsed_ns: None, yardstick, returned };
        ended.finish(work, || {
            let Some(lists) = &shared.lists else { return Ok(()) };
            lists.empty()?;
            Ok(allocator.free_bulk(&lists.lru.owner().take_released(), Order::ZERO)?)
        })
    }
}

fn run_task<W: TaskWorkload, R: Reach>(
    shared: &Shared<'_, R>,
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
    let calls = R::TIMED.then(|| task.meter.calls());
    Returned { outcome: outcome.ok(), held, calls }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use freehold_linux::zone_lock::ZoneLock;

    /// Runs the work of one task, for tests of what tasks use.
    pub(in crate::task) fn on_host(work: impl FnOnce(&HostTask<'_, Indirect<'_>>)) {
        let builder = arena::<ZoneLock<Host>>().bytes(16 << 20);
        let arena = builder.build_frames().expect("16 MiB can be mapped");
        on_arena(&arena, &arena.allocator(), work);
    }

    /// The same in an arena whose allocator is called through a wrapper.
    fn on_arena<R>(
        arena: &FrameArena<ZoneLock<Host>>,
        frames: &(dyn ReclaimingFrames + Sync),
        work: impl FnOnce(&HostTask<'_, Indirect<'_>>) -> R,
    ) -> R {
        let shared = Shared::new(Ground::<Indirect<'_>> { frames, memory: arena }, &[], 1);
        work(&HostTask::new(&shared, Place { index: 0, seed: 1 }))
    }

    /// Runs one task of a workload in an arena whose allocator is called through a wrapper.
    pub(crate) fn run_one<W: TaskWorkload>(
        arena: &FrameArena<ZoneLock<Host>>,
        frames: &(dyn ReclaimingFrames + Sync),
        work: &W,
    ) -> Result<W::Outcome> {
        on_arena(arena, frames, |task| work.run(task, &mut Vec::new()))
    }
}

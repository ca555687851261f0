//! Tasks on a simulated machine: the work of virtual CPUs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, ensure};
use bytesize::ByteSize;
use freehold::{CpuId, FrameCount, NodeId, Pfn};
use freehold_sim::{Barrier, CpuHandle, Key, Machine, Path, Report, Spec};

use super::calls::Meter;
use super::ring::SimRing;
use super::workload::{Finished, Memory, Returned, TaskWorkload, finish};
use super::{Block, PAUSE_NS, Place, Task, abandoned};
use crate::cell::SimCell;
use crate::frames::Frames;
use crate::machine::FRAME_BYTES;
use crate::settings::Assignments;
use crate::sim::memory::MemoryPlan;

/// The state that the tasks share.
struct Shared<W: TaskWorkload> {
    work: W,
    frames: Rc<dyn Frames>,
    node_frames: u64,
    rings: Vec<SimRing>,
    barrier: Barrier,
    failed: Cell<bool>,
    error: RefCell<Option<anyhow::Error>>,
    returned: RefCell<Vec<Option<Returned<W::Outcome>>>>,
}

struct SimTask<'a, W: TaskWorkload> {
    cpu: &'a CpuHandle,
    shared: &'a Shared<W>,
    place: Place,
    meter: Meter,
}

impl<W: TaskWorkload> SimTask<'_, W> {
    fn unless_failed(&self) -> Result<()> {
        if self.shared.failed.get() { Err(abandoned()) } else { Ok(()) }
    }
}

impl<W: TaskWorkload> Task for SimTask<'_, W> {
    fn place(&self) -> Place {
        self.place
    }

    fn allocator(&self) -> &dyn Frames {
        &*self.shared.frames
    }

    fn timed<R>(&self, path: Path, call: impl FnOnce() -> R) -> R {
        self.meter.count(path);
        let began_ps = self.cpu.now_ps();
        let result = self.cpu.timed(path, call);
        self.meter.enter(path, (self.cpu.now_ps() - began_ps) as f64 / 1000.0);
        result
    }

    fn clear(&self, block: Block) {
        for frame in 0..block.order.frames().get() {
            let pfn = block.pfn.offset(FrameCount::new(frame));
            let node = NodeId::new((pfn.get() / self.shared.node_frames) as u16);
            self.cpu.clear_frame(pfn, node);
        }
    }

    fn copy(&self, from: Block, to: Pfn) {
        self.clear(from);
        self.clear(Block { pfn: to, ..from });
    }

    fn charge(&self, works: &[Key]) {
        works.iter().for_each(|&work| self.cpu.charge(work));
    }

    fn idle_ns(&self, ns: u64) {
        self.cpu.idle_ns(ns);
    }

    fn compute_ns(&self, ns: u64) {
        self.cpu.compute_ns(ns);
    }

    fn now_ns(&self) -> u64 {
        self.cpu.now_ns()
    }

    fn in_order(&self) {
        self.cpu.in_order();
    }

    fn pause(&self) -> Result<()> {
        self.cpu.idle_ns(PAUSE_NS);
        // Lets earlier CPUs run first: they may do what the task waits for.
        self.cpu.in_order();
        self.unless_failed()
    }

    fn meet(&self) -> Result<()> {
        self.cpu.wait(self.shared.barrier);
        self.unless_failed()
    }

    fn start_measuring(&self) -> Result<()> {
        self.meter.clear();
        self.cpu.start_measuring(self.shared.barrier);
        self.unless_failed()
    }

    fn try_send(&self, ring: usize, frames: &[Pfn]) -> usize {
        self.shared.rings[ring].try_send(self.cpu, frames)
    }

    fn try_receive(&self, ring: usize, frames: &mut [Pfn]) -> usize {
        self.shared.rings[ring].try_receive(self.cpu, frames)
    }

    fn leave(&self, ring: usize) {
        self.shared.rings[ring].leave(self.cpu);
    }

    fn is_closed(&self, ring: usize) -> bool {
        self.shared.rings[ring].is_closed(self.cpu)
    }
}

/// The memory of a workload, if it suffices.
pub(super) fn plan<W: TaskWorkload>(
    spec: &Spec,
    given: &Assignments,
    work: &W,
) -> Result<MemoryPlan> {
    match work.memory() {
        Memory::Exactly(frames) => {
            MemoryPlan::exactly(spec, given, frames.get() * FRAME_BYTES, W::SIZE)
        }
        Memory::AtLeast(frames) => {
            let plan = MemoryPlan::new(spec, given)?;
            // A sixteenth stays free for watermarks and per-CPU lists.
            let needed = frames.get() + frames.get() / 16;
            ensure!(
                needed <= plan.frames().get(),
                "the tasks need {}, but {} has {}: lower --cpus or --set {}, or raise node_memory",
                ByteSize(needed * FRAME_BYTES),
                spec.name(),
                ByteSize(plan.frames().get() * FRAME_BYTES),
                W::SIZE
            );
            Ok(plan)
        }
    }
}

/// Runs the tasks of a cell.
pub(super) fn run<W: TaskWorkload>(
    cell: &SimCell<'_>,
    plan: &MemoryPlan,
    work: W,
) -> Result<(Finished, Report)> {
    let mut machine = Machine::new(cell.spec, cell.seed)?;
    let frames = plan.build(&mut machine, cell)?;
    let node_of = |task: usize| cell.spec.node_of(CpuId::new(task as u32));
    let rings = work.rings();
    let rings = rings.iter().map(|ring| SimRing::new(&mut machine, ring, node_of(ring.receiver)));
    let shared = Rc::new(Shared {
        rings: rings.collect(),
        work,
        frames,
        node_frames: plan.node_frames(),
        barrier: machine.barrier(cell.cpus),
        failed: Cell::new(false),
        error: RefCell::new(None),
        returned: RefCell::new((0..cell.cpus).map(|_| None).collect()),
    });
    for index in 0..cell.cpus {
        let shared = Rc::clone(&shared);
        let place = Place { index, seed: cell.seed };
        machine.spawn(index, move |cpu| run_task(&shared, place, cpu));
    }
    let report = machine.run();
    // To the machine, tasks that wait for one that has failed are a deadlock.
    if let Some(error) = shared.error.take() {
        return Err(error.context("a task could not go on"));
    }
    let report = report?;
    let returned: Vec<_> = shared.returned.take().into_iter().flatten().collect();
    Ok((finish(&shared.work, &*shared.frames, plan.frames(), returned)?, report))
}

fn run_task<W: TaskWorkload>(shared: &Shared<W>, place: Place, cpu: &CpuHandle) {
    let task = SimTask { cpu, shared, place, meter: Meter::default() };
    let mut held = Vec::new();
    let outcome = shared.work.run(&task, &mut held);
    let outcome = outcome.map_err(|error| {
        shared.error.borrow_mut().get_or_insert(error);
        shared.failed.set(true);
    });
    let returned = Returned { outcome: outcome.ok(), held, calls: task.meter.calls() };
    shared.returned.borrow_mut()[place.index] = Some(returned);
}

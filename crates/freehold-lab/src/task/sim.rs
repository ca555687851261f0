//! Tasks on a simulated machine: the work of virtual CPUs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, ensure};
use bytesize::ByteSize;
use freehold::{CpuId, FrameCount, NodeId, Order, Pfn};
use freehold_lru::{GroupId, Lru};
use freehold_sim::{Barrier, CpuHandle, Key, Machine, Path, Report, Sim, SimLru, Spec};

use super::calls::Meter;
use super::lru::{AnyLru, Lists, ReclaimingFrames, SimKeeper};
use super::ring::SimRing;
use super::workload::{Ended, Finished, Memory, Returned, TaskWorkload};
use super::{Block, Content, PAUSE_NS, Place, Task, abandoned};
use crate::cell::SimCell;
use crate::machine::FRAME_BYTES;
use crate::settings::Assignments;
use crate::sim::linux::lru_costs;
use crate::sim::memory::MemoryPlan;

/// The state that the tasks share.
struct Shared<W: TaskWorkload> {
    work: W,
    frames: Rc<dyn ReclaimingFrames>,
    lists: Option<Lists<SimLru<SimKeeper>>>,
    node_ends: Vec<u64>,
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

    fn lists(&self) -> &Lists<SimLru<SimKeeper>> {
        self.shared.lists.as_ref().expect("the workload has planned an LRU")
    }

    fn node_of(&self, pfn: Pfn) -> NodeId {
        NodeId::new(self.shared.node_ends.partition_point(|&end| end <= pfn.get()) as u16)
    }
}

impl<W: TaskWorkload> Task for SimTask<'_, W> {
    type Frames = dyn ReclaimingFrames;
    type Platform = Sim;
    type Owner = SimKeeper;

    fn place(&self) -> Place {
        self.place
    }

    fn allocator(&self) -> &Self::Frames {
        &*self.shared.frames
    }

    fn lru(&self) -> &Lru<Sim, SimKeeper> {
        &self.lists().lru
    }

    fn any_lru(&self) -> AnyLru<'_, '_> {
        AnyLru::Sim(self.lru())
    }

    fn group(&self, number: usize) -> GroupId {
        self.lists().group(number)
    }

    fn unlist(&self, frames: &[Pfn]) -> Result<()> {
        self.lru().put_bulk(frames)?;
        let released = self.lru().owner().take_released(self.place.index);
        self.free_released(&released, self.lists().frees)
    }

    fn timed<R>(&self, path: Path, call: impl FnOnce() -> R) -> R {
        let began_ps = self.cpu.now_ps();
        let result = self.cpu.timed(path, call);
        let ns = |ps: u64| ps as f64 / 1000.0;
        self.meter.count(path);
        self.meter.enter(path, ns(began_ps), ns(self.cpu.now_ps() - began_ps));
        result
    }

    fn clear(&self, block: Block) {
        for frame in 0..block.order.frames().get() {
            let pfn = block.pfn.offset(FrameCount::new(frame));
            self.cpu.clear_frame(pfn, self.node_of(pfn));
        }
    }

    fn touch(&self, pfn: Pfn) {
        self.cpu.touch_frame(pfn, self.node_of(pfn));
    }

    fn fill(&self, pfn: Pfn, _content: impl FnOnce(&mut Content) -> Result<()>) -> Result<()> {
        self.clear(Block { pfn, order: Order::ZERO });
        Ok(())
    }

    fn copy_out(&self, pfn: Pfn, _check: impl FnOnce(&Content) -> Result<()>) -> Result<()> {
        // All of the frame passes through the caches, as if it were cleared; the buffer is in them
        // already.
        self.clear(Block { pfn, order: Order::ZERO });
        self.cpu.charge(Key::ClearCachedNs);
        Ok(())
    }

    fn copy(&self, from: Block, to: Pfn) {
        self.clear(from);
        self.clear(Block { pfn: to, ..from });
    }

    fn restamp(&self, _block: Block, _from: u64, _to: u64) -> Result<()> {
        Ok(())
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
        self.cpu.start_measuring(self.shared.barrier);
        self.meter.clear(f64::INFINITY);
        self.unless_failed()
    }

    fn start_measuring_for(&self, ns: u64) -> Result<()> {
        self.cpu.start_measuring_for(self.shared.barrier, ns);
        self.meter.clear((self.cpu.now_ns() + ns) as f64);
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
    tasks: usize,
) -> Result<MemoryPlan> {
    // A sixteenth stays free for watermarks and per-CPU lists.
    let with_reserve = |frames: u64| frames + frames / 16;
    match work.memory() {
        Memory::Exactly(frames) => {
            MemoryPlan::exactly(spec, given, frames.get() * FRAME_BYTES, W::SIZE)
        }
        Memory::AtLeast(frames) => {
            let plan = MemoryPlan::new(spec, given)?;
            let needed = with_reserve(frames.get());
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
        Memory::Near(frames) => {
            let plan = MemoryPlan::new(spec, given)?;
            let node_of = |task: usize| spec.node_of(CpuId::new(task as u32)).index();
            for node in 0..spec.cpu_nodes() {
                let tasks = (0..tasks).filter(|&task| node_of(task) == node).count() as u64;
                let needed = with_reserve(tasks * frames.get());
                ensure!(
                    needed <= plan.node_frames(node),
                    "the tasks on node {node} of {} need {}, but it has {}: lower --cpus or --set \
                     {}, or raise node_memory",
                    spec.name(),
                    ByteSize(needed * FRAME_BYTES),
                    ByteSize(plan.node_frames(node) * FRAME_BYTES),
                    W::SIZE
                );
            }
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
    let lists = work.lru().map(|lru_plan| {
        let (config, settings) = (plan.config(), lru_plan.settings());
        let costs = lru_costs(cell.assignments)?;
        let keeper = SimKeeper::new(&lru_plan, &frames, cell.cpus);
        let lru = SimLru::new(&mut machine, Sim, &config, &settings, costs, keeper)?;
        anyhow::Ok(Lists::new(lru, &lru_plan)?)
    });
    let node_of = |task: usize| cell.spec.node_of(CpuId::new(task as u32));
    let rings = work.rings();
    let rings = rings.iter().map(|ring| SimRing::new(&mut machine, ring, node_of(ring.receiver)));
    let shared = Rc::new(Shared {
        rings: rings.collect(),
        work,
        frames,
        lists: lists.transpose()?,
        node_ends: plan.node_ends().to_vec(),
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
    let ended = Ended {
        allocator: &*shared.frames,
        managed: plan.frames(),
        elapsed_ns: Some(report.elapsed_ns),
        yardstick: None,
        returned,
    };
    let finished = ended.finish(&shared.work, || {
        let Some(lists) = &shared.lists else { return Ok(()) };
        lists.empty()?;
        for pfn in (0..cell.cpus).flat_map(|cpu| lists.lru.owner().take_released(cpu)) {
            shared.frames.free(pfn, Order::ZERO)?;
        }
        Ok(())
    })?;
    Ok((Finished { metadata_bytes: plan.metadata_bytes(cell)?, ..finished }, report))
}

fn run_task<W: TaskWorkload>(shared: &Shared<W>, place: Place, cpu: &CpuHandle) {
    let task = SimTask { cpu, shared, place, meter: Meter::default() };
    let mut held = Vec::new();
    let outcome = shared.work.run(&task, &mut held);
    let outcome = outcome.map_err(|error| {
        shared.error.borrow_mut().get_or_insert(error);
        shared.failed.set(true);
    });
    let returned = Returned { outcome: outcome.ok(), held, calls: Some(task.meter.calls()) };
    shared.returned.borrow_mut()[place.index] = Some(returned);
}

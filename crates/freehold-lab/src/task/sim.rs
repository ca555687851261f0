//! Tasks on a simulated machine: the work of virtual CPUs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, ensure};
use bytesize::ByteSize;
use freehold::{CpuId, FrameCount, NodeId, Order, Pfn};
use freehold_lru::{GroupId, Lru};
use freehold_sim::{Barrier, CpuHandle, Key, Machine, Path, Report, Sim, SimLru, Spec};

use super::calls::Meter;
use super::lru::{AnyLru, Lists, LruPlan, ReclaimingFrames, SimKeeper};
use super::ring::{RingPlan, SimRing};
use super::workload::{Ended, Finished, Memory, Returned, TaskWorkload};
use super::{Block, Content, PAUSE_NS, Place, Task, abandoned};
use crate::cell::SimCell;
use crate::machine::FRAME_BYTES;
use crate::settings::Assignments;
use crate::sim::linux::lru_costs;
use crate::sim::memory::MemoryPlan;

/// What the tasks share, whatever their work: so a task is compiled once.
struct Ground {
    frames: Rc<dyn ReclaimingFrames>,
    lists: Option<Lists<SimLru<SimKeeper>>>,
    node_ends: Vec<u64>,
    rings: Vec<SimRing>,
    barrier: Barrier,
    failed: Cell<bool>,
    error: RefCell<Option<anyhow::Error>>,
}

/// The same, the work, and what has come of it.
struct Shared<W: TaskWorkload> {
    ground: Ground,
    work: W,
    returned: RefCell<Vec<Option<Returned<W::Outcome>>>>,
}

struct SimTask<'a> {
    cpu: &'a CpuHandle,
    ground: &'a Ground,
    place: Place,
    meter: Meter,
}

impl SimTask<'_> {
    fn unless_failed(&self) -> Result<()> {
        if self.ground.failed.get() { Err(abandoned()) } else { Ok(()) }
    }

    fn lists(&self) -> &Lists<SimLru<SimKeeper>> {
        self.ground.lists.as_ref().expect("the workload has planned an LRU")
    }

    fn node_of(&self, pfn: Pfn) -> NodeId {
        NodeId::new(self.ground.node_ends.partition_point(|&end| end <= pfn.get()) as u16)
    }
}

impl Task for SimTask<'_> {
    type Frames = dyn ReclaimingFrames;
    type Platform = Sim;
    type Owner = SimKeeper;

    fn place(&self) -> Place {
        self.place
    }

    fn allocator(&self) -> &Self::Frames {
        &*self.ground.frames
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
        self.cpu.wait(self.ground.barrier);
        self.unless_failed()
    }

    fn start_measuring(&self) -> Result<()> {
        self.cpu.start_measuring(self.ground.barrier);
        self.meter.clear(f64::INFINITY);
        self.unless_failed()
    }

    fn start_measuring_for(&self, ns: u64) -> Result<()> {
        self.cpu.start_measuring_for(self.ground.barrier, ns);
        self.meter.clear((self.cpu.now_ns() + ns) as f64);
        self.unless_failed()
    }

    fn try_send(&self, ring: usize, frames: &[Pfn]) -> usize {
        self.ground.rings[ring].try_send(self.cpu, frames)
    }

    fn try_receive(&self, ring: usize, frames: &mut [Pfn]) -> usize {
        self.ground.rings[ring].try_receive(self.cpu, frames)
    }

    fn leave(&self, ring: usize) {
        self.ground.rings[ring].leave(self.cpu);
    }

    fn is_closed(&self, ring: usize) -> bool {
        self.ground.rings[ring].is_closed(self.cpu)
    }
}

/// The memory of a workload that needs so much, by a setting of that name, if it suffices.
pub(super) fn plan(
    spec: &Spec,
    given: &Assignments,
    (needed, size): (Memory, &str),
    tasks: usize,
) -> Result<MemoryPlan> {
    if let Memory::Exactly(frames) = needed {
        return MemoryPlan::exactly(spec, given, frames.get() * FRAME_BYTES, size);
    }
    let plan = MemoryPlan::new(spec, given)?;
    let check = |who: &str, place: &str, frames: u64, there: u64| {
        // A sixteenth stays free for watermarks and per-CPU lists.
        let needed = ByteSize((frames + frames / 16) * FRAME_BYTES);
        let there = ByteSize(there * FRAME_BYTES);
        let lower = format!("lower --cpus or --set {size}, or raise node_memory");
        ensure!(needed <= there, "{who} need {needed}, but {place} has {there}: {lower}");
        Ok(())
    };
    match needed {
        Memory::Exactly(_) => {}
        Memory::AtLeast(all) => check("the tasks", spec.name(), all.get(), plan.frames().get())?,
        Memory::Near(frames) => {
            let node_of = |task: usize| spec.node_of(CpuId::new(task as u32)).index();
            for node in 0..spec.cpu_nodes() {
                let there = (0..tasks).filter(|&task| node_of(task) == node).count() as u64;
                let who = format!("the tasks on node {node} of {}", spec.name());
                check(&who, "it", there * frames.get(), plan.node_frames(node))?;
            }
        }
    }
    Ok(plan)
}

impl Ground {
    /// The ground of a cell's tasks, on a machine of its own.
    fn new(
        cell: &SimCell<'_>,
        plan: &MemoryPlan,
        lru: Option<&LruPlan>,
        rings: &[RingPlan],
    ) -> Result<(Machine, Self)> {
        let mut machine = Machine::new(cell.spec, cell.seed)?;
        let frames = plan.build(&mut machine, cell)?;
        let lists = lru.map(|lru_plan| {
            let (config, settings) = (plan.config(), lru_plan.settings());
            let costs = lru_costs(cell.assignments)?;
            let keeper = SimKeeper::new(lru_plan, &frames, cell.cpus);
            let lru = SimLru::new(&mut machine, Sim, &config, &settings, costs, keeper)?;
            anyhow::Ok(Lists::new(lru, lru_plan)?)
        });
        let node_of = |task: usize| cell.spec.node_of(CpuId::new(task as u32));
        let rings =
            rings.iter().map(|ring| SimRing::new(&mut machine, ring, node_of(ring.receiver)));
        let ground = Ground {
            rings: rings.collect(),
            frames,
            lists: lists.transpose()?,
            node_ends: plan.node_ends().to_vec(),
            barrier: machine.barrier(cell.cpus),
            failed: Cell::new(false),
            error: RefCell::new(None),
        };
        Ok((machine, ground))
    }

    /// Takes all frames off their lists and frees what is left to tasks, at a time when none runs.
    fn empty_lists(&self, tasks: usize) -> Result<()> {
        let Some(lists) = &self.lists else { return Ok(()) };
        lists.empty()?;
        for pfn in (0..tasks).flat_map(|cpu| lists.lru.owner().take_released(cpu)) {
            self.frames.free(pfn, Order::ZERO)?;
        }
        Ok(())
    }
}

/// Runs the tasks of a cell.
pub(super) fn run<W: TaskWorkload>(
    cell: &SimCell<'_>,
    plan: &MemoryPlan,
    work: W,
) -> Result<(Finished, Report)> {
    let (mut machine, ground) = Ground::new(cell, plan, work.lru().as_ref(), &work.rings())?;
    let returned = RefCell::new((0..cell.cpus).map(|_| None).collect());
    let shared = Rc::new(Shared { ground, work, returned });
    for index in 0..cell.cpus {
        let shared = Rc::clone(&shared);
        let place = Place { index, seed: cell.seed };
        machine.spawn(index, move |cpu| run_task(&shared, place, cpu));
    }
    let report = machine.run();
    let ground = &shared.ground;
    // To the machine, tasks that wait for one that has failed are a deadlock.
    if let Some(error) = ground.error.take() {
        return Err(error.context("a task could not go on"));
    }
    let report = report?;
    let returned: Vec<_> = shared.returned.take().into_iter().flatten().collect();
    let ended = Ended {
        allocator: &*ground.frames,
        managed: plan.frames(),
        elapsed_ns: Some(report.elapsed_ns),
        yardstick: None,
        returned,
    };
    let finished = ended.finish(&shared.work, || ground.empty_lists(cell.cpus))?;
    Ok((Finished { metadata_bytes: plan.metadata_bytes(cell)?, ..finished }, report))
}

fn run_task<W: TaskWorkload>(shared: &Shared<W>, place: Place, cpu: &CpuHandle) {
    let ground = &shared.ground;
    let task = SimTask { cpu, ground, place, meter: Meter::default() };
    let mut held = Vec::new();
    let outcome = shared.work.run(&task, &mut held);
    let outcome = outcome.map_err(|error| {
        ground.error.borrow_mut().get_or_insert(error);
        ground.failed.set(true);
    });
    let returned = Returned { outcome: outcome.ok(), held, calls: Some(task.meter.calls()) };
    shared.returned.borrow_mut()[place.index] = Some(returned);
}

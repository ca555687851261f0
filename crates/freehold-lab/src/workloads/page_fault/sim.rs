//! On a simulated machine: the whole fault is charged, and where the time goes is accounted.
//!
//! The tasks begin together, as the benchmark's do, which its parent releases at one time. They do
//! one pass to warm up, and then so many while time is taken. Under a lock that serves in order
//! they stay together. For comparison they can be spread evenly over a pass instead.
//!
//! Work outside the allocator is charged by the machine's table, but for the lists of recently used
//! pages and the memory groups: these are the library's (`lru`), so a fault charges its group and
//! puts its page into a batch, and an unmapping takes pages off their lists in batches.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, anyhow, ensure};
use bytesize::ByteSize;
use freehold::{CpuId, Error, Order, Pfn, Request, Setting};
use freehold_sim::{CpuHandle, Key, Machine, Path};
use serde_json::json;

use super::lists::{self, PageLists};
use super::sim_pages::Pages;
use super::task_frames;
use crate::books::check_all_back;
use crate::cell::{Measured, SimCell};
use crate::frames::Frames;
use crate::machine::FRAME_BYTES;
use crate::report::document::Work;
use crate::settings::Assignments;
use crate::sim::memory::MemoryPlan;
use crate::sim::result::{details, standard_fields};

/// The settings of the workload on simulated machines.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "passes",
        values: "1..=1000",
        default: "1",
        meaning: "passes over its memory that each task does while time is taken",
    },
    Setting {
        name: "start",
        values: "together|spread",
        default: "together",
        meaning: "tasks begin at one time, as the benchmark's do, or spread over a pass",
    },
    Setting {
        name: "fault",
        values: "whole|touch|none",
        default: "whole",
        meaning: "what a fault is beside its allocation: all of it, one touch, or nothing",
    },
];

struct Options {
    task_frames: usize,
    passes: usize,
    together: bool,
    fault: Fault,
    lists: Option<PageLists>,
}

/// What a fault is besides an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Whole,
    Touch,
    Nothing,
}

const FAULTS: [(&str, Fault); 3] =
    [("whole", Fault::Whole), ("touch", Fault::Touch), ("none", Fault::Nothing)];

impl Options {
    fn parse(given: &Assignments) -> Result<Self> {
        Ok(Options {
            task_frames: task_frames(given)?,
            passes: given.number(SETTINGS, "passes", 1..=1000)?,
            together: given.word(SETTINGS, "start", &[("together", true), ("spread", false)])?,
            fault: given.word(SETTINGS, "fault", &FAULTS)?,
            lists: PageLists::parse(given, lists::ON_SIM)?,
        })
    }

    /// Where a task stands when measuring begins.
    fn phase_of(&self, task: usize) -> Phase {
        if self.together {
            return Phase::Emptying(self.task_frames);
        }
        // Multiples of the golden ratio spread the tasks evenly, neighbours far apart.
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let point = (task as f64 * GOLDEN).fract() * 2.0;
        let part = (point.fract() * self.task_frames as f64) as usize;
        if point < 1.0 { Phase::Filling(part) } else { Phase::Emptying(part) }
    }
}

/// Runs one cell on a simulated machine.
pub(super) fn run(cell: &SimCell<'_>) -> Result<Measured> {
    let options = Options::parse(cell.assignments)?;
    let plan = Rc::new(MemoryPlan::new(cell.spec, cell.assignments)?);
    check_room(cell, &plan, options.task_frames)?;
    let mut machine = Machine::new(cell.spec, cell.seed)?;
    let frames = plan.build(&mut machine, cell)?;
    let start = machine.barrier(cell.cpus);
    let lists = options.lists.filter(|_| options.fault == Fault::Whole);
    let config = plan.config();
    let pages =
        lists.map(|lists| Pages::new(&mut machine, &config, lists, cell.cpus)).transpose()?;
    let shared = Rc::new(Shared {
        frames: Rc::clone(&frames),
        plan: Rc::clone(&plan),
        fault: options.fault,
        pages,
        rates: RefCell::new(vec![0.0; cell.cpus]),
        left: RefCell::new(Vec::new()),
        error: Cell::new(None),
    });
    for cpu in 0..cell.cpus {
        let shared = Rc::clone(&shared);
        let begin = options.phase_of(cpu);
        let ops = options.task_frames * options.passes;
        machine.spawn(cpu, move |handle| {
            let mut task = Task::new(handle, &shared, cpu, options.task_frames);
            let warmed = task.warm_up(begin);
            handle.start_measuring(start);
            let began_ns = handle.now_ns();
            if let Err(error) = warmed.and_then(|()| task.work(ops)) {
                shared.error.set(Some(error));
            }
            let elapsed_ns = (handle.now_ns() - began_ns).max(1);
            shared.rates.borrow_mut()[cpu] = ops as f64 * 1e9 / elapsed_ns as f64;
            shared.left.borrow_mut().extend(task.held.drain(..));
        });
    }
    let report = machine.run()?;
    if let Some(error) = shared.error.get() {
        return Err(anyhow!(error).context("a task could not go on"));
    }
    let state = frames.snapshot();
    // Outside virtual time: what the tasks still hold goes back.
    let left = match &shared.pages {
        Some(pages) => pages.unmap_all(&shared.left.borrow())?,
        None => shared.left.take(),
    };
    for pfn in left {
        frames.free(pfn, Order::ZERO)?;
    }
    check_all_back(&*frames, plan.frames())?;

    let per_second: f64 = shared.rates.borrow().iter().sum();
    let count = (options.task_frames * options.passes * cell.cpus) as u64;
    let work = Work { unit: "faults", count, seconds: report.elapsed_ns / 1e9, per_second };
    let mut specific = details(&report)?;
    specific.insert("fault_ns".to_owned(), json!(cell.cpus as f64 * 1e9 / per_second));
    specific.insert("task_bytes".to_owned(), json!(options.task_frames as u64 * FRAME_BYTES));
    specific.insert("frame_record_bytes".to_owned(), json!(plan.frame_record_bytes()));
    specific.insert("node_bytes".to_owned(), json!(plan.node_frames() * FRAME_BYTES));
    let events = frames.events();
    let books = json!({"allocated": events.allocated.get(), "freed": events.freed.get()});
    specific.insert("books".to_owned(), books);
    let simulated = Some(standard_fields(&report));
    Ok(Measured { work, simulated, fragmentation: None, state, specific })
}

fn check_room(cell: &SimCell<'_>, plan: &MemoryPlan, task_frames: usize) -> Result<()> {
    for node in 0..cell.spec.nodes() {
        let near = |cpu: &usize| cell.spec.node_of(CpuId::new(*cpu as u32)).index() == node;
        let tasks = (0..cell.cpus).filter(near).count() as u64;
        let needed = tasks * task_frames as u64;
        // A sixteenth stays free for watermarks and per-CPU lists.
        ensure!(
            needed + needed / 16 <= plan.node_frames(),
            "the tasks on node {node} of {} need {}, but it has {}: lower --cpus or --set \
             task_bytes, or raise node_memory",
            cell.spec.name(),
            ByteSize((needed + needed / 16) * FRAME_BYTES),
            ByteSize(plan.node_frames() * FRAME_BYTES)
        );
    }
    Ok(())
}

/// Where in a pass a task stands when measuring begins.
#[derive(Clone, Copy)]
enum Phase {
    /// It has faulted in so many frames and goes on.
    Filling(usize),
    /// It has faulted in all and given so many back.
    Emptying(usize),
}

/// What the tasks share.
struct Shared {
    frames: Rc<dyn Frames>,
    plan: Rc<MemoryPlan>,
    fault: Fault,
    pages: Option<Pages>,
    /// Faults a second of virtual time, by task.
    rates: RefCell<Vec<f64>>,
    /// What the tasks hold at the end.
    left: RefCell<Vec<Pfn>>,
    error: Cell<Option<Error>>,
}

struct Task<'a> {
    handle: &'a CpuHandle,
    shared: &'a Shared,
    number: usize,
    task_frames: usize,
    /// The frames of the mapping, in the order of their addresses.
    held: Vec<Pfn>,
    /// How many of them, from the front, have been given back.
    freed: usize,
}

impl<'a> Task<'a> {
    fn new(handle: &'a CpuHandle, shared: &'a Shared, number: usize, task_frames: usize) -> Self {
        let held = Vec::with_capacity(task_frames);
        Task { handle, shared, number, task_frames, held, freed: 0 }
    }

    /// Comes to the point at which the task begins.
    fn warm_up(&mut self, begin: Phase) -> Result<(), Error> {
        let (faults, frees) = match begin {
            Phase::Filling(faults) => (faults, 0),
            Phase::Emptying(frees) => (self.task_frames, frees),
        };
        for _ in 0..faults {
            self.fault()?;
        }
        let mut left = frees;
        while left > 0 {
            left -= self.unmap(left)?;
        }
        Ok(())
    }

    /// Does so many faults and as many frees, pass after pass.
    fn work(&mut self, ops: usize) -> Result<(), Error> {
        let (mut faults, mut frees) = (0, 0);
        while faults < ops || frees < ops {
            while self.freed == 0 && self.held.len() < self.task_frames && faults < ops {
                self.fault()?;
                faults += 1;
            }
            while self.freed < self.held.len() && frees < ops {
                frees += self.unmap(ops - frees)?;
            }
            if self.freed == self.held.len() {
                self.held.clear();
                self.freed = 0;
            }
        }
        self.held.drain(..self.freed);
        Ok(())
    }

    fn fault(&mut self) -> Result<(), Error> {
        let (handle, shared) = (self.handle, self.shared);
        self.charge(&[Key::TrapNs, Key::FaultPathNs, Key::FaultRestNs]);
        let pfn = handle.timed(Path::Alloc, || shared.frames.alloc(Request::default()))?;
        let node = shared.plan.node_of(pfn);
        match shared.fault {
            Fault::Whole => handle.clear_frame(pfn, node),
            Fault::Touch => handle.touch_frame(pfn, node),
            Fault::Nothing => {}
        }
        self.charge(&[Key::PageTableNs]);
        match &shared.pages {
            Some(pages) => pages.map(pfn, self.number)?,
            None => self.charge(&[Key::AccountingNs]),
        }
        self.held.push(pfn);
        Ok(())
    }

    /// Unmaps some pages, and at most so many; returns how many they were.
    fn unmap(&mut self, most: usize) -> Result<usize, Error> {
        let (handle, shared) = (self.handle, self.shared);
        let batch = shared.pages.as_ref().map_or(1, |_| PageLists::UNMAPPED_MAX);
        let pages = &self.held[self.freed..];
        let pages = &pages[..batch.min(most).min(pages.len())];
        for _ in pages {
            self.charge(&[Key::UnmapNs, Key::UnmapRestNs]);
        }
        let unlisted = match &shared.pages {
            Some(lists) => lists.unmap(pages, self.number)?,
            None => {
                self.charge(&[Key::AccountingNs]);
                pages.to_vec()
            }
        };
        for pfn in unlisted {
            handle.timed(Path::Free, || shared.frames.free(pfn, Order::ZERO))?;
        }
        let count = pages.len();
        self.freed += count;
        Ok(count)
    }

    /// Does work outside the allocator.
    fn charge(&self, works: &[Key]) {
        if self.shared.fault == Fault::Whole {
            works.iter().for_each(|&work| self.handle.charge(work));
        }
    }
}

//! On a simulated machine: system call, copy and the clearing of sparse blocks are charged, and the
//! page cache's index, which readers of one file share, is not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Error, Result};
use freehold::lru::GroupId;
use freehold::{Order, Pfn, Request};
use freehold_sim::{CpuHandle, Key, Machine, Path, Sim, SimLru, Spec};
use serde_json::json;

use super::cache::{Files, Ground, finish, make_groups, read, settings};
use super::{Options, fields, files_of};
use crate::books::check_all_back;
use crate::cell::{Measured, SimCell};
use crate::frames::Frames;
use crate::report::document::Work;
use crate::settings::Assignments;
use crate::sim::memory::MemoryPlan;
use crate::sim::result::{details, standard_fields};

/// The setting that a machine with too little memory asks to lower.
const SIZE: &str = "share_bytes";

/// The memory of a machine on which so many CPUs read.
pub(super) fn plan(
    spec: &Spec,
    given: &Assignments,
    options: &Options,
    cpus: usize,
) -> Result<MemoryPlan> {
    MemoryPlan::exactly(spec, given, options.memory_bytes(cpus), SIZE)
}

type Free = Box<dyn Fn(&[Pfn])>;

/// What the readers share.
struct Shared {
    frames: Rc<dyn Frames>,
    plan: MemoryPlan,
    lru: SimLru<Files<Free>>,
    groups: Vec<GroupId>,
    options: Options,
    cpus: usize,
    /// Blocks a second of virtual time, by CPU.
    rates: RefCell<Vec<f64>>,
    /// Blocks that were found cached while time was taken.
    hits: Cell<u64>,
    error: RefCell<Option<Error>>,
}

/// One CPU.
struct Reader<'a> {
    handle: &'a CpuHandle,
    shared: &'a Shared,
}

impl Ground for Reader<'_> {
    fn alloc(&self) -> Result<Pfn, freehold::Error> {
        self.handle.timed(Path::Alloc, || self.shared.frames.alloc(Request::default()))
    }

    /// A block of a sparse file that was never written is cleared.
    fn fill(&self, frame: Pfn, _block: u64) -> Result<()> {
        self.handle.clear_frame(frame, self.shared.plan.node_of(frame));
        Ok(())
    }

    fn copy(&self, frame: Pfn, _block: u64) -> Result<()> {
        self.handle.touch_frame(frame, self.shared.plan.node_of(frame));
        // Copying moves a page through the caches, as clearing does.
        self.handle.charge(Key::ClearCachedNs);
        Ok(())
    }

    fn pause(&self) {
        self.handle.charge(Key::PauseNs);
        self.handle.in_order();
    }
}

impl Reader<'_> {
    /// Reads a part of the two files of this CPU, in turns; returns how many blocks were cached.
    fn read(&self, cpu: usize, blocks: std::ops::Range<u64>) -> Result<u64> {
        let (shared, mut hits) = (self.shared, 0);
        for block in blocks {
            for file in files_of(cpu, shared.cpus) {
                let group = shared.groups[file % shared.groups.len()];
                let block = file as u64 * shared.options.file_blocks + block;
                self.handle.charge(Key::TrapNs);
                hits += u64::from(read(&shared.lru, group, block, self)?);
            }
        }
        Ok(hits)
    }
}

/// Runs one cell on a simulated machine.
pub(super) fn run(cell: &SimCell<'_>) -> Result<Measured> {
    let options = Options::parse(cell.assignments)?;
    let plan = plan(cell.spec, cell.assignments, &options, cell.cpus)?;
    let mut machine = Machine::new(cell.spec, cell.seed)?;
    let frames = plan.build(&mut machine, cell)?;
    let of_allocator = Rc::clone(&frames);
    let free: Free = Box::new(move |freed| {
        for &frame in freed {
            of_allocator.free(frame, Order::ZERO).expect("it was allocated for the cache");
        }
    });
    let blocks = options.file_blocks * cell.cpus as u64;
    let files = Files::new(blocks, plan.frames(), free);
    let settings = settings(&options, cell.cpus);
    let lru = SimLru::new(&mut machine, Sim, &plan.config(), &settings, files)?;
    let groups = make_groups(&lru, &options, cell.cpus)?;
    let shared = Rc::new(Shared {
        frames,
        plan,
        lru,
        groups,
        options,
        cpus: cell.cpus,
        rates: RefCell::new(vec![0.0; cell.cpus]),
        hits: Cell::new(0),
        error: RefCell::new(None),
    });
    let start = machine.barrier(cell.cpus);
    // Until the groups are full, nothing is reclaimed.
    let warm_up = options.share_frames.min(options.file_blocks / 2);
    for cpu in 0..cell.cpus {
        let shared = Rc::clone(&shared);
        machine.spawn(cpu, move |handle| {
            let reader = Reader { handle, shared: &shared };
            let warmed = reader.read(cpu, 0..warm_up);
            handle.start_measuring(start);
            let began_ns = handle.now_ns();
            match warmed.and_then(|_| reader.read(cpu, warm_up..options.file_blocks)) {
                Ok(hits) => shared.hits.set(shared.hits.get() + hits),
                Err(error) => _ = shared.error.borrow_mut().get_or_insert(error),
            }
            let elapsed_ns = (handle.now_ns() - began_ns).max(1);
            let reads = 2 * (options.file_blocks - warm_up);
            shared.rates.borrow_mut()[cpu] = reads as f64 * 1e9 / elapsed_ns as f64;
        });
    }
    let report = machine.run()?;
    if let Some(error) = shared.error.borrow_mut().take() {
        return Err(error.context("a reader could not go on"));
    }
    let state = shared.frames.snapshot();
    finish(&shared.lru)?;
    check_all_back(&*shared.frames, shared.plan.frames())?;

    let per_second: f64 = shared.rates.borrow().iter().sum();
    let reads = 2 * (options.file_blocks - warm_up) * cell.cpus as u64;
    let work = Work { unit: "reads", count: reads, seconds: report.elapsed_ns / 1e9, per_second };
    let mut specific = details(&report)?;
    specific.extend(fields(&options, cell.cpus, shared.hits.get(), reads));
    specific.insert("read_ns".to_owned(), json!(cell.cpus as f64 * 1e9 / per_second));
    specific.insert("frame_record_bytes".to_owned(), json!(shared.plan.frame_record_bytes()));
    let simulated = Some(standard_fields(&report));
    Ok(Measured { work, simulated, fragmentation: None, state, specific })
}

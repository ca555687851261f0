//! `page-fault`: what will-it-scale's page_fault1 asks of a page allocator.
//!
//! The benchmark maps 128 MiB of anonymous memory, writes one byte to each page, unmaps it, and
//! begins again. So each task allocates order-0 frames one at a time and writes one byte into
//! each, then frees them in the same order. Source: antonblanchard/will-it-scale,
//! `tests/page_fault1.c`.
//!
//! On the host, samples are taken of tasks that go on and on (`samples`); on simulated machines,
//! time is taken of so many passes over the memory (`passes`). What a fault is, is the same on both
//! (`mapping`).

use anyhow::Result;
use freehold::{FrameCount, Setting};
use freehold_host::FrameArena;

use crate::host::HostDesign;
use crate::machine::Machine;
use crate::report::document::RunResult;
use crate::report::figure::{Figure, LOCK_PAIR_NS, PAIR_NS};
use crate::settings::{Assignments, setting};
use crate::sim::linux::LRU_SETTINGS;
use crate::task::lru::{Frees, LruPlan};
use crate::task::meeting::Watch;
use crate::task::page_lists::PageLists;
use crate::task::workload::{
    Besides, Findings, Finished, HostRun, Memory, Setup, TaskWorkload, frames_of,
};
use crate::task::{Block, Task};
use crate::workload::{Brief, SettingTable};

mod mapping;
mod passes;
mod samples;
mod tables;

use mapping::{Fault, Mapping};
use passes::Passes;
use samples::Samples;

const SETTINGS: &[Setting] =
    &[setting("task_bytes", "a size of at least one frame, such as 128MiB", "128MiB")
        .means("memory that each task faults in before it gives all of it back")];

/// What `freehold compare` sets otherwise on the host, to be done in seconds: as many samples as
/// `freehold diff` takes, and shorter ones.
const BRIEF_ON_HOST: &[(&str, &str)] = &[("samples", "5"), ("sample_ms", "200")];

/// What `freehold compare` sets otherwise on simulated machines. Tasks and memory shrink alike,
/// since designs size their per-CPU lists by the memory: with less memory for as large a task, the
/// lists of `pcp=auto` would not hold what they hold in a whole run. Contestants that are 1 % apart
/// keep their order; rates come out 3 to 5 % higher, and up to 12 % with `pcp=fixed`.
const BRIEF_ON_SIM: &[(&str, &str)] = &[("task_bytes", "8MiB"), ("node_memory", "1/16")];

/// The workload.
pub(crate) struct PageFault {
    tasks: usize,
    task_frames: usize,
    lists: Option<PageLists>,
    measured: Measured,
}

/// What is measured on each kind of machine.
enum Measured {
    Passes(Passes),
    Samples(Samples),
}

impl TaskWorkload for PageFault {
    const SETTINGS: SettingTable = ("page-fault", SETTINGS);
    const ON_HOST: &'static [SettingTable] =
        &[("page-fault, host", samples::SETTINGS), ("page-fault LRU, host", mapping::ON_HOST)];
    const ON_SIM: &'static [SettingTable] = &[
        ("page-fault, simulated", passes::SETTINGS),
        ("page-fault LRU, simulated", mapping::ON_SIM),
        ("simulated LRU", LRU_SETTINGS),
    ];
    const USES_LRU: bool = true;
    const FRAGMENTS: bool = false;
    const FIGURES: &'static [Figure] = &[
        Figure::aside("fault_ns", "/workload_specific/fault_ns"),
        Figure::cost("allocator_ns", "/workload_specific/allocator_ns")
            .of_samples("/workload_specific/samples_allocator_ns"),
        Figure::aside("touch_ns", "/workload_specific/touch_ns"),
        Figure::aside("lru_ns", "/workload_specific/lru_ns"),
        Figure::aside("spread_share", "/workload_specific/spread"),
        Figure::aside("lru_lock_wait_share", "/time_share/lru_lock"),
        PAIR_NS,
        LOCK_PAIR_NS,
    ];
    const SIZE: &'static str = "task_bytes";
    const BRIEF: Brief = Brief { on_host: BRIEF_ON_HOST, on_sim: BRIEF_ON_SIM };
    /// Faults a second of virtual time; 0 on the host, where samples are taken of all tasks.
    type Outcome = f64;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let Setup { given, tasks, simulated } = *setup;
        let table = if simulated { mapping::ON_SIM } else { mapping::ON_HOST };
        let lists = PageLists::parse(given, table)?;
        let (lists, measured) = if simulated {
            let passes = Passes::parse(given)?;
            // Lists are a part of a whole fault.
            (lists.filter(|_| passes.fault == Fault::Whole), Measured::Passes(passes))
        } else {
            let samples = Samples::parse(given, lists.is_some(), tasks)?;
            (lists, Measured::Samples(samples))
        };
        let task_frames = frames_of(given, SETTINGS, "task_bytes")? as usize;
        Ok(PageFault { tasks, task_frames, lists, measured })
    }

    fn memory(&self) -> Memory {
        Memory::Near(FrameCount::new(self.task_frames as u64))
    }

    fn lru(&self) -> Option<LruPlan> {
        // On the host, calls are too short for a task to collect what it will free.
        let frees = match self.measured {
            Measured::Passes(_) => Frees::OneByOne,
            Measured::Samples(_) => Frees::AtOnce,
        };
        self.lists.as_ref().map(|lists| lists.plan(self.tasks, frees))
    }

    fn huge_pages(&self) -> bool {
        matches!(&self.measured, Measured::Samples(samples) if samples.huge_pages)
    }

    fn steps(given: &Assignments) -> Result<u64> {
        let lists = PageLists::parse(given, mapping::ON_HOST)?;
        Ok(Samples::parse(given, lists.is_some(), 1)?.steps())
    }

    fn run_on_host<D: HostDesign>(run: &impl HostRun, arena: &FrameArena<D>) -> Result<Finished> {
        run.directly(arena)
    }

    fn watch(&self, watch: &Watch<'_>) {
        if let Measured::Samples(samples) = &self.measured {
            samples.take(watch);
        }
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<f64> {
        let gather = self.lists.as_ref().map(|lists| lists.gather);
        let mut mapping = Mapping::new(task, self.task_frames, gather);
        let per_second = match &self.measured {
            Measured::Passes(passes) => passes.run(&mut mapping)?,
            Measured::Samples(samples) => samples.run(&mut mapping)?,
        };
        match &self.lists {
            Some(lists) if mapping.is_listed() => lists.keep(mapping.mapped()),
            _ => held.extend(mapping.mapped().iter().map(|&pfn| mapping::block(pfn))),
        }
        Ok(per_second)
    }

    fn sum_up(&self, outcomes: &[f64], besides: &Besides) -> Findings {
        match &self.measured {
            Measured::Passes(passes) => passes.sum_up(self.task_frames, outcomes, besides),
            Measured::Samples(samples) => samples.sum_up(self.task_frames, besides),
        }
    }

    fn show(results: &[RunResult], machine: &Machine) -> Result<()> {
        match machine {
            Machine::Host => tables::print_host(results),
            Machine::Sim(_) => tables::print_sim(results),
        }
    }
}

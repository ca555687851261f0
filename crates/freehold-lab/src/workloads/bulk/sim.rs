//! On a simulated machine: one machine for each choice, and on each the steps one after the other,
//! on every CPU at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, anyhow};
use freehold::{Error, Pfn, Setting};
use freehold_host::Snapshot;
use freehold_sim::{CpuHandle, Machine, Path, Report, Spec};
use serde_json::json;

use super::ways::{STEPS, Times, WAYS, Way, sum_up, variants};
use crate::books::check_all_back;
use crate::cell::{Measured, SimCell};
use crate::frames::Frames;
use crate::report::document::Work;
use crate::settings::{Assignments, setting};
use crate::sim::memory::MemoryPlan;
use crate::sim::result::{details, standard_fields};

/// The settings of the workload on simulated machines.
pub(super) const SETTINGS: &[Setting] = &[setting("step_frames", "128..=1000000", "2048")
    .means("frames that each task allocates and frees for one step, after as many to warm up")];

/// Memory of each node: enough for batches of the usual size.
const NODE_BYTES: u64 = 1 << 30;

/// The memory of the machine.
pub(super) fn memory(spec: &Spec, given: &Assignments) -> Result<MemoryPlan> {
    MemoryPlan::exactly(spec, given, NODE_BYTES * spec.nodes() as u64, "step_frames")
}

/// How many frames each task allocates and frees for one step.
pub(super) fn step_frames(given: &Assignments) -> Result<usize> {
    given.number(SETTINGS, "step_frames", 128..=1_000_000)
}

/// Runs one cell on simulated machines.
pub(super) fn run(cell: &SimCell<'_>) -> Result<Measured> {
    let step_frames = step_frames(cell.assignments)?;
    let (mut of_variants, mut elapsed_ns, mut last) = (Vec::new(), 0.0, None);
    let variants = variants(cell.assignments, cell.design.settings())?;
    for variant in &variants {
        let cell = SimCell { assignments: &variant.assignments, ..*cell };
        let (samples, report, state) = run_variant(&cell, step_frames)?;
        of_variants.push(json!({
            "name": variant.name,
            "steps": serde_json::to_value(sum_up(&samples))?,
            "irq_off": {"share": report.irq_off.share, "ns_max": report.irq_off.ns_max},
        }));
        elapsed_ns += report.elapsed_ns;
        last = Some((report, state));
    }
    // The last choice is the design as it is by default.
    let (report, state) = last.ok_or_else(|| anyhow!("there is nothing to run"))?;
    let per_step = STEPS.iter().map(|step| (step_frames / step * step) as u64).sum::<u64>();
    let count = per_step * (2 * WAYS.len() * cell.cpus * variants.len()) as u64;
    let mut specific = details(&report)?;
    specific.insert("variants".to_owned(), json!(of_variants));
    specific.insert("step_frames".to_owned(), json!(step_frames));
    let simulated = Some(standard_fields(&report));
    let work = Work::of("frames", count, elapsed_ns / 1e9);
    Ok(Measured { work, simulated, fragmentation: None, state, specific })
}

/// What the tasks share.
struct Shared {
    frames: Rc<dyn Frames>,
    times: RefCell<Vec<Times>>,
    error: Cell<Option<Error>>,
}

fn run_variant(cell: &SimCell<'_>, step_frames: usize) -> Result<(Vec<Times>, Report, Snapshot)> {
    let plan = memory(cell.spec, cell.assignments)?;
    let mut machine = Machine::new(cell.spec, cell.seed)?;
    let frames: Rc<dyn Frames> = plan.build(&mut machine, cell)?;
    let barrier = machine.barrier(cell.cpus);
    let times = RefCell::new(vec![Times::default(); cell.cpus]);
    let shared = Rc::new(Shared { frames: Rc::clone(&frames), times, error: Cell::new(None) });
    for cpu in 0..cell.cpus {
        let shared = Rc::clone(&shared);
        machine.spawn(cpu, move |handle| {
            for (at, step) in STEPS.into_iter().enumerate() {
                for way in WAYS {
                    handle.wait(barrier);
                    let loops = step_frames / step;
                    let result = repeat(handle, &*shared.frames, way, step, loops)
                        .and_then(|_| repeat(handle, &*shared.frames, way, step, loops));
                    match result {
                        Ok(ns) => shared.times.borrow_mut()[cpu][at][way as usize] = ns,
                        Err(error) => shared.error.set(Some(error)),
                    }
                }
            }
        });
    }
    let report = machine.run()?;
    if let Some(error) = shared.error.get() {
        return Err(anyhow!(error).context("a task could not go on"));
    }
    let state = frames.snapshot();
    check_all_back(&*frames, plan.frames())?;
    let samples = shared.times.borrow().clone();
    Ok((samples, report, state))
}

/// Allocates and frees `step` frames so many times; returns the time of one frame in ns.
fn repeat(
    handle: &CpuHandle,
    frames: &dyn Frames,
    way: Way,
    step: usize,
    loops: usize,
) -> Result<f64, Error> {
    let mut held = vec![Pfn::default(); step];
    let began = handle.now_ps();
    for _ in 0..loops {
        handle.on_path(Path::Alloc, || way.alloc(frames, &mut held))?;
        handle.on_path(Path::Free, || way.free(frames, &held))?;
    }
    Ok((handle.now_ps() - began) as f64 / 1e3 / (loops * step) as f64)
}

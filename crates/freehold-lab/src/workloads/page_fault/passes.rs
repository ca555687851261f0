//! On a simulated machine: the whole fault is charged, and where the time goes is accounted.
//!
//! The tasks begin together, as the benchmark's do, which its parent releases at one time. They do
//! one pass to warm up, and then so many while time is taken. Under a lock that serves in order
//! they stay together. For comparison they can be spread evenly over a pass instead.

use anyhow::Result;
use freehold::Setting;
use serde_json::json;

use super::mapping::{Fault, Mapping};
use crate::machine::FRAME_BYTES;
use crate::report::document::Work;
use crate::settings::{Assignments, setting};
use crate::task::Task;
use crate::task::workload::{Besides, Findings};

/// The settings of the workload on simulated machines.
pub(super) const SETTINGS: &[Setting] = &[
    setting("passes", "1..=1000", "1")
        .means("passes over its memory that each task does while time is taken"),
    setting("start", "together|spread", "together")
        .means("tasks begin at one time, as the benchmark's do, or spread over a pass"),
    setting("fault", "whole|touch|none", "whole")
        .means("what a fault is beside its allocation: all of it, one touch, or nothing"),
];

/// What the settings say.
pub(super) struct Passes {
    passes: usize,
    together: bool,
    pub(super) fault: Fault,
}

/// Where in a pass a task stands when measuring begins.
#[derive(Clone, Copy)]
enum Phase {
    /// It has faulted in so many frames and goes on.
    Filling(usize),
    /// It has faulted in all and given so many back.
    Emptying(usize),
}

impl Passes {
    pub(super) fn parse(given: &Assignments) -> Result<Self> {
        let faults = [("whole", Fault::Whole), ("touch", Fault::Touch), ("none", Fault::Nothing)];
        Ok(Passes {
            passes: given.number(SETTINGS, "passes", 1..=1000)?,
            together: given.word(SETTINGS, "start", &[("together", true), ("spread", false)])?,
            fault: given.word(SETTINGS, "fault", &faults)?,
        })
    }

    /// Does the work of a task; returns its faults a second of virtual time.
    pub(super) fn run<T: Task>(&self, mapping: &mut Mapping<'_, T>) -> Result<f64> {
        let (task, ops) = (mapping.task, mapping.frames * self.passes);
        mapping.fault = self.fault;
        warm_up(mapping, self.phase_of(task.place().index, mapping.frames))?;
        task.start_measuring()?;
        let began_ns = task.now_ns();
        work(mapping, ops)?;
        let elapsed_ns = (task.now_ns() - began_ns).max(1);
        Ok(ops as f64 * 1e9 / elapsed_ns as f64)
    }

    /// Where a task stands when measuring begins.
    fn phase_of(&self, task: usize, frames: usize) -> Phase {
        if self.together {
            return Phase::Emptying(frames);
        }
        // Multiples of the golden ratio spread the tasks evenly, neighbours far apart.
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let point = (task as f64 * GOLDEN).fract() * 2.0;
        let part = (point.fract() * frames as f64) as usize;
        if point < 1.0 { Phase::Filling(part) } else { Phase::Emptying(part) }
    }

    pub(super) fn sum_up(&self, frames: usize, rates: &[f64], besides: &Besides) -> Findings {
        let per_second: f64 = rates.iter().sum();
        let count = (frames * self.passes * rates.len()) as u64;
        let seconds = besides.elapsed_ns.unwrap_or_default() / 1e9;
        let events = &besides.events;
        let books = json!({"allocated": events.allocated.get(), "freed": events.freed.get()});
        let fields = [
            ("fault_ns", json!(rates.len() as f64 * 1e9 / per_second)),
            ("task_bytes", json!(frames as u64 * FRAME_BYTES)),
            ("books", books),
        ];
        Findings::new(Work { unit: "faults", count, seconds, per_second }, fields)
    }
}

/// Comes to the point at which the task begins.
fn warm_up<T: Task>(mapping: &mut Mapping<'_, T>, begin: Phase) -> Result<()> {
    let (faults, mut frees) = match begin {
        Phase::Filling(faults) => (faults, 0),
        Phase::Emptying(frees) => (mapping.frames, frees),
    };
    for _ in 0..faults {
        mapping.fault()?;
    }
    while frees > 0 {
        frees -= mapping.unmap(frees)?;
    }
    Ok(())
}

/// Does so many faults and as many frees, pass after pass.
fn work<T: Task>(mapping: &mut Mapping<'_, T>, ops: usize) -> Result<()> {
    let (mut faults, mut frees) = (0, 0);
    while faults < ops || frees < ops {
        while mapping.is_filling() && faults < ops {
            mapping.fault()?;
            faults += 1;
        }
        while !mapping.mapped().is_empty() && frees < ops {
            frees += mapping.unmap(ops - frees)?;
        }
    }
    Ok(())
}

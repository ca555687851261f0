//! What is measured, on any machine: steps, ways of taking them, and choices of a design; and how
//! samples become results.

use anyhow::Result;
use freehold::{Error, Order, Pfn, Request, Setting};
use serde::Serialize;

use crate::frames::Frames;
use crate::report::summary::Summary;
use crate::settings::{Assignments, setting};

/// The settings of the workload on every machine.
pub(super) const SETTINGS: &[Setting] = &[setting("books", "all|as-set", "all")
    .means("run with each of locking=irq|local and counters=exact|relaxed, or as they are set")];

/// The sizes of the kernel benchmark.
pub(super) const STEPS: [usize; 9] = [1, 2, 3, 4, 8, 16, 32, 64, 128];

/// One way of allocating and freeing frames.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Single,
    Array,
    Bulk,
}

impl Way {
    /// Allocates as many frames as there is room for.
    #[inline]
    pub(super) fn alloc<F: Frames + ?Sized>(
        self,
        allocator: &F,
        frames: &mut [Pfn],
    ) -> Result<(), Error> {
        match self {
            Way::Single => frames.iter_mut().try_for_each(|frame| {
                *frame = allocator.alloc(Request::default())?;
                Ok(())
            }),
            Way::Array | Way::Bulk => match allocator.alloc_bulk(Request::default(), frames)? {
                count if count == frames.len() => Ok(()),
                _ => Err(Error::OutOfMemory),
            },
        }
    }

    /// Frees the frames.
    #[inline]
    pub(super) fn free<F: Frames + ?Sized>(
        self,
        allocator: &F,
        frames: &[Pfn],
    ) -> Result<(), Error> {
        match self {
            Way::Single | Way::Array => {
                frames.iter().try_for_each(|&frame| allocator.free(frame, Order::ZERO))
            }
            Way::Bulk => allocator.free_bulk(frames, Order::ZERO).map_err(|stopped| stopped.error),
        }
    }
}

pub(super) const WAYS: [Way; 3] = [Way::Single, Way::Array, Way::Bulk];

/// The times of one task: by step and way, in ns a frame.
pub(super) type Times = [[f64; WAYS.len()]; STEPS.len()];

/// One choice of what protects lists and counters.
pub(super) struct Variant {
    /// As on the command line; empty if the design leaves no choice.
    pub(super) name: String,
    pub(super) assignments: Assignments,
}

/// The choices that a design of these settings is run with, the one before the series first and
/// the one after it last.
pub(super) fn variants(given: &Assignments, table: &[Setting]) -> Result<Vec<Variant>> {
    let all = given.word(SETTINGS, "books", &[("all", true), ("as-set", false)])?;
    let has = |name| table.iter().any(|setting| setting.name == name);
    if !all || !has("locking") || !has("counters") {
        return Ok(vec![Variant { name: String::new(), assignments: given.clone() }]);
    }
    let choices = |name, values: [&'static str; 2]| match given.last(name) {
        Some(value) => vec![value.to_owned()],
        None => values.map(str::to_owned).to_vec(),
    };
    let mut variants = Vec::new();
    for locking in choices("locking", ["irq", "local"]) {
        for counters in choices("counters", ["exact", "relaxed"]) {
            // Counters are exact where interrupts can be disabled.
            if locking == "rt" && counters == "exact" && !given.has("counters") {
                continue;
            }
            variants.push(Variant {
                name: format!("locking={locking} counters={counters}"),
                assignments: given.with("locking", &locking).with("counters", &counters),
            });
        }
    }
    Ok(variants)
}

/// The times of one step, in ns for the allocation and free of one frame.
#[derive(Serialize)]
pub(super) struct StepResult {
    step: usize,
    single_ns: Summary,
    array_ns: Summary,
    bulk_ns: Summary,
    /// How many times cheaper bulk is than one at a time, sample by sample.
    gain: Summary,
    /// What the medians are of, round by round and task by task.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    rounds: Option<Rounds>,
}

/// The times of one step in all rounds, each with those of its tasks.
#[derive(Serialize)]
struct Rounds {
    samples_single_ns: Vec<Vec<f64>>,
    samples_array_ns: Vec<Vec<f64>>,
    samples_bulk_ns: Vec<Vec<f64>>,
}

/// Sums up all steps over some samples.
pub(super) fn sum_up(samples: &[Times]) -> Vec<StepResult> {
    let of_step = |(at, &step): (usize, &usize)| {
        let all = |number: &dyn Fn(&[f64; 3]) -> f64| {
            Summary::of(&samples.iter().map(|times| number(&times[at])).collect::<Vec<_>>())
        };
        let of = |way: Way| all(&|times| times[way as usize]);
        StepResult {
            step,
            single_ns: of(Way::Single),
            array_ns: of(Way::Array),
            bulk_ns: of(Way::Bulk),
            gain: all(&|times| times[Way::Single as usize] / times[Way::Bulk as usize]),
            rounds: None,
        }
    };
    STEPS.iter().enumerate().map(of_step).collect()
}

/// Sums up all steps over rounds, each with the times of its tasks, and keeps these times.
pub(super) fn sum_up_rounds(rounds: &[Vec<Times>]) -> Vec<StepResult> {
    let mut steps = sum_up(&rounds.concat());
    for (at, step) in steps.iter_mut().enumerate() {
        let of = |way: Way| {
            let round =
                |tasks: &Vec<Times>| tasks.iter().map(|task| task[at][way as usize]).collect();
            rounds.iter().map(round).collect()
        };
        step.rounds = Some(Rounds {
            samples_single_ns: of(Way::Single),
            samples_array_ns: of(Way::Array),
            samples_bulk_ns: of(Way::Bulk),
        });
    }
    steps
}

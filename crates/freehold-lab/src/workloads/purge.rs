//! `purge`: frames are allocated on all CPUs and freed on a few.
//!
//! jemalloc's background threads do this to a kernel: the application faults memory in on every
//! CPU, and a few threads release (`madvise`) what has been unused for a while. Here each
//! allocating task faults frames in and keeps the last of them; the oldest go in batches into the
//! ring of one of the freeing tasks, which unmaps and frees them.

use std::collections::VecDeque;

use anyhow::Result;
use freehold::{FrameCount, Order, Pfn, Request, Setting};
use serde_json::json;

use crate::error::refuse;
use crate::report::columns::{Column, Telling, number, percent};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::settings::setting;
use crate::task::ring::RingPlan;
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, Span, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::{Brief, SettingTable};

const SETTINGS: &[Setting] = &[
    setting("freers", "1..=4095, or auto", "auto")
        .means("tasks that free, the others allocate; auto: one in 16, at least one"),
    setting("frames", "1..=100000000, or auto", "auto")
        .means("frames that each task allocates; auto: 20000 if simulated, else 5000000"),
    setting("live", "0..=10000000", "2048")
        .means("frames that each allocating task keeps before it lets the oldest go"),
    setting("ring", "1..=1000000", "4096").means("frames that may wait for each freeing task"),
    setting("batch_frames", "1..=100000", "64").means("frames that are handed over at a time"),
];

const FRAMES: Auto = Auto { simulated: 20_000, host: 5_000_000 };

/// What `freehold compare` changes on the host, to finish within seconds. On simulated machines it
/// changes nothing: with half of all sizes, or only half of the frames, per-CPU lists that follow
/// demand are measured while they still grow, and designs change places.
const BRIEF_ON_HOST: &[(&str, &str)] = &[("frames", "1000000")];

/// The workload.
pub(crate) struct Purge {
    tasks: usize,
    freers: usize,
    frames: usize,
    live: usize,
    ring: usize,
    batch: usize,
}

/// What a task did, and when.
pub(crate) struct Share {
    frees: bool,
    /// It waited for its ring.
    span: Span,
}

impl TaskWorkload for Purge {
    const SETTINGS: SettingTable = ("purge", SETTINGS);
    const SIZE: &'static str = "live";
    const FIGURES: &'static [Figure] = &[
        Figure::aside("ring_full_share", "/workload_specific/allocating_waits"),
        Figure::aside("ring_empty_share", "/workload_specific/freeing_waits"),
    ];
    const COLUMNS: &'static [Column] = &[
        Column("frames/s", |r| format!("{:.0}", r.work.per_second)),
        Column("alloc ns", |r| number(r, "calls.alloc.mean_ns", 1)),
        Column("free ns", |r| number(r, "calls.free.mean_ns", 1)),
        Column("ring full", |r| percent(r, "allocating_waits")),
        Column("ring empty", |r| percent(r, "freeing_waits")),
    ];
    const LEGEND: &'static [&'static str] = &[
        "frames/s: allocated on most CPUs and freed on a few. ring full: share of their time",
        "that allocating tasks wait for the freeing ones, which are then the limit; ring empty:",
        "the other way round.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("allocating tasks wait {} of the time for room in a ring", |r| {
            percent(r, "allocating_waits")
        }),
        Telling("freeing ones {} for frames", |r| percent(r, "freeing_waits")),
    ];
    const BRIEF: Brief = Brief { on_host: BRIEF_ON_HOST, on_sim: &[] };
    type Outcome = Share;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let (given, tasks) = (setup.given, setup.tasks);
        let freers = given.parsed(SETTINGS, "freers", |value| match value {
            "auto" => Some((tasks / 16).max(1)),
            number => number.parse().ok().filter(|freers| (1..=4095).contains(freers)),
        })?;
        if freers >= tasks {
            return refuse(format!(
                "purge needs a task that allocates beside {freers} that free: raise --cpus to at \
                 least {}",
                freers + 1
            ));
        }
        Ok(Purge {
            tasks,
            freers,
            frames: setup.number_or_auto(SETTINGS, "frames", 1..=100_000_000, FRAMES)?,
            live: given.number(SETTINGS, "live", 0..=10_000_000)?,
            ring: given.number(SETTINGS, "ring", 1..=1_000_000)?,
            batch: given.number(SETTINGS, "batch_frames", 1..=100_000)?,
        })
    }

    fn memory(&self) -> Memory {
        let each = self.live + self.batch;
        let frames = (self.tasks - self.freers) * each + self.freers * (self.ring + self.batch);
        Memory::AtLeast(FrameCount::new(frames as u64))
    }

    fn rings(&self) -> Vec<RingPlan> {
        let senders = |ring: usize| {
            (0..self.tasks).filter(|&task| self.role(task) == Role::Allocates(ring)).count()
        };
        let receiver = |ring: usize| (0..self.tasks).find(|&t| self.role(t) == Role::Frees(ring));
        (0..self.freers)
            .map(|ring| RingPlan {
                frames: self.ring,
                senders: senders(ring),
                receiver: receiver(ring).expect("every ring has a task that frees"),
            })
            .collect()
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Share> {
        match self.role(task.place().index) {
            Role::Frees(ring) => self.free(task, ring),
            Role::Allocates(ring) => {
                let mut live = VecDeque::with_capacity(self.live + self.batch);
                let share = self.allocate(task, ring, &mut live);
                held.extend(live.into_iter().map(|pfn| Block { pfn, order: Order::ZERO }));
                share
            }
        }
    }

    fn sum_up(&self, outcomes: &[Share], _: &Besides) -> Findings {
        let of = |frees| outcomes.iter().filter(move |share| share.frees == frees);
        let waits = |frees| Span::waited_share(of(frees).map(|share| share.span));
        let (allocating, freeing) = (waits(false), waits(true));
        let limit = if allocating > freeing { "freeing" } else { "allocating" };
        let fields = [
            ("freers", json!(self.freers)),
            ("allocating_waits", json!(allocating)),
            ("freeing_waits", json!(freeing)),
            ("limited_by", json!(limit)),
        ];
        let frames = (self.tasks - self.freers) * self.frames;
        let seconds = Span::seconds(outcomes.iter().map(|share| share.span));
        Findings::new(Work::of("frames", frames as u64, seconds), fields)
    }
}

/// The role of a task, and its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Frees(usize),
    Allocates(usize),
}

impl Purge {
    /// The freeing tasks are spread evenly over the CPUs, and the others over them.
    fn role(&self, task: usize) -> Role {
        let freers_before = |task: usize| (task * self.freers).div_ceil(self.tasks);
        let freer = freers_before(task);
        if freers_before(task + 1) > freer {
            Role::Frees(freer)
        } else {
            Role::Allocates(task % self.freers)
        }
    }

    fn allocate<T: Task>(&self, task: &T, ring: usize, live: &mut VecDeque<Pfn>) -> Result<Share> {
        for _ in 0..self.live {
            live.push_back(task.fault(Request::default())?.pfn);
        }
        task.start_measuring()?;
        let began_ns = task.now_ns();
        let (mut sent, mut waited_ns) = (0, 0);
        while sent < self.frames {
            let batch = self.batch.min(self.frames - sent);
            for _ in 0..batch {
                live.push_back(task.fault(Request::default())?.pfn);
            }
            let oldest: Vec<_> = live.drain(..batch).collect();
            waited_ns += task.send(ring, &oldest)?;
            sent += batch;
        }
        task.leave(ring);
        Ok(Share { frees: false, span: Span { began_ns, ended_ns: task.now_ns(), waited_ns } })
    }

    fn free<T: Task>(&self, task: &T, ring: usize) -> Result<Share> {
        let mut frames = vec![Pfn::default(); self.batch];
        task.start_measuring()?;
        let began_ns = task.now_ns();
        let mut waited_ns = 0;
        loop {
            let (count, waited) = task.receive(ring, &mut frames)?;
            waited_ns += waited;
            if count == 0 {
                let span = Span { began_ns, ended_ns: task.now_ns(), waited_ns };
                return Ok(Share { frees: true, span });
            }
            for &pfn in &frames[..count] {
                task.unmap(Block { pfn, order: Order::ZERO })?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_has_one_receiver_and_senders() {
        for (tasks, freers) in [(2, 1), (4, 3), (16, 1), (112, 7), (113, 7), (112, 56)] {
            let purge = Purge { tasks, freers, frames: 1, live: 1, ring: 1, batch: 1 };
            let rings = purge.rings();
            assert_eq!(rings.len(), freers);
            let senders: usize = rings.iter().map(|ring| ring.senders).sum();
            assert_eq!(senders, tasks - freers, "{tasks} tasks, {freers} free");
        }
    }
}

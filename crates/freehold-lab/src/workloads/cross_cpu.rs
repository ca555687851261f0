//! `cross-cpu`: one CPU allocates, another one frees.
//!
//! After the kernel benchmark page_bench05_cross_cpu (netoptimizer/prototype-kernel,
//! `kernel/mm/bench/page_bench05_cross_cpu.c`): an even CPU allocates pages one at a time and puts
//! them into a ring, and the odd one beside it takes them out and frees them. All pairs run at
//! once. Pages are not touched.

use anyhow::Result;
use freehold::{FrameCount, Order, Pfn, Request, Setting};

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
    setting("frames", "1..=1000000000, or auto", "auto")
        .means("frames that each pair hands over; auto: 50000 if simulated, else 20000000"),
    setting("ring", "1..=1000000", "1024").means("frames that may wait in the ring of a pair"),
];

const FRAMES: Auto = Auto { simulated: 50_000, host: 20_000_000 };

/// What `freehold compare` changes on the host, to finish within seconds. On simulated machines it
/// changes nothing: with 20,000 frames, per-CPU lists that follow demand are measured while they
/// still grow, and designs change places.
const BRIEF_ON_HOST: &[(&str, &str)] = &[("frames", "2000000")];

/// The workload.
pub(crate) struct CrossCpu {
    pairs: usize,
    frames: usize,
    ring: usize,
}

impl TaskWorkload for CrossCpu {
    const SETTINGS: SettingTable = ("cross-cpu", SETTINGS);
    const SIZE: &'static str = "ring";
    const FIGURES: &'static [Figure] = &[
        Figure::aside("frame_ns", "/workload_specific/frame_ns"),
        Figure::aside("ring_full_share", "/workload_specific/allocating_waits"),
    ];
    const COLUMNS: &'static [Column] = &[
        Column("frames/s", |r| format!("{:.0}", r.work.per_second)),
        Column("ns/frame", |r| number(r, "frame_ns", 1)),
        Column("alloc ns", |r| number(r, "calls.alloc.mean_ns", 1)),
        Column("free ns", |r| number(r, "calls.free.mean_ns", 1)),
        Column("ring full", |r| percent(r, "allocating_waits")),
    ];
    const LEGEND: &'static [&'static str] = &[
        "ns/frame: of one pair, ring included. ring full: share of their time that allocating",
        "tasks wait for the freeing ones.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("allocating tasks wait {} of the time for room in the ring", |r| {
            percent(r, "allocating_waits")
        }),
        Telling("freeing ones {} for frames", |r| percent(r, "freeing_waits")),
    ];
    const BRIEF: Brief = Brief { on_host: BRIEF_ON_HOST, on_sim: &[] };
    type Outcome = Span;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        if !setup.tasks.is_multiple_of(2) {
            let (given, even) = (setup.tasks, (setup.tasks - 1).max(2));
            return refuse(format!("cross-cpu needs pairs of CPUs: --cpus {even} and not {given}"));
        }
        Ok(CrossCpu {
            pairs: setup.tasks / 2,
            frames: setup.number_or_auto(SETTINGS, "frames", 1..=1_000_000_000, FRAMES)?,
            ring: setup.given.number(SETTINGS, "ring", 1..=1_000_000)?,
        })
    }

    fn memory(&self) -> Memory {
        Memory::AtLeast(FrameCount::new((self.pairs * (self.ring + 1)) as u64))
    }

    fn rings(&self) -> Vec<RingPlan> {
        let ring = |pair| RingPlan { frames: self.ring, senders: 1, receiver: 2 * pair + 1 };
        (0..self.pairs).map(ring).collect()
    }

    fn run<T: Task>(&self, task: &T, _held: &mut Vec<Block>) -> Result<Span> {
        let (ring, frees) = (task.place().index / 2, !task.place().index.is_multiple_of(2));
        task.start_measuring()?;
        let began_ns = task.now_ns();
        let mut waited_ns = 0;
        if frees {
            let mut frame = [Pfn::default()];
            loop {
                let (count, waited) = task.receive(ring, &mut frame)?;
                waited_ns += waited;
                if count == 0 {
                    break;
                }
                task.free(Block { pfn: frame[0], order: Order::ZERO })?;
            }
        } else {
            for _ in 0..self.frames {
                let pfn = task.alloc(Request::default())?;
                waited_ns += task.send(ring, &[pfn])?;
            }
            task.leave(ring);
        }
        Ok(Span { began_ns, ended_ns: task.now_ns(), waited_ns })
    }

    fn sum_up(&self, outcomes: &[Span], _: &Besides) -> Findings {
        let frames = (self.pairs * self.frames) as u64;
        let work = Work::of("frames", frames, Span::seconds(outcomes.iter().copied()));
        let waits = |odd| Span::waited_share(outcomes.iter().copied().skip(odd).step_by(2));
        let frame_ns = self.pairs as f64 * 1e9 / work.per_second;
        let fields = [
            ("frame_ns", frame_ns.into()),
            ("allocating_waits", waits(0).into()),
            ("freeing_waits", waits(1).into()),
        ];
        Findings::new(work, fields)
    }
}

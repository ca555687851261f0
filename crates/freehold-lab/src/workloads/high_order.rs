//! `high-order`: how many huge pages used memory still yields.
//!
//! After stress-highalloc of mmtests. Memory is filled with cached files and with unmovable data,
//! by jobs that also allocate and free memory of their own; then files are dropped at random down
//! to the wanted occupancy. One task attempts blocks of order 9, one after the other with a delay
//! between, and holds what it gets, until it has requested nearly all memory. Content is moved if
//! free memory is fragmented. An attempt that fails drops the oldest cached files, as reclaim does,
//! and retries once. Meanwhile the other tasks continue with a small load: they fill their caches
//! again, and allocate and free a little. All of this is done twice, the second time with a delay
//! of 1 ms.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use anyhow::Result;
use freehold::{FrameCount, Order, Request, Setting};
use serde_json::{Map, json};

use crate::fragmentation::{FreeMemory, free_memory};
use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, Telling, percent, scaled};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::report::summary::Quantiles;
use crate::task::population::Population;
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::{Brief, SettingTable};

const SETTINGS: &[Setting] = &[
    Setting {
        name: "memory_mib",
        values: "64..=1048576, or auto",
        default: "auto",
        meaning: "memory of the machine, in MiB; auto: 2048 if simulated, else 1024",
    },
    Setting {
        name: "occupancy",
        values: "0..=90",
        default: "60",
        meaning: "percent of the memory that is in use when the attempts begin",
    },
    Setting {
        name: "unmovable",
        values: "0..=50",
        default: "5",
        meaning: "percent of what fills the memory that cannot be moved",
    },
    Setting {
        name: "attempts",
        values: "1..=100",
        default: "95",
        meaning: "percent of the memory that is asked for in blocks of order 9",
    },
    Setting {
        name: "delay_ms",
        values: "0..=10000",
        default: "100",
        meaning: "delay before each attempt of the first pass; the host waits a hundredth of it",
    },
    Setting {
        name: "reclaim",
        values: "0..=1000000",
        default: "1024",
        meaning: "cached frames that are dropped when an attempt fails, before it is repeated",
    },
];

const MEMORY_MIB: Auto = Auto { simulated: 2048, host: 1024 };

/// Cached frames that a background task processes at a time.
const LOAD: usize = 8;

/// The delay of the second pass.
const SECOND_DELAY_NS: u64 = 1_000_000;

/// How many times shorter than the setting the host's delay is.
const HOST_HASTE: u64 = 100;

/// What `freehold compare` changes on simulated machines: three quarters of the memory, of which
/// the same share is reclaimed at a time. With less, what CPUs cache would matter.
const BRIEF_ON_SIM: &[(&str, &str)] = &[("memory_mib", "1536"), ("reclaim", "768")];

/// The workload.
pub(crate) struct HighOrder {
    frames: u64,
    attempts: u64,
    delays_ns: [u64; 2],
    reclaim: usize,
    cached: Population,
    /// How many slots reclaim has visited.
    hand: AtomicUsize,
    /// Whether the attempts of each pass are over.
    over: [AtomicBool; 2],
    /// The free memory when the attempts begin.
    before: Mutex<Option<FreeMemory>>,
}

/// The results of the attempts of one pass.
pub(crate) struct Pass {
    got: u64,
    reclaimed: u64,
    latencies_ns: Vec<u64>,
    ns: u64,
}

impl TaskWorkload for HighOrder {
    const SETTINGS: SettingTable = ("high-order", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "memory_mib";
    const FIGURES: &'static [Figure] = &[
        Figure::gain("success_share", "/workload_specific/first/success"),
        Figure::cost("p50_ns", "/workload_specific/first/latency/p50_ns"),
        Figure::cost("p99_ns", "/workload_specific/first/latency/p99_ns"),
        Figure::cost("max_ns", "/workload_specific/first/latency/max_ns"),
        Figure::gain("second_success_share", "/workload_specific/second/success"),
        Figure::cost("second_p99_ns", "/workload_specific/second/latency/p99_ns"),
    ];
    const COLUMNS: &'static [Column] = &[
        Column { heading: "success", cell: |r| percent(r, "first.success") },
        Column { heading: "p50 us", cell: |r| scaled(r, "first.latency.p50_ns", 1e3, 0) },
        Column { heading: "p99 us", cell: |r| scaled(r, "first.latency.p99_ns", 1e3, 0) },
        Column { heading: "max us", cell: |r| scaled(r, "first.latency.max_ns", 1e3, 0) },
        Column { heading: "second", cell: |r| percent(r, "second.success") },
        Column { heading: "p99 us", cell: |r| scaled(r, "second.latency.p99_ns", 1e3, 0) },
    ];
    const LEGEND: &'static [&'static str] = &[
        "success: attempts that got a block of 2 MiB, of nearly as many as fit the memory;",
        "second: those of the second pass, which are 1 ms apart. us: time of an attempt,",
        "reclaim included.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling { words: "{} of the attempts succeed", number: |r| percent(r, "first.success") },
        Telling { words: "{} in the second pass", number: |r| percent(r, "second.success") },
        Telling {
            words: "99 % of them within {} µs",
            number: |r| scaled(r, "second.latency.p99_ns", 1e3, 1),
        },
    ];
    const BRIEF: Brief = Brief { on_host: &[], on_sim: BRIEF_ON_SIM };
    /// Only the attempting task has passes to report.
    type Outcome = Vec<Pass>;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let given = setup.given;
        let mib = setup.number_or_auto(SETTINGS, "memory_mib", 64..=1_048_576, MEMORY_MIB)?;
        let percent =
            |name, range| Ok::<_, anyhow::Error>(given.number(SETTINGS, name, range)? as u64);
        let frames = ((mib as u64) << 20) / FRAME_BYTES;
        let unmovable = percent("unmovable", 0..=50)? * 10;
        let occupancy = percent("occupancy", 0..=90)?;
        let haste = if setup.simulated { 1 } else { HOST_HASTE };
        let delay_ns = given.number(SETTINGS, "delay_ms", 0..=10_000)? as u64 * 1_000_000;
        Ok(HighOrder {
            frames,
            attempts: percent("attempts", 1..=100)?,
            delays_ns: [delay_ns / haste, SECOND_DELAY_NS / haste],
            reclaim: given.number(SETTINGS, "reclaim", 0..=1_000_000)?,
            cached: Population::new(setup.tasks, FrameCount::new(frames), unmovable, occupancy),
            hand: AtomicUsize::new(0),
            over: [const { AtomicBool::new(false) }; 2],
            before: Mutex::new(None),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Vec<Pass>> {
        let index = task.place().index;
        self.cached.settle(task, held)?;
        if index == 0 {
            let memory = free_memory(task.allocator());
            *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
        }
        task.start_measuring()?;
        let mut passes = Vec::new();
        for (pass, over) in self.over.iter().enumerate() {
            if index == 0 {
                let mut got = Vec::new();
                passes.push(self.attempt_all(task, self.delays_ns[pass], &mut got)?);
                over.store(true, Relaxed);
                task.meet()?;
                match pass {
                    0 => got.into_iter().try_for_each(|block| task.free(block))?,
                    _ => held.extend(got),
                }
            } else {
                self.stay_at_work(task, over, self.delays_ns[pass])?;
                task.meet()?;
            }
            task.meet()?;
        }
        held.extend(self.cached.owners.blocks(self.cached.slots_of(index)));
        Ok(passes)
    }

    fn sum_up(&self, outcomes: &[Vec<Pass>], _: &Besides) -> Findings {
        let mut specific = Map::new();
        let (mut count, mut seconds) = (0, 0.0);
        let passes = outcomes.iter().flatten().zip(["first", "second"]).zip(self.delays_ns);
        for ((pass, name), delay_ns) in passes {
            let attempts = pass.latencies_ns.len() as u64;
            let fields = json!({
                "delay_ns": delay_ns,
                "attempts": attempts,
                "got": pass.got,
                "success": pass.got as f64 / attempts.max(1) as f64,
                "reclaimed": pass.reclaimed,
                "latency": Quantiles::of(pass.latencies_ns.iter().copied()),
            });
            specific.insert(name.to_owned(), fields);
            count += attempts;
            seconds += pass.ns as f64 / 1e9;
        }
        if let Some(before) = &*self.before.lock().unwrap_or_else(PoisonError::into_inner) {
            specific.insert("free_before".to_owned(), json!(before));
        }
        Findings { work: Work::of("attempts", count, seconds), specific }
    }
}

impl HighOrder {
    /// Attempts one block after the other, and holds those that it gets.
    fn attempt_all<T: Task>(&self, task: &T, delay_ns: u64, got: &mut Vec<Block>) -> Result<Pass> {
        let began_ns = task.now_ns();
        let attempts = self.frames * self.attempts / 100 / Order::PAGEBLOCK.frames().get();
        let mut latencies_ns = Vec::with_capacity(attempts as usize);
        let mut reclaimed = 0;
        let huge = Request::new(Order::PAGEBLOCK);
        for _ in 0..attempts {
            task.idle_ns(delay_ns);
            let asked_ns = task.now_ns();
            let mut block = task.try_alloc_compacting(huge, &self.cached.owners)?;
            if block.is_none() && self.reclaim > 0 {
                reclaimed += self.reclaim(task)?;
                block = task.try_alloc_compacting(huge, &self.cached.owners)?;
            }
            latencies_ns.push(task.now_ns() - asked_ns);
            got.extend(block);
        }
        let (got, ns) = (got.len() as u64, task.now_ns() - began_ns);
        Ok(Pass { got, reclaimed, latencies_ns, ns })
    }

    /// Drops the oldest cached frames, of all tasks alike. Returns how many.
    fn reclaim<T: Task>(&self, task: &T) -> Result<u64> {
        let mut reclaimed = 0;
        for _ in 0..self.cached.slots() {
            let oldest = self.cached.by_age(self.hand.fetch_add(1, Relaxed));
            if let Some(block) = self.cached.owners.take(task, oldest)? {
                task.free(block)?;
                reclaimed += 1;
            }
            if reclaimed == self.reclaim as u64 {
                break;
            }
        }
        Ok(reclaimed)
    }

    /// The background load: a little at a time, with a pause between, until it is over. For each
    /// file that is dropped another one is read, and jobs allocate and free as much.
    fn stay_at_work<T: Task>(&self, task: &T, over: &AtomicBool, pause_ns: u64) -> Result<()> {
        let mut slots = self.cached.slots_of(task.place().index).cycle();
        let mut own = Vec::with_capacity(LOAD);
        let mut dropped = 0;
        task.in_order();
        while !over.load(Relaxed) {
            for slot in slots.by_ref().take(LOAD) {
                if let Some(block) = self.cached.owners.take(task, slot)? {
                    task.free(block)?;
                    dropped += 1;
                } else if dropped > 0
                    && let Some(block) = task.try_alloc(Request::default())?
                {
                    self.cached.owners.put(slot, block);
                    dropped -= 1;
                }
                own.extend(task.try_alloc(Request::default())?);
            }
            for block in own.drain(..) {
                task.free(block)?;
            }
            task.idle_ns(pause_ns);
            task.pause()?;
        }
        Ok(())
    }
}

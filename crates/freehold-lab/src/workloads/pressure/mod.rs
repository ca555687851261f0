//! `pressure`: memory is always full, and whoever allocates has to reclaim.
//!
//! The first task is the background's reclaimer (`kswapd`). All others allocate as Linux does:
//! above the low watermark without further ado, else after waking the background, down to the
//! minimum watermark, then after compaction and reclaim of their own. Most requests are for
//! single movable pages, which become cached and stay until reclaim drops them; some are for
//! unmovable blocks of orders 0 to 3, of which a task keeps a tenth of its memory and frees random
//! ones; a few for huge pages, whose oldest ones it frees. A call's time is that of the whole
//! request, reclaim included.
//!
//! Reclaim takes pages from the tasks in turns, the oldest first. It is charged as an unmapping of
//! each page; LRU lists and their lock, disks, and slabs that shrink are left out.

mod cache;
mod worker;

use anyhow::Result;
use freehold::{FrameCount, Setting};
use serde_json::json;

use cache::Cache;
use worker::{Class, Mix, Tally, Worker};

use crate::error::refuse;
use crate::machine::FRAME_BYTES;
use crate::report::columns::{Column, Telling, percent, scaled};
use crate::report::document::Work;
use crate::report::figure::Figure;
use crate::report::goal::{Goal, RATE};
use crate::settings::setting;
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, TaskWorkload};
use crate::task::{Block, Task};
use crate::workload::SettingTable;

const SETTINGS: &[Setting] = &[
    setting("task_mib", "4..=65536", "16").means("memory of the machine for each task, in MiB"),
    setting("time_ms", "1..=100000, or auto", "auto")
        .means("how long tasks allocate, after as long a warm-up; auto: 5 if simulated, else 500"),
    setting("unmovable", "0..=500", "100")
        .means("of 1000 requests, how many are for single unmovable frames"),
    setting("orders_1_3", "0..=500", "50")
        .means("of 1000 requests, how many are for unmovable blocks of orders 1 to 3"),
    setting("huge", "0..=500", "1").means("of 1000 requests, how many are for huge pages"),
];

const TIME_MS: Auto = Auto { simulated: 5, host: 500 };

/// One in so many frames of a task's memory is in unmovable blocks, and in huge pages.
const LASTING: u64 = 10;
const HUGE: u64 = 8;

/// The workload.
pub(crate) struct Pressure {
    frames: u64,
    task_frames: u64,
    time_ns: u64,
    mix: Mix,
    cache: Cache,
}

impl TaskWorkload for Pressure {
    const SETTINGS: SettingTable = ("pressure", SETTINGS);
    const SETS_MEMORY: bool = true;
    const SIZE: &'static str = "task_mib";
    const FIGURES: &'static [Figure] = &[
        Figure::cost("p99_ns", "/workload_specific/order_0/latency/p99_ns"),
        Figure::cost("p999_ns", "/workload_specific/order_0/latency/p999_ns"),
        Figure::aside("direct_share", "/workload_specific/order_0/direct_share"),
        Figure::cost("wasted_share", "/workload_specific/wasted_share"),
        Figure::gain("orders_1_3_success_share", "/workload_specific/orders_1_3/success"),
        Figure::cost("orders_1_3_p99_ns", "/workload_specific/orders_1_3/latency/p99_ns"),
        Figure::gain("order_9_success_share", "/workload_specific/order_9/success"),
        Figure::gain("cached_share", "/workload_specific/cached_share"),
    ];
    const GOALS: &'static [Goal] = &[RATE, Goal::time("p99.9", Self::FIGURES[1])];
    const COLUMNS: &'static [Column] = &[
        Column("allocs/s", |r| format!("{:.0}", r.work.per_second)),
        Column("p99 us", |r| scaled(r, "order_0.latency.p99_ns", 1e3, 1)),
        Column("p99.9", |r| scaled(r, "order_0.latency.p999_ns", 1e3, 0)),
        Column("direct", |r| percent(r, "order_0.direct_share")),
        Column("wasted", |r| percent(r, "wasted_share")),
        Column("1-3", |r| percent(r, "orders_1_3.success")),
        Column("huge", |r| percent(r, "order_9.success")),
    ];
    const LEGEND: &'static [&'static str] = &[
        "us: time of a request for one frame, its reclaim included. direct: share of them that",
        "reclaimed. wasted: of the pages that requests reclaimed, those that yielded no block.",
        "1-3, huge: success of these orders.",
    ];
    const TELLING: &'static [Telling] = &[
        Telling("99.9 % of the requests for one frame within {} µs", |r| {
            scaled(r, "order_0.latency.p999_ns", 1e3, 1)
        }),
        Telling("{} of the huge ones succeed", |r| percent(r, "order_9.success")),
    ];
    type Outcome = Tally;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let (given, tasks) = (setup.given, setup.tasks);
        if tasks < 2 {
            return refuse("pressure needs a task that reclaims, and others: raise --cpus to 2");
        }
        let number =
            |name, range| Ok::<_, anyhow::Error>(given.number(SETTINGS, name, range)? as u64);
        let mix = Mix {
            huge: number("huge", 0..=500)?,
            unmovable: number("unmovable", 0..=500)?,
            orders_1_3: number("orders_1_3", 0..=500)?,
        };
        let of_mix = mix.huge + mix.unmovable + mix.orders_1_3;
        if of_mix > 1000 {
            return refuse(format!(
                "unmovable, orders_1_3 and huge are {of_mix} of 1000 requests: lower one of them"
            ));
        }
        let task_frames = (number("task_mib", 4..=65_536)? << 20) / FRAME_BYTES;
        let frames = task_frames * tasks as u64;
        let time_ms = setup.number_or_auto(SETTINGS, "time_ms", 1..=100_000, TIME_MS)?;
        Ok(Pressure {
            frames,
            task_frames,
            time_ns: time_ms as u64 * 1_000_000,
            mix,
            cache: Cache::new(tasks, FrameCount::new(frames)),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(FrameCount::new(self.frames))
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Tally> {
        let reclaims = task.place().index == 0;
        let most = (self.task_frames / LASTING, self.task_frames / HUGE);
        let mut worker = Worker::new(task, &self.cache, self.mix, most);
        if !reclaims {
            worker.fill()?;
        }
        let mut go = || {
            let end_ns = task.now_ns() + self.time_ns;
            match reclaims {
                true => self.cache.reclaim_in_background(task, end_ns),
                false => worker.run(end_ns),
            }
        };
        task.meet()?;
        go()?;
        task.start_measuring_for(self.time_ns)?;
        let tally = go()?;
        // No content is moved any more once all have arrived here.
        task.meet()?;
        if reclaims {
            held.extend(self.cache.all());
        }
        held.extend(worker.end());
        Ok(tally)
    }

    fn sum_up(&self, tallies: &[Tally], _: &Besides) -> Findings {
        let sum = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
        let dropped = sum(|tally| tally.direct);
        let [single, few, huge] = Class::ALL.map(|class| worker::sum_up(class, tallies));
        let wasted = sum(|tally| tally.wasted) as f64 / dropped.max(1) as f64;
        let fields = [
            ("order_0", single),
            ("orders_1_3", few),
            ("order_9", huge),
            ("background_frames", json!(sum(|tally| tally.background))),
            ("direct_frames", json!(dropped)),
            ("wasted_share", json!(wasted)),
            ("cached_share", json!(sum(|tally| tally.cached) as f64 / self.frames as f64)),
        ];
        let work = Work::of("allocs", sum(Tally::got), self.time_ns as f64 / 1e9);
        Findings::new(work, fields)
    }
}

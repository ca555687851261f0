//! `tenants`: many tenants share the memory of a machine as a cache of their files.
//!
//! Each tenant is a memory group of the LRU with a file of its own, and each task works for one
//! tenant. Some read a hot set again and again, some scan as well, and a few noisy neighbours read
//! more than all memory holds. The question is whether these cost the others their content, and
//! everybody the time of locks.
//!
//! Tasks first read their hot sets, then for as long as the measurement takes to warm up, all at
//! the same time. Above the minimum watermarks there is memory for the shares of all tenants and an
//! eighth more, for what CPUs cache. The tasks hold whatever the machine has beyond that.
//!
//! On simulated machines, system calls, copies, the time of the disk and the clearing of sparse
//! blocks are charged, and the index of the page cache is not.

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use freehold::{FrameCount, Order, Request, Setting, ZoneLevel};
use freehold_lru::{BATCH_MAX, LruLock, LruPolicy};
use freehold_sim::Key;
use serde_json::json;

use crate::error::refuse;
use crate::frames::Frames;
use crate::machine::{FRAME_BYTES, Machine};
use crate::report::columns::{Column, LRU_LOCK, Telling, percent, print_columns};
use crate::report::document::{RunResult, Work, number};
use crate::report::figure::{Figure, Parts};
use crate::report::goal::{Goal, RATE};
use crate::report::waits::percent as in_percent;
use crate::settings::setting;
use crate::sim::linux::LRU_SETTINGS;
use crate::task::lru::{Frees, LOCKS, LruPlan};
use crate::task::page_cache::{Disk, Files, Found, PageCache, Read, Use};
use crate::task::workload::{Auto, Besides, Findings, Memory, Setup, TaskWorkload, frames_of};
use crate::task::{Block, Task};
use crate::workload::{Brief, SettingTable};

mod reader;
mod results;
mod tenancy;

use reader::{Reader, Zipf};
use results::Reads;
use tenancy::{Protect, Sort, Tenancy};

const SETTINGS: &[Setting] = &[
    setting("tenants", "1..=4095, or auto", "auto")
        .means("memory groups, for which tasks work in turns; auto: one a task, at most 104"),
    setting("noisy", "0..=4094, or auto", "auto")
        .means("tenants that read more than all memory; auto: one in 16, at least one of two"),
    setting("share_bytes", "a size of at least 64KiB, such as 1MiB", "1MiB")
        .means("the fair share of a tenant: all memory, but for reserves, by their number"),
    setting("protect", "none|low|max", "low")
        .means("what a share is: nothing, a `low` for all but noisy tenants, a limit for all"),
    setting("reclaim", "ahead|direct", "ahead")
        .means("evict when all shares are in use, or when there is no memory"),
    setting("policy", "two-lists|scan-resistant", "two-lists")
        .means("which content of a group goes first"),
    setting("lru", "shards|group|node", "group")
        .means("LRU lists in shards, or under one lock a group on a node, or one a node"),
    setting("disk_us", "0..=10000, or auto", "auto")
        .means("until the disk has a block, or 32 in order; auto: 10 if simulated, else its own"),
    setting("time_ms", "1..=10000, or auto", "auto")
        .means("how long tenants read, after as long a warm-up; auto: 10 if simulated, else 1000"),
];

const DISK_US: Auto = Auto { simulated: 10, host: 0 };
const TIME_MS: Auto = Auto { simulated: 10, host: 1000 };

/// As many groups as the machines have on which a lock by group was measured.
const TENANTS_MAX: usize = 104;

/// What watermarks keep of a small memory.
const RESERVE_BYTES: u64 = 4 << 20;

/// What `freehold compare` changes, to finish within seconds.
const BRIEF_ON_HOST: &[(&str, &str)] = &[("time_ms", "200")];
const BRIEF_ON_SIM: &[(&str, &str)] = &[("time_ms", "3")];

/// The workload.
pub(crate) struct Tenants {
    tasks: usize,
    tenancy: Tenancy,
    protect: Protect,
    reclaims_ahead: bool,
    policy: LruPolicy,
    lock: LruLock,
    disk_ns: u64,
    time_ns: u64,
    /// The hot sets, by sort.
    popular: [Zipf; Sort::ALL.len()],
    files: Files,
    disk: Disk,
    /// Made once the memory is known to suffice.
    cache: OnceLock<Arc<PageCache>>,
}

impl TaskWorkload for Tenants {
    const SETTINGS: SettingTable = ("tenants", SETTINGS);
    const ON_SIM: &'static [SettingTable] = &[("simulated LRU", LRU_SETTINGS)];
    const SETS_MEMORY: bool = true;
    const USES_LRU: bool = true;
    const FRAGMENTS: bool = false;
    const SIZE: &'static str = "share_bytes";
    const FIGURES: &'static [Figure] = &[
        Figure::gain("hit_share", "/workload_specific/hit_share"),
        Figure::aside("lru_lock_wait_share", "/time_share/lru_lock"),
    ];
    const PARTS: Option<&'static Parts> = Some(&results::SORTS);
    const GOALS: &'static [Goal] = &[RATE, Goal::share("hot hits", results::HOT_HIT_SHARE)];
    const COLUMNS: &'static [Column] = &[
        Column("tenants", |r| r.workload_specific["tenants"].to_string()),
        Column("reads/s", |r| format!("{:.0}", r.work.per_second)),
        Column("hits", |r| percent(r, "hit_share")),
        LRU_LOCK,
    ];
    const TELLING: &'static [Telling] = &[
        Telling("hot tenants hit {}", |r| hits(r, "hot", "hit_share")),
        Telling("those that scan {}", |r| hits(r, "scan", "hit_share")),
        Telling("p99 of their reads {} us", p99_of_scans),
    ];
    const BRIEF: Brief = Brief { on_host: BRIEF_ON_HOST, on_sim: BRIEF_ON_SIM };
    type Outcome = Reads;

    fn new(setup: &Setup<'_>) -> Result<Self> {
        let Setup { given, tasks, simulated } = *setup;
        let tenancy = tenancy(setup)?;
        let protections =
            [("none", Protect::Nothing), ("low", Protect::Low), ("max", Protect::Max)];
        let reclaims = [("ahead", true), ("direct", false)];
        let policies =
            [("two-lists", LruPolicy::TwoLists), ("scan-resistant", LruPolicy::ScanResistant)];
        let files = Files::new((0..tenancy.tenants).map(|tenant| tenancy.file_blocks(tenant)));
        let disk_us = setup.number_or_auto(SETTINGS, "disk_us", 0..=10_000, DISK_US)?;
        let time_ms = setup.number_or_auto(SETTINGS, "time_ms", 1..=10_000, TIME_MS)?;
        Ok(Tenants {
            tasks,
            tenancy,
            protect: given.word(SETTINGS, "protect", &protections)?,
            reclaims_ahead: given.word(SETTINGS, "reclaim", &reclaims)?,
            policy: given.word(SETTINGS, "policy", &policies)?,
            lock: given.word(SETTINGS, "lru", &LOCKS)?,
            disk_ns: disk_us as u64 * 1000,
            time_ns: time_ms as u64 * 1_000_000,
            popular: Sort::ALL.map(|sort| Zipf::new(tenancy.hot_blocks(sort))),
            disk: Disk::new(files.clone(), simulated)?,
            files,
            cache: OnceLock::new(),
        })
    }

    fn memory(&self) -> Memory {
        Memory::Exactly(self.memory_frames())
    }

    fn lru(&self) -> Option<LruPlan> {
        let bounds = |tenant| self.tenancy.bounds(tenant, self.protect);
        Some(LruPlan {
            lock: self.lock,
            batch: BATCH_MAX as u32,
            policy: self.policy,
            groups: (0..self.tenancy.tenants).map(bounds).collect(),
            index: Arc::clone(self.cache()) as _,
            frees: Frees::AtOnce,
        })
    }

    fn run<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<Reads> {
        self.hold_excess(task, held)?;
        self.read_hot_set(task)?;
        task.meet()?;
        let (tenant, nth) = self.role(task);
        let sort = self.tenancy.sort(tenant);
        let rng = task.place().rng();
        let mut reader = Reader::new(&self.tenancy, sort, nth, &self.popular[sort as usize], rng);
        self.read(task, &mut reader)?;
        task.start_measuring_for(self.time_ns)?;
        self.read(task, &mut reader)
    }

    fn sum_up(&self, outcomes: &[Reads], _: &Besides) -> Findings {
        let per_second: f64 = outcomes.iter().map(Reads::per_second).sum();
        let count = outcomes.iter().map(Reads::count).sum();
        let fields = [
            ("tenants", json!(self.tenancy.tenants)),
            ("hit_share", json!(results::hit_share(outcomes.iter()))),
            ("sorts", json!(results::by_sort(&self.tenancy, outcomes))),
        ];
        let seconds = count as f64 / per_second;
        Findings::new(Work { unit: "reads", count, seconds, per_second }, fields)
    }

    fn show(results: &[RunResult], machine: &Machine) -> Result<()> {
        print_columns(results, machine, Self::COLUMNS, &[])?;
        results::print_by_sort(results)
    }
}

/// The tenants that the settings ask for.
fn tenancy(setup: &Setup<'_>) -> Result<Tenancy> {
    let usage = |message: String| refuse(message);
    let (given, tasks) = (setup.given, setup.tasks);
    let auto = |auto| Auto { simulated: auto, host: auto };
    let one_each = auto(tasks.min(TENANTS_MAX));
    let tenants = setup.number_or_auto(SETTINGS, "tenants", 1..=4095, one_each)?;
    if tenants > tasks {
        return usage(format!(
            "{tenants} tenants need as many tasks: raise --cpus, or lower --set tenants"
        ));
    }
    let one_in_16 = auto((tenants / 16).max(1).min(tenants - 1));
    let noisy = setup.number_or_auto(SETTINGS, "noisy", 0..=4094, one_in_16)?;
    if noisy >= tenants {
        return usage(format!("one of {tenants} tenants must not be noisy: lower --set noisy"));
    }
    let share_frames = frames_of(given, SETTINGS, "share_bytes")?;
    if share_frames < 16 {
        return usage("a share is at least 64KiB: raise --set share_bytes".to_owned());
    }
    Ok(Tenancy { tenants, noisy, share_frames })
}

fn p99_of_scans(result: &RunResult) -> String {
    let of = results::sort_of(result, "scan");
    of.map_or("-".to_owned(), |of| format!("{:.1}", number(of["latency"].get("p99_ns")) / 1e3))
}

/// A share of one sort of tenant; a dash if there are none.
fn hits(result: &RunResult, sort: &str, name: &str) -> String {
    let of = results::sort_of(result, sort);
    of.map_or("-".to_owned(), |of| in_percent(number(of.get(name))))
}

impl Tenants {
    /// The memory that tenants share, above the minimum watermarks.
    fn usable_frames(&self) -> u64 {
        let shares = self.tenancy.shares();
        shares + shares / 8
    }

    /// The memory of the machine: what the watermarks keep grows with its root.
    fn memory_frames(&self) -> FrameCount {
        let usable = self.usable_frames();
        FrameCount::new(usable + usable / 32 + RESERVE_BYTES / FRAME_BYTES)
    }

    fn cache(&self) -> &Arc<PageCache> {
        // With limits, tenants make room for themselves.
        let all_may = self.reclaims_ahead && self.protect != Protect::Max;
        let of_lru = Use {
            first_counts: self.policy != LruPolicy::ScanResistant,
            shadows: self.tenancy.share_frames as usize,
            blocks_max: all_may.then_some(self.tenancy.shares()),
        };
        let new = || PageCache::new(self.files.clone(), self.memory_frames(), of_lru);
        self.cache.get_or_init(|| Arc::new(new()))
    }

    /// The tenant of a task, and how many tasks with lower numbers work for it.
    fn role<T: Task>(&self, task: &T) -> (usize, usize) {
        let task = task.place().index;
        (task % self.tenancy.tenants, task / self.tenancy.tenants)
    }

    /// Holds this task's part of what the machine has beyond the memory that tenants share.
    fn hold_excess<T: Task>(&self, task: &T, held: &mut Vec<Block>) -> Result<()> {
        let zones = task.allocator().levels();
        let above = |zone: &ZoneLevel| zone.free.get().saturating_sub(zone.marks.min.get());
        let excess = zones.iter().map(above).sum::<u64>().saturating_sub(self.usable_frames());
        task.meet()?;
        for _ in (task.place().index as u64..excess).step_by(self.tasks) {
            let pfn = task.alloc(Request::default())?;
            held.push(Block { pfn, order: Order::ZERO });
        }
        task.meet()
    }

    /// Reads the hot set of a task's tenant twice, without waiting for the disk.
    fn read_hot_set<T: Task>(&self, task: &T) -> Result<()> {
        let (tenant, _) = self.role(task);
        let first = self.files.first(tenant);
        let blocks = first..first + self.tenancy.hot_blocks(self.tenancy.sort(tenant));
        for block in blocks.clone().chain(blocks) {
            let read = Read { block, group: task.group(tenant), wait_ns: 0 };
            self.cache().read(task, &self.disk, read)?;
        }
        Ok(())
    }

    /// Reads for as long as the measurement takes.
    fn read<T: Task>(&self, task: &T, reader: &mut Reader<'_>) -> Result<Reads> {
        let (tenant, _) = self.role(task);
        let (first, group) = (self.files.first(tenant), task.group(tenant));
        let (cache, mut reads) = (self.cache(), Reads::default());
        let began_ns = task.now_ns();
        let mut now_ns = began_ns;
        while now_ns < began_ns + self.time_ns {
            let step = reader.next();
            task.charge(&[Key::TrapNs]);
            let wait_ns = if step.waits { self.disk_ns } else { 0 };
            let read = Read { block: first + step.block, group, wait_ns };
            let found = cache.read(task, &self.disk, read)?;
            *match found {
                Found::Cached => &mut reads.hits,
                Found::Evicted | Found::Nothing => &mut reads.misses,
            } += 1;
            reads.refaults += u64::from(found == Found::Evicted);
            let ended_ns = task.now_ns();
            let latency_ns = ended_ns.saturating_sub(now_ns);
            reads.latencies_ns.push(latency_ns.try_into().unwrap_or(u32::MAX));
            now_ns = ended_ns;
        }
        reads.elapsed_ns = now_ns - began_ns;
        Ok(reads)
    }
}

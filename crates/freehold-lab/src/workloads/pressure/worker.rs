//! What a task allocates, and what it does when memory is short.

use std::collections::VecDeque;

use anyhow::Result;
use fastrand::Rng;
use freehold::{MigrateType, Order, Request, Watermark};
use serde_json::{Value, json};

use super::cache::Cache;
use crate::report::summary::Quantiles;
use crate::task::{Block, FAULT_ENTRY, Task};

/// How often a request reclaims before it fails (`MAX_RECLAIM_RETRIES`).
const ROUNDS: usize = 16;

/// How long a task waits whose request has failed.
const RETRY_NS: u64 = 10_000;

/// Of 1000 requests, how many are for what.
#[derive(Clone, Copy)]
pub(super) struct Mix {
    pub(super) huge: u64,
    pub(super) unmovable: u64,
    /// Unmovable as well, each of these orders as often.
    pub(super) orders_1_3: u64,
}

/// Requests by order: 0, then 1 to 3, then 9.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Single,
    Few,
    Huge,
}

impl Class {
    pub(super) const ALL: [Class; 3] = [Class::Single, Class::Few, Class::Huge];

    fn of(order: Order) -> Self {
        match order {
            Order::ZERO => Class::Single,
            Order::PAGEBLOCK => Class::Huge,
            _ => Class::Few,
        }
    }
}

/// What became of one class of requests.
#[derive(Default)]
pub(super) struct Calls {
    got: u64,
    failed: u64,
    /// Those that reclaimed by themselves.
    direct: u64,
    latencies_ns: Vec<u64>,
}

/// What a task has done.
#[derive(Default)]
pub(crate) struct Tally {
    pub(super) calls: [Calls; 3],
    /// Pages that were dropped, in the background and by requests; and of the latter, those that
    /// did not yield the block.
    pub(super) background: u64,
    pub(super) direct: u64,
    pub(super) wasted: u64,
    /// Pages that were cached in the end, as the background saw it.
    pub(super) cached: u64,
}

impl Tally {
    pub(super) fn got(&self) -> u64 {
        self.calls.iter().map(|calls| calls.got).sum()
    }
}

/// Sums up one class of requests of all tasks.
pub(super) fn sum_up(class: Class, tallies: &[Tally]) -> Value {
    let calls = || tallies.iter().map(|tally| &tally.calls[class as usize]);
    let sum = |count: fn(&Calls) -> u64| calls().map(count).sum::<u64>();
    let (got, failed) = (sum(|calls| calls.got), sum(|calls| calls.failed));
    let asked = (got + failed).max(1) as f64;
    let direct = sum(|calls| calls.direct);
    json!({
        "got": got,
        "failed": failed,
        "success": got as f64 / asked,
        "direct_share": direct as f64 / asked,
        "latency": Quantiles::of(calls().flat_map(|calls| calls.latencies_ns.iter().copied())),
    })
}

/// A task that allocates.
pub(super) struct Worker<'a, T> {
    task: &'a T,
    cache: &'a Cache,
    mix: Mix,
    rng: Rng,
    /// Unmovable blocks, whose frames are `lasting_most` at most, and huge ones.
    lasting: Vec<Block>,
    lasting_frames: u64,
    lasting_most: u64,
    huge: VecDeque<Block>,
    huge_most: usize,
    tally: Tally,
}

impl<'a, T: Task> Worker<'a, T> {
    /// One that keeps so many unmovable frames, and so many frames in huge pages.
    pub(super) fn new(task: &'a T, cache: &'a Cache, mix: Mix, most: (u64, u64)) -> Self {
        let huge_most = (most.1 / Order::PAGEBLOCK.frames().get()) as usize;
        Worker {
            task,
            cache,
            mix,
            rng: task.place().rng(),
            lasting: Vec::new(),
            lasting_frames: 0,
            lasting_most: most.0,
            huge: VecDeque::new(),
            huge_most,
            tally: Tally::default(),
        }
    }

    /// Allocates until memory is short.
    pub(super) fn fill(&mut self) -> Result<()> {
        while !self.cache.is_short(self.task) {
            self.step(u64::MAX)?;
        }
        Ok(())
    }

    /// Allocates until `end_ns`. Returns what became of it.
    pub(super) fn run(&mut self, end_ns: u64) -> Result<Tally> {
        self.tally = Tally::default();
        while self.task.now_ns() < end_ns {
            self.step(end_ns)?;
        }
        Ok(std::mem::take(&mut self.tally))
    }

    /// What this task still has, but for cached pages.
    pub(super) fn end(self) -> impl Iterator<Item = Block> {
        self.lasting.into_iter().chain(self.huge)
    }

    /// One request, and what becomes of its block.
    fn step(&mut self, end_ns: u64) -> Result<()> {
        let task = self.task;
        let request = self.next();
        task.charge(&FAULT_ENTRY);
        let Some(block) = self.alloc(request, end_ns)? else {
            task.idle_ns(RETRY_NS);
            return Ok(());
        };
        match (Class::of(block.order), request.content()) {
            (Class::Huge, _) => {
                task.map(block);
                self.huge.push_back(block);
                if self.huge.len() > self.huge_most
                    && let Some(oldest) = self.huge.pop_front()
                {
                    task.unmap(oldest)?;
                }
            }
            (Class::Single, MigrateType::Movable) => {
                task.map(block);
                self.cache.add(task, block)?;
            }
            _ => {
                task.touch(block.pfn);
                self.lasting_frames += block.order.frames().get();
                self.lasting.push(block);
                while self.lasting_frames > self.lasting_most {
                    let old = self.lasting.swap_remove(self.rng.usize(..self.lasting.len()));
                    self.lasting_frames -= old.order.frames().get();
                    task.free(old)?;
                }
            }
        }
        Ok(())
    }

    /// The next request.
    fn next(&mut self) -> Request {
        let Mix { huge, unmovable, orders_1_3 } = self.mix;
        let kind = self.rng.u64(..1000);
        if kind < huge {
            Request::new(Order::PAGEBLOCK)
        } else if kind < huge + unmovable {
            Request::default().migratetype(MigrateType::Unmovable)
        } else if kind < huge + unmovable + orders_1_3 {
            Request::new(Order::new(self.rng.u8(1..=3))).migratetype(MigrateType::Unmovable)
        } else {
            Request::default()
        }
    }

    /// Allocates as `__alloc_pages` does, and notes what became of it, unless that was later.
    fn alloc(&mut self, request: Request, end_ns: u64) -> Result<Option<Block>> {
        let (task, class) = (self.task, Class::of(request.order()) as usize);
        let began_ns = task.now_ns();
        let block = match task.try_alloc(request.at_hand().watermark(Watermark::Low))? {
            Some(block) => Some(block),
            None => self.alloc_slowly(request)?,
        };
        let ended_ns = task.now_ns();
        if ended_ns <= end_ns {
            let calls = &mut self.tally.calls[class];
            *(if block.is_some() { &mut calls.got } else { &mut calls.failed }) += 1;
            calls.latencies_ns.push(ended_ns - began_ns);
        }
        Ok(block)
    }

    /// As `__alloc_pages_slowpath`: wakes the background, dips to the minimum watermark, compacts,
    /// and reclaims, unless a huge page is wanted, for which a fault would not. What other CPUs
    /// cache is collected when reclaim did not suffice.
    fn alloc_slowly(&mut self, request: Request) -> Result<Option<Block>> {
        let (task, class) = (self.task, Class::of(request.order()));
        self.cache.wake(task, request.order());
        let at_hand = || task.try_alloc(request.at_hand());
        let collected = || match class {
            Class::Single => task.try_alloc(request),
            _ => self.cache.owners.try_alloc_compacting(task, request),
        };
        if let Some(block) = at_hand()? {
            return Ok(Some(block));
        }
        if class != Class::Single
            && let Some(block) = collected()?
        {
            return Ok(Some(block));
        }
        if class == Class::Huge {
            return Ok(None);
        }
        self.tally.calls[class as usize].direct += 1;
        for _ in 0..ROUNDS {
            let dropped = self.cache.drop_some(task)?;
            self.tally.direct += dropped;
            if dropped == 0 {
                break;
            }
            for attempt in [&at_hand as &dyn Fn() -> _, &collected] {
                if let Some(block) = attempt()? {
                    return Ok(Some(block));
                }
            }
            self.tally.wasted += dropped;
        }
        Ok(None)
    }
}

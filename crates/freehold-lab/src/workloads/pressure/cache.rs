//! The cached pages of all tasks, which reclaim drops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use freehold::{FrameCount, Order, Pfn, Request};

use super::worker::Tally;
use crate::frames::{CLUSTER, below_high};
use crate::task::owners::Owners;
use crate::task::{Block, Task, UNMAPPING};

/// How long the background sleeps before it looks again whether it is wanted.
const NAP_NS: u64 = 10_000;

/// Pages by task, without the first. Reclaim takes from the tasks in turns, the oldest pages first.
pub(crate) struct Cache {
    pub(super) owners: Owners,
    queues: Vec<Mutex<Queue>>,
    /// The task whose turn it is.
    turn: AtomicUsize,
    /// Whether an allocation has found its zones below the low watermark (`wakeup_kswapd`).
    short: AtomicBool,
    /// Whether it was for a huge page.
    huge: AtomicBool,
}

/// The slots of a task.
struct Queue {
    /// Those that have a page, the oldest first.
    cached: VecDeque<usize>,
    empty: Vec<usize>,
}

impl Cache {
    /// Room for all of so many tasks but the first to cache pages, together all memory.
    pub(super) fn new(tasks: usize, memory: FrameCount) -> Self {
        let each = (memory.get() as usize).div_ceil(tasks - 1);
        let queue = |task| Queue {
            cached: VecDeque::with_capacity(each),
            empty: (task * each..(task + 1) * each).rev().collect(),
        };
        Cache {
            owners: Owners::new(each * (tasks - 1), memory),
            queues: (0..tasks - 1).map(queue).map(Mutex::new).collect(),
            turn: AtomicUsize::new(0),
            short: AtomicBool::new(false),
            huge: AtomicBool::new(false),
        }
    }

    /// Caches a page of this task.
    pub(super) fn add<T: Task>(&self, task: &T, page: Block) -> Result<()> {
        let own = task.place().index - 1;
        task.in_order();
        let slot = loop {
            let empty = self.queue(own).empty.pop();
            match empty {
                Some(slot) => break slot,
                None => self.drop_from(task, own)?,
            };
        };
        self.owners.put(slot, page);
        self.queue(own).cached.push_back(slot);
        Ok(())
    }

    /// Drops up to 32 pages of the task whose turn it is. Returns how many: none if there are none.
    pub(super) fn drop_some<T: Task>(&self, task: &T) -> Result<u64> {
        for _ in 0..self.queues.len() {
            task.in_order();
            let of = self.turn.fetch_add(1, Relaxed) % self.queues.len();
            let dropped = self.drop_from(task, of)?;
            if dropped > 0 {
                return Ok(dropped);
            }
        }
        Ok(0)
    }

    fn drop_from<T: Task>(&self, task: &T, of: usize) -> Result<u64> {
        let slots: Vec<usize> = {
            let mut queue = self.queue(of);
            let count = queue.cached.len().min(CLUSTER as usize);
            queue.cached.drain(..count).collect()
        };
        let mut pages: Vec<Pfn> = Vec::with_capacity(slots.len());
        for &slot in &slots {
            task.charge(&UNMAPPING);
            pages.extend(self.owners.take(task, slot)?.map(|page| page.pfn));
        }
        if !pages.is_empty() {
            task.free_bulk(&pages)?;
        }
        task.in_order();
        self.queue(of).empty.extend(slots);
        Ok(pages.len() as u64)
    }

    /// Has the background reclaim, for a block of this order.
    pub(super) fn wake<T: Task>(&self, task: &T, order: Order) {
        task.in_order();
        self.short.store(true, Relaxed);
        if order == Order::PAGEBLOCK {
            self.huge.store(true, Relaxed);
        }
    }

    /// Whether the background has been woken since it was done last.
    pub(super) fn is_short<T: Task>(&self, task: &T) -> bool {
        task.in_order();
        self.short.load(Relaxed)
    }

    /// What `kswapd` and `kcompactd` do until `end_ns`: whenever they are woken, they reclaim until
    /// all zones are above their high watermarks; for a huge page at least two of its size, and
    /// then compact once (`kswapd_shrink_node`).
    pub(super) fn reclaim_in_background<T: Task>(&self, task: &T, end_ns: u64) -> Result<Tally> {
        let mut tally = Tally::default();
        while task.now_ns() < end_ns {
            if !self.is_short(task) {
                task.idle_ns(NAP_NS);
                continue;
            }
            let huge = self.huge.swap(false, Relaxed);
            let mut lacking = if huge { 2 * Order::PAGEBLOCK.frames().get() } else { 0 };
            while (lacking > 0 || below_high(task.allocator()) > 0) && task.now_ns() < end_ns {
                let dropped = self.drop_some(task)?;
                if dropped == 0 {
                    break;
                }
                tally.background += dropped;
                lacking = lacking.saturating_sub(dropped);
            }
            let request = Request::new(Order::PAGEBLOCK);
            if huge && let Some(block) = self.owners.try_alloc_compacting(task, request)? {
                task.free(block)?;
            }
            self.short.store(false, Relaxed);
        }
        tally.cached = self.len() as u64;
        Ok(tally)
    }

    fn len(&self) -> usize {
        (0..self.queues.len()).map(|task| self.queue(task).cached.len()).sum()
    }

    /// The pages of all tasks, at a time when none does anything.
    pub(super) fn all(&self) -> impl Iterator<Item = Block> + '_ {
        self.owners.blocks(0..self.owners.slots())
    }

    fn queue(&self, of: usize) -> MutexGuard<'_, Queue> {
        self.queues[of].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Attempts to allocate huge pages, as Linux 6.12 makes them for `GFP_HIGHUSER_MOVABLE`, the flags
//! of the original.
//!
//! An attempt may take a free block, compact memory, reclaim once, and compact once more; then it
//! fails, since a block of that order is costly and nothing says that it is worth a retry
//! (`__alloc_pages_slowpath`: neither `should_reclaim_retry` nor `should_compact_retry` is asked
//! then). The one reclaim ends when compaction has free memory to work with, the low watermark and
//! two blocks (`should_continue_reclaim`, `compact_gap`), or when all 13 priorities are used up.
//! Whether to compact at all is the allocator's decision: it defers after failures, as Linux does.
//!
//! An attempt that found no block above the low watermark has woken `kswapd`. That reclaims until
//! zones are above their high watermarks and it has reclaimed two blocks (`kswapd_shrink_node`);
//! then `kcompactd` compacts once until a block is free. Here the task that attempts does both
//! while it waits for its next attempt, in no attempt's time.

use anyhow::Result;
use freehold::{Order, Request, Watermark};

use super::trees::{Trees, below_gap};
use crate::frames::{CLUSTER, below_high};
use crate::task::{Block, Task};

/// The blocks that are asked for.
pub(super) const HUGE: Order = Order::PAGEBLOCK;

/// `DEF_PRIORITY` down to 0.
const PRIORITIES: usize = 13;

/// The results of the attempts of one pass.
#[derive(Default)]
pub(crate) struct Pass {
    pub(super) got: Vec<Block>,
    /// Frames that attempts have reclaimed, and those that were reclaimed between them.
    pub(super) reclaimed: u64,
    pub(super) reclaimed_between: u64,
    /// How long attempts took that got a block, and those that did not.
    pub(super) successes_ns: Vec<u64>,
    pub(super) failures_ns: Vec<u64>,
    pub(super) ns: u64,
}

impl Pass {
    /// Makes so many attempts, and holds what it gets.
    pub(super) fn run<T: Task>(task: &T, trees: &Trees, count: u64, delay_ns: u64) -> Result<Pass> {
        let mut pass = Pass::default();
        let began_ns = task.now_ns();
        for _ in 0..count {
            let asked_ns = task.now_ns();
            let at_hand = task.try_alloc(Request::new(HUGE).watermark(Watermark::Low))?;
            let wakes = at_hand.is_none();
            let block = match at_hand {
                Some(block) => Some(block),
                None => pass.work_for_one(task, trees)?,
            };
            let took_ns = task.now_ns() - asked_ns;
            match block {
                Some(block) => {
                    pass.successes_ns.push(took_ns);
                    pass.got.push(block);
                }
                None => pass.failures_ns.push(took_ns),
            }
            if wakes {
                pass.work_between(task, trees)?;
            }
            let since_ns = task.now_ns() - asked_ns;
            task.idle_ns(delay_ns.saturating_sub(since_ns));
        }
        pass.ns = task.now_ns() - began_ns;
        Ok(pass)
    }

    /// What an attempt does if no block is at hand.
    fn work_for_one<T: Task>(&mut self, task: &T, trees: &Trees) -> Result<Option<Block>> {
        let compact = || trees.owners.try_alloc_compacting(task, Request::new(HUGE));
        if let Some(block) = compact()? {
            return Ok(Some(block));
        }
        for _ in 0..PRIORITIES {
            let lacking = below_gap(task, HUGE);
            let reclaimed = if lacking == 0 { 0 } else { trees.reclaim(task, lacking)? };
            self.reclaimed += reclaimed;
            if reclaimed == 0 {
                break;
            }
        }
        compact()
    }

    /// What `kswapd` and `kcompactd` do after an attempt.
    fn work_between<T: Task>(&mut self, task: &T, trees: &Trees) -> Result<()> {
        let gap = 2 * HUGE.frames().get();
        let mut reclaimed = 0;
        while reclaimed < gap || below_high(task.allocator()) > 0 {
            match trees.reclaim(task, CLUSTER)? {
                0 => break,
                frames => reclaimed += frames,
            }
        }
        self.reclaimed_between += reclaimed;
        if let Some(block) = trees.owners.try_alloc_compacting(task, Request::new(HUGE))? {
            task.free(block)?;
        }
        Ok(())
    }
}

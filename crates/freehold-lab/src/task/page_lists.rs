//! Anonymous pages on the library's LRU: put there when they are faulted in, and taken off before
//! they are freed. Nothing is reclaimed, since there is enough memory.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use freehold::{Pfn, Setting};
use freehold_lru::{BATCH_MAX, Kind, LruLock, LruPolicy};

use super::lru::{Bounds, Frees, Index, LOCKS, LruPlan};
use super::{Task, UNLISTED_UNMAPPING};
use crate::settings::{Assignments, setting};

/// The settings, with the defaults of a workload: lock, batch, groups.
pub(crate) const fn settings(
    lock: &'static str,
    batch: &'static str,
    groups: &'static str,
) -> [Setting; 4] {
    [
        setting("lru", "node|group|shards|off", lock)
            .means("keep pages on LRU lists with a lock a node, one a group on it, or shards"),
        setting("lru_batch", "1..=31", batch)
            .means("pages collected for one hold of the LRU lock (Linux 4.16: 15, 6.12: 31)"),
        setting("groups", "tasks|one", groups)
            .means("memory groups that pages are charged to: one for each task, or one for all"),
        setting("gather", "31..=9690", "31")
            .means("pages that are unmapped, each in turn, before any is released (Linux: 9690)"),
    ]
}

/// How pages are kept.
pub(crate) struct PageLists {
    lock: LruLock,
    batch: u32,
    group_each: bool,
    pub(crate) gather: usize,
    left: Arc<Left>,
}

/// The pages that are on lists when the tasks are done.
#[derive(Default)]
struct Left(Mutex<Vec<Pfn>>);

impl Index for Left {
    fn take_all(&self) -> Vec<Pfn> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PageLists {
    /// What the settings say, which are in `table`; `None` for no lists.
    pub(crate) fn parse(given: &Assignments, table: &'static [Setting]) -> Result<Option<Self>> {
        let locks = LOCKS.into_iter().map(|(name, lock)| (name, Some(lock)));
        let locks: Vec<_> = locks.chain([("off", None)]).collect();
        let lock = given.word(table, "lru", &locks)?;
        let batch = given.number(table, "lru_batch", 1..=BATCH_MAX)? as u32;
        let group_each = given.word(table, "groups", &[("tasks", true), ("one", false)])?;
        let gather = given.number(table, "gather", BATCH_MAX..=9690)?;
        Ok(lock.map(|lock| PageLists { lock, batch, group_each, gather, left: Arc::default() }))
    }

    /// The LRU for so many tasks.
    pub(crate) fn plan(&self, tasks: usize, frees: Frees) -> LruPlan {
        LruPlan {
            lock: self.lock,
            batch: self.batch,
            policy: LruPolicy::default(),
            groups: vec![Bounds::default(); if self.group_each { tasks } else { 1 }],
            index: Arc::clone(&self.left) as _,
            frees,
        }
    }

    /// Keeps pages on their lists until the end of the run.
    pub(crate) fn keep(&self, pages: &[Pfn]) {
        self.left.0.lock().unwrap_or_else(PoisonError::into_inner).extend(pages);
    }
}

/// Unmaps pages, of which no more are given than are gathered before any is released.
pub(crate) fn unmap<T: Task>(task: &T, pages: &[Pfn]) -> Result<()> {
    for &pfn in pages {
        task.charge(&UNLISTED_UNMAPPING);
        if pages.len() > BATCH_MAX {
            // Removing the reverse mapping, Linux writes what it knows of the page.
            task.lru().frame_stats(pfn)?;
        }
    }
    pages.chunks(BATCH_MAX).try_for_each(|batch| task.unlist(batch))
}

/// Charges a task's group for a page that it has faulted in, and puts the page into a batch for
/// the lists.
pub(crate) fn add<T: Task>(task: &T, pfn: Pfn) -> Result<()> {
    Ok(task.lru().add(pfn, task.group(task.place().index), Kind::Anon)?)
}

//! The memory of a task: what a page fault is, and what unmapping is.
//!
//! Work outside the allocator is charged by a simulated machine's table, but for the lists of
//! recently used pages and the memory groups: these are the library's (`lru`), so a fault charges
//! its group and puts its page into a batch, and an unmapping takes pages off their lists in
//! batches.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use freehold::lru::{BATCH_MAX, Kind, LruLock, LruPolicy};
use freehold::{Order, Pfn, Request, Setting};
use freehold_sim::Key;

use crate::settings::Assignments;
use crate::task::lru::{Bounds, Index, LruPlan};
use crate::task::{Block, FAULT_ENTRY, Task, UNMAPPING};

/// The settings, with the lock that is the default.
const fn settings(lock: &'static str) -> [Setting; 3] {
    [
        Setting {
            name: "lru",
            values: "node|group|off",
            default: lock,
            meaning: "keep pages on LRU lists under one lock a node, or one a group on a node",
        },
        Setting {
            name: "lru_batch",
            values: "1..=31",
            default: "15",
            meaning: "pages collected for one hold of the LRU lock (Linux 4.16: 15, 6.12: 31)",
        },
        Setting {
            name: "groups",
            values: "tasks|one",
            default: "tasks",
            meaning: "memory groups that pages are charged to: one for each task, or one for all",
        },
    ]
}

/// A simulated fault is a whole one.
pub(super) const ON_SIM: &[Setting] = &settings("node");

/// What is measured on the host is the allocator, unless asked otherwise.
pub(super) const ON_HOST: &[Setting] = &settings("off");

/// How pages are kept.
pub(super) struct PageLists {
    lock: LruLock,
    batch: u32,
    group_each: bool,
    left: Arc<Left>,
}

/// The pages that are on lists when the tasks are done.
#[derive(Default)]
struct Left(Mutex<Vec<Pfn>>);

/// There is enough memory, so nothing is reclaimed.
impl Index for Left {
    fn take_all(&self) -> Vec<Pfn> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PageLists {
    /// What the settings say; `None` for no lists.
    pub(super) fn parse(given: &Assignments, simulated: bool) -> Result<Option<Self>> {
        let table = if simulated { ON_SIM } else { ON_HOST };
        let locks = [("node", Some(LruLock::Node)), ("group", Some(LruLock::Group)), ("off", None)];
        let lock = given.word(table, "lru", &locks)?;
        let batch = given.number(table, "lru_batch", 1..=BATCH_MAX)? as u32;
        let group_each = given.word(table, "groups", &[("tasks", true), ("one", false)])?;
        Ok(lock.map(|lock| PageLists { lock, batch, group_each, left: Arc::default() }))
    }

    /// The LRU for so many tasks.
    pub(super) fn plan(&self, tasks: usize) -> LruPlan {
        LruPlan {
            lock: self.lock,
            batch: self.batch,
            policy: LruPolicy::default(),
            groups: vec![Bounds::default(); if self.group_each { tasks } else { 1 }],
            index: Arc::clone(&self.left) as _,
            tasks_free: true,
        }
    }

    /// Keeps pages on their lists until the end of the run.
    pub(super) fn keep(&self, pages: &[Pfn]) {
        self.left.0.lock().unwrap_or_else(PoisonError::into_inner).extend(pages);
    }
}

/// What is done of a fault, and of what undoes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// All of it.
    Whole,
    /// The memory is allocated and touched.
    Touch,
    /// The memory is allocated.
    Nothing,
}

/// The memory of a task.
pub(super) struct Mapping<'a, T> {
    pub(super) task: &'a T,
    /// How many frames it has when all is faulted in.
    pub(super) frames: usize,
    pub(super) fault: Fault,
    /// Whether the pages of whole faults are on lists.
    lists: bool,
    /// The frames, in the order of their addresses.
    held: Vec<Pfn>,
    /// How many of them, from the front, have been given back.
    freed: usize,
}

impl<'a, T: Task> Mapping<'a, T> {
    pub(super) fn new(task: &'a T, frames: usize, lists: bool) -> Self {
        let held = Vec::with_capacity(frames);
        Mapping { task, frames, fault: Fault::Whole, lists, held, freed: 0 }
    }

    /// Whether pages are on lists.
    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        self.lists && self.fault == Fault::Whole
    }

    /// The frames that are mapped.
    #[inline]
    pub(super) fn mapped(&self) -> &[Pfn] {
        &self.held[self.freed..]
    }

    /// Whether the next frame can be faulted in: none has been given back yet, and some are left.
    #[inline]
    pub(super) fn is_filling(&self) -> bool {
        self.freed == 0 && self.held.len() < self.frames
    }

    #[inline(always)]
    pub(super) fn fault(&mut self) -> Result<()> {
        let task = self.task;
        self.charge(&FAULT_ENTRY);
        let pfn = task.alloc(Request::default())?;
        match self.fault {
            Fault::Whole => task.clear(block(pfn)),
            Fault::Touch => task.touch(pfn),
            Fault::Nothing => {}
        }
        self.charge(&[Key::PageTableNs]);
        match self.is_listed() {
            true => task.lru().add(pfn, task.group(task.place().index), Kind::Anon)?,
            false => self.charge(&[Key::AccountingNs]),
        }
        self.held.push(pfn);
        Ok(())
    }

    /// Unmaps some pages, and at most so many; returns how many they were.
    pub(super) fn unmap(&mut self, most: usize) -> Result<usize> {
        let pages = self.mapped();
        let count = most.min(pages.len());
        let count = if self.is_listed() {
            // The library hands back as many at once.
            let pages = &pages[..count.min(BATCH_MAX)];
            pages.iter().for_each(|_| self.charge(&[Key::UnmapNs, Key::UnmapRestNs]));
            self.task.unlist(pages)?;
            pages.len()
        } else {
            for &pfn in &pages[..count] {
                self.charge(&UNMAPPING);
                self.task.free(block(pfn))?;
            }
            count
        };
        self.freed += count;
        if self.freed == self.held.len() {
            self.held.clear();
            self.freed = 0;
        }
        Ok(count)
    }

    /// Does work outside the allocator.
    #[inline]
    fn charge(&self, works: &[Key]) {
        if self.fault == Fault::Whole {
            self.task.charge(works);
        }
    }
}

/// A page.
#[inline]
pub(super) fn block(pfn: Pfn) -> Block {
    Block { pfn, order: Order::ZERO }
}

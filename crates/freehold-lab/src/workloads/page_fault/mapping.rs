//! The memory of a task: what a page fault is, and what unmapping is.
//!
//! Work outside the allocator is charged by a simulated machine's table, but for the lists of
//! recently used pages and the memory groups: these are the library's (`lru`), so a fault charges
//! its group and puts its page into a batch, and an unmapping takes pages off their lists in
//! batches.

use anyhow::Result;
use freehold::{Order, Pfn, Request, Setting};
use freehold_sim::Key;

use crate::task::page_lists;
use crate::task::{Block, FAULT_ENTRY, Task, UNMAPPING};

/// A simulated fault is a whole one. The batch is that of Linux 4.16, as the series were measured.
pub(super) const ON_SIM: &[Setting] = &page_lists::settings("node", "15", "tasks");

/// What is measured on the host is the allocator, unless asked otherwise.
pub(super) const ON_HOST: &[Setting] = &page_lists::settings("off", "15", "tasks");

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
    /// How many pages are gathered, if those of whole faults are on lists.
    gather: Option<usize>,
    /// The frames, in the order of their addresses.
    held: Vec<Pfn>,
    /// How many of them, from the front, have been given back.
    freed: usize,
}

impl<'a, T: Task> Mapping<'a, T> {
    pub(super) fn new(task: &'a T, frames: usize, gather: Option<usize>) -> Self {
        let held = Vec::with_capacity(frames);
        Mapping { task, frames, fault: Fault::Whole, gather, held, freed: 0 }
    }

    /// Whether pages are on lists.
    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        self.gather.is_some() && self.fault == Fault::Whole
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
            true => page_lists::add(task, pfn)?,
            false => self.charge(&[Key::AccountingNs]),
        }
        self.held.push(pfn);
        Ok(())
    }

    /// Unmaps some pages, and at most so many; returns how many they were.
    pub(super) fn unmap(&mut self, most: usize) -> Result<usize> {
        let pages = self.mapped();
        let count = most.min(pages.len());
        let count = if let (true, Some(gather)) = (self.is_listed(), self.gather) {
            let pages = &pages[..count.min(gather)];
            page_lists::unmap(self.task, pages)?;
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

//! The pages of the tasks on a simulated machine: charged to groups and kept on lists by the
//! library's LRU.

use std::cell::RefCell;

use anyhow::Result;
use freehold::lru::{Claim, Kind, Owner, Verdict};
use freehold::platform::Platform;
use freehold::{Config, Error, Pfn};
use freehold_sim::{Machine, Sim, SimLru};

use super::lists::{Groups, PageLists};
use crate::books::check_none_listed;

/// The lists, and the groups of the tasks.
pub(super) struct Pages {
    lru: SimLru<Unmapped>,
    groups: Groups,
}

/// Pages that are on no list any more, by the CPU that took them off, until its task frees them.
struct Unmapped(RefCell<Vec<Vec<Pfn>>>);

/// There is enough memory, so nobody reclaims.
impl Owner for Unmapped {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Keep
    }

    fn forget(&self, _frame: Pfn, _claim: Claim<'_>) {}

    fn release(&self, frames: &[Pfn]) {
        self.0.borrow_mut()[Sim.cpu().index()].extend(frames);
    }
}

impl Pages {
    pub(super) fn new(
        machine: &mut Machine,
        config: &Config<'_>,
        lists: PageLists,
        tasks: usize,
    ) -> Result<Self> {
        let unmapped = Unmapped(RefCell::new(vec![Vec::new(); tasks]));
        let lru = SimLru::new(machine, Sim, config, &lists.settings(tasks), unmapped)?;
        let groups = lists.make_groups(&lru, tasks)?;
        Ok(Pages { lru, groups })
    }

    /// Charges a task for a page, and puts it into a batch.
    pub(super) fn map(&self, pfn: Pfn, task: usize) -> Result<(), Error> {
        self.lru.add(pfn, self.groups.of(task), Kind::Anon)
    }

    /// Takes pages off their lists; returns those that the task can free now. A page that waits in
    /// a batch is on no list yet: it is among those of a later call.
    pub(super) fn unmap(&self, pages: &[Pfn], task: usize) -> Result<Vec<Pfn>, Error> {
        self.lru.put_bulk(pages).map_err(|stopped| stopped.error)?;
        Ok(std::mem::take(&mut self.lru.owner().0.borrow_mut()[task]))
    }

    /// Takes all pages that are left off their lists, at a time when no task runs; returns them.
    pub(super) fn unmap_all(&self, pages: &[Pfn]) -> Result<Vec<Pfn>> {
        self.lru.drain_all();
        self.lru.put_bulk(pages)?;
        check_none_listed(&self.lru)?;
        Ok(self.lru.owner().0.take().concat())
    }
}

//! The pages of the tasks on a simulated machine: charged to groups and kept on lists by the
//! library's LRU.

use std::cell::RefCell;

use anyhow::{Result, ensure};
use freehold::lru::{BATCH_MAX, Claim, GroupId, Kind, LruLock, LruSettings, Owner, Verdict};
use freehold::platform::Platform;
use freehold::{Config, Error, Pfn, Setting};
use freehold_sim::{Machine, Sim, SimLru};

use crate::settings::Assignments;

/// How pages are kept.
#[derive(Clone, Copy)]
pub(super) struct PageLists {
    lock: LruLock,
    batch: u32,
    group_each: bool,
}

impl PageLists {
    /// What the settings say; `None` for no lists.
    pub(super) fn parse(given: &Assignments, table: &'static [Setting]) -> Result<Option<Self>> {
        let locks = [("node", Some(LruLock::Node)), ("group", Some(LruLock::Group)), ("off", None)];
        let lock = given.word(table, "lru", &locks)?;
        let batch = given.number(table, "lru_batch", 1..=BATCH_MAX)? as u32;
        let group_each = given.word(table, "groups", &[("tasks", true), ("one", false)])?;
        Ok(lock.map(|lock| PageLists { lock, batch, group_each }))
    }
}

/// The lists, and the groups of the tasks.
pub(super) struct Pages {
    lru: SimLru<Unmapped>,
    groups: Vec<GroupId>,
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
    /// How many pages are unmapped at a time: the library hands back as many at once.
    pub(super) const UNMAPPED_MAX: usize = BATCH_MAX;

    pub(super) fn new(
        machine: &mut Machine,
        config: &Config<'_>,
        lists: PageLists,
        tasks: usize,
    ) -> Result<Self> {
        let PageLists { lock, batch, group_each } = lists;
        let groups = 1 + if group_each { tasks } else { 1 };
        let settings = LruSettings { lock, batch, groups: groups as u32, ..LruSettings::default() };
        let unmapped = Unmapped(RefCell::new(vec![Vec::new(); tasks]));
        let lru = SimLru::new(machine, Sim, config, &settings, unmapped)?;
        let groups: Result<Vec<_>, _> =
            (1..groups).map(|_| lru.create_group(GroupId::ROOT, None)).collect();
        Ok(Pages { lru, groups: groups? })
    }

    /// Charges a task for a page, and puts it into a batch.
    pub(super) fn map(&self, pfn: Pfn, task: usize) -> Result<(), Error> {
        self.lru.add(pfn, self.groups[task % self.groups.len()], Kind::Anon)
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
        self.lru.drain_all();
        let unmapped = self.lru.owner().0.take().concat();
        let census = self.lru.validate()?;
        ensure!(census.used.get() == 0, "{} are on lists, and nobody has mapped them", census.used);
        Ok(unmapped)
    }
}

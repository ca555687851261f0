//! The lists of pages and the memory groups: the settings of both machines.

use anyhow::Result;
use freehold::lru::{BATCH_MAX, GroupId, Lru, LruLock, LruSettings, Owner};
use freehold::platform::Platform;
use freehold::{Error, Setting};

use crate::settings::Assignments;

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
#[derive(Clone, Copy)]
pub(super) struct PageLists {
    lock: LruLock,
    batch: u32,
    group_each: bool,
}

impl PageLists {
    /// How many pages are unmapped at a time: the library hands back as many at once.
    pub(super) const UNMAPPED_MAX: usize = BATCH_MAX;

    /// What the settings say; `None` for no lists.
    pub(super) fn parse(given: &Assignments, table: &'static [Setting]) -> Result<Option<Self>> {
        let locks = [("node", Some(LruLock::Node)), ("group", Some(LruLock::Group)), ("off", None)];
        let lock = given.word(table, "lru", &locks)?;
        let batch = given.number(table, "lru_batch", 1..=BATCH_MAX)? as u32;
        let group_each = given.word(table, "groups", &[("tasks", true), ("one", false)])?;
        Ok(lock.map(|lock| PageLists { lock, batch, group_each }))
    }

    /// The settings of the LRU for so many tasks.
    pub(super) fn settings(self, tasks: usize) -> LruSettings {
        let PageLists { lock, batch, .. } = self;
        // The root is one too.
        let groups = 1 + self.count_groups(tasks) as u32;
        LruSettings { lock, batch, groups, ..LruSettings::default() }
    }

    /// Makes the groups of so many tasks.
    pub(super) fn make_groups<P: Platform, O: Owner>(
        self,
        lru: &Lru<P, O>,
        tasks: usize,
    ) -> Result<Groups, Error> {
        let make = |_| lru.create_group(GroupId::ROOT, None);
        (0..self.count_groups(tasks)).map(make).collect::<Result<_, _>>().map(Groups)
    }

    fn count_groups(self, tasks: usize) -> usize {
        if self.group_each { tasks } else { 1 }
    }
}

/// The groups of the tasks, which take them in turns.
pub(super) struct Groups(Vec<GroupId>);

impl Groups {
    /// The group of a task.
    pub(super) fn of(&self, task: usize) -> GroupId {
        self.0[task % self.0.len()]
    }
}

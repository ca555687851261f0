//! The pages of the tasks on the real machine: charged to groups and kept on lists by the library's
//! LRU.

use anyhow::Result;
use freehold::lru::{Claim, Kind, Owner, Verdict};
use freehold::{Error, Order, Pfn};
use freehold_host::{FrameArena, HostLru};

use super::lists::{Groups, PageLists};
use crate::books::check_none_listed;
use crate::host::HostDesign;

/// The lists of pages, and the groups of the tasks.
pub(super) struct Pages<'a, D: HostDesign> {
    lru: HostLru<Unmapped<'a, D>>,
    groups: Groups,
}

/// Frees pages that are on no list any more.
struct Unmapped<'a, D: HostDesign>(&'a FrameArena<D>);

/// There is enough memory, so nobody reclaims.
impl<D: HostDesign> Owner for Unmapped<'_, D> {
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Keep
    }

    fn forget(&self, _frame: Pfn, _claim: Claim<'_>) {}

    fn release(&self, frames: &[Pfn]) {
        let freed = self.0.allocator().free_bulk(frames, Order::ZERO);
        freed.expect("the frames were allocated by tasks");
    }
}

impl<'a, D: HostDesign> Pages<'a, D> {
    pub(super) fn new(arena: &'a FrameArena<D>, lists: PageLists, tasks: usize) -> Result<Self> {
        let lru = arena.lru(&lists.settings(tasks), Unmapped(arena))?;
        let groups = lists.make_groups(&lru, tasks)?;
        Ok(Pages { lru, groups })
    }

    /// Charges a task for a page, and puts it into a batch.
    pub(super) fn map(&self, pfn: Pfn, task: usize) -> Result<(), Error> {
        self.lru.add(pfn, self.groups.of(task), Kind::Anon)
    }

    /// Takes pages off their lists and frees them. One that waits in a batch is on no list yet, and
    /// freed with a later batch.
    pub(super) fn unmap(&self, pages: &[Pfn]) -> Result<()> {
        for pages in pages.chunks(PageLists::UNMAPPED_MAX) {
            self.lru.put_bulk(pages)?;
        }
        Ok(())
    }

    /// Checks that nothing is left.
    pub(super) fn finish(self) -> Result<()> {
        check_none_listed(&self.lru)
    }
}

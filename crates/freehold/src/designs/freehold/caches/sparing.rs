//! How caches of a zone with few pageblocks for each CPU use these sparingly, so that more of its
//! free memory is in whole ones.
//!
//! What is free in a partial pageblock of one cache is of no use to the others, which take whole
//! pageblocks from the pool instead. So where there are few, a cache retains only what it will use
//! next, and the rest are orphans, which serve all CPUs before the pool does:
//!
//! * Content that cannot move stays for long, in few of the frames. Of its pageblocks, only the
//!   active ones are retained.
//! * Of the partial pageblocks for movable content, those with a large run are released. In those
//!   with small runs only, single frames are taken: they would break the runs of the others, for
//!   which blocks of more than one frame would then take whole pageblocks.
//! * The active pageblock for such blocks stays so until it has no pair of frames any more. What is
//!   too large for it is taken from another pageblock in passing: else small blocks would break the
//!   large runs of that one, while small runs are left over here.

use super::cache::{Active, Fill, WORTHWHILE_FREE_MIN};
use super::lock::LockedCache;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::run::Run;
use crate::designs::freehold::pageblocks::state::State;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};

/// How many partial pageblocks of each list are looked at.
const LOOKS: usize = 8;

/// Single frames come first from pageblocks that have no run of this order.
const WORTH_LEAVING: Order = Order::new(3);

/// A partial pageblock for movable content that has a run of this order is released.
const WORTH_SHARING: Order = Order::new(5);

/// Two frames, the smallest of blocks that have an active pageblock of their own.
const PAIR: Order = Order::new(1);

impl<P: Platform> LockedCache<'_, P> {
    pub(super) fn is_zone_roomy(&self) -> bool {
        self.zone().is_roomy(self.zones().cpu_count())
    }

    /// Whether the cache uses pageblocks sparingly for a request. If it may fetch none from the
    /// zone, it retains those it has.
    fn is_sparing(&self, request: &Request) -> bool {
        !self.is_zone_roomy() && self.may_fetch(request)
    }

    /// Releases partial pageblocks that other caches may have better use for, and activates one of
    /// those that are left; returns whether it did. Where all movable blocks are single frames,
    /// there are no runs to be spared, and it does nothing for them.
    #[inline(never)]
    pub(super) fn refill_sparingly(&self, request: &Request) -> bool {
        let migratetype = request.content();
        let has_runs = self.cache.active_pageblock(Active::Runs, migratetype).is_some();
        if migratetype == MigrateType::Movable && !has_runs || !self.is_sparing(request) {
            return false;
        }
        self.collect_queued();
        self.share(migratetype);
        let partial = self.cache.partial_list(self.pageblocks(), migratetype, Fill::Worthwhile);
        let found = partial.take(LOOKS).find(|&pageblock| {
            self.pageblocks().count_free(pageblock) >= WORTHWHILE_FREE_MIN
                && self.pageblocks().find_run(pageblock, WORTH_LEAVING).is_none()
        });
        found.is_some_and(|pageblock| {
            self.cache.unlink_partial(self.pageblocks(), pageblock);
            self.make_active(pageblock, migratetype)
        })
    }

    /// Releases partial pageblocks of a type that other caches may have better use for.
    fn share(&self, migratetype: MigrateType) {
        for fill in [Fill::Worthwhile, Fill::NearlyFull] {
            let mut next = self.cache.first_partial(migratetype, fill);
            for _ in 0..LOOKS {
                let Some(pageblock) = next else { break };
                next = PageblockIndex::of_link(self.pageblocks().links(pageblock).1);
                let is_worth = || {
                    self.collect(pageblock);
                    self.pageblocks().find_run(pageblock, WORTH_SHARING).is_some()
                };
                if migratetype != MigrateType::Movable || fill == Fill::Worthwhile && is_worth() {
                    self.cache.unlink_partial(self.pageblocks(), pageblock);
                    self.release(pageblock);
                }
            }
        }
    }

    /// Takes a block of more than one frame out of an orphan, which the cache acquires.
    pub(crate) fn take_run_of_orphan(&self, request: &Request) -> Option<u32> {
        if !self.may_fetch(request) {
            return None;
        }
        let (order, migratetype) = (request.order(), request.content());
        let start = self.zones().start(self.zone().orphans(migratetype), self.cpu, migratetype);
        let mut orphans = self.zones().orphans_by_fit(self.zone_index, migratetype, order, start);
        let pageblock =
            orphans.find(|&pageblock| self.try_acquire_for(pageblock, migratetype, order))?;
        if !self.is_zone_roomy() {
            self.share(migratetype);
        }
        self.take_run_as_active(pageblock, request)
    }

    /// Whether an active pageblock for blocks of more than one frame stays so, though it has none
    /// that is large enough.
    pub(super) fn is_still_active(&self, pageblock: PageblockIndex) -> bool {
        !self.is_zone_roomy() && self.pageblocks().find_run(pageblock, PAIR).is_some()
    }

    /// Takes a block out of an unlinked pageblock, and puts that where it belongs.
    pub(super) fn take_run_in_passing(
        &self,
        pageblock: PageblockIndex,
        order: Order,
    ) -> Option<u32> {
        let run = self.take_run_in(pageblock, order);
        // It may be an orphan that was acquired, or marked as active.
        self.pageblocks().update(pageblock, State::list);
        self.relink_unless_full(pageblock);
        run.map(Run::frame)
    }
}

//! Orphans by their largest run of free frames, so that a request for more than one frame finds a
//! pageblock that serves it, or that there is none, without a look at each orphan.
//!
//! There is a tree for each migratetype and order, up to half a pageblock. An orphan is in that of
//! its largest run, unless that is a single frame. Who acquires the pageblock removes it there, and
//! who releases it adds it before. In between, no other call changes its free frames, so they tell
//! in which tree it is.

use super::Zones;
use super::tree::{Tree, around};
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::units::{MigrateType, Order};

/// How many orders have trees: all but that of a frame, up to half a pageblock.
const ORDERS: usize = Order::PAGEBLOCK.get() as usize - 1;

/// How many trees a zone has.
pub(super) const TREES: usize = MigrateType::COUNT * ORDERS;

/// The tree of a type and an order, among those of a zone.
fn nth(migratetype: MigrateType, order: u8) -> usize {
    migratetype.index() * ORDERS + usize::from(order) - 1
}

impl<P: Platform> Zones<P> {
    /// Acquires, as a walker, a split pageblock that has no holder; returns whether it could. The
    /// caller is in a section.
    pub(crate) fn acquire(&self, pageblock: PageblockIndex) -> bool {
        let acquired = self.pageblocks.acquire(pageblock);
        if acquired {
            self.leave_runs(pageblock);
        }
        acquired
    }

    fn tree_of_runs(&self, pageblock: PageblockIndex) -> Option<Tree> {
        let order = self.pageblocks.largest_run(pageblock);
        let of = self.pageblocks.state(pageblock).migratetype();
        (order > 0).then(|| self.zone_of(pageblock).first_of_runs().nth(nth(of, order)))
    }

    /// Adds a pageblock that the caller releases next.
    pub(super) fn enter_runs(&self, pageblock: PageblockIndex) {
        if let Some(tree) = self.tree_of_runs(pageblock) {
            self.forest.insert(&tree, self.bit(pageblock));
        }
    }

    /// Removes a pageblock that the caller has just acquired.
    pub(crate) fn leave_runs(&self, pageblock: PageblockIndex) {
        if let Some(tree) = self.tree_of_runs(pageblock) {
            self.forest.remove(&tree, self.bit(pageblock));
        }
    }

    /// The orphans of a type that have a free run of `order`, as the trees say, from `start` to the
    /// end, and from the beginning to `start`.
    pub(crate) fn orphans_with_run(
        &self,
        zone: ZoneIndex,
        migratetype: MigrateType,
        order: Order,
        start: usize,
    ) -> impl Iterator<Item = PageblockIndex> + '_ {
        let of = self.zone(zone);
        let next = move |from| match order.get() {
            0 => self.forest.next(of.orphans(migratetype), from),
            least => {
                let tree = |order| of.first_of_runs().nth(nth(migratetype, order));
                let orders = least..=ORDERS as u8;
                orders.filter_map(|order| self.forest.next(&tree(order), from)).min()
            }
        };
        around(start, next).map(move |bit| self.pageblock_at(zone, bit))
    }

    /// The bits of the trees that an orphan is in, counted from the first one by runs.
    pub(crate) fn runs_of(&self, pageblock: PageblockIndex) -> u64 {
        match self.pageblocks.largest_run(pageblock) {
            0 => 0,
            order => 1 << nth(self.pageblocks.state(pageblock).migratetype(), order),
        }
    }

    /// Whether a pageblock is in the tree of its largest run and no other one, if `is_orphan`, or
    /// in none.
    pub(super) fn runs_agree(&self, pageblock: PageblockIndex, is_orphan: bool) -> bool {
        let (first, bit) = (self.zone_of(pageblock).first_of_runs(), self.bit(pageblock));
        let is_in = |nth: &usize| self.forest.contains(&first.nth(*nth), bit);
        let trees = (0..TREES).filter(is_in).fold(0, |trees, nth| trees | 1_u64 << nth);
        trees == if is_orphan { self.runs_of(pageblock) } else { 0 }
    }
}

//! Orphans by their largest run of free frames, so that a request for more than one frame finds a
//! pageblock that serves it, or that there is none, without a look at each orphan.
//!
//! There is a tree for each migratetype and order, up to half a pageblock. An orphan is in that of
//! its largest run, unless that is a single frame, and its state has the order. Both stay while a
//! walker holds it, and are put right when it is released. Who makes it no orphan, or changes its
//! type, removes it from there, as from the tree of all orphans of the type.

use super::Zones;
use super::tree::{Tree, around};
use super::zone::Zone;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::freehold::pageblocks::bitmaps::Fullness;
use crate::designs::freehold::pageblocks::state::State;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::units::{MigrateType, Order};

/// How many orders have trees: all but that of a frame, up to half a pageblock.
const ORDERS: usize = Order::PAGEBLOCK.get() as usize - 1;

/// How many trees a zone has.
pub(super) const TREES: usize = MigrateType::COUNT * ORDERS;

/// The tree of a type and an order, among those of a zone.
fn nth(migratetype: MigrateType, order: Order) -> usize {
    migratetype.index() * ORDERS + order.index() - 1
}

/// The trees of a zone with orphans of a type that have a run of `least`, the smallest runs first.
fn trees_with_run<P: Platform>(
    zone: &Zone<P>,
    migratetype: MigrateType,
    least: Order,
) -> impl Iterator<Item = Tree> {
    let first = zone.first_of_runs();
    let trees = nth(migratetype, least)..(migratetype.index() + 1) * ORDERS;
    trees.map(|nth| first.nth(nth))
}

impl<P: Platform> Zones<P> {
    fn tree_of_runs(&self, pageblock: PageblockIndex, of: MigrateType, order: Order) -> Tree {
        self.zone_of(pageblock).first_of_runs().nth(nth(of, order))
    }

    fn leave_runs(&self, pageblock: PageblockIndex, of: MigrateType, order: Order) {
        if order > Order::ZERO {
            let tree = self.tree_of_runs(pageblock, of, order);
            self.forest.remove(&tree, self.bit(pageblock));
        }
    }

    /// Removes a pageblock from the trees of orphans. Its state was this one; the caller holds it,
    /// and clears the order in it.
    pub(crate) fn leave_orphans(&self, pageblock: PageblockIndex, state: State) {
        let (zone, bit, of) = (self.zone_of(pageblock), self.bit(pageblock), state.migratetype());
        self.forest.remove(zone.orphans(of), bit);
        self.leave_runs(pageblock, of, state.order());
    }

    /// Puts a pageblock in the trees of orphans that it belongs in, and only these. The caller
    /// holds it as a walker, and releases it next, with this order in its state.
    pub(super) fn enter_orphans(&self, pageblock: PageblockIndex, fullness: Fullness) -> Order {
        let (zone, bit) = (self.zone_of(pageblock), self.bit(pageblock));
        let state = self.pageblocks.state(pageblock);
        let (of, before) = (state.migratetype(), state.order());
        let tree = zone.orphans(of);
        let is_partial = fullness == Fullness::Partial;
        let order = if is_partial { self.pageblocks.largest_run(pageblock) } else { Order::ZERO };
        // While it is held, no other call changes where it is.
        if is_partial && !self.forest.contains(tree, bit) {
            self.forest.insert(tree, bit);
        } else if !is_partial && self.forest.contains(tree, bit) {
            self.forest.remove(tree, bit);
        }
        if order != before {
            if order > Order::ZERO {
                self.forest.insert(&self.tree_of_runs(pageblock, of, order), bit);
            }
            self.leave_runs(pageblock, of, before);
        }
        order
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
        let next = move |from| match order {
            Order::ZERO => self.forest.next(of.orphans(migratetype), from),
            least => {
                let trees = trees_with_run(of, migratetype, least);
                trees.filter_map(|tree| self.forest.next(&tree, from)).min()
            }
        };
        around(start, next).map(move |bit| self.pageblock_at(zone, bit))
    }

    /// As `orphans_with_run`, for more than one frame: those with the smallest runs come first.
    pub(crate) fn orphans_by_fit(
        &self,
        zone: ZoneIndex,
        migratetype: MigrateType,
        least: Order,
        start: usize,
    ) -> impl Iterator<Item = PageblockIndex> + '_ {
        let trees = trees_with_run(self.zone(zone), migratetype, least);
        let bits =
            trees.flat_map(move |tree| around(start, move |from| self.forest.next(&tree, from)));
        bits.map(move |bit| self.pageblock_at(zone, bit))
    }

    /// The trees that an orphan with this state is in, as bits, from that of the first type on.
    pub(crate) fn trees_of(state: State) -> u64 {
        let (of, order) = (state.migratetype(), state.order());
        let by_run = if order > Order::ZERO { 1 << nth(of, order) } else { 0 };
        1 << of.index() | by_run << MigrateType::COUNT
    }

    /// The trees of orphans that a pageblock is in, as `trees_of` has them: a hint.
    pub(super) fn trees_with(&self, pageblock: PageblockIndex) -> u64 {
        let first = self.zone_of(pageblock).orphans(MigrateType::ALL[0]);
        let is_in = |nth: &usize| self.forest.contains(&first.nth(*nth), self.bit(pageblock));
        (0..MigrateType::COUNT + TREES).filter(is_in).fold(0, |trees, nth| trees | 1 << nth)
    }
}

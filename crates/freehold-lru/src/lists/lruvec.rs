//! Lruvecs, the lists of one group on one node: what is read and counted there without a lock.

use core::sync::atomic::Ordering::Relaxed;

use super::extent::{Extents, ExtentsPlan};
use super::history::History;
use super::shard::{PerZone, Shard, sum_within};
use crate::frames::sharding::Sharding;
use crate::id::{Place, ShardId};
use crate::kind::{Kind, List, PerList};
use crate::settings::{LruLock, LruSettings};
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{Platform, Word};
use freehold::units::ZoneKind;

/// The lists of one group on one node: shard 0, and what holds for all shards.
#[repr(C, align(64))]
pub(super) struct Lruvec<P: Platform> {
    pub(super) shard: Shard<P>,
    /// How often calls waited for the lock of shard 0, since that was last thought about.
    pub(super) waits: P::U32,
    /// The recent cost of reclaim from each kind: frames written back, and put back unreclaimed.
    pub(super) costs: [P::U64; Kind::COUNT],
    /// What became of evicted frames of each kind.
    history: [History<P>; Kind::COUNT],
}

/// All lruvecs; those of a node are contiguous.
pub(crate) struct Lruvecs<P: Platform> {
    table: Table<Lruvec<P>>,
    pub(super) extents: Extents<P>,
    slots: usize,
    pub(crate) lock: LruLock,
    /// Whether lruvecs whose lock is waited for may be divided.
    pub(super) counts_waits: bool,
    /// After how many waits that is, and with how many frames for each shard.
    pub(super) shard_waits: u32,
    pub(super) shard_frames: u32,
}

/// Where the lruvecs will lie.
pub(crate) struct LruvecsPlan<P: Platform> {
    table: TablePlan<Lruvec<P>>,
    extents: ExtentsPlan<P>,
    slots: usize,
}

impl<P: Platform> LruvecsPlan<P> {
    pub(crate) fn new(
        config: &Config<'_>,
        sharding: Sharding,
        slots: usize,
        layout: &mut LayoutBuilder,
    ) -> Result<Self, Error> {
        let len = config.nodes().checked_mul(slots).ok_or(Error::SpanTooLarge)?;
        let table = layout.table(SectionKind::Lruvecs, len)?;
        Ok(LruvecsPlan {
            table,
            extents: ExtentsPlan::new(config, sharding, slots, layout)?,
            slots,
        })
    }
}

impl<P: Platform> Lruvecs<P> {
    pub(crate) fn carve(
        plan: &LruvecsPlan<P>,
        sharding: Sharding,
        settings: &LruSettings,
        carver: &mut Carver,
    ) -> Self {
        let slots = plan.slots;
        let table = carver.table(plan.table, |index| {
            let shard = Shard::new();
            shard.open(Place { slot: (index % slots) as u16, node: (index / slots) as u16 });
            Lruvec {
                shard,
                waits: P::U32::new(0),
                costs: core::array::from_fn(|_| P::U64::new(0)),
                history: core::array::from_fn(|_| History::new()),
            }
        });
        let extents = Extents::carve(&plan.extents, sharding, carver);
        let &LruSettings { lock, shard_waits, shard_frames, .. } = settings;
        let counts_waits = lock == LruLock::Shards && sharding.shards() > 1;
        Lruvecs { table, extents, slots, lock, counts_waits, shard_waits, shard_frames }
    }

    pub(crate) fn nodes(&self) -> u16 {
        (self.table.len() / self.slots) as u16
    }

    #[inline]
    pub(super) fn get(&self, place: Place) -> &Lruvec<P> {
        self.table.get(self.index(place))
    }

    /// The number of an lruvec.
    #[inline]
    pub(super) fn index(&self, place: Place) -> usize {
        usize::from(place.node) * self.slots + usize::from(place.slot)
    }

    /// A shard and its record, or shard 0 if the lruvec is not divided.
    #[inline]
    pub(super) fn find(&self, id: ShardId) -> (ShardId, &Shard<P>) {
        match self.part(id) {
            Some(part) => (id, part),
            None => (id.place.shard(0), &self.get(id.place).shard),
        }
    }

    /// As `find`, its record.
    pub(crate) fn shard(&self, id: ShardId) -> &Shard<P> {
        self.find(id).1
    }

    /// The record of a shard other than 0, if the lruvec is divided.
    #[inline]
    pub(super) fn part(&self, id: ShardId) -> Option<&Shard<P>> {
        match id.shard {
            0 => None,
            shard => self.extents.part(self.index(id.place), shard.into()),
        }
    }

    /// The shards of an lruvec.
    pub(crate) fn shards(&self, place: Place) -> impl Iterator<Item = ShardId> + use<P> {
        let shards = match self.extents.is_divided(self.index(place)) {
            true => self.extents.sharding.shards(),
            false => 1,
        };
        (0..shards).map(move |shard| place.shard(shard))
    }

    /// A recent size of a list; if the lruvec is divided, within a 64th or seven frames for
    /// each shard, and zero only if all are empty.
    pub(crate) fn size(&self, place: Place, list: List) -> u32 {
        sum_within(&self.counts(place)[list as usize], ZoneKind::Movable)
    }

    /// As `size`, of all lists, and of frames of this kind of zone and lower ones.
    pub(crate) fn sizes(&self, place: Place, highest: ZoneKind) -> PerList<u32> {
        let (mut sizes, counts) = ([0; List::COUNT], self.counts(place));
        for (size, counts) in sizes.iter_mut().zip(counts) {
            *size = sum_within(counts, highest);
        }
        sizes
    }

    #[inline]
    fn counts(&self, place: Place) -> &PerList<PerZone<P::U32>> {
        match self.extents.of(self.index(place)) {
            None => &self.get(place).shard.sizes,
            Some(extent) => &extent.totals,
        }
    }

    /// As `sizes`, and exact: looks at all shards.
    pub(crate) fn exact_sizes(&self, place: Place, highest: ZoneKind) -> PerList<u32> {
        List::ALL.map(|list| {
            self.shards(place).map(|id| self.shard(id).size_within(list, highest)).sum()
        })
    }

    /// Whether what shards have told of their sizes adds up. No other call is under way.
    pub(crate) fn sums_agree(&self, place: Place) -> bool {
        self.extents.sums_agree(self.index(place), &self.get(place).shard)
    }

    /// How many frames of a list the owner was not asked for since it last gave one of the list.
    pub(crate) fn not_refused(&self, place: Place, list: List) -> u32 {
        let refused = self.refusing(place).map(|id| self.shard(id).refused(list));
        self.size(place, list).saturating_sub(refused.sum())
    }

    /// The shards of which the owner may have refused frames: shard 0, and the others if it has
    /// since it last gave one.
    pub(super) fn refusing(&self, place: Place) -> impl Iterator<Item = ShardId> + use<P> {
        let is_any = self.extents.is_refusing(self.index(place));
        let shards = if is_any { self.extents.sharding.shards() } else { 1 };
        (0..shards).map(move |shard| place.shard(shard))
    }

    /// What became of evicted frames of a kind.
    pub(crate) fn history(&self, place: Place, kind: Kind) -> &History<P> {
        &self.get(place).history[kind as usize]
    }

    /// How much content came back, and how much of it should have stayed.
    pub(crate) fn refaults(&self, place: Place) -> [u64; 2] {
        let counts = self.shards(place).map(|id| self.shard(id).refaults());
        counts.fold([0; 2], |[all, restored], [more, of_it]| [all + more, restored + of_it])
    }

    /// Whether scans are under way.
    pub(crate) fn is_scanned(&self, place: Place) -> bool {
        // Those that began before the lruvec was last joined are counted where they began.
        let mut parts = self.extents.parts(self.index(place));
        self.get(place).shard.is_scanned() || parts.any(Shard::is_scanned)
    }

    /// The recent cost of reclaim from each kind.
    pub(crate) fn costs(&self, place: Place) -> [u64; Kind::COUNT] {
        let costs = &self.get(place).costs;
        // Relaxed: counts on which no other memory depends.
        [costs[0].load(Relaxed), costs[1].load(Relaxed)]
    }

    /// Adds the cost of reclaim. Old costs decay: once the sum exceeds a quarter of the frames, it
    /// is halved (Linux's `lru_note_cost`).
    pub(crate) fn note_cost(&self, place: Place, kind: Kind, cost: u64) {
        if cost == 0 {
            return;
        }
        let costs = &self.get(place).costs;
        // Relaxed: as in `costs`. Two calls at once may lose some of it.
        costs[kind as usize].fetch_add(cost, Relaxed);
        let frames = List::EVICTABLE.iter().map(|&list| u64::from(self.size(place, list)));
        if self.costs(place).iter().sum::<u64>() > frames.sum::<u64>() / 4 {
            costs.iter().for_each(|cost| cost.store(cost.load(Relaxed) / 2, Relaxed));
        }
    }

    /// Makes the lruvec of a free slot ready for a new group.
    pub(crate) fn open(&self, at: Place) {
        let lruvec = self.get(at);
        lruvec.history.iter().for_each(History::clear);
        lruvec.shard.forget();
        // Relaxed: a count of its own.
        lruvec.waits.store(0, Relaxed);
        lruvec.shard.open(at);
    }

    /// Whether the lists of an lruvec were joined to the parent's.
    pub(crate) fn is_joined(&self, at: Place) -> bool {
        !self.get(at).shard.is_open_for(at)
    }
}

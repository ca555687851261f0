//! The clusters of a zone: stretches of its lists of single free frames that can be cut off without
//! touching the frames between.
//!
//! Invariant: the frames of a cluster are neighbours on one free list, and its tail is the last of
//! them. All of it is guarded by the zone lock, except the count of refills in progress.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::buddy::{Beside, Tables};
use crate::frame::FrameTable;
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::{End, ListHead};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{Platform, SharedCell, Word};
use freehold::units::{FrameCount, Order};

/// The index of a cluster among those of all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClusterIndex(u32);

/// The value of a frame that is in no cluster.
const NO_CLUSTER: u32 = 0;

/// One cluster.
struct Cluster<P: Platform> {
    /// The frame nearest to the back of the list.
    tail: P::Cell<u32>,
    /// How many frames it has; 0: the slot is unused.
    frames: P::Cell<u32>,
}

/// One zone's cluster state.
struct ZoneRecord<P: Platform> {
    /// The zone's slots.
    first: u32,
    len: u32,
    /// No more frames than this join a cluster one by one.
    batch: u32,
    /// No unused slot lies before this one.
    maybe_unused: P::Cell<u32>,
    /// How many walks over the zone's frames are under way. While there is one, frames are merged
    /// at once and no cluster is cut off.
    disabled: P::Cell<u32>,
    /// Refills that have cut off frames and not yet unmarked them all.
    in_progress: P::U32,
}

/// The clusters of all zones.
pub(super) struct ClusterTable<P: Platform> {
    clusters: Table<Cluster<P>>,
    /// One bit for each cluster: whether it is in use.
    used: Table<P::Cell<u64>>,
    zones: Table<ZoneRecord<P>>,
}

/// Where the clusters lie.
pub struct ClusterTablePlan<P: Platform> {
    clusters: TablePlan<Cluster<P>>,
    used: TablePlan<P::Cell<u64>>,
    zones: TablePlan<ZoneRecord<P>>,
}

const WORD_BITS: u32 = u64::BITS;

/// How many slots a zone gets that starts with so many frames: one for each batch, as in the
/// source, in whole words of the bitmap. Batches of a single frame would gain nothing.
fn slots(managed: FrameCount, batch: u32) -> u32 {
    if batch <= 1 {
        return 0;
    }
    let slots = managed.get().div_ceil(u64::from(batch));
    (slots as u32).next_multiple_of(WORD_BITS)
}

/// The frames that the zones start with.
fn managed<'a>(config: &'a Config<'_>) -> impl Iterator<Item = FrameCount> + 'a {
    config.zones().map(|zone| {
        let of_zone = config.ranges.iter().filter(move |range| (range.node, range.zone) == zone);
        of_zone.map(|range| range.frames).sum()
    })
}

impl<P: Platform> ClusterTable<P> {
    pub(super) fn plan(
        config: &Config<'_>,
        batch: impl Fn(FrameCount) -> u32,
        layout: &mut LayoutBuilder,
    ) -> Result<ClusterTablePlan<P>, Error> {
        let total: u32 = managed(config).map(|frames| slots(frames, batch(frames))).sum();
        Ok(ClusterTablePlan {
            zones: layout.table(SectionKind::Clusters, config.zones().count())?,
            used: layout.table(SectionKind::Clusters, (total / WORD_BITS) as usize)?,
            clusters: layout.table(SectionKind::Clusters, total as usize)?,
        })
    }

    pub(super) fn carve(
        plan: &ClusterTablePlan<P>,
        config: &Config<'_>,
        batch: impl Fn(FrameCount) -> u32,
        carver: &mut Carver,
    ) -> Self {
        let (mut zones, mut first) = (managed(config), 0);
        ClusterTable {
            zones: carver.table(plan.zones, |_| {
                let frames = zones.next().unwrap_or_default();
                let batch = batch(frames);
                let len = slots(frames, batch);
                first += len;
                ZoneRecord {
                    first: first - len,
                    len,
                    batch,
                    maybe_unused: P::Cell::new(0),
                    disabled: P::Cell::new(0),
                    in_progress: P::U32::new(0),
                }
            }),
            used: carver.table(plan.used, |_| P::Cell::new(0)),
            clusters: carver.table(plan.clusters, |_| Cluster {
                tail: P::Cell::new(0),
                frames: P::Cell::new(0),
            }),
        }
    }

    /// Whether clusters of a zone may be formed and cut off now. Requires the zone lock.
    pub(super) fn is_enabled(&self, zone: ZoneIndex) -> bool {
        let zone = self.zones.get(zone.index());
        zone.disabled.get() == 0 && zone.len > 0
    }

    fn cluster(&self, cluster: ClusterIndex) -> &Cluster<P> {
        self.clusters.get(cluster.0 as usize)
    }

    /// The clusters of one zone.
    pub(super) fn of_zone<'a>(&'a self, platform: &'a P, zone: ZoneIndex) -> ZoneClusters<'a, P> {
        ZoneClusters { table: self, zone: self.zones.get(zone.index()), platform }
    }
}

/// The clusters of one zone. Its methods require the zone lock, unless they say otherwise.
pub struct ZoneClusters<'a, P: Platform> {
    table: &'a ClusterTable<P>,
    zone: &'a ZoneRecord<P>,
    platform: &'a P,
}

/// A list of any kind: only the links of its blocks are read.
type Links<P> = ListHead<<P as Platform>::Cell<u32>>;

impl<P: Platform> ZoneClusters<'_, P> {
    /// Prevents clusters from being cut off until [`ZoneClusters::enable`]; calls nest.
    pub(super) fn disable(&self) {
        self.zone.disabled.set(self.zone.disabled.get() + 1);
    }

    /// Ends one [`ZoneClusters::disable`].
    pub(super) fn enable(&self) {
        self.zone.disabled.set(self.zone.disabled.get() - 1);
    }

    /// Ends every [`ZoneClusters::disable`], of walks that do not exist in this copy.
    pub(super) fn enable_at_last(&self) {
        self.zone.disabled.set(0);
    }

    /// A refill has cut off frames that still look free.
    pub(super) fn begin_progress(&self) {
        self.change_in_progress(1);
    }

    /// The frames of a refill carry their new marks. Requires no lock.
    pub(super) fn end_progress(&self) {
        self.change_in_progress(-1);
    }

    fn change_in_progress(&self, change: i32) {
        let word = &self.zone.in_progress;
        let mut count = word.load(Relaxed);
        // Release: a CPU that sees the count without this refill sees the marks that it wrote.
        // Acquire keeps the other refills' marks visible through this one's count. Relaxed on
        // failure: only the count is used then.
        while let Err(now) =
            word.compare_exchange(count, count.wrapping_add_signed(change), AcqRel, Relaxed)
        {
            count = now;
        }
    }

    /// Waits until no cut-off frame still looks free. Refills in progress need no zone lock to
    /// finish, so this may be called with it or, after [`ZoneClusters::disable`], without.
    pub(super) fn wait(&self) {
        // Acquire: pairs with the release in `end_progress`; the marks are read after it.
        while self.zone.in_progress.load(Acquire) != 0 {
            self.platform.relax();
        }
    }

    /// The cluster that a frame on a free list is in.
    pub(super) fn of_frame(
        &self,
        frames: &FrameTable<P>,
        frame: FrameIndex,
    ) -> Option<ClusterIndex> {
        match frames.record(frame).beside.get() {
            NO_CLUSTER => None,
            number => Some(ClusterIndex(number - 1)),
        }
    }

    /// Notes which cluster a frame is in. Requires no lock for a frame that is on no list.
    pub(super) fn set_of_frame(
        frames: &FrameTable<P>,
        frame: FrameIndex,
        cluster: Option<ClusterIndex>,
    ) {
        let number = cluster.map_or(NO_CLUSTER, |cluster| cluster.0 + 1);
        frames.record(frame).beside.set(number);
    }

    /// The last frame of a cluster and its number of frames.
    pub(super) fn extent(&self, cluster: ClusterIndex) -> (FrameIndex, u32) {
        let Cluster { tail, frames } = self.table.cluster(cluster);
        (FrameIndex(tail.get()), frames.get())
    }

    /// A new cluster of frames that are neighbours on a list, up to `tail`. `None` if all slots are
    /// in use.
    pub(super) fn create(&self, tail: FrameIndex, frames: u32) -> Option<ClusterIndex> {
        let ZoneRecord { first, len, maybe_unused, .. } = self.zone;
        let words = (maybe_unused.get() / WORD_BITS)..(len / WORD_BITS);
        for word in words {
            let used = self.table.used.get((first / WORD_BITS + word) as usize);
            let bits = used.get();
            if bits != u64::MAX {
                let bit = bits.trailing_ones();
                used.set(bits | 1 << bit);
                maybe_unused.set(word * WORD_BITS + bit);
                let index = ClusterIndex(first + word * WORD_BITS + bit);
                let cluster = self.table.cluster(index);
                cluster.tail.set(tail.0);
                cluster.frames.set(frames);
                return Some(index);
            }
        }
        maybe_unused.set(*len);
        None
    }

    /// Frees a cluster's slot.
    pub(super) fn release(&self, cluster: ClusterIndex) {
        let ZoneRecord { first, maybe_unused, .. } = self.zone;
        let used = self.table.used.get((cluster.0 / WORD_BITS) as usize);
        used.set(used.get() & !(1 << (cluster.0 % WORD_BITS)));
        self.table.cluster(cluster).frames.set(0);
        maybe_unused.set(maybe_unused.get().min(cluster.0 - first));
    }

    /// The cluster of a neighbour, if it has room for one more.
    fn roomy(&self, frames: &FrameTable<P>, frame: Option<FrameIndex>) -> Option<ClusterIndex> {
        let cluster = self.of_frame(frames, frame?)?;
        (self.table.cluster(cluster).frames.get() < self.zone.batch).then_some(cluster)
    }

    /// Checks the clusters of a list of single frames; the error is a frame that violates the
    /// invariant.
    pub(super) fn check_list(
        &self,
        frames: &FrameTable<P>,
        list: &Links<P>,
    ) -> Result<(), FrameIndex> {
        let mut current: Option<(ClusterIndex, u32)> = None;
        for frame in list.iter(frames) {
            let cluster = self.of_frame(frames, frame);
            current = match (current, cluster) {
                (Some((of, left)), _) if left > 0 => {
                    if cluster != Some(of) {
                        return Err(frame);
                    }
                    Some((of, left - 1))
                }
                (_, Some(of)) => {
                    let (_, frames) = self.extent(of);
                    Some((of, frames.checked_sub(1).ok_or(frame)?))
                }
                (_, None) => None,
            };
            if let Some((of, 0)) = current
                && self.extent(of).0 != frame
            {
                return Err(frame);
            }
        }
        match current {
            Some((of, left)) if left > 0 => Err(self.extent(of).0),
            _ => Ok(()),
        }
    }
}

impl<P: Platform> Beside<P> for ZoneClusters<'_, P> {
    fn inserted(&self, tables: &Tables<'_, P>, block: FrameIndex, order: Order, end: End) {
        if order != Order::ZERO || self.zone.len == 0 {
            return;
        }
        let frames = tables.frames;
        let neighbour = match end {
            End::Front => Links::<P>::behind(frames, block),
            End::Back => Links::<P>::before(frames, block),
        };
        let cluster = match self.roomy(frames, neighbour) {
            Some(index) => {
                let cluster = self.table.cluster(index);
                cluster.frames.set(cluster.frames.get() + 1);
                if end == End::Back {
                    cluster.tail.set(block.0);
                }
                Some(index)
            }
            None => self.create(block, 1),
        };
        Self::set_of_frame(frames, block, cluster);
    }

    fn removing(&self, tables: &Tables<'_, P>, block: FrameIndex, order: Order) {
        if order != Order::ZERO {
            return;
        }
        let Some(index) = self.of_frame(tables.frames, block) else { return };
        let cluster = self.table.cluster(index);
        let left = cluster.frames.get() - 1;
        if left == 0 {
            self.release(index);
        } else {
            cluster.frames.set(left);
            if cluster.tail.get() == block.0
                && let Some(before) = Links::<P>::before(tables.frames, block)
            {
                // The rest of the cluster lies before its tail.
                cluster.tail.set(before.0);
            }
        }
        Self::set_of_frame(tables.frames, block, None);
    }

    fn settle(&self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::cluster::Clustered;
    use crate::pageblock::BlockType::Movable;
    use crate::testing::TestPlatform;
    use crate::tests::{Workbench, ZONE, fixed};

    type Bench = Workbench<Clustered<TestPlatform>>;
    type Zone<'a> = ZoneClusters<'a, TestPlatform>;

    /// Sixteen frames, all in use, and clusters of up to four.
    fn bench() -> Bench {
        let bench = Bench::new(16, &fixed(Default::default(), 4, 4));
        bench.alloc_frames(16);
        bench.drain_all_of(0);
        bench
    }

    fn clusters_of(bench: &Bench) -> Zone<'_> {
        bench.design.policy.table.of_zone(&TestPlatform, ZONE)
    }

    /// Frees frames without merging them.
    fn give(bench: &Bench, frames: &[u32]) {
        let guard = bench.lock();
        for &frame in frames {
            guard.add_free(guard.give_unmerged(FrameIndex(frame)));
        }
    }

    fn take(bench: &Bench, frame: u32) {
        let guard = bench.lock();
        assert_eq!(guard.buddy.remove_any(FrameIndex(frame)), Some(Order::ZERO));
        guard.sub_free(FrameCount::new(1));
    }

    /// Tail and size of each cluster, from the front of the list.
    fn clusters(bench: &Bench) -> Vec<(u32, u32)> {
        let (zone, frames) = (clusters_of(bench), &bench.design.frames);
        let list = bench.in_zone(0, Movable);
        let of_frame = |&frame: &u32| zone.of_frame(frames, FrameIndex(frame));
        let mut all: Vec<_> = list.iter().filter_map(of_frame).collect();
        all.dedup();
        all.into_iter().map(|of| zone.extent(of)).map(|(tail, frames)| (tail.0, frames)).collect()
    }

    fn check(bench: &Bench) -> Result<(), FrameIndex> {
        let guard = bench.lock();
        let list = guard.buddy.lists.list(Order::ZERO, Movable);
        clusters_of(bench).check_list(&bench.design.frames, list)
    }

    #[test]
    fn frames_join_at_both_ends_up_to_a_batch() {
        let bench = bench();
        give(&bench, &[0, 2, 4, 6]);
        assert_eq!(clusters(&bench), [(0, 4)]);
        give(&bench, &[8]);
        for frame in [10, 12] {
            let guard = bench.lock();
            guard.add_free(guard.give(FrameIndex(frame), Order::ZERO, Some(End::Back)));
        }
        assert_eq!(bench.in_zone(0, Movable), [8, 6, 4, 2, 0, 10, 12]);
        assert_eq!(clusters(&bench), [(8, 1), (0, 4), (12, 2)]);
        assert_eq!(check(&bench), Ok(()));
    }

    #[test]
    fn frames_leave_from_every_place() {
        let bench = bench();
        give(&bench, &[0, 2, 4, 6]);
        for (frame, left) in [(4, (0, 3)), (0, (2, 2)), (6, (2, 1))] {
            take(&bench, frame);
            assert_eq!(clusters(&bench), [left], "without {frame}");
            assert_eq!(check(&bench), Ok(()));
        }
        take(&bench, 2);
        assert_eq!(clusters(&bench), []);
        // The slot is the first unused one again.
        assert_eq!(clusters_of(&bench).create(FrameIndex(0), 1), Some(ClusterIndex(0)));
    }

    #[test]
    fn slots_run_out_and_are_used_again() {
        let bench = bench();
        let zone = clusters_of(&bench);
        let slots = || core::iter::from_fn(|| zone.create(FrameIndex(0), 1));
        assert!(slots().map(|slot| slot.0).eq(0..WORD_BITS));
        // Neither a lone frame nor one beside it finds a slot; both are still on the list.
        give(&bench, &[0, 2]);
        assert_eq!((clusters(&bench), check(&bench)), (Vec::new(), Ok(())));
        for slot in [40, 7] {
            zone.release(ClusterIndex(slot));
        }
        assert!(slots().map(|slot| slot.0).eq([7, 40]));
    }

    #[test]
    fn batches_of_one_frame_have_no_clusters() {
        assert_eq!(slots(FrameCount::new(1 << 20), 1), 0);
        assert_eq!(slots(FrameCount::new(1 << 20), 64), 1 << 14);
        assert_eq!(slots(FrameCount::new(65 * 4), 4), 2 * WORD_BITS);
    }

    #[test]
    fn a_corrupt_table_is_found_out() {
        type Corrupt = fn(&Zone<'_>, &FrameTable<TestPlatform>);
        let corruptions: [(Corrupt, u32); 4] = [
            (|_, frames| Zone::set_of_frame(frames, FrameIndex(4), None), 4),
            (|zone, _| zone.table.cluster(ClusterIndex(0)).frames.set(5), 0),
            (|zone, _| zone.table.cluster(ClusterIndex(0)).frames.set(0), 6),
            (|zone, _| zone.table.cluster(ClusterIndex(0)).tail.set(2), 0),
        ];
        for (corrupt, at) in corruptions {
            let bench = bench();
            give(&bench, &[0, 2, 4, 6]);
            corrupt(&clusters_of(&bench), &bench.design.frames);
            assert_eq!(check(&bench), Err(FrameIndex(at)));
        }
    }
}

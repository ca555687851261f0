//! The clusters of a zone: stretches of its lists of single free frames that can be cut off without
//! touching the frames between.
//!
//! A *cluster* is a stretch of neighbours on one list. Its *tail* is the frame of it nearest to the
//! back. Its *slot* is its record: the tail, and how many frames it has. A zone has one slot for
//! each batch of frames that it starts with. The record of a frame has the number of its cluster.
//!
//! The rule, all of it under the zone lock:
//!
//! 1. A frame that is put on a list *joins* the cluster of its neighbour there, if that has fewer
//!    frames than a batch. Otherwise it *starts* one; if all slots are in use, it is in none.
//! 2. A frame that is taken off a list *leaves* its cluster. If it is the tail, the frame before it
//!    becomes the tail; if it is the only one, the cluster *ends*, and its slot is unused.
//! 3. A drain puts a batch of frames on a list as one cluster, which starts with all of them. A
//!    refill cuts whole clusters off the front, which end.
//!
//! Example: with batches of four, frames 0, 2, 4, 6 and 8 were put at the front, 10 and 12 at the
//! back.
//!
//! ```text
//! front   8   6  4  2  0   10 12   back
//!         b   a  a  a  a    c  c           a: tail 0, 4    b: tail 8, 1    c: tail 12, 2
//! ```
//!
//! Frame 14 is put at the front: b has two frames, and still the tail 8. Frame 0 is taken off: a
//! has three, and the tail 2. A refill that wants four frames cuts off b and a: from 14 it finds
//! the tail 8, behind that 6, and from there the tail 2. These are five frames; 4 was not touched.

use super::slots::{ClusterIndex, WORD_BITS, ZoneSlots, slots_for};
use super::walks::Walks;
use crate::buddy::{Beside, Tables};
use crate::frame::FrameTable;
use crate::pcp_tuning::PcpMode;
use crate::skeleton::OwnTables;
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::{End, ListHead};
use freehold::memmap::region::{Carver, LayoutBuilder, SectionKind, Table, TablePlan};
use freehold::platform::{Platform, SharedCell};
use freehold::units::{FrameCount, Order};

/// The number of no cluster. That of a cluster is its index plus one.
const NO_CLUSTER: u32 = 0;

/// A slot.
struct Slot<P: Platform> {
    tail: P::Cell<u32>,
    /// How many frames the cluster has; 0: unused.
    len: P::Cell<u32>,
}

/// What one zone has.
struct ZoneRecord<P: Platform> {
    slots: ZoneSlots<P>,
    batch: u32,
    walks: Walks<P>,
}

/// The clusters of all zones.
pub struct ClusterTable<P: Platform> {
    slots: Table<Slot<P>>,
    /// Which slots are in use.
    used: Table<P::Cell<u64>>,
    zones: Table<ZoneRecord<P>>,
}

/// Where the clusters lie.
pub struct ClusterTablePlan<P: Platform> {
    slots: TablePlan<Slot<P>>,
    used: TablePlan<P::Cell<u64>>,
    zones: TablePlan<ZoneRecord<P>>,
}

/// The batch and the number of slots of each zone.
fn batches_and_slots<'a>(
    config: &'a Config<'_>,
    mode: PcpMode,
) -> impl Iterator<Item = (u32, u32)> + 'a {
    config.zones().map(move |zone| {
        let of_zone = config.ranges.iter().filter(|range| (range.node, range.zone) == zone);
        let managed: FrameCount = of_zone.map(|range| range.frames).sum();
        let batch = mode.batch(managed, config.frame_size);
        (batch, slots_for(managed, batch))
    })
}

impl<P: Platform> OwnTables<P> for ClusterTable<P> {
    type Plan = ClusterTablePlan<P>;
    type Beside<'a> = ZoneClusters<'a, P>;

    fn plan(
        config: &Config<'_>,
        mode: PcpMode,
        layout: &mut LayoutBuilder,
    ) -> Result<ClusterTablePlan<P>, Error> {
        let slots: u32 = batches_and_slots(config, mode).map(|(_, slots)| slots).sum();
        Ok(ClusterTablePlan {
            zones: layout.table(SectionKind::Clusters, config.zones().count())?,
            used: layout.table(SectionKind::Clusters, (slots / WORD_BITS) as usize)?,
            slots: layout.table(SectionKind::Clusters, slots as usize)?,
        })
    }

    fn carve(
        plan: &ClusterTablePlan<P>,
        config: &Config<'_>,
        mode: PcpMode,
        carver: &mut Carver,
    ) -> Self {
        let (mut zones, mut first) = (batches_and_slots(config, mode), 0);
        ClusterTable {
            zones: carver.table(plan.zones, |_| {
                let (batch, len) = zones.next().unwrap_or_default();
                first += len;
                ZoneRecord { slots: ZoneSlots::new(first - len, len), batch, walks: Walks::new() }
            }),
            used: carver.table(plan.used, |_| P::Cell::new(0)),
            slots: carver
                .table(plan.slots, |_| Slot { tail: P::Cell::new(0), len: P::Cell::new(0) }),
        }
    }

    fn of_zone<'a>(&'a self, platform: &'a P, zone: ZoneIndex) -> ZoneClusters<'a, P> {
        ZoneClusters { table: self, zone: self.zones.get(zone.index()), platform }
    }
}

impl<P: Platform> ClusterTable<P> {
    /// Whether clusters of a zone may start and be cut off now. Requires the zone lock.
    pub(super) fn may_change(&self, zone: ZoneIndex) -> bool {
        let ZoneRecord { slots, walks, .. } = self.zones.get(zone.index());
        walks.is_none() && slots.len > 0
    }

    fn slot(&self, cluster: ClusterIndex) -> &Slot<P> {
        self.slots.get(cluster.0 as usize)
    }
}

/// The clusters of one zone. The methods require the zone lock, unless they say otherwise.
pub struct ZoneClusters<'a, P: Platform> {
    table: &'a ClusterTable<P>,
    zone: &'a ZoneRecord<P>,
    platform: &'a P,
}

/// A list of any kind: only the links of its blocks are read.
type Links<P> = ListHead<<P as Platform>::Cell<u32>>;

impl<'a, P: Platform> ZoneClusters<'a, P> {
    /// The walks over the zone. Requires no lock.
    pub(super) fn walks(&self) -> &'a Walks<P> {
        &self.zone.walks
    }

    /// The cluster of a frame on a free list.
    pub(super) fn cluster_of(
        &self,
        frames: &FrameTable<P>,
        frame: FrameIndex,
    ) -> Option<ClusterIndex> {
        match frames.record(frame).beside.get() {
            NO_CLUSTER => None,
            number => Some(ClusterIndex(number - 1)),
        }
    }

    /// Writes which cluster a frame is in. Requires no lock for a frame that is on no list.
    pub(super) fn set_cluster_of(
        frames: &FrameTable<P>,
        frame: FrameIndex,
        cluster: Option<ClusterIndex>,
    ) {
        let number = cluster.map_or(NO_CLUSTER, |cluster| cluster.0 + 1);
        frames.record(frame).beside.set(number);
    }

    /// The tail of a cluster, and how many frames it has.
    pub(super) fn extent(&self, cluster: ClusterIndex) -> (FrameIndex, u32) {
        let Slot { tail, len } = self.table.slot(cluster);
        (FrameIndex(tail.get()), len.get())
    }

    /// Starts a cluster of `len` neighbours on a list, up to `tail`; `None` if all slots are used.
    pub(super) fn start(&self, tail: FrameIndex, len: u32) -> Option<ClusterIndex> {
        let cluster = self.zone.slots.take(&self.table.used)?;
        let slot = self.table.slot(cluster);
        slot.tail.set(tail.0);
        slot.len.set(len);
        Some(cluster)
    }

    /// Ends a cluster. Its frames still have its number.
    pub(super) fn end(&self, cluster: ClusterIndex) {
        self.table.slot(cluster).len.set(0);
        self.zone.slots.put(&self.table.used, cluster);
    }

    /// Lets a frame at the end of a list join the cluster of its neighbour, if that has room.
    fn join(&self, frames: &FrameTable<P>, frame: FrameIndex, end: End) -> Option<ClusterIndex> {
        let neighbour = match end {
            End::Front => Links::<P>::behind(frames, frame),
            End::Back => Links::<P>::before(frames, frame),
        };
        let cluster = self.cluster_of(frames, neighbour?)?;
        let Slot { tail, len } = self.table.slot(cluster);
        if len.get() >= self.zone.batch {
            return None;
        }
        len.set(len.get() + 1);
        if end == End::Back {
            tail.set(frame.0);
        }
        Some(cluster)
    }

    /// Lets a frame that is still on its list leave its cluster.
    fn leave(&self, frames: &FrameTable<P>, frame: FrameIndex, cluster: ClusterIndex) {
        let Slot { tail, len } = self.table.slot(cluster);
        let left = len.get() - 1;
        if left == 0 {
            self.end(cluster);
            return;
        }
        len.set(left);
        if tail.get() == frame.0
            && let Some(before) = Links::<P>::before(frames, frame)
        {
            tail.set(before.0);
        }
    }

    /// Checks the clusters of a list; the error is a frame that violates the rule.
    pub(super) fn check_list(
        &self,
        frames: &FrameTable<P>,
        list: &Links<P>,
    ) -> Result<(), FrameIndex> {
        let mut rest = list.iter(frames);
        while let Some(first) = rest.next() {
            let Some(cluster) = self.cluster_of(frames, first) else { continue };
            let (tail, len) = self.extent(cluster);
            let mut last = first;
            for _ in 1..len {
                last = rest.next().ok_or(tail)?;
                if self.cluster_of(frames, last) != Some(cluster) {
                    return Err(last);
                }
            }
            if len == 0 || last != tail {
                return Err(last);
            }
        }
        Ok(())
    }
}

impl<P: Platform> Beside<P> for ZoneClusters<'_, P> {
    fn inserted(&self, tables: &Tables<'_, P>, block: FrameIndex, order: Order, end: End) {
        if order == Order::ZERO && self.zone.slots.len > 0 {
            let cluster = self.join(tables.frames, block, end);
            let cluster = cluster.or_else(|| self.start(block, 1));
            Self::set_cluster_of(tables.frames, block, cluster);
        }
    }

    fn removing(&self, tables: &Tables<'_, P>, block: FrameIndex, order: Order) {
        if order == Order::ZERO
            && let Some(cluster) = self.cluster_of(tables.frames, block)
        {
            self.leave(tables.frames, block, cluster);
            Self::set_cluster_of(tables.frames, block, None);
        }
    }

    fn settle(&self) {
        self.walks().wait_for_refills(self.platform);
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

    type Bench = Workbench<Clustered>;
    type Zone<'a> = ZoneClusters<'a, TestPlatform>;

    /// Sixteen frames, all in use, and clusters of up to four.
    fn bench() -> Bench {
        let bench = Bench::new(16, &fixed(Default::default(), 4, 4));
        bench.alloc_frames(16);
        bench.drain_all_of(0);
        bench
    }

    fn clusters_of(bench: &Bench) -> Zone<'_> {
        bench.design.tables.of_zone(&TestPlatform, ZONE)
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
        let cluster_of = |&frame: &u32| zone.cluster_of(frames, FrameIndex(frame));
        let mut all: Vec<_> = list.iter().filter_map(cluster_of).collect();
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
        bench.put_unmerged(&[0, 2, 4, 6]);
        assert_eq!(clusters(&bench), [(0, 4)]);
        bench.put_unmerged(&[8]);
        for frame in [10, 12] {
            let guard = bench.lock();
            guard.add_free(guard.put(FrameIndex(frame), Order::ZERO, Some(End::Back)));
        }
        assert_eq!(bench.in_zone(0, Movable), [8, 6, 4, 2, 0, 10, 12]);
        assert_eq!(clusters(&bench), [(8, 1), (0, 4), (12, 2)]);
        assert_eq!(check(&bench), Ok(()));
    }

    #[test]
    fn frames_leave_from_every_place() {
        let bench = bench();
        bench.put_unmerged(&[0, 2, 4, 6]);
        for (frame, left) in [(4, (0, 3)), (0, (2, 2)), (6, (2, 1))] {
            take(&bench, frame);
            assert_eq!(clusters(&bench), [left], "without {frame}");
            assert_eq!(check(&bench), Ok(()));
        }
        take(&bench, 2);
        assert_eq!(clusters(&bench), []);
        // The slot is the first unused one again.
        assert_eq!(clusters_of(&bench).start(FrameIndex(0), 1), Some(ClusterIndex(0)));
    }

    #[test]
    fn slots_run_out_and_are_used_again() {
        let bench = bench();
        let zone = clusters_of(&bench);
        let slots = || core::iter::from_fn(|| zone.start(FrameIndex(0), 1));
        assert!(slots().map(|slot| slot.0).eq(0..WORD_BITS));
        // Neither a lone frame nor one beside it finds a slot; both are still on the list.
        bench.put_unmerged(&[0, 2]);
        assert_eq!((clusters(&bench), check(&bench)), (Vec::new(), Ok(())));
        for slot in [40, 7] {
            zone.end(ClusterIndex(slot));
        }
        assert!(slots().map(|slot| slot.0).eq([7, 40]));
    }

    #[test]
    fn a_corrupt_table_is_found_out() {
        type Corrupt = fn(&Zone<'_>, &FrameTable<TestPlatform>);
        let corruptions: [(Corrupt, u32); 4] = [
            (|_, frames| Zone::set_cluster_of(frames, FrameIndex(4), None), 4),
            (|zone, _| zone.table.slot(ClusterIndex(0)).len.set(5), 0),
            (|zone, _| zone.table.slot(ClusterIndex(0)).len.set(0), 6),
            (|zone, _| zone.table.slot(ClusterIndex(0)).tail.set(2), 0),
        ];
        for (corrupt, at) in corruptions {
            let bench = bench();
            bench.put_unmerged(&[0, 2, 4, 6]);
            corrupt(&clusters_of(&bench), &bench.design.frames);
            assert_eq!(check(&bench), Err(FrameIndex(at)));
        }
    }
}

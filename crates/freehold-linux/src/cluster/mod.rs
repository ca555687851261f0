//! `cluster`: as `lazy-merge`; in addition, a refill cuts whole clusters of free frames off a list,
//! without touching the frames under the zone lock. A drain of frames of one migratetype can put
//! all of them on a list as one cluster.
//!
//! Source: Aaron Lu, "Eliminate zone->lock contention" v4 3/5 and 4/5 of October 2018. Deviations,
//! and defects of the original that are avoided:
//!
//! * The level of free frames is written under the zone lock; in the original after unlock, as a
//!   per-CPU difference.
//! * Adding to the back of a list read the cluster of the previous frame without checking that it
//!   has one, which it does not once the slots have run out.
//! * A cluster freed at once took its size from the request; here from the actual frames.
//! * Single-type frees were counted as requested; here as they happened, all of them (`Events`).
//! * A walk over frames waits for refills in progress without the zone lock, so not with interrupts
//!   off (Mel Gorman's objection). Only a fallback that takes over a pageblock waits with it.
//! * `single-type` can be limited to movable frames, as in v2.
//! * Memory that is added later has no slots of its own.

use core::fmt;

use super::lazy_merge::{COMPACT_HISTORY, Lazily};
use super::skeleton::{
    LocalPages, OwnSettings, OwnTables, Parts, Policy, Skeleton, drain_lists, meaning,
    refill_one_by_one, word,
};
use crate::buddy::FreeLists;
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::designs::{Setting, SettingError};
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::ListHead;
use freehold::platform::{IrqsOff, Platform, SharedCell};
use freehold::stat::Events;
use freehold::units::{FrameCount, MigrateType, Order};
use table::{ClusterTable, ZoneClusters};

mod slots;
mod table;
#[cfg(test)]
mod tests;
mod walks;

/// The design with clusters.
pub type Cluster<P> = Skeleton<P, Clustered>;

/// The settings of `cluster`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// When merging is deferred.
    pub lazily: Lazily,
    /// Which drains of one migratetype become a cluster at once.
    pub single_type: SingleType,
}

/// Which drains of one migratetype become a cluster at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SingleType {
    /// None.
    Off,
    /// Those of movable frames.
    Movable,
    /// All.
    #[default]
    Any,
}

/// The names of these drains.
const SINGLE_TYPE: [(&str, SingleType); 3] =
    [("off", SingleType::Off), ("movable", SingleType::Movable), ("any", SingleType::Any)];

/// The policy that moves whole clusters.
#[derive(Debug)]
pub struct Clustered;

/// How often the ideal case occurred on one CPU. Guarded by the lock of its lists.
pub struct Counters<P: Platform> {
    /// Drains that moved frames of this type only.
    single_type: [P::LocalCell<u64>; MigrateType::COUNT],
    /// Drains that became a cluster at once.
    clustered: P::LocalCell<u64>,
}

impl OwnSettings for ClusterOptions {
    const TABLE: &'static [Setting] = &[
        COMPACT_HISTORY,
        Setting {
            name: "single-type",
            values: "off|movable|any",
            default: "any",
            meaning: "drains of one migratetype that become a cluster at once",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match name {
            "single-type" => self.single_type = meaning(&SINGLE_TYPE, value)?,
            _ => return self.lazily.set(name, value),
        }
        Ok(())
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        self.lazily.for_each(each);
        each("single-type", &word(&SINGLE_TYPE, self.single_type));
    }
}

impl<P: Platform> Default for Counters<P> {
    fn default() -> Self {
        let zero = || P::LocalCell::new(0);
        Counters { single_type: core::array::from_fn(|_| zero()), clustered: zero() }
    }
}

impl<P: Platform> Parts<P> for Clustered {
    const NAME: &'static str = "cluster";
    type Settings = ClusterOptions;
    type Tables = ClusterTable<P>;
    type PerCpu = Counters<P>;
}

impl<P: Platform> Policy<P> for Clustered {
    const MERGES_LATE: bool = true;

    fn refill(pages: &LocalPages<'_, P, Self>, kind: Kind, wanted: u32) -> FrameCount {
        let cut = match kind.order {
            Order::ZERO => refill_by_clusters(pages, kind.migratetype, wanted),
            _ => 0,
        };
        let mut taken = FrameCount::new(u64::from(cut));
        if cut < wanted {
            taken += refill_one_by_one(pages, kind, wanted - cut);
        }
        taken
    }

    fn drain(pages: &LocalPages<'_, P, Self>, wanted: u32, just_used: usize) -> FrameCount {
        let batch = pages.pcp.batch.get();
        if wanted >= batch
            && let Some(migratetype) = single_type(pages, just_used)
            && drain_as_cluster(pages, migratetype, batch)
        {
            note_one(&pages.per_cpu.own.single_type[migratetype.index()]);
            note_one(&pages.per_cpu.own.clustered);
            return FrameCount::new(u64::from(batch));
        }
        let mut types = [false; BlockType::COUNT];
        let drained = drain_lists(pages, wanted, just_used, |block| {
            types[pages.design.frames.state(block).block_type().index()] = true;
        });
        if types.iter().filter(|&&drained| drained).count() == 1 {
            let one = pages.per_cpu.own.single_type.iter().zip(types).find(|(_, drained)| *drained);
            one.into_iter().for_each(|(counter, _)| note_one(counter));
        }
        drained
    }

    fn puts_off_merging(design: &Skeleton<P, Self>, zone: ZoneIndex) -> bool {
        design.tables.may_change(zone) && design.own.lazily.now(design, zone)
    }

    fn begin_walk(design: &Skeleton<P, Self>, platform: &P, zone: ZoneIndex) {
        let walks = design.tables.of_zone(platform, zone).walks();
        let guard = design.lock_zone(platform, zone);
        walks.begin();
        drop(guard);
        walks.wait_for_refills(platform);
    }

    fn end_walk(design: &Skeleton<P, Self>, platform: &P, zone: ZoneIndex) {
        design.lock_zone(platform, zone).buddy.beside.walks().end();
    }

    /// No walk is under way in a copy.
    fn repair(design: &Skeleton<P, Self>, platform: &P, zone: ZoneIndex) {
        design.tables.of_zone(platform, zone).walks().end_all();
    }

    fn check(
        design: &Skeleton<P, Self>,
        platform: &P,
        lists: &FreeLists<P>,
        _cpus: usize,
        zone: ZoneIndex,
    ) -> Result<(), FrameIndex> {
        let clusters = design.tables.of_zone(platform, zone);
        BlockType::ALL
            .iter()
            .try_for_each(|&of| clusters.check_list(&design.frames, lists.list(Order::ZERO, of)))
    }

    fn add_events(pages: &LocalPages<'_, P, Self>, events: &mut Events) {
        for (sum, counter) in
            events.single_type_drains.iter_mut().zip(&pages.per_cpu.own.single_type)
        {
            *sum += counter.get();
        }
        events.clustered_drains += pages.per_cpu.own.clustered.get();
    }
}

fn note_one<C: SharedCell<u64>>(counter: &C) {
    counter.set(counter.get() + 1);
}

/// Cuts clusters off the front of a list until there are `wanted` frames, perhaps some more, and
/// moves them to a CPU's list, which is empty; returns how many. Under the zone lock, touches only
/// the ends of each cluster.
fn refill_by_clusters<P: Platform>(
    pages: &LocalPages<'_, P, Clustered>,
    migratetype: MigrateType,
    wanted: u32,
) -> u32 {
    let design = pages.design;
    let (frames, of) = (&design.frames, BlockType::of(migratetype));
    // Off until the marks are written: a CPU that waits for them must not have interrupted this
    // refill. Before the lock is taken, so that what its release restores is not interrupts.
    let irqs = IrqsOff::new(pages.pcp.platform());
    let guard = pages.lock_zone();
    if !Clustered::puts_off_merging(design, pages.zone) {
        return 0;
    }
    let clusters = &guard.buddy.beside;
    let walks = clusters.walks();
    let list = guard.buddy.lists.list(Order::ZERO, of);
    let Some(first) = list.first() else { return 0 };
    let (mut last, mut taken) = (None, 0);
    while taken < wanted {
        let next = match last {
            None => Some(first),
            Some(last) => ListHead::<P::Cell<u32>>::behind(frames, last),
        };
        let Some(cluster) = next.and_then(|next| clusters.cluster_of(frames, next)) else { break };
        let (tail, count) = clusters.extent(cluster);
        clusters.end(cluster);
        (last, taken) = (Some(tail), taken + count);
    }
    let Some(last) = last else { return 0 };
    list.cut_front(frames, last);
    guard.buddy.lists.note(Order::ZERO, of, -i64::from(taken));
    guard.sub_free(FrameCount::new(u64::from(taken)));
    walks.begin_refill();
    drop(guard);

    // To a walk, the frames still look free; it waits until this is done.
    let mut next = Some(first);
    while let Some(frame) = next {
        ZoneClusters::set_cluster_of(frames, frame, None);
        frames.set_state(frame, FrameState::head(Tag::Pcp, Order::ZERO, of));
        next = ListHead::<P::Cell<u32>>::behind(frames, frame);
    }
    pages.pcp.list(Order::ZERO, migratetype).splice_front(frames, first, last);
    walks.end_refill();
    drop(irqs);
    taken
}

/// The migratetype of the next batch of frames to drain, if they are single frames of one type, and
/// the setting wants them as a cluster.
fn single_type<P: Platform>(
    pages: &LocalPages<'_, P, Clustered>,
    just_used: usize,
) -> Option<MigrateType> {
    let migratetype = *MigrateType::ALL.get(just_used)?;
    let LocalPages { design, pcp, .. } = pages;
    let wished = match design.own.single_type {
        SingleType::Off => false,
        SingleType::Movable => migratetype == MigrateType::Movable,
        SingleType::Any => true,
    };
    let others = || (0..MigrateType::COUNT).filter(|&list| list != just_used);
    // Lists of fixed size are drained in turn, tuned ones one after the other.
    let alone = design.mode.drains_in_turn() && others().all(|of| pcp.lists[of].is_empty())
        || !design.mode.drains_in_turn();
    (wished && alone && pcp.batch.get() > 1).then_some(migratetype)
}

/// Puts the oldest `wanted` frames of a list on the zone's list as one cluster; returns whether it
/// did.
fn drain_as_cluster<P: Platform>(
    pages: &LocalPages<'_, P, Clustered>,
    migratetype: MigrateType,
    wanted: u32,
) -> bool {
    let design = pages.design;
    let (frames, of) = (&design.frames, BlockType::of(migratetype));
    let list = pages.pcp.list(Order::ZERO, migratetype);
    let retypes = design.zone(pages.zone).retypes();
    // The frames are checked before the lock is taken, which also brings them into the cache.
    let Some(last) = list.last() else { return false };
    let mut first = last;
    for left in (0..wanted).rev() {
        if design.blocks.block_type(first) != of {
            return false;
        }
        if left > 0 {
            let Some(before) = ListHead::<P::Cell<u32>>::before(frames, first) else {
                return false;
            };
            first = before;
        }
    }
    let guard = pages.lock_zone();
    let unchanged = design.zone(pages.zone).retypes() == retypes;
    if !unchanged || !Clustered::puts_off_merging(design, pages.zone) {
        return false;
    }
    let Some(cluster) = guard.buddy.beside.start(last, wanted) else { return false };
    list.cut_back(frames, first);
    let mut next = Some(first);
    while let Some(frame) = next {
        let state = FrameState::head(Tag::Buddy, Order::ZERO, of).unmerged();
        frames.set_state(frame, state);
        design.blocks.note_unmerged(frame);
        ZoneClusters::set_cluster_of(frames, frame, Some(cluster));
        next = ListHead::<P::Cell<u32>>::behind(frames, frame);
    }
    guard.buddy.lists.list(Order::ZERO, of).splice_front(frames, first, last);
    guard.buddy.lists.note(Order::ZERO, of, i64::from(wanted));
    guard.add_free(FrameCount::new(u64::from(wanted)));
    true
}

//! The hooks in which one design of the skeleton differs from another.

use super::drain::drain_lists;
use super::settings::{OwnSettings, ZonedSettings};
use super::{LocalPages, Skeleton};
use crate::buddy::{Beside, FreeLists};
use crate::fallback::Mode;
use crate::frame::{FrameState, Tag};
use crate::pageblock::BlockType;
use crate::pcp::list_index;
use crate::pcp_tuning::PcpMode;
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::End;
use freehold::memmap::region::{Carver, LayoutBuilder};
use freehold::platform::Platform;
use freehold::stat::Events;
use freehold::units::{FrameCount, MigrateType, Order};

/// The hooks in which the designs differ. The default of each is the baseline's behaviour.
///
/// The methods take types that are private to the crate, so only the designs of this crate exist.
pub trait Policy<P: Platform>: Sized + 'static {
    /// The design's name.
    const NAME: &'static str;
    /// Whether pageblocks have owners.
    const USES_OWNERS: bool = false;
    /// Whether frames may be left unmerged on the zone's free lists.
    const MERGES_LATE: bool = false;
    /// Settings that only this design has.
    type Own: OwnSettings;
    /// Where its tables lie.
    type Plan;
    /// Its data beside the lists that one CPU has of one zone. Guarded by their lock.
    type PerCpu;
    /// Its data beside the free lists of a zone. Guarded by the zone lock.
    type Beside<'a>: Beside<P>
    where
        Self: 'a;

    /// Plans its tables.
    fn plan(
        config: &Config<'_>,
        settings: &ZonedSettings<Self::Own>,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error>;

    /// Initialises its tables, in the order in which they were planned.
    fn carve(
        plan: &Self::Plan,
        config: &Config<'_>,
        settings: &ZonedSettings<Self::Own>,
        carver: &mut Carver,
    ) -> Self;

    /// The initial state of a CPU in one zone.
    fn per_cpu() -> Self::PerCpu;

    /// The data beside the free lists of a zone.
    fn beside<'a>(
        design: &'a Skeleton<P, Self>,
        platform: &'a P,
        zone: ZoneIndex,
    ) -> Self::Beside<'a>;

    /// The list that holds blocks of this order and type, if there is one.
    #[inline(always)]
    fn list(mode: &PcpMode, order: Order, migratetype: MigrateType) -> Option<usize> {
        mode.caches(order).then(|| list_index(order, migratetype))
    }

    /// Takes a block off a CPU's lists, if there is one.
    #[inline(always)]
    fn take(
        design: &Skeleton<P, Self>,
        pages: &LocalPages<'_, P, Self>,
        order: Order,
        migratetype: MigrateType,
    ) -> Option<FrameIndex> {
        pages.pcp.lists[list_index(order, migratetype)].pop_front(&design.frames)
    }

    /// Takes up to `count` blocks off a CPU's lists; returns how many there were.
    #[inline(always)]
    fn take_many(
        design: &Skeleton<P, Self>,
        pages: &LocalPages<'_, P, Self>,
        order: Order,
        migratetype: MigrateType,
        count: usize,
        each: impl FnMut(FrameIndex),
    ) -> usize {
        let list = &pages.pcp.lists[list_index(order, migratetype)];
        list.pop_front_many(&design.frames, count, each)
    }

    /// Moves about `wanted` blocks from the zone to the lists of a CPU that has none; returns how
    /// many frames.
    fn refill(
        design: &Skeleton<P, Self>,
        platform: &P,
        pages: &LocalPages<'_, P, Self>,
        order: Order,
        migratetype: MigrateType,
        wanted: u32,
    ) -> FrameCount {
        refill_one_by_one(design, platform, pages, order, migratetype, wanted)
    }

    /// The CPU whose lists a block goes to that is freed on CPU `here`.
    #[inline(always)]
    fn home(_design: &Skeleton<P, Self>, here: usize, _block: FrameIndex) -> usize {
        here
    }

    /// The state of a free block on a CPU's list.
    #[inline(always)]
    fn mark(
        _design: &Skeleton<P, Self>,
        _pages: &LocalPages<'_, P, Self>,
        _block: FrameIndex,
        order: Order,
        of: BlockType,
    ) -> FrameState {
        FrameState::head(Tag::Pcp, order, of)
    }

    /// Prepares a CPU's lists for a drain in several steps.
    fn begin_drain(_design: &Skeleton<P, Self>, _pages: &LocalPages<'_, P, Self>) {}

    /// Returns about `wanted` frames from a CPU's lists to the zone; returns how many, at least
    /// one. The lists have at least `wanted`. `just_used` is the list that a block was put on last.
    fn drain(
        design: &Skeleton<P, Self>,
        platform: &P,
        pages: &LocalPages<'_, P, Self>,
        wanted: u32,
        just_used: usize,
    ) -> FrameCount {
        drain_lists(design, platform, pages, wanted, just_used, |_| {})
    }

    /// Whether frames freed to the zone now are left unmerged. The caller holds the zone lock.
    #[inline(always)]
    fn puts_off_merging(_design: &Skeleton<P, Self>, _zone: ZoneIndex) -> bool {
        false
    }

    /// Ends whatever would let a walk over the frames of a zone see stale marks. The caller holds
    /// no lock, and calls `end_walk` when it is done. Several walks may be under way at once.
    fn begin_walk(_design: &Skeleton<P, Self>, _platform: &P, _zone: ZoneIndex) {}

    /// Ends what `begin_walk` began.
    fn end_walk(_design: &Skeleton<P, Self>, _platform: &P, _zone: ZoneIndex) {}

    /// Repairs, in a copy of the metadata that was made while all locks were held, what other
    /// threads had half done without them: these threads do not exist in the copy.
    fn repair(_design: &Skeleton<P, Self>, _platform: &P, _zone: ZoneIndex) {}

    /// Checks the design's own data; the error is a frame at which an invariant is violated. The
    /// caller holds all locks of the zone.
    fn check(
        _design: &Skeleton<P, Self>,
        _platform: &P,
        _lists: &FreeLists<P>,
        _cpus: usize,
        _zone: ZoneIndex,
    ) -> Result<(), FrameIndex> {
        Ok(())
    }

    /// Adds the counters that only this design has.
    fn add_events(_pages: &LocalPages<'_, P, Self>, _events: &mut Events) {}

    /// A CPU goes offline: its lists must receive nothing any more.
    fn retire(_design: &Skeleton<P, Self>, _platform: &P, _cpu: usize, _zone: ZoneIndex) {}
}

/// Takes blocks from the zone one by one to the back of a list. After as many frames as one hold
/// may move, drops the zone lock and lets interrupts in, so that a large refill delays no CPU
/// longer than a small one.
pub(crate) fn refill_one_by_one<P: Platform, Y: Policy<P>>(
    design: &Skeleton<P, Y>,
    platform: &P,
    pages: &LocalPages<'_, P, Y>,
    order: Order,
    migratetype: MigrateType,
    wanted: u32,
) -> FrameCount {
    let mut taken = FrameCount::ZERO;
    let of = BlockType::of(migratetype);
    let list = &pages.pcp.lists[list_index(order, migratetype)];
    let most = (design.mode.hold_frames_max(&pages.pcp) >> order.get()).max(1);
    let mut left = wanted;
    while left > 0 {
        if left < wanted {
            pages.pcp.let_irqs_in();
        }
        let guard = design.lock_zone_of(platform, pages);
        let (mut mode, mut of_batch) = (Mode::default(), FrameCount::ZERO);
        for _ in 0..left.min(most) {
            let Some(block) = guard.take(order, migratetype, &mut mode) else {
                left = 0;
                break;
            };
            design.frames.set_state(block, Y::mark(design, pages, block, order, of));
            list.push(&design.frames, block, End::Back);
            of_batch += order.frames();
        }
        guard.sub_free(of_batch);
        taken += of_batch;
        left = left.saturating_sub(most);
    }
    taken
}

//! The hooks in which one design of the skeleton differs from another.

use super::{LocalPages, Parts, Skeleton};
use crate::buddy::FreeLists;
use crate::fallback::Step;
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use crate::pcp::{LISTS, list_index, list_order};
use crate::pcp_tuning::PcpMode;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::End;
use freehold::platform::Platform;
use freehold::stat::Events;
use freehold::units::{FrameCount, MigrateType, Order};

/// The hooks in which the designs differ. The default of each is the baseline's behaviour.
///
/// The methods take types that are private to the crate, so only the designs of this crate exist.
pub trait Policy<P: Platform>: Parts<P> {
    /// Whether pageblocks have owners.
    const USES_OWNERS: bool = false;
    /// Whether frames may be left unmerged on the zone's free lists.
    const MERGES_LATE: bool = false;

    /// The list that holds blocks of this kind, if there is one.
    #[inline(always)]
    fn list(mode: &PcpMode, kind: Kind) -> Option<usize> {
        mode.caches(kind.order).then(|| list_index(kind.order, kind.migratetype))
    }

    /// Takes a block off a CPU's lists, if there is one.
    #[inline(always)]
    fn take(pages: &LocalPages<'_, P, Self>, kind: Kind) -> Option<FrameIndex> {
        pages.pcp.list(kind.order, kind.migratetype).pop_front(&pages.design.frames)
    }

    /// Takes up to `count` blocks off a CPU's lists; returns how many there were.
    #[inline(always)]
    fn take_many(
        pages: &LocalPages<'_, P, Self>,
        kind: Kind,
        count: usize,
        each: impl FnMut(FrameIndex),
    ) -> usize {
        let list = pages.pcp.list(kind.order, kind.migratetype);
        list.pop_front_many(&pages.design.frames, count, each)
    }

    /// Moves about `wanted` blocks from the zone to the lists of a CPU that has none; returns how
    /// many frames.
    fn refill(pages: &LocalPages<'_, P, Self>, kind: Kind, wanted: u32) -> FrameCount {
        refill_one_by_one(pages, kind, wanted)
    }

    /// The CPU whose lists a block goes to that is freed on CPU `here`.
    #[inline(always)]
    fn home(_design: &Skeleton<P, Self>, here: usize, _block: FrameIndex) -> usize {
        here
    }

    /// The state of a free block on a CPU's list.
    #[inline(always)]
    fn mark(
        _pages: &LocalPages<'_, P, Self>,
        _block: FrameIndex,
        order: Order,
        of: BlockType,
    ) -> FrameState {
        FrameState::head(Tag::Pcp, order, of)
    }

    /// Prepares a CPU's lists for a drain in several steps.
    fn begin_drain(_pages: &LocalPages<'_, P, Self>) {}

    /// Returns about `wanted` frames from a CPU's lists to the zone; returns how many, at least
    /// one. The lists have at least `wanted`. `just_used` is the list that a block was put on last.
    fn drain(pages: &LocalPages<'_, P, Self>, wanted: u32, just_used: usize) -> FrameCount {
        drain_lists(pages, wanted, just_used, |_| {})
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

    /// A CPU goes offline: it must own nothing any more.
    fn release_owned(_design: &Skeleton<P, Self>, _platform: &P, _cpu: usize, _zone: ZoneIndex) {}
}

/// Takes blocks from the zone one by one to the back of a list. After as many frames as one hold
/// may move, drops the zone lock and lets interrupts in, so that a large refill delays no CPU
/// longer than a small one.
pub(crate) fn refill_one_by_one<P: Platform, Y: Policy<P>>(
    pages: &LocalPages<'_, P, Y>,
    kind: Kind,
    wanted: u32,
) -> FrameCount {
    let Kind { order, migratetype } = kind;
    let mut taken = FrameCount::ZERO;
    let of = BlockType::of(migratetype);
    let LocalPages { design, pcp, .. } = pages;
    let list = pcp.list(order, migratetype);
    let most = (design.mode.hold_frames_max(pcp) >> order.get()).max(1);
    let mut left = wanted;
    while left > 0 {
        if left < wanted {
            pcp.let_irqs_in();
        }
        let guard = pages.lock_zone();
        let (mut step, mut of_batch) = (Step::default(), FrameCount::ZERO);
        for _ in 0..left.min(most) {
            let Some(block) = guard.take(kind, &mut step) else {
                left = 0;
                break;
            };
            design.frames.set_state(block, Y::mark(pages, block, order, of));
            list.push(&design.frames, block, End::Back);
            of_batch += order.frames();
        }
        guard.sub_free(of_batch);
        taken += of_batch;
        left = left.saturating_sub(most);
    }
    taken
}

/// Returns at least `wanted` frames, oldest first, under one hold of the zone lock, and calls
/// `each` with every block before it is returned; returns how many frames left the lists, which
/// have at least `wanted`. `just_used` is the list that a block was put on last.
pub(crate) fn drain_lists<P: Platform, Y: Policy<P>>(
    pages: &LocalPages<'_, P, Y>,
    wanted: u32,
    just_used: usize,
    mut each: impl FnMut(FrameIndex),
) -> FrameCount {
    let (mut drained, mut available) = (FrameCount::ZERO, FrameCount::ZERO);
    let guard = pages.lock_zone();
    for_each_victim(pages, wanted, just_used, |block, order| {
        each(block);
        available += pages.design.put_in_zone(&guard, block, order, pages.zone);
        drained += order.frames();
    });
    guard.add_free(available);
    drained
}

/// Takes at least `wanted` frames off a CPU's lists, oldest first. The lists have that many.
pub(crate) fn for_each_victim<P: Platform, Y: Policy<P>>(
    pages: &LocalPages<'_, P, Y>,
    wanted: u32,
    just_used: usize,
    mut each: impl FnMut(FrameIndex, Order),
) {
    let LocalPages { design, pcp, .. } = pages;
    let mut left = i64::from(wanted);
    let mut take_last = |list: usize| {
        let order = list_order(list);
        let list = &pcp.lists[list];
        let Some(block) = list.last() else { return 0 };
        list.remove(&design.frames, block);
        each(block, order);
        order.frames().get() as i64
    };
    match design.mode {
        // As in Linux 6.12: the list used last first, each list until it is empty.
        PcpMode::Auto { .. } => {
            for list in (just_used..LISTS).chain(0..just_used) {
                while left > 0 {
                    match take_last(list) {
                        0 => break,
                        frames => left -= frames,
                    }
                }
            }
        }
        // As in Linux 4.16: one block from each type's list in turn, more blocks from a list the
        // more empty ones were passed, so that only a lone list is emptied at once.
        PcpMode::Fixed { .. } => {
            let (mut list, mut burst) = (0, 0);
            while left > 0 {
                let next = (1..=MigrateType::COUNT)
                    .find(|step| !pcp.lists[(list + step) % MigrateType::COUNT].is_empty());
                let step = next.expect("the lists hold as many frames as the CPU counts");
                burst += step as i64;
                list = (list + step) % MigrateType::COUNT;
                if burst == MigrateType::COUNT as i64 {
                    burst = left;
                }
                while burst > 0 && left > 0 && take_last(list) > 0 {
                    burst -= 1;
                    left -= 1;
                }
            }
        }
    }
}

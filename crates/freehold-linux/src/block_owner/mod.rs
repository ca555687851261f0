//! `block-owner`: CPUs own whole pageblocks. A frame freed anywhere returns to its owner's lists,
//! where buddies meet and merge before the zone lock is taken. The owner remembers blocks that were
//! returned in part, and fetches them back first.
//!
//! Source: Johannes Weiner, "mm: page_alloc: pcp buddy allocator" (RFC, April 2026). Its code was
//! not available. `docs/designs.md` distinguishes what follows from the cover letter and the
//! replies from what was designed here. Defects of the original that are avoided:
//!
//! * It waited for the owner's lock when freeing, which can deadlock with an interrupt that frees
//!   under a lock of its own. Here a free only tries the lock; if it is taken, the frame goes to
//!   the zone.
//! * Frames that went to the zone because the owner's lock was taken were lost to the owner. Here
//!   they make the block remembered, whichever CPU returns them.
//! * Owner and list of remembered blocks change only under the zone lock, so the call that
//!   completes a block there can end its ownership at once.
//!
//! # Why a frame reaches the right list
//!
//! A free reads the owner without a lock, and again under the lock of the lists that it goes to.
//! While both that lock and a frame of the block are held, ownership can end (by a fallback that
//! retypes the block, or isolation) but not pass to another CPU: for that all frames of the block
//! would have to be free in the zone. A frame marked as the owner's own after its ownership ended
//! is an ordinary frame of that CPU's lists.

use super::pcp::list_index;
use super::pcp_tuning::PcpMode;
use super::skeleton::{LocalPages, NoneOfItsOwn, OwnTables, Parts, Policy, Skeleton};
use crate::buddy::FreeLists;
use crate::frame::{FrameState, Tag};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::memmap::list::End;
use freehold::platform::Platform;
use freehold::units::{FrameCount, Order};
use owned::{OwnedBlocks, Owners};

mod drain;
mod owned;
mod refill;
#[cfg(test)]
mod tests;

/// The design whose CPUs own pageblocks.
pub type BlockOwner<P> = Skeleton<P, Owners>;

impl<P: Platform> Parts<P> for Owners {
    const NAME: &'static str = "block-owner";
    type Settings = NoneOfItsOwn;
    type Tables = OwnedBlocks<P>;
    type PerCpu = ();
}

impl<P: Platform> Policy<P> for Owners {
    const USES_OWNERS: bool = true;

    #[inline(always)]
    fn list(_mode: &PcpMode, Kind { order, migratetype }: Kind) -> Option<usize> {
        (order <= Order::PAGEBLOCK).then(|| list_index(order, migratetype))
    }

    /// The smallest block that suffices, split at once.
    #[inline]
    fn take(pages: &LocalPages<'_, P, Self>, kind: Kind) -> Option<FrameIndex> {
        let Kind { order, migratetype } = kind;
        let (pcp, frames) = (&pages.pcp, &pages.design.frames);
        order.to(Order::PAGEBLOCK).find_map(|from| {
            let block = pcp.list(from, migratetype).pop_front(frames)?;
            let tag = frames.state(block).tag();
            for half in (order.get()..from.get()).rev().map(Order::new) {
                let upper = block.after(half);
                let state = FrameState::head(tag, half, BlockType::of(migratetype));
                frames.set_state(upper, state);
                pcp.list(half, migratetype).push(frames, upper, End::Front);
            }
            Some(block)
        })
    }

    fn take_many(
        pages: &LocalPages<'_, P, Self>,
        kind: Kind,
        count: usize,
        each: impl FnMut(FrameIndex),
    ) -> usize {
        let blocks = core::iter::from_fn(|| Self::take(pages, kind));
        blocks.take(count).map(each).count()
    }

    fn refill(pages: &LocalPages<'_, P, Self>, kind: Kind, wanted: u32) -> FrameCount {
        let Kind { order, migratetype } = kind;
        let mut enough = order.to(Order::PAGEBLOCK);
        if enough.any(|order| !pages.pcp.list(order, migratetype).is_empty()) {
            return FrameCount::ZERO;
        }
        let wanted = match pages.design.mode {
            PcpMode::Auto { .. } => u64::from(wanted) << order.get(),
            // A batch counts single frames.
            PcpMode::Fixed { .. } => u64::from(wanted).max(order.frames().get()),
        };
        refill::refill(pages, kind, FrameCount::new(wanted))
    }

    #[inline(always)]
    fn home(design: &Skeleton<P, Self>, here: usize, block: FrameIndex) -> usize {
        design.blocks.owner(block).unwrap_or(here)
    }

    #[inline(always)]
    fn mark(
        pages: &LocalPages<'_, P, Self>,
        block: FrameIndex,
        order: Order,
        of: BlockType,
    ) -> FrameState {
        let own = pages.design.blocks.owner(block) == Some(pages.cpu);
        FrameState::head(if own { Tag::PcpBuddy } else { Tag::Pcp }, order, of)
    }

    fn begin_drain(pages: &LocalPages<'_, P, Self>) {
        drain::merge(pages);
    }

    fn drain(pages: &LocalPages<'_, P, Self>, wanted: u32, _just_used: usize) -> FrameCount {
        drain::drain(pages, wanted)
    }

    fn check(
        design: &Skeleton<P, Self>,
        platform: &P,
        _lists: &FreeLists<P>,
        cpus: usize,
        zone: ZoneIndex,
    ) -> Result<(), FrameIndex> {
        let owned = design.tables.of_zone(platform, zone);
        (0..cpus).try_for_each(|cpu| {
            owned.remembered(cpu).try_for_each(|block| {
                let fits = design.blocks.owner(block) == Some(cpu)
                    && design.blocks.zone(block) == Some(zone);
                if fits { Ok(()) } else { Err(block) }
            })
        })
    }

    fn release_owned(design: &Skeleton<P, Self>, platform: &P, cpu: usize, zone: ZoneIndex) {
        for pageblock in design.pageblocks_of(zone) {
            if design.blocks.owner(pageblock) != Some(cpu) {
                continue;
            }
            let guard = design.lock_zone(platform, zone);
            if design.blocks.owner(pageblock) == Some(cpu) {
                guard.buddy.beside.disown(&design.blocks, pageblock);
            }
        }
    }
}

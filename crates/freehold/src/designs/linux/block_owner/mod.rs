//! `block-owner`: a CPU takes whole pageblocks and owns them. Frames that are freed anywhere go
//! home to the owner, buddies meet there and merge before the zone lock is taken. Blocks that went
//! back in part are remembered, and fetched back first.
//!
//! Source: Johannes Weiner, "mm: page_alloc: pcp buddy allocator" (RFC, April 2026), and for
//! `remote=queue` Rik van Riel's follow-up. No code of the former was to be had: what follows from
//! the cover letter and the replies, and what was designed here, is kept apart in
//! `docs/designs.md`. Defects of the original that are avoided:
//!
//! * It waited for the owner's lock when freeing, which can deadlock with an interrupt that frees
//!   under a lock of its own. Here the lock is tried, or not taken at all.
//! * Frames that went to the zone because the owner's lock was taken were lost to the owner. Here
//!   they make the block remembered, whoever brings them.
//! * Owner and list of remembered blocks change under the zone lock alone, so that whoever
//!   completes a block there can end its ownership at once.
//!
//! # Why a frame comes to the right list
//!
//! A free reads the owner without a lock, and again under the lock of the lists that it goes to.
//! While both that lock and a frame of the block are held, the owner can be ended (by a fallback
//! that retypes the block, or isolation) but not changed to another: for that all frames of the
//! block would have to be free in the zone. A frame marked as the owner's own after its ownership
//! ended is an ordinary frame of that CPU's lists.

use core::fmt;

use super::pcp::list_index;
use super::pcp_tuning::PcpMode;
use super::skeleton::{LocalPages, OwnSettings, Policy, Route, Skeleton, ZonedSettings};
use crate::Error;
use crate::config::Config;
use crate::designs::linux::buddy::FreeLists;
use crate::designs::linux::frame::{FrameState, Tag};
use crate::designs::linux::pageblock::BlockType;
use crate::designs::{Setting, SettingError};
use crate::memmap::index::{FrameIndex, ZoneIndex};
use crate::memmap::list::End;
use crate::memmap::region::{Carver, LayoutBuilder};
use crate::platform::Platform;
use crate::units::{FrameCount, MigrateType, Order};
use owned::{OwnedBlocks, OwnedBlocksPlan, ZoneOwned};
use queue::Queue;

mod drain;
mod owned;
mod queue;
mod refill;
#[cfg(test)]
mod tests;

/// The design whose CPUs own pageblocks.
pub type BlockOwner<P> = Skeleton<P, Owners<P>>;

/// How frames of a block come to its owner when another CPU frees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote {
    /// On the owner's lists, if their lock is free; otherwise to the zone.
    #[default]
    TryLock,
    /// On the owner's queue, without a lock.
    Queue,
}

/// How `block-owner` is set up beside the common settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerOptions {
    /// How frames come home.
    pub remote: Remote,
}

/// The owners' tables.
pub struct Owners<P: Platform> {
    owned: OwnedBlocks<P>,
    remote: Remote,
}

impl OwnSettings for OwnerOptions {
    const TABLE: &'static [Setting] = &[Setting {
        name: "remote",
        values: "trylock|queue",
        default: "trylock",
        meaning: "frames freed elsewhere: try the owner's lists, or queue without a lock",
    }];

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match (name, value) {
            ("remote", "trylock") => self.remote = Remote::TryLock,
            ("remote", "queue") => self.remote = Remote::Queue,
            ("remote", _) => return Err(SettingError::BadValue),
            _ => return Err(SettingError::UnknownName),
        }
        Ok(())
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        let remote = match self.remote {
            Remote::TryLock => "trylock",
            Remote::Queue => "queue",
        };
        each("remote", &remote);
    }
}

impl<P: Platform> Policy<P> for Owners<P> {
    const NAME: &'static str = "block-owner";
    const USES_OWNERS: bool = true;
    type Own = OwnerOptions;
    type Plan = OwnedBlocksPlan<P>;
    type PerCpu = Queue<P>;
    type Beside<'a> = ZoneOwned<'a, P>;

    fn plan(
        config: &Config<'_>,
        _settings: &ZonedSettings<OwnerOptions>,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error> {
        OwnedBlocks::plan(config, layout)
    }

    fn carve(
        plan: Self::Plan,
        _config: &Config<'_>,
        settings: &ZonedSettings<OwnerOptions>,
        carver: &mut Carver,
    ) -> Self {
        Owners { owned: OwnedBlocks::carve(plan, carver), remote: settings.own.remote }
    }

    fn per_cpu() -> Queue<P> {
        Queue::new()
    }

    fn beside<'a>(
        design: &'a Skeleton<P, Self>,
        _platform: &'a P,
        zone: ZoneIndex,
    ) -> ZoneOwned<'a, P> {
        design.policy.owned.of_zone(zone)
    }

    #[inline(always)]
    fn list(_mode: &PcpMode, order: Order, migratetype: MigrateType) -> Option<usize> {
        (order <= Order::PAGEBLOCK).then(|| list_index(order, migratetype))
    }

    /// The smallest block that will do, split on the spot.
    #[inline]
    fn take(
        design: &Skeleton<P, Self>,
        pages: &LocalPages<'_, P, Self>,
        order: Order,
        migratetype: MigrateType,
    ) -> Option<FrameIndex> {
        let lists = &pages.pcp.lists;
        let frames = &design.frames;
        order.to(Order::PAGEBLOCK).find_map(|from| {
            let block = lists[list_index(from, migratetype)].pop_front(frames)?;
            let tag = frames.state(block).tag();
            for half in (order.get()..from.get()).rev().map(Order::new) {
                let upper = block.after(half);
                let state = FrameState::head(tag, half, BlockType::of(migratetype));
                frames.set_state(upper, state);
                lists[list_index(half, migratetype)].push(frames, upper, End::Front);
            }
            Some(block)
        })
    }

    fn take_many(
        design: &Skeleton<P, Self>,
        pages: &LocalPages<'_, P, Self>,
        order: Order,
        migratetype: MigrateType,
        count: usize,
        each: impl FnMut(FrameIndex),
    ) -> usize {
        let blocks = core::iter::from_fn(|| Self::take(design, pages, order, migratetype));
        blocks.take(count).map(each).count()
    }

    fn refill(
        design: &Skeleton<P, Self>,
        platform: &P,
        pages: &LocalPages<'_, P, Self>,
        order: Order,
        migratetype: MigrateType,
        wanted: u32,
    ) -> FrameCount {
        design.absorb(platform, pages);
        let mut enough = order.to(Order::PAGEBLOCK).map(|order| list_index(order, migratetype));
        if enough.any(|list| !pages.pcp.lists[list].is_empty()) {
            return FrameCount::ZERO;
        }
        let wanted = match design.mode {
            PcpMode::Auto { .. } => u64::from(wanted) << order.get(),
            // A batch is meant in single frames.
            PcpMode::Fixed { .. } => u64::from(wanted).max(order.frames().get()),
        };
        refill::refill(design, platform, pages, order, migratetype, FrameCount::new(wanted))
    }

    #[inline(always)]
    fn route(design: &Skeleton<P, Self>, here: usize, block: FrameIndex) -> Route {
        match design.blocks.owner(block) {
            Some(owner) if owner != here => match design.policy.remote {
                Remote::TryLock => Route::Lists(owner),
                Remote::Queue => Route::Queue(owner),
            },
            _ => Route::Lists(here),
        }
    }

    #[inline(always)]
    fn mark(
        design: &Skeleton<P, Self>,
        pages: &LocalPages<'_, P, Self>,
        block: FrameIndex,
        order: Order,
        of: BlockType,
    ) -> FrameState {
        let own = design.blocks.owner(block) == Some(pages.cpu);
        FrameState::head(if own { Tag::PcpBuddy } else { Tag::Pcp }, order, of)
    }

    fn enqueue(
        design: &Skeleton<P, Self>,
        cpu: usize,
        zone: ZoneIndex,
        blocks: impl Iterator<Item = FrameIndex>,
        order: Order,
    ) {
        let blocks = blocks.inspect(|&block| {
            let of = BlockType::of(design.blocks.migratetype(block));
            design.frames.set_state(block, FrameState::head(Tag::Queued, order, of));
        });
        design.per_cpu(cpu, zone).own.push(&design.frames, blocks);
    }

    fn absorb(design: &Skeleton<P, Self>, pages: &LocalPages<'_, P, Self>) -> FrameCount {
        let (mut absorbed, mut passed) = (FrameCount::ZERO, drain::Passed::default());
        for block in pages.own.take_all(&design.frames) {
            let order = design.frames.state(block).order().unwrap_or_default();
            // An isolated block has its former type here; the zone will know better.
            let migratetype = design.blocks.migratetype(block);
            let mark = Self::mark(design, pages, block, order, BlockType::of(migratetype));
            design.frames.set_state(block, mark);
            let list = &pages.pcp.lists[list_index(order, migratetype)];
            list.push(&design.frames, block, End::Front);
            absorbed += order.frames();
            passed.one(pages);
        }
        absorbed
    }

    fn queued(design: &Skeleton<P, Self>, pages: &LocalPages<'_, P, Self>) -> FrameCount {
        let frames = &design.frames;
        let order = |block| frames.state(block).order().unwrap_or_default();
        pages.own.iter(frames).map(|block| order(block).frames()).sum()
    }

    fn begin_drain(design: &Skeleton<P, Self>, platform: &P, pages: &LocalPages<'_, P, Self>) {
        design.absorb(platform, pages);
        drain::merge(design, pages);
    }

    fn drain(
        design: &Skeleton<P, Self>,
        platform: &P,
        pages: &LocalPages<'_, P, Self>,
        wanted: u32,
        _just_used: usize,
    ) -> FrameCount {
        drain::drain(design, platform, pages, wanted)
    }

    /// What was on its way to a queue is lost: its links may be older than what leads to them. The
    /// queues were empty when the locks had been taken.
    fn mend(design: &Skeleton<P, Self>, _platform: &P, cpus: usize, zone: ZoneIndex) {
        (0..cpus).for_each(|cpu| design.per_cpu(cpu, zone).own.forget());
    }

    fn check(
        design: &Skeleton<P, Self>,
        _platform: &P,
        _lists: &FreeLists<P>,
        cpus: usize,
        zone: ZoneIndex,
    ) -> Result<(), FrameIndex> {
        let owned = design.policy.owned.of_zone(zone);
        (0..cpus).try_for_each(|cpu| {
            owned.remembered(cpu).try_for_each(|block| {
                let fits = design.blocks.owner(block) == Some(cpu)
                    && design.blocks.zone(block) == Some(zone);
                if fits { Ok(()) } else { Err(block) }
            })
        })
    }

    fn retire(design: &Skeleton<P, Self>, platform: &P, cpu: usize, zone: ZoneIndex) {
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

//! The record of a zone: its level, the trees of its pool and orphans, watermarks and counters. It
//! has no lock but that of compaction.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::tree::Tree;
use crate::compact::state::CompactionState;
use crate::designs::freehold::pageblocks::PageblockIndex;
use crate::designs::hotplug::Marked;
use crate::platform::{LockClass, Pin, Platform, RawLock, Word};
use crate::request::Request;
use crate::stat::Events;
use crate::units::{FrameCount, MigrateType, NodeId, Order, ZoneKind};
use crate::zone::watermark::{Watermark, Watermarks};

/// How many pageblocks for each CPU make a zone roomy.
const ROOMY_PAGEBLOCKS: u64 = 32;

/// In other zones, so many CPUs share pageblocks for content that cannot move: what is free there
/// between such content is of no other use. With fewer sharers, less stays in whole pageblocks;
/// with more, they wait for each other.
const SHARERS: usize = 4;

/// How many spare pageblocks a cache has at most.
pub(crate) const SPARES_MAX: usize = 16;

/// One pageblock of so many may be a spare, of all caches together: as much of a zone as Linux lets
/// all its per-CPU lists hold (`zone_highsize`, 6.12). But while as much is free besides, each
/// cache may have [`SPARES_MAX`].
const SPARES_SHARE: u64 = 8;

/// The record of a zone.
#[repr(C)]
pub(crate) struct Zone<P: Platform> {
    setup: Setup<P>,
    level: Level<P>,
    counts: Counters<P>,
    compaction: Compaction<P>,
}

/// Written when memory is added, read by all CPUs.
#[repr(C, align(64))]
struct Setup<P: Platform> {
    node: NodeId,
    kind: ZoneKind,
    /// The first pageblock that the trees cover.
    first_pageblock: u32,
    pool: Tree,
    orphans: [Tree; MigrateType::COUNT],
    /// The first of those by runs: see `runs`.
    runs: Tree,
    managed: P::U64,
    /// The pageblocks among which are all that ever had memory: the first in the lower half, and
    /// the one behind the last in the upper.
    extent: P::U64,
    /// How many spares each cache may have; 0 or 1 for one.
    spares_max: P::U32,
    watermarks: Watermarks<P>,
}

/// Written whenever a pageblock comes or goes.
#[repr(C, align(64))]
struct Level<P: Platform> {
    /// Free frames in the pool and orphans.
    free: P::U64,
}

/// Written by what bypasses the caches.
#[repr(C, align(64))]
struct Counters<P: Platform> {
    doubles: P::U64,
    claims: P::U64,
    steals: P::U64,
    /// Frames that were added to pageblocks which caches held.
    added: P::U64,
}

/// What a zone remembers of compaction, and the lock that guards it.
#[repr(C, align(64))]
struct Compaction<P: Platform> {
    lock: P::Lock,
    state: CompactionState<P>,
}

/// Where the trees of a zone lie.
pub(crate) struct ZoneTrees {
    pub(crate) first_pageblock: u32,
    pub(crate) pool: Tree,
    pub(crate) orphans: [Tree; MigrateType::COUNT],
    pub(crate) runs: Tree,
}

impl<P: Platform> Zone<P> {
    pub(crate) fn new(node: NodeId, kind: ZoneKind, trees: ZoneTrees) -> Self {
        let zero = || P::U64::new(0);
        let ZoneTrees { first_pageblock, pool, orphans, runs } = trees;
        let (managed, watermarks) = (zero(), Watermarks::new());
        Zone {
            setup: Setup {
                node,
                kind,
                first_pageblock,
                pool,
                orphans,
                runs,
                managed,
                extent: zero(),
                spares_max: P::U32::new(0),
                watermarks,
            },
            level: Level { free: zero() },
            counts: Counters { doubles: zero(), claims: zero(), steals: zero(), added: zero() },
            compaction: Compaction {
                lock: P::Lock::new(LockClass::Compaction),
                state: CompactionState::new(),
            },
        }
    }

    pub(crate) const fn node(&self) -> NodeId {
        self.setup.node
    }

    pub(crate) const fn kind(&self) -> ZoneKind {
        self.setup.kind
    }

    pub(crate) const fn first_pageblock(&self) -> u32 {
        self.setup.first_pageblock
    }

    /// The bit of a pageblock in the trees.
    #[inline]
    pub(crate) const fn bit(&self, pageblock: PageblockIndex) -> usize {
        pageblock.0.wrapping_sub(self.first_pageblock()) as usize
    }

    /// The whole pageblocks that no cache holds.
    pub(crate) const fn pool(&self) -> &Tree {
        &self.setup.pool
    }

    /// The orphans of a type that have free frames.
    pub(crate) const fn orphans(&self, migratetype: MigrateType) -> &Tree {
        &self.setup.orphans[migratetype.index()]
    }

    /// The orphans of a type by their largest run: see [`runs`](super::runs).
    pub(super) const fn first_of_runs(&self) -> &Tree {
        &self.setup.runs
    }

    pub(crate) const fn watermarks(&self) -> &Watermarks<P> {
        &self.setup.watermarks
    }

    /// What its watermarks follow from, and these.
    pub(crate) fn marked(&self) -> Marked<'_, P> {
        let (node, kind, managed) = (self.node(), self.kind(), FrameCount::new(self.managed()));
        Marked { node, kind, managed, watermarks: self.watermarks() }
    }

    // Relaxed below: levels and counts, on which a reader acts as of a moment ago. What they count
    // is passed on by other words.

    pub(crate) fn managed(&self) -> u64 {
        self.setup.managed.load(Relaxed)
    }

    pub(crate) fn add_managed(&self, frames: u64) {
        self.setup.managed.fetch_add(frames, Relaxed);
    }

    pub(crate) fn sub_managed(&self, frames: u64) {
        self.setup.managed.fetch_add(frames.wrapping_neg(), Relaxed);
    }

    /// The pageblocks among which are all that ever had memory.
    pub(crate) fn extent(&self) -> Range<u32> {
        let both = self.setup.extent.load(Relaxed);
        both as u32..(both >> 32) as u32
    }

    /// Makes pageblocks part of the extent. The caller holds the hotplug lock.
    pub(crate) fn extend(&self, pageblocks: Range<u32>) {
        let had = self.extent();
        let start = if had.is_empty() { pageblocks.start } else { had.start.min(pageblocks.start) };
        let end = had.end.max(pageblocks.end);
        self.setup.extent.store(u64::from(end) << 32 | u64::from(start), Relaxed);
    }

    /// How many spares a cache may have. It may have one if this is 0.
    #[inline]
    pub(crate) fn spares_max(&self) -> u32 {
        self.setup.spares_max.load(Relaxed)
    }

    /// How many spares each of so many caches may have, whatever else is free.
    fn spares_min(&self, cpus: usize) -> u32 {
        (self.pageblocks() / (SPARES_SHARE * cpus as u64)).min(SPARES_MAX as u64) as u32
    }

    pub(crate) fn set_spares_max(&self, cpus: usize) {
        self.setup.spares_max.store(self.spares_min(cpus), Relaxed);
    }

    /// Lets caches have more spares if there is memory for that, where a word of the pool with so
    /// many pageblocks was seen.
    pub(crate) fn allow_spares(&self, members: u32) {
        let most = SPARES_MAX as u32;
        if members >= most
            && self.spares_max() < most
            && self.level() >= self.managed() / SPARES_SHARE
        {
            self.setup.spares_max.store(most, Relaxed);
        }
    }

    /// Whether each of so many caches may have more spares than in any case.
    pub(crate) fn has_many_spares(&self, cpus: usize) -> bool {
        let most = SPARES_MAX as u32;
        self.spares_max() == most && self.spares_min(cpus) < most
    }

    /// The free frames in the pool and orphans. While calls are under way, each CPU may have one
    /// pageblock counted late.
    #[inline]
    pub(crate) fn level(&self) -> u64 {
        // `try_cache` takes frames out before it checks, so the level may be below 0 for a moment.
        // Acquire: a call that sees a level which a section has lowered sees that section; see
        // `sections`.
        let level = self.level.free.load(Acquire);
        if level > u64::MAX / 2 { 0 } else { level }
    }

    pub(crate) fn add_free(&self, frames: u32) {
        // All CPUs write to it, and often there is nothing to add.
        if frames > 0 {
            self.level.free.fetch_add(u64::from(frames), Relaxed);
        }
    }

    /// Takes frames out of the level: in a section, or under the lock of a cache after
    /// `mark_cached`.
    pub(crate) fn sub_free(&self, frames: u32) {
        // Release: as in `level`.
        self.level.free.fetch_add(u64::from(frames).wrapping_neg(), Release);
    }

    /// Whether so many frames can be taken without going below the mark of `class`.
    #[inline]
    pub(crate) fn may_take(&self, frames: u64, class: Watermark, limit: ZoneKind) -> bool {
        let floor = self.setup.watermarks.floor(class, limit).unwrap_or(0);
        self.level() >= frames.saturating_add(floor)
    }

    /// Whether a cache may acquire so many frames, of which it caches what it does not need at
    /// once: the zone must stay above its low watermark, so that requests which respect it notice
    /// nothing.
    #[inline]
    pub(crate) fn may_cache(&self, frames: u32, request: &Request) -> bool {
        self.may_take(u64::from(frames), Watermark::Low, request.effective_limit())
    }

    /// As `may_cache`, and takes the frames out of the level, as `sub_free` does: of several calls
    /// at the same time, no more succeed than the zone can spare.
    pub(crate) fn try_cache(&self, frames: u32, request: &Request) -> bool {
        let limit = request.effective_limit();
        let floor = self.setup.watermarks.floor(Watermark::Low, limit).unwrap_or(0);
        // Release: as in `level`.
        let before = self.level.free.fetch_add(u64::from(frames).wrapping_neg(), Release);
        let level = if before > u64::MAX / 2 { 0 } else { before };
        let may = level >= floor.saturating_add(u64::from(frames));
        if !may {
            self.add_free(frames);
        }
        may
    }

    /// Whether the cache of a CPU, of so many, may hold pageblocks for a type.
    pub(crate) fn may_cache_for(&self, migratetype: MigrateType, cpus: usize, cpu: usize) -> bool {
        self.caching_cpu(migratetype, cpus, cpu) == Some(cpu)
    }

    /// The CPU, of so many, in whose cache a CPU finds pageblocks for a type; none if no cache may
    /// hold any. Pageblocks with content that cannot move can never be emptied, so where there are
    /// few for each CPU, several CPUs share the cache of the first one of them: as many as leave
    /// each such cache two pageblocks, and at least [`SHARERS`].
    pub(crate) fn caching_cpu(
        &self,
        migratetype: MigrateType,
        cpus: usize,
        cpu: usize,
    ) -> Option<usize> {
        if migratetype == MigrateType::Movable || self.is_roomy(cpus) {
            return Some(cpu);
        }
        let pageblocks = self.pageblocks();
        let sharers = (2 * cpus as u64).div_ceil(pageblocks.max(1)) as usize;
        (pageblocks >= ROOMY_PAGEBLOCKS).then_some(cpu - cpu % sharers.max(SHARERS))
    }

    /// Whether there are so many pageblocks for each CPU that CPUs need not be sparing with them.
    pub(crate) fn is_roomy(&self, cpus: usize) -> bool {
        self.pageblocks() >= ROOMY_PAGEBLOCKS * cpus as u64
    }

    fn pageblocks(&self) -> u64 {
        self.managed() >> Order::PAGEBLOCK.get()
    }

    pub(crate) fn note_doubles(&self, frames: u32) {
        if frames > 0 {
            self.counts.doubles.fetch_add(u64::from(frames), Relaxed);
        }
    }

    pub(crate) fn note_claim(&self) {
        self.counts.claims.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_steal(&self) {
        self.counts.steals.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_added(&self, frames: u32) {
        self.counts.added.fetch_add(u64::from(frames), Relaxed);
    }

    pub(crate) fn claims(&self) -> u64 {
        self.counts.claims.load(Relaxed)
    }

    pub(crate) fn steals(&self) -> u64 {
        self.counts.steals.load(Relaxed)
    }

    /// What was added to pageblocks that caches held, and what compaction did.
    pub(crate) fn events(&self, platform: &P) -> Events {
        let frames = |word: &P::U64| FrameCount::new(word.load(Relaxed));
        let Counters { doubles, added, .. } = &self.counts;
        Events {
            refilled: frames(added),
            double_frees_late: frames(doubles),
            ..self.with_compaction(platform, CompactionState::events)
        }
    }

    /// Sets the level, where no other CPU runs.
    pub(crate) fn set_level(&self, free: u64) {
        self.level.free.store(free, Relaxed);
    }

    /// Takes the lock over the state of compaction.
    pub(crate) fn lock_compaction(&self) {
        self.compaction.lock.lock();
    }

    /// Ends what [`Zone::lock_compaction`] began.
    pub(crate) fn unlock_compaction(&self) {
        self.compaction.lock.unlock();
    }

    /// Reads or changes the state of compaction, under its lock.
    // Out of line: calls that compact have the scanners on their stack.
    #[inline(never)]
    pub(crate) fn with_compaction<R>(
        &self,
        platform: &P,
        act: impl FnOnce(&CompactionState<P>) -> R,
    ) -> R {
        /// Unlocks even if a platform's cell panics.
        struct Held<'a, P: Platform>(&'a Zone<P>);

        impl<P: Platform> Drop for Held<'_, P> {
            fn drop(&mut self) {
                self.0.unlock_compaction();
            }
        }

        let (_, _pin) = Pin::new(platform);
        self.lock_compaction();
        let _held = Held(self);
        act(&self.compaction.state)
    }
}

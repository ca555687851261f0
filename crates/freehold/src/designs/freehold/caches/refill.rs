//! Where a cache finds frames: in its own pageblocks, in the pool, and among the orphans.

use core::num::NonZeroU64;

use super::cache::{Active, Fill, NO_WORD, WORTHWHILE_FREE_MIN};
use super::lock::LockedCache;
use crate::designs::freehold::pageblocks::run::Run;
use crate::designs::freehold::pageblocks::state::{Holder, State};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order};

/// How many partial pageblocks are searched for one with enough free frames.
const LOOKS: usize = 8;

/// How many of each list are searched for one with a large enough run, by its order: the larger it
/// is, the more of a fresh pageblock it would use, and the less the search adds to what its user
/// does with it.
const fn run_looks(order: Order) -> usize {
    16 << if order.get() > 6 { 4 } else { order.get().saturating_sub(2) }
}

/// The free frames of how many pageblocks a refill counts that had few. Each is a look at bitmaps
/// that may be in no cache of the machine.
const COUNTED: usize = 4;

impl<P: Platform> LockedCache<'_, P> {
    /// Takes a frame of the active word, if it has one.
    pub(crate) fn take_active(&self, migratetype: MigrateType) -> Option<u32> {
        // There is no pageblock where `NO_WORD` would lie.
        let word = self.cache.hot.active_word(Active::Singles, migratetype.index());
        let frame_ref = self.pageblocks().lookup_word(word)?;
        let frame = match self.per_cpu.picks_at_random {
            false => self.per_cpu.take_single(&frame_ref)?,
            true => {
                let free = NonZeroU64::new(frame_ref.free())?.get();
                let bit = pick(free, self.cache.random());
                frame_ref.set_free(free & !(1 << bit));
                frame_ref.frame() + bit
            }
        };
        self.pageblocks().begin_use_of(frame);
        Some(frame)
    }

    /// Activates a word with free frames, from whatever source; returns whether there was one.
    pub(crate) fn refill(&self, request: &Request) -> bool {
        let migratetype = request.content();
        self.refill_from_active(migratetype)
            // Where CPUs share another cache, a look at what has come to this one is in vain.
            || self.may_cache_for(migratetype)
                && (self.refill_sparingly(request)
                    || self.refill_from_listed(migratetype)
                    || self.join_runs(migratetype)
                    || self.fresh_block(request).is_some_and(|pageblock| {
                        self.make_active(pageblock, migratetype) //
                    }))
            || self.refill_from_rest(migratetype)
    }

    /// As `refill`, but only from what the cache holds already.
    pub(crate) fn refill_from_own(&self, migratetype: MigrateType) -> bool {
        self.refill_from_active(migratetype)
            || self.refill_from_listed(migratetype)
            || self.refill_from_rest(migratetype)
    }

    /// Tries the partial pageblocks of the cache that are worth the effort.
    fn refill_from_listed(&self, migratetype: MigrateType) -> bool {
        self.collect_queued();
        self.count_few(migratetype);
        self.refill_from_partial(migratetype, Fill::Worthwhile, WORTHWHILE_FREE_MIN, LOOKS)
    }

    /// Tries the other pageblocks of the cache.
    fn refill_from_rest(&self, migratetype: MigrateType) -> bool {
        let spare =
            self.may_cache_for(migratetype).then(|| self.split_spare(migratetype)).flatten();
        spare.is_some_and(|pageblock| self.make_active(pageblock, migratetype))
            || self.refill_from_partial(migratetype, Fill::NearlyFull, 1, usize::MAX)
            || self.refill_from_partial(migratetype, Fill::Worthwhile, 1, usize::MAX)
            || self.refill_from_runs(migratetype)
    }

    /// Takes single frames from the active pageblock for larger blocks.
    fn refill_from_runs(&self, migratetype: MigrateType) -> bool {
        let Some(pageblock) = self.cache.active_pageblock(Active::Runs, migratetype) else {
            return false;
        };
        self.cache.hot.set_active_word(Active::Runs, migratetype.index(), NO_WORD);
        self.collect(pageblock);
        if self.make_active(pageblock, migratetype) {
            return true;
        }
        !self.try_mark_full(pageblock) && self.make_active(pageblock, migratetype)
    }

    /// Has single frames that cannot move come from the active pageblock for larger blocks, which
    /// stays so; returns whether it is worth the effort.
    ///
    /// Of content that cannot move there is little, so most of two active pageblocks would be free,
    /// and of no use to others.
    fn join_runs(&self, migratetype: MigrateType) -> bool {
        if migratetype == MigrateType::Movable {
            return false;
        }
        let Some(pageblock) = self.cache.active_pageblock(Active::Runs, migratetype) else {
            return false;
        };
        self.collect(pageblock);
        self.pageblocks().count_free(pageblock) >= WORTHWHILE_FREE_MIN
            && self.make_active(pageblock, migratetype)
    }

    /// Has larger blocks that cannot move come from the active pageblock for single frames, which
    /// stays so, and takes one, if it has a run that is large enough.
    fn join_singles(&self, request: &Request) -> Option<u32> {
        let migratetype = request.content();
        if migratetype == MigrateType::Movable {
            return None;
        }
        let pageblock = self.cache.active_pageblock(Active::Singles, migratetype)?;
        self.pageblocks().find_run(pageblock, request.order())?;
        self.take_run_as_active(pageblock, request)
    }

    fn refill_from_active(&self, migratetype: MigrateType) -> bool {
        let Some(pageblock) = self.cache.active_pageblock(Active::Singles, migratetype) else {
            return false;
        };
        if self.make_active(pageblock, migratetype) {
            return true;
        }
        self.collect(pageblock);
        let free = self.pageblocks().count_free(pageblock);
        // Where another CPU frees what this one takes: the sooner this one collects, the fewer
        // frames it finds, and each collection transfers a cache line. So it lets remote frees
        // accumulate.
        let may_wait = free < WORTHWHILE_FREE_MIN && self.is_zone_roomy();
        if !may_wait && self.make_active(pageblock, migratetype) {
            return true;
        }
        if free == 0 {
            self.cache.unlink(self.pageblocks(), pageblock);
            return !self.try_mark_full(pageblock) && self.make_active(pageblock, migratetype);
        }
        self.cache.hot.set_active_word(Active::Singles, migratetype.index(), NO_WORD);
        // Where larger blocks come from it as well, it stays active.
        if self.cache.active_pageblock(Active::Runs, migratetype) != Some(pageblock) {
            self.pageblocks().update(pageblock, State::list);
            self.relink(pageblock);
        }
        false
    }

    /// Activates the first word of an unlinked pageblock with free frames; returns whether it has
    /// any.
    pub(super) fn make_active(&self, pageblock: PageblockIndex, migratetype: MigrateType) -> bool {
        let word = pageblock.words().find(|&word| self.pageblocks().free(word) != 0);
        let Some(word) = word else { return false };
        self.cache.hot.set_active_word(Active::Singles, migratetype.index(), word as u32);
        self.mark_active(pageblock);
        true
    }

    /// Marks a pageblock as active.
    fn mark_active(&self, pageblock: PageblockIndex) {
        if !self.pageblocks().state(pageblock).is_active() {
            self.mark_cached();
            self.pageblocks().update(pageblock, State::activate);
        }
    }

    /// Counts the free frames of some pageblocks that had few, and puts each where it belongs now.
    fn count_few(&self, migratetype: MigrateType) {
        for _ in 0..COUNTED {
            let Some(pageblock) = self.cache.first_partial(migratetype, Fill::NearlyFull) else {
                return;
            };
            self.cache.unlink_partial(self.pageblocks(), pageblock);
            self.collect(pageblock);
            self.relink_unless_full(pageblock);
        }
    }

    /// Activates a partial pageblock with at least `least` free frames, if one of the first few has
    /// them; returns whether one has. The others go where they belong.
    fn refill_from_partial(
        &self,
        migratetype: MigrateType,
        fill: Fill,
        least: u32,
        looks: usize,
    ) -> bool {
        for _ in 0..looks {
            let Some(pageblock) = self.cache.first_partial(migratetype, fill) else { return false };
            self.cache.unlink_partial(self.pageblocks(), pageblock);
            self.collect(pageblock);
            match self.pageblocks().count_free(pageblock) {
                FRAMES => self.stash_spare(pageblock),
                0 if self.try_mark_full(pageblock) => {}
                free if free < least => self.relink(pageblock),
                _ => return self.make_active(pageblock, migratetype),
            }
        }
        false
    }

    /// Begins to use a spare.
    fn split_spare(&self, migratetype: MigrateType) -> Option<PageblockIndex> {
        let pageblock = self.cache.pop_spare()?;
        self.zones().split(pageblock, Holder::Cpu(self.cpu), migratetype);
        Some(pageblock)
    }

    /// A pageblock of the type with free frames that the cache did not hold so far: an orphan, or
    /// one of the pool, if the zone stays above its low watermark. It is unlinked. A whole one is
    /// marked as active, an orphan is not listed.
    fn fresh_block(&self, request: &Request) -> Option<PageblockIndex> {
        if !self.may_fetch(request) {
            return None;
        }
        let partial = self.acquire_orphan(request.content());
        partial.or_else(|| self.fresh_whole(request.content()))
    }

    fn may_cache_for(&self, migratetype: MigrateType) -> bool {
        self.zone().may_cache_for(migratetype, self.zones().cpu_count(), self.cpu)
    }

    /// Whether the zone can spare a pageblock for the cache.
    pub(super) fn may_fetch(&self, request: &Request) -> bool {
        let zone = self.zone();
        zone.may_cache(FRAMES, request) && self.may_cache_for(request.content())
    }

    /// As `fresh_block`, but one of the pool. The zone can spare it.
    fn fresh_whole(&self, migratetype: MigrateType) -> Option<PageblockIndex> {
        // If the pool is empty, the cache is not marked. In this order: once the pageblock
        // is no longer in the pool, other calls learn of its frames by the mark.
        self.zones().forest.next(self.zone().pool(), 0)?;
        self.mark_cached();
        let pageblock = self.zones().acquire_whole(self.zone_index, self.cpu, migratetype)?;
        self.zone().sub_free(FRAMES);
        self.cache.note_refill(FRAMES);
        self.zones().split(pageblock, Holder::Cpu(self.cpu), migratetype);
        Some(pageblock)
    }

    /// Acquires an orphan of a type.
    // The search takes stack, which a refill that goes deeper elsewhere needs for itself.
    #[inline(never)]
    fn acquire_orphan(&self, migratetype: MigrateType) -> Option<PageblockIndex> {
        let tree = self.zone().orphans(migratetype);
        let start = self.zones().start(tree, self.cpu, migratetype);
        let zone = self.zone_index;
        let mut orphans = self.zones().orphans_with_run(zone, migratetype, Order::ZERO, start);
        orphans.find(|&pageblock| self.try_acquire_for(pageblock, migratetype, Order::ZERO))
    }

    /// Acquires an orphan, if it is of a type and has a free run of `order`; returns whether it
    /// did. It may have been emptied or claimed for another type since it was found.
    pub(super) fn try_acquire_for(
        &self,
        pageblock: PageblockIndex,
        migratetype: MigrateType,
        order: Order,
    ) -> bool {
        if !self.acquire(pageblock) {
            return false;
        }
        let of = self.pageblocks().state(pageblock).migratetype();
        let is_right = of == migratetype && self.pageblocks().has_run(pageblock, order);
        if !is_right {
            self.release(pageblock);
        }
        is_right
    }

    /// Takes a block of more than one frame out of the cache's pageblocks.
    pub(crate) fn take_run_of_own(&self, request: &Request) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let active = self.cache.active_pageblock(Active::Runs, migratetype);
        if let Some(run) = active.and_then(|pageblock| self.take_run_in(pageblock, order)) {
            self.cache.hot.set_active_word(Active::Runs, migratetype.index(), run.word);
            return Some(run.frame());
        }
        let of_singles = match self.is_zone_roomy() {
            true => self.join_singles(request),
            false => self.take_run_of_singles(request),
        };
        if of_singles.is_some() {
            return of_singles;
        }
        if let Some(pageblock) = active {
            self.collect(pageblock);
        }
        self.collect_queued();
        let has_run =
            |pageblock: &PageblockIndex| self.pageblocks().find_run(*pageblock, order).is_some();
        let found = active.filter(has_run).or_else(|| {
            [Fill::Worthwhile, Fill::NearlyFull].into_iter().find_map(|fill| {
                self.cache
                    .partial_list(self.pageblocks(), migratetype, fill)
                    .take(run_looks(order))
                    .find(has_run)
            })
        });
        if let Some(pageblock) = found {
            if active != found {
                self.cache.unlink_partial(self.pageblocks(), pageblock);
            }
            return self.take_run_as_active(pageblock, request);
        }
        None
    }

    /// Takes a block of more than one frame out of a spare.
    pub(crate) fn take_run_of_spare(&self, request: &Request) -> Option<u32> {
        if !self.may_cache_for(request.content()) {
            return None;
        }
        let pageblock = self.split_spare(request.content())?;
        self.take_run_as_active(pageblock, request)
    }

    /// Takes a block of more than one frame out of the active pageblock for single frames, which
    /// stays so.
    pub(crate) fn take_run_of_singles(&self, request: &Request) -> Option<u32> {
        let pageblock = self.cache.active_pageblock(Active::Singles, request.content())?;
        self.take_run_in(pageblock, request.order()).map(Run::frame)
    }

    /// Takes a block of more than one frame out of a pageblock of the pool, which the cache
    /// acquires.
    pub(crate) fn take_fresh_run(&self, request: &Request) -> Option<u32> {
        if !self.may_fetch(request) {
            return None;
        }
        let pageblock = self.fresh_whole(request.content())?;
        self.take_run_as_active(pageblock, request)
    }

    /// Activates a pageblock for blocks of more than one frame, and takes one out of it. It is
    /// unlinked, unless it is active already.
    pub(super) fn take_run_as_active(
        &self,
        pageblock: PageblockIndex,
        request: &Request,
    ) -> Option<u32> {
        let (order, migratetype) = (request.order(), request.content());
        let before = self.cache.active_pageblock(Active::Runs, migratetype);
        let singles = self.cache.active_pageblock(Active::Singles, migratetype);
        let is_left = |&before: &PageblockIndex| before != pageblock && Some(before) != singles;
        if let Some(before) = before.filter(is_left) {
            // The caller saw a roomy zone; memory may have been removed since.
            if self.is_still_active(before) && Some(pageblock) != singles {
                return self.take_run_in_passing(pageblock, order);
            }
            self.pageblocks().update(before, State::list);
            self.relink_unless_full(before);
        }
        let run = self.take_run_in(pageblock, order);
        let word = run.map_or(pageblock.words().start as u32, |run| run.word);
        self.cache.hot.set_active_word(Active::Runs, migratetype.index(), word);
        self.mark_active(pageblock);
        run.map(Run::frame)
    }

    pub(super) fn take_run_in(&self, pageblock: PageblockIndex, order: Order) -> Option<Run> {
        let run = self.pageblocks().find_run(pageblock, order)?;
        self.pageblocks().take_run(run);
        Some(run)
    }
}

/// A set bit of a word that is not 0: the first one at or after a random place. So each is likely
/// in proportion to the distance from the set bit before it.
fn pick(word: u64, random: u64) -> u32 {
    let place = random as u32 % u64::BITS;
    (word.rotate_right(place).trailing_zeros() + place) % u64::BITS
}

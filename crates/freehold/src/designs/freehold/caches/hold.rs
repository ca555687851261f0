//! How pageblocks come to a cache, move within it, and leave it.
//!
//! A pageblock is *unlinked* if it is neither active, nor on a partial list, nor a spare.

use super::cache::{Active, Fill, WORTHWHILE_FREE_MIN};
use super::lock::LockedCache;
use crate::designs::freehold::pageblocks::remote::Collected;
use crate::designs::freehold::pageblocks::state::{Holder, State};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::platform::{Pin, Platform};
use crate::units::MigrateType;
use crate::zone::watermark::Watermark;

impl<P: Platform> LockedCache<'_, P> {
    /// Acquires an orphan for the cache; returns whether it could. Its frames leave the level.
    pub(crate) fn acquire(&self, pageblock: PageblockIndex) -> bool {
        let Ok(state) = self.pageblocks().try_acquire(pageblock, Holder::Cpu(self.cpu)) else {
            return false;
        };
        if !self.is_of_zone(pageblock) {
            // It has come to another zone since the caller found it.
            let section = self.zones().section(self.cpu, self.zone_index);
            self.zones().leave_orphans(pageblock, state);
            self.pageblocks().update(pageblock, State::hand_to_walker);
            self.zones().release(pageblock, &section);
            return false;
        }
        let zone = self.zone();
        self.pageblocks().mark_unmovable_for(pageblock, state.migratetype());
        // In this order: once the pageblock is no longer in its tree, other calls learn of its
        // frames by the mark.
        self.mark_cached();
        self.zones().leave_orphans(pageblock, state);
        let free = self.pageblocks().count_free(pageblock);
        self.cache.note_refill(free);
        zone.sub_free(free);
        true
    }

    /// Whether a pageblock that this CPU holds is of the zone of the cache. Memory that was
    /// removed may have come to another one.
    pub(crate) fn is_of_zone(&self, pageblock: PageblockIndex) -> bool {
        self.pageblocks().zone(pageblock) == self.zone_index
    }

    /// Hands an unlinked pageblock to the caller, as a walker. Its frames come to the level. The
    /// caller is in a section.
    pub(crate) fn hand_to_walker(&self, pageblock: PageblockIndex) {
        self.collect(pageblock);
        let free = self.pageblocks().count_free(pageblock);
        self.cache.note_drain(free);
        self.zone().add_free(free);
        self.pageblocks().update(pageblock, State::hand_to_walker);
    }

    /// Releases an unlinked pageblock.
    pub(crate) fn release(&self, pageblock: PageblockIndex) {
        let section = self.zones().section(self.cpu, self.zone_index);
        self.hand_to_walker(pageblock);
        self.zones().release(pageblock, &section);
    }

    /// Releases a pageblock if it is a full one of this cache, as far as is known; returns whether
    /// it was.
    pub(crate) fn release_if_full(&self, pageblock: PageblockIndex) -> bool {
        let state = self.pageblocks().state(pageblock);
        let may = state.is_split_of(self.cpu) && !state.is_listed() && self.is_of_zone(pageblock);
        if may {
            self.release(pageblock);
        }
        may
    }

    /// Releases an unlinked whole pageblock to the pool.
    pub(crate) fn release_whole(&self, pageblock: PageblockIndex) {
        self.cache.note_drain(FRAMES);
        self.zone().add_free(FRAMES);
        self.zones().put_in_pool(pageblock);
    }

    /// Releases one pageblock, preferably of a type; the active one for single frames of that type
    /// last, and only `with_active`. Returns it, if there was one.
    #[inline(never)]
    pub(crate) fn release_one(
        &self,
        migratetype: MigrateType,
        with_active: bool,
    ) -> Option<PageblockIndex> {
        self.collect_queued();
        if let Some(pageblock) = self.cache.pop_spare() {
            self.release_whole(pageblock);
            return Some(pageblock);
        }
        let active = || {
            with_active.then(|| self.cache.active_pageblock(Active::Singles, migratetype)).flatten()
        };
        let pageblock = self.cache.any_but_active(migratetype).or_else(active)?;
        self.cache.unlink(self.pageblocks(), pageblock);
        self.release(pageblock);
        Some(pageblock)
    }

    /// Releases all pageblocks with free frames.
    #[inline(never)]
    pub(crate) fn drain(&self) {
        let Some(_section) = self.zones().begin_drain(self.cpu, self.zone_index) else { return };
        // A CPU that pushes a pageblock too late for this look sees that the mark is gone, and sets
        // it again.
        self.collect_all_queued(|pageblock| {
            if self.pageblocks().count_free(pageblock) > 0 {
                self.release(pageblock);
            }
        });
        while let Some(pageblock) = self.cache.any_listed() {
            self.cache.unlink(self.pageblocks(), pageblock);
            self.release(pageblock);
        }
        self.release_spares(usize::MAX);
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Collects from the pageblocks of the remote queue, if it seems to have any. Those with free
    /// frames become partial.
    pub(crate) fn collect_queued(&self) {
        let (cpu, zone) = (self.cpu, self.zone_index);
        let has_any = |stack: &usize| self.zones().has_queued(cpu, zone, *stack);
        for stack in (0..self.zones().stacks()).filter(has_any) {
            self.collect_stack(stack, |pageblock| self.relink(pageblock));
        }
    }

    /// The same of all stacks, whatever they seem to have; `put` puts those away that are still
    /// the cache's.
    pub(crate) fn collect_all_queued(&self, put: impl Fn(PageblockIndex)) {
        (0..self.zones().stacks()).for_each(|stack| self.collect_stack(stack, &put));
    }

    fn collect_stack(&self, stack: usize, put: impl Fn(PageblockIndex)) {
        self.zones().pop_queued(self.cpu, self.zone_index, stack, |pageblock, before| {
            if !before.is_split() || before.is_listed() {
                return;
            }
            if before.holder() != Holder::Cpu(self.cpu) {
                if !self.try_pass_on(pageblock, before.holder()) {
                    self.zones().ensure_collected(self.cpu, pageblock);
                }
                return;
            }
            // It is full now, as far as is known: this may be the last look.
            self.collect(pageblock);
            put(pageblock);
        });
    }

    /// Has a pageblock which has left the cache while it was in its queue collected, if another
    /// cache holds it: a call that drains all caches may just have drained that one. So that its
    /// frames are not cached after all, that cache releases it. Returns whether it did.
    #[cold]
    #[inline(never)]
    fn try_pass_on(&self, pageblock: PageblockIndex, holder: Holder) -> bool {
        let Holder::Cpu(cpu) = holder else { return false };
        let (_, pin) = Pin::new(self.platform);
        let Some(other) = self.design.try_lock(pin, cpu, self.zone_index) else {
            return false;
        };
        other.release_if_full(pageblock)
    }

    /// Collects the remote frees of a pageblock; returns whether there were any. If the pageblock
    /// is neither listed nor queued any more, this is the last look.
    pub(crate) fn collect(&self, pageblock: PageblockIndex) -> bool {
        let found = self.pageblocks().collect_remote(pageblock);
        self.note_doubles(found);
        found.frames > 0
    }

    fn note_doubles(&self, found: Collected) {
        if found.doubles > 0 {
            self.cache.note_doubles(found.doubles);
        }
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Puts an unlinked pageblock where it belongs, by its free frames. Without any, it stays
    /// full.
    pub(crate) fn relink(&self, pageblock: PageblockIndex) {
        let fill = match self.pageblocks().count_free(pageblock) {
            0 => return,
            FRAMES => return self.stash_spare(pageblock),
            1..WORTHWHILE_FREE_MIN => Fill::NearlyFull,
            _ => Fill::Worthwhile,
        };
        let migratetype = self.pageblocks().state(pageblock).migratetype();
        self.mark_cached();
        self.cache.link_partial(self.pageblocks(), pageblock, migratetype, fill);
    }

    /// Puts a listed pageblock, which is in no list, where it belongs: on a partial list if it has
    /// free frames, else in none, marked as full.
    pub(crate) fn relink_unless_full(&self, pageblock: PageblockIndex) {
        if self.pageblocks().count_free(pageblock) > 0 || !self.try_mark_full(pageblock) {
            self.relink(pageblock);
        }
    }

    /// Marks an active pageblock without free frames as full; returns whether it still has none.
    /// If it has some again, it stays listed.
    pub(crate) fn try_mark_full(&self, pageblock: PageblockIndex) -> bool {
        let found = self.pageblocks().try_mark_full(pageblock);
        self.note_doubles(found);
        found.frames == 0
    }

    /// Relinks a pageblock after a free that found it full, or may have made it whole.
    #[cold]
    #[inline(never)]
    pub(crate) fn relink_after_free(&self, pageblock: PageblockIndex) {
        if !self.pageblocks().state(pageblock).is_listed() {
            self.link_freed(pageblock);
        } else {
            self.unlink_if_whole(pageblock);
        }
    }

    /// Links a pageblock that was full and has free frames now as partial. If the zone is so low
    /// that caches may hold nothing, releases it.
    fn link_freed(&self, pageblock: PageblockIndex) {
        let zone = self.zone();
        if !zone.may_take(0, Watermark::Low, zone.kind()) {
            return self.release(pageblock);
        }
        let migratetype = self.pageblocks().state(pageblock).migratetype();
        self.mark_cached();
        self.cache.link_partial(self.pageblocks(), pageblock, migratetype, Fill::Worthwhile);
        self.unlink_if_whole(pageblock);
    }

    /// Unlinks a listed pageblock if all of it is free, unless it is active. It becomes a spare,
    /// or goes to the pool.
    pub(crate) fn unlink_if_whole(&self, pageblock: PageblockIndex) {
        if !self.pageblocks().is_free(pageblock) {
            return;
        }
        self.collect(pageblock);
        if self.pageblocks().is_whole(pageblock) && !self.pageblocks().state(pageblock).is_active()
        {
            self.cache.unlink_partial(self.pageblocks(), pageblock);
            self.stash_spare(pageblock);
        }
    }
}

//! How pageblocks come to a cache, move within it, and leave it.

use super::cache::{Active, Fill, NEARLY_FULL_FREE_MAX};
use super::lock::CacheGuard;
use crate::designs::freehold::pageblocks::remote::{Collected, RemoteQueue};
use crate::designs::freehold::pageblocks::state::Holder;
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::platform::Platform;
use crate::units::MigrateType;
use crate::zone::watermark::Watermark;

impl<P: Platform> CacheGuard<'_, P> {
    /// Makes a slot the holder of a pageblock that nobody holds; says whether that went well. Its
    /// frames leave the level.
    pub(crate) fn acquire(&self, pageblock: PageblockIndex) -> bool {
        let Ok(state) = self.pageblocks().try_acquire(pageblock, Holder::Cpu(self.cpu)) else {
            return false;
        };
        let (zone, bit) = (self.zone(), self.zones().bit(pageblock));
        self.pageblocks().mark_unmovable_for(pageblock, state.migratetype());
        // In this order: from when it is no longer in its tree, others find its frames by the note.
        zone.note_cached();
        self.zones().forest.remove(zone.orphans(state.migratetype()), bit);
        let free = self.pageblocks().count_free(pageblock);
        self.cache.note_refill(free);
        zone.sub_free(free);
        true
    }

    /// Takes a pageblock that is in none of its places from a slot, as a walker. Its frames come to
    /// the level. The caller is in a section.
    pub(crate) fn hand_to_walker(&self, pageblock: PageblockIndex) {
        self.collect(pageblock);
        let free = self.pageblocks().count_free(pageblock);
        self.cache.note_drain(free);
        self.zone().add_free(free);
        self.pageblocks().update(pageblock, |state| state.held_by(Holder::Walker).listed(false));
    }

    /// Gives up a pageblock of a slot that is in none of its places.
    pub(crate) fn release(&self, pageblock: PageblockIndex) {
        let _section = self.zones().section(self.cpu, self.zone_index);
        self.hand_to_walker(pageblock);
        self.zones().release(pageblock);
    }

    /// Gives a whole pageblock of a slot, which is in none of its places, to the pool.
    pub(crate) fn release_whole(&self, pageblock: PageblockIndex) {
        self.cache.note_drain(FRAMES);
        self.zone().add_free(FRAMES);
        self.zones().put_in_pool(pageblock);
    }

    /// Has a slot give up one pageblock, best one of a type, the current one of that at last if at
    /// all; says whether it had one.
    pub(crate) fn release_one(&self, migratetype: MigrateType, with_current: bool) -> bool {
        self.collect_queued();
        if let Some(pageblock) = self.cache.pop_spare() {
            self.release_whole(pageblock);
            return true;
        }
        let active = || {
            with_current
                .then(|| self.cache.active_pageblock(Active::Singles, migratetype))
                .flatten()
        };
        let pageblock = self.cache.any_but_active(migratetype).or_else(active);
        let Some(pageblock) = pageblock else { return false };
        self.cache.unlink(self.pageblocks(), pageblock);
        self.release(pageblock);
        true
    }

    /// Gives up all pageblocks of a slot with free frames.
    pub(crate) fn drain(&self) {
        self.collect_all_queued();
        while let Some(pageblock) = self.cache.any_listed() {
            self.cache.unlink(self.pageblocks(), pageblock);
            self.release(pageblock);
        }
        self.release_spares(usize::MAX);
    }
}

impl<P: Platform> CacheGuard<'_, P> {
    /// Collects from the pageblocks of the remote queue, if there seem to be any. Those with free
    /// frames come to a list of partial ones.
    pub(crate) fn collect_queued(&self) {
        let queue = self.queue();
        for stack in (0..self.zones().stacks()).filter(|&stack| queue.has_any(stack)) {
            self.collect_stack(queue, stack);
        }
    }

    /// The same for a call that has noted that the zone's caches hold nothing, and now ensures it: a
    /// CPU that pushes a pageblock too late for this look sees that note, and corrects it.
    pub(crate) fn collect_all_queued(&self) {
        let queue = self.queue();
        (0..self.zones().stacks()).for_each(|stack| self.collect_stack(queue, stack));
    }

    fn collect_stack(&self, queue: &RemoteQueue<P>, stack: usize) {
        let mut next = queue.take(stack);
        while let Some(pageblock) = next {
            let before;
            (before, next) = self.pageblocks().unqueue(pageblock);
            if !before.is_split() || before.is_listed() {
                continue;
            }
            if before.holder() != Holder::Cpu(self.cpu) {
                self.pass_on_queued(pageblock, before.holder());
                continue;
            }
            // It is full now, as far as is known: this may be the last look.
            self.collect(pageblock);
            self.relink(pageblock);
        }
    }

    /// Ensures that a pageblock which has left the cache while it was in its queue will be
    /// collected. If another cache holds it, that one may just have been drained, by a call that
    /// drains all: so that its frames are not cached after all, it is made to release it.
    fn pass_on_queued(&self, pageblock: PageblockIndex, holder: Holder) {
        if let Holder::Cpu(cpu) = holder {
            self.platform.pin();
            let other = self.design.try_lock_pinned(self.platform, cpu, self.zone_index);
            if let Some(other) = other {
                let state = self.pageblocks().state(pageblock);
                if state.is_split_of(cpu) && !state.is_listed() {
                    return other.release(pageblock);
                }
            }
        }
        self.zones().ensure_collected(self.cpu, pageblock);
    }

    /// Collects the remote frees of a pageblock; says whether there were any. If it is neither
    /// listed nor queued any more, this is the last look.
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

impl<P: Platform> CacheGuard<'_, P> {
    /// Puts a pageblock of a slot where it belongs, by its free frames, if it has any. It is not
    /// listed.
    pub(crate) fn relink(&self, pageblock: PageblockIndex) {
        let fill = match self.pageblocks().count_free(pageblock) {
            0 => return,
            FRAMES => return self.stash_spare(pageblock),
            1..=NEARLY_FULL_FREE_MAX => Fill::NearlyFull,
            _ => Fill::Sparse,
        };
        let migratetype = self.pageblocks().state(pageblock).migratetype();
        self.zone().note_cached();
        self.cache.link_partial(self.pageblocks(), pageblock, migratetype, fill);
    }

    /// Takes a pageblock without free frames off the active ones; says whether it has none at last.
    /// If it has some again, it is listed.
    pub(crate) fn try_mark_full(&self, pageblock: PageblockIndex) -> bool {
        let found = self.pageblocks().try_mark_full(pageblock);
        self.note_doubles(found);
        found.frames == 0
    }

    /// Looks after a pageblock of a slot that was aside when a frame of it was freed, or may be
    /// whole now.
    #[cold]
    #[inline(never)]
    pub(crate) fn relink_after_free(&self, pageblock: PageblockIndex) {
        if !self.pageblocks().state(pageblock).is_listed() {
            self.link_freed(pageblock);
        } else {
            self.unlink_if_whole(pageblock);
        }
    }

    /// Puts a pageblock that was aside on a shelf, now that it has free frames; or gives it up, if
    /// the zone is so low that slots may keep nothing.
    fn link_freed(&self, pageblock: PageblockIndex) {
        let zone = self.zone();
        if !zone.may_take(0, Watermark::Low, zone.kind()) {
            return self.release(pageblock);
        }
        let migratetype = self.pageblocks().state(pageblock).migratetype();
        zone.note_cached();
        self.cache.link_partial(self.pageblocks(), pageblock, migratetype, Fill::NearlyFull);
        self.unlink_if_whole(pageblock);
    }

    /// Takes a listed pageblock out of use if all of it is free, unless frames are taken from it at
    /// the moment.
    pub(crate) fn unlink_if_whole(&self, pageblock: PageblockIndex) {
        if self.pageblocks().is_whole(pageblock) && !self.pageblocks().state(pageblock).is_active()
        {
            self.cache.unlink_partial(self.pageblocks(), pageblock);
            self.stash_spare(pageblock);
        }
    }
}

//! Isolation: takes pageblocks out of circulation, whatever holds them, and returns them.
//!
//! | an isolated pageblock is | meanwhile |
//! |---|---|
//! | split | held as by a walker: no call allocates from it; remote frees are collected |
//! | allocated whole | its user may free it; then it is as above, and all of it is free |
//!
//! Its free frames are not in the level of the zone, so watermarks do not count them.

use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::caches::lock::IfLeased;
use crate::designs::freehold::pageblocks::huge::pageblocks_in;
use crate::designs::freehold::pageblocks::run::Span;
use crate::designs::freehold::pageblocks::state::{Holder, State, Use};
use crate::designs::freehold::pageblocks::{FRAMES, PageblockIndex};
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::units::{FrameCount, MigrateType, Order};

/// How often a pageblock that another call holds for a moment is re-checked.
const LOOKS: usize = 64;

impl<P: Platform> Freehold<P> {
    /// Acquires, as a walker, a split pageblock, or a whole one, which is split then; from any
    /// holder, unless that holds it for long. Returns whether it could. Its free frames are in the
    /// level then. The caller is in a section.
    pub(crate) fn acquire_any(&self, context: Context<'_, P>, pageblock: PageblockIndex) -> bool {
        for _ in 0..LOOKS {
            let state = self.pageblocks().state(pageblock);
            if state.is_isolated() {
                return false;
            }
            let acquired = match (state.used_for(), state.holder()) {
                (Use::Absent | Use::Huge | Use::HugeTail, _) => return false,
                (Use::Split, Holder::None) => self.pageblocks().acquire(pageblock),
                (Use::Whole, Holder::None) => {
                    // Read once: it may be removed, and come to another zone.
                    let zone = self.zones.zone(self.pageblocks().zone(pageblock));
                    let taken = self.zones.forest.remove(zone.pool(), zone.bit(pageblock));
                    if taken {
                        self.split_for_walker(pageblock);
                    }
                    taken
                }
                (_, Holder::Cpu(cpu)) => self.acquire_from_cache(context, cpu, pageblock),
                (_, Holder::Walker) => false,
            };
            if acquired {
                self.pageblocks().refresh_unmovable(pageblock);
                return true;
            }
            context.platform.relax();
        }
        false
    }

    /// Acquires a pageblock from a cache; returns whether that still held it.
    fn acquire_from_cache(
        &self,
        context: Context<'_, P>,
        cpu: usize,
        pageblock: PageblockIndex,
    ) -> bool {
        let zone = self.pageblocks().zone(pageblock);
        let Some(guard) = self.lock(context, cpu, zone, IfLeased::Revoke) else { return false };
        if !guard.is_of_zone(pageblock) {
            return false;
        }
        if guard.cache.spares().any(|spare| spare == pageblock) {
            guard.cache.remove_spares(|_, spare| spare == pageblock);
            guard.cache.note_drain(FRAMES);
            self.zones.zone(zone).add_free(FRAMES);
            self.split_for_walker(pageblock);
            return true;
        }
        let state = self.pageblocks().state(pageblock);
        if !state.is_split_of(cpu) {
            return false;
        }
        if state.is_listed() {
            guard.cache.unlink(self.pageblocks(), pageblock);
        }
        guard.hand_to_walker(pageblock);
        true
    }

    /// Splits a whole pageblock that the caller took, as a walker. The next step decides what it is
    /// used for.
    fn split_for_walker(&self, pageblock: PageblockIndex) {
        self.pageblocks().clear_all_unmovable(pageblock);
        self.zones.mark_split(pageblock, Holder::Walker, MigrateType::Movable);
    }

    /// Takes a pageblock out of circulation; returns whether it could. If it is allocated whole, it
    /// remains in use.
    pub(crate) fn isolate(&self, context: Context<'_, P>, pageblock: PageblockIndex) -> bool {
        let is_huge = |state: State| matches!(state.used_for(), Use::Huge | Use::HugeTail);
        let Some(zone) = self.pageblocks().zone_if_any(pageblock) else { return false };
        for _ in 0..LOOKS {
            let mark =
                |state: State| (is_huge(state) && !state.is_isolated()).then(|| state.isolate());
            if self.pageblocks().try_update(pageblock, mark).is_ok() {
                return true;
            }
            let section = self.zones.section(context.cpu_here(), zone);
            if self.acquire_any(context, pageblock) {
                // Read again: now it stays with its zone.
                let zone = self.zones.zone(self.pageblocks().zone(pageblock));
                let state = self.pageblocks().state(pageblock);
                self.zones.leave_orphans(pageblock, state);
                self.pageblocks().update(pageblock, State::isolate);
                zone.sub_free(self.pageblocks().count_free(pageblock));
                self.collect_isolated(context, pageblock);
                return true;
            }
            drop(section);
            let state = self.pageblocks().state(pageblock);
            if state.is_isolated() || !is_huge(state) {
                return false;
            }
            // It was allocated whole meanwhile.
        }
        false
    }

    /// Collects the remote frees of an isolated split pageblock.
    pub(crate) fn collect_isolated(&self, context: Context<'_, P>, pageblock: PageblockIndex) {
        let found = self.pageblocks().collect_remote(pageblock);
        let (zone, frames) = (self.pageblocks().zone(pageblock), u64::from(found.frames));
        self.zones.note_direct_free(context, zone, FrameCount::new(frames));
        self.zones.zone(zone).note_doubles(found.doubles);
    }

    /// Marks an isolated pageblock as one without memory.
    fn mark_removed(&self, pageblock: PageblockIndex) {
        self.pageblocks().clear_all_unmovable(pageblock);
        self.pageblocks().update(pageblock, State::remove);
    }

    /// Returns an isolated pageblock to circulation. The call runs on `cpu`.
    fn end_isolation(&self, cpu: usize, pageblock: PageblockIndex) {
        let unmark = |state: State| match state.used_for() {
            Use::Huge | Use::HugeTail => Some(state.end_isolation()),
            _ => None,
        };
        if self.pageblocks().try_update(pageblock, unmark).is_ok() {
            return;
        }
        self.pageblocks().refresh_unmovable(pageblock);
        let zone = self.pageblocks().zone(pageblock);
        let section = self.zones.section(cpu, zone);
        self.zones.zone(zone).add_free(self.pageblocks().count_free(pageblock));
        self.pageblocks().update(pageblock, State::end_isolation);
        self.zones.release(pageblock, &section);
    }
}

/// Adjacent pageblocks that are out of circulation until this is dropped.
pub(crate) struct Isolation<'a, P: Platform> {
    pub(crate) design: &'a Freehold<P>,
    /// The CPU that has isolated them.
    cpu: usize,
    first: PageblockIndex,
    end: PageblockIndex,
}

impl<'a, P: Platform> Isolation<'a, P> {
    /// Isolates all pageblocks that a span touches, or none.
    ///
    /// # Errors
    ///
    /// The first pageblock that could not be isolated.
    pub(crate) fn new(
        design: &'a Freehold<P>,
        context: Context<'_, P>,
        span: Span,
    ) -> Result<Self, PageblockIndex> {
        let first = PageblockIndex::of_frame(span.first);
        let cpu = context.cpu_here();
        let mut isolation = Isolation { design, cpu, first, end: first };
        for (pageblock, _) in span.pageblocks() {
            if !design.isolate(context, pageblock) {
                return Err(pageblock);
            }
            isolation.end = PageblockIndex(pageblock.0 + 1);
        }
        Ok(isolation)
    }

    /// Hands out pageblocks whose frames are all free as one block. Those before them return to
    /// circulation.
    pub(crate) fn hand_out(
        &mut self,
        pageblock: PageblockIndex,
        order: Order,
        migratetype: MigrateType,
    ) {
        self.end_before(pageblock);
        for nth in 0..pageblocks_in(order) {
            self.design.pageblocks().clear_all_unmovable(PageblockIndex(pageblock.0 + nth));
        }
        self.design.zones.hand_out(pageblock, order, migratetype);
        self.first = PageblockIndex(pageblock.0 + pageblocks_in(order));
    }

    /// Takes frames, all of which are free, out of use. Pageblocks that are left without memory
    /// belong to their zone only until they get some again; what is left of others returns to
    /// circulation.
    #[inline(never)]
    pub(crate) fn retire(mut self, context: Context<'_, P>, zone: ZoneIndex, span: Span) {
        let (design, zones) = (self.design, &self.design.zones);
        // Only now: the owner of the content, which is called before, may add memory.
        let hotplug = zones.hotplug().begin(context.platform);
        for (pageblock, part) in span.pageblocks() {
            part.words().for_each(|(word, mask)| zones.pageblocks.remove_free(word, mask));
            zones.zone(zone).sub_managed(u64::from(part.end - part.first));
            if zones.pageblocks.count_present(pageblock) == 0 {
                self.end_before(pageblock);
                design.mark_removed(pageblock);
                self.first = PageblockIndex(pageblock.0 + 1);
            }
        }
        zones.resize(context, &hotplug);
    }

    /// Returns the pageblocks before this one to circulation.
    fn end_before(&mut self, pageblock: PageblockIndex) {
        while self.first < pageblock {
            self.design.end_isolation(self.cpu, self.first);
            self.first = PageblockIndex(self.first.0 + 1);
        }
    }
}

impl<P: Platform> Drop for Isolation<'_, P> {
    fn drop(&mut self) {
        self.end_before(self.end);
    }
}

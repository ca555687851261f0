//! Giving back what slots keep: for other CPUs, for large blocks, and when a CPU goes away.

use super::Freehold;
use super::guard::{InUse, SlotGuard};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;

impl<P: Platform> Freehold<P> {
    /// Has a slot give up all pageblocks with free frames. The holder of a lease is asked to do so,
    /// and not waited for: what it has does not count as kept until the lease ends.
    pub(super) fn drain_slot(&self, context: Context<'_, P>, cpu: usize, zone: ZoneIndex) {
        if let Some(guard) = self.lock(context, cpu, zone) {
            self.drain_held(&guard);
        }
    }

    /// Gives up all pageblocks of a slot with free frames.
    pub(super) fn drain_held(&self, guard: &SlotGuard<'_, P>) {
        self.take_all_pending(guard);
        while let Some(block) = guard.slot.any_listed() {
            guard.slot.unlist(&self.blocks, block);
            self.let_go(guard, block);
        }
        self.part_with_spares(guard, usize::MAX);
    }

    /// Has those slots of a zone give up their free frames that no call uses at the moment, if they
    /// may have any. That says nothing of the others.
    pub(super) fn drain_unused(&self, context: Context<'_, P>, zone: ZoneIndex) {
        if self.zone(zone).may_be_kept() {
            for cpu in 0..self.cpus() {
                if let Ok(guard) = self.lock_unless_used(context, cpu, zone) {
                    self.drain_held(&guard);
                }
            }
        }
    }

    /// Has the slots of a zone give up their free frames, if they may have any and no other call is
    /// making them do so. `may_wait` is as in `drain_begun`.
    pub(super) fn drain_if_kept(&self, context: Context<'_, P>, zone: ZoneIndex, may_wait: bool) {
        if self.zone(zone).try_begin_drain() {
            self.drain_begun(context, zone, may_wait);
        }
    }

    /// The same in any case. Returns how often it had been noted before that slots keep something.
    pub(super) fn drain_anew(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        may_wait: bool,
    ) -> u64 {
        let notes = self.zone(zone).begin_drain();
        self.drain_begun(context, zone, may_wait);
        notes
    }

    /// Has the slots of a zone give up their free frames. If it `may_wait`, it waits for calls that
    /// use slots: if it passed over those instead, drains of several zones would pass over each
    /// other's for ever. Otherwise it is noted that slots which are in use may have some.
    fn drain_begun(&self, context: Context<'_, P>, zone: ZoneIndex, may_wait: bool) {
        let mut is_passed_over = false;
        for cpu in 0..self.cpus() {
            let guard = match may_wait {
                true => self.lock(context, cpu, zone).ok_or(InUse::ByLease),
                false => self.lock_unless_used(context, cpu, zone),
            };
            match guard {
                Ok(guard) => self.drain_held(&guard),
                Err(InUse::ByLease) => {}
                Err(InUse::ByCall) => is_passed_over = true,
            }
        }
        if is_passed_over {
            self.zone(zone).mark_kept();
        }
        self.zone(zone).end_drain();
    }

    /// Has the slots of a CPU give up all pageblocks, those without free frames as well.
    pub(super) fn retire(&self, context: Context<'_, P>, cpu: usize) {
        for zone in self.zone_indexes() {
            let Some(guard) = self.lock(context, cpu, zone) else { continue };
            self.drain_held(&guard);
            for block in self.blocks.all() {
                let state = self.blocks.state(block);
                if state.is_split_of(cpu) && self.blocks.zone(block) == zone {
                    debug_assert!(!state.is_listed(), "all that were listed are gone");
                    self.let_go(&guard, block);
                }
            }
        }
    }

    /// Looks at what others have freed, and gives the pageblock in reserve back.
    pub(super) fn tidy(&self, context: Context<'_, P>, cpu: usize) {
        for zone in self.zone_indexes() {
            let Some(guard) = self.try_lock(context, cpu, zone) else { continue };
            self.take_pending(&guard);
            self.part_with_spares(&guard, usize::MAX);
        }
    }
}

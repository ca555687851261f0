//! Giving back what slots keep: for other CPUs, for large blocks, and when a CPU goes away.

use super::Freehold;
use super::guard::{InUse, SlotGuard};
use crate::designs::Context;
use crate::memmap::block::ZoneIndex;
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

    /// Has the slots of a zone give up their free frames; those that no call uses at the moment.
    /// For the others, it is noted that they may have some. A revocable lease is taken back if
    /// `may_wait`: that waits for an operation of its owner. Returns how many drains of the zone
    /// have begun.
    pub(super) fn drain_zone(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        may_wait: bool,
    ) -> u64 {
        let of = self.zone(zone);
        let begun = of.begin_drain();
        let mut is_passed_over = false;
        for cpu in 0..self.cpus() {
            match self.lock_unless_used(context, cpu, zone, may_wait) {
                Ok(guard) => self.drain_held(&guard),
                Err(InUse::ByLease) => {}
                Err(InUse::ByCall) => is_passed_over = true,
            }
        }
        if is_passed_over {
            of.mark_kept();
        }
        of.end_drain();
        begun
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

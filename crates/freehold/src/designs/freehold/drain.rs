//! Giving back what slots keep: for other CPUs, for large blocks, and when a CPU goes away.

use super::Freehold;
use super::guard::SlotGuard;
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

    /// Has all slots of a zone give up their free frames, if they may have any.
    pub(super) fn drain_zone(&self, context: Context<'_, P>, zone: ZoneIndex) {
        if self.zone(zone).begin_drain() {
            for cpu in 0..self.cpus() {
                self.drain_slot(context, cpu, zone);
            }
            self.zone(zone).end_drain();
        }
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

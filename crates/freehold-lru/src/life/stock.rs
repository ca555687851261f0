//! Charges, which CPUs make ahead of use: a stock spares them the counters that all share.

use crate::cpu::CpuGuard;
use crate::error::LruError;
use crate::id::GroupId;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::Platform;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Charges frames to a group, from the CPU's stock if possible; returns the lock of the CPU,
    /// which was taken for that.
    pub(crate) fn charge(&self, group: GroupId, frames: u32) -> Result<CpuGuard<'_, P>, LruError> {
        let cpu = self.cpus.here(&self.platform);
        if cpu.take_stock(group, frames) {
            return Ok(cpu);
        }
        let slot = group.slot();
        let most = self.groups.slot_of(group).map_or(0, |slot| self.groups.stock_max(slot));
        // Under the CPU's lock, so that removing the group finds a stock that would outlive it.
        if frames == 1 && most > 1 && self.groups.charge(group, most).is_ok() {
            let before = cpu.set_stock(group, most - 1, 2 * most);
            if before.map(|(slot, _)| slot) != Some(slot) {
                self.groups.add_stock(slot);
                if let Some((before, stock)) = before {
                    self.groups.remove_stock(before);
                    self.groups.uncharge(before, stock);
                }
            }
            return Ok(cpu);
        }
        self.groups.charge(group, frames)?;
        Ok(cpu)
    }

    /// Uncharges frames from a slot.
    pub(crate) fn uncharge(&self, slot: u16, frames: u32) {
        let over = self.cpus.here(&self.platform).restock(slot, frames);
        if over > 0 {
            self.groups.uncharge(slot, over);
        }
    }

    /// Uncharges what CPUs have charged ahead for a group and for those below.
    pub(crate) fn drain_stocks(&self, slot: u16) {
        for cpu in 0..self.cpus.len() {
            let guard = self.cpus.of(&self.platform, cpu);
            if guard.stock().is_some_and(|(stocked, _)| self.groups.is_below(stocked, slot)) {
                self.drain_stock(guard);
            }
        }
    }

    /// Uncharges what a CPU has charged ahead.
    pub(crate) fn drain_stock(&self, guard: CpuGuard<'_, P>) {
        if let Some((slot, stock)) = guard.drain_stock() {
            // Under the CPU's lock: until then, the group is not removed, and its slot keeps its
            // place.
            self.groups.remove_stock(slot);
            self.groups.uncharge(slot, stock);
        }
    }
}

//! Charges, which CPUs make ahead of use: a stock spares them the counters that all share.

use crate::cpu::CpuGuard;
use crate::error::LruError;
use crate::id::GroupId;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::BATCH_MAX;
use freehold::platform::Platform;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Charges frames to a group, from the CPU's stock if possible; returns the lock of the CPU,
    /// which was taken for that.
    pub(crate) fn charge(&self, group: GroupId, frames: u32) -> Result<CpuGuard<'_, P>, LruError> {
        let cpu = self.cpus.here(&self.platform);
        if cpu.take_stock(group, frames) {
            return Ok(cpu);
        }
        let most = self.groups.slot_of(group).map_or(0, |slot| self.groups.stock_max(slot));
        // Under the CPU's lock, so that removing the group finds a stock that would outlive it.
        if frames == 1 && most > 1 && self.groups.charge(group, most).is_ok() {
            self.set_stock(&cpu, group, most - 1, 2 * most);
            return Ok(cpu);
        }
        self.groups.charge(group, frames)?;
        Ok(cpu)
    }

    /// Lets the running CPU keep charges for frames of a group that it evicts at a limit, since it
    /// is about to add others: so it need not give them back, and charge them again one by one.
    pub(crate) fn keep_charges(&self, group: GroupId) {
        let slot = group.slot();
        let most = self.groups.kept_max(slot);
        if most == 0 {
            return;
        }
        let cpu = self.cpus.here(&self.platform);
        // Under the CPU's lock: as in `charge`.
        if self.groups.slot_of(group).is_ok() {
            let has = cpu.stock().filter(|&(stocked, _)| stocked == slot);
            // With room for what is released meanwhile.
            let stock_max = most + BATCH_MAX as u32;
            self.set_stock(&cpu, group, has.map_or(0, |(_, stock)| stock), stock_max);
        }
    }

    fn set_stock(&self, cpu: &CpuGuard<'_, P>, group: GroupId, frames: u32, most: u32) {
        let before = cpu.set_stock(group, frames, most);
        if before.map(|(slot, _)| slot) != Some(group.slot()) {
            self.groups.add_stock(group.slot());
            if let Some((before, stock)) = before {
                self.groups.remove_stock(before);
                self.groups.uncharge(before, stock);
            }
        }
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
        self.drain_stocks_if(slot, |_| true);
    }

    /// As `drain_stocks`, of the CPUs that have not used theirs since this was last called.
    pub(crate) fn drain_idle_stocks(&self, slot: u16) {
        self.drain_stocks_if(slot, |cpu| cpu.is_stock_idle());
    }

    fn drain_stocks_if(&self, slot: u16, drains: impl Fn(&CpuGuard<'_, P>) -> bool) {
        for cpu in 0..self.cpus.len() {
            let guard = self.cpus.of(&self.platform, cpu);
            let is_below = |(stocked, _)| self.groups.is_below(stocked, slot);
            if guard.stock().is_some_and(is_below) && drains(&guard) {
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

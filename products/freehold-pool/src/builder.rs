//! The settings of a pool.

use freehold_host::{Host, Topology};

use crate::PoolError;
use crate::content::Content;
use crate::home::Home;
use crate::pool::Pool;
use crate::reserved::page_bytes;
use crate::slots::{BATCH_SLOTS_MAX, Slots, SlotsSettings};

/// Collects the settings of a pool; [`PoolBuilder::build`] creates it.
///
/// Sizes are rounded up to pages of the machine.
#[derive(Clone, Debug)]
pub struct PoolBuilder {
    slots: u32,
    slot_bytes: usize,
    guard_bytes: usize,
    batch_slots: usize,
    max_unused_warm_slots: usize,
    keep_resident_bytes: usize,
    max_accessible_slots: Option<usize>,
    cpus: Option<usize>,
    single_calls: bool,
}

impl PoolBuilder {
    pub(crate) fn new() -> Self {
        PoolBuilder {
            slots: 1000,
            slot_bytes: 4 << 30,
            guard_bytes: 32 << 20,
            batch_slots: 16,
            max_unused_warm_slots: 100,
            keep_resident_bytes: 0,
            max_accessible_slots: None,
            cpus: None,
            single_calls: false,
        }
    }

    /// How many slots there are. Default: 1000.
    ///
    /// Besides those in use and warm ones, each CPU may have a batch of dirty ones. Give a few more
    /// than all of these together: the last clean slots are spread over CPUs, and to find one takes
    /// far longer than to take one that is at hand.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// The most bytes that can be accessible in a slot. Default: 4 GiB. It is address space only,
    /// until it is made accessible and touched.
    #[must_use]
    pub fn slot_bytes(mut self, bytes: usize) -> Self {
        self.slot_bytes = bytes;
        self
    }

    /// How many bytes behind each slot are never accessible. Default: 32 MiB.
    #[must_use]
    pub fn guard_bytes(mut self, bytes: usize) -> Self {
        self.guard_bytes = bytes;
        self
    }

    /// How many dirty slots a CPU collects until it resets them together. Default: 16; at most
    /// [`BATCH_SLOTS_MAX`]. With 1, each slot is reset as it comes back.
    ///
    /// The thread that completes a batch resets all of it.
    #[must_use]
    pub fn batch_slots(mut self, slots: usize) -> Self {
        self.batch_slots = slots;
        self
    }

    /// How many slots wait for users of the same key at most. Default: 100; with 0, none do. Each
    /// CPU has an equal share: with fewer than CPUs, some have none.
    #[must_use]
    pub fn max_unused_warm_slots(mut self, slots: usize) -> Self {
        self.max_unused_warm_slots = slots;
        self
    }

    /// How many bytes at the beginning of a slot are cleared by writing as it comes back, or
    /// copied from its image, and stay resident. Default: 0. A slot that had no more accessible
    /// needs no system call at all.
    ///
    /// Costs memory: all slots together may keep so much. Writing takes pages from the machine that
    /// were not touched, so choose what users nearly always touch.
    #[must_use]
    pub fn keep_resident_bytes(mut self, bytes: usize) -> Self {
        self.keep_resident_bytes = bytes;
        self
    }

    /// While a part of more slots than these is accessible, in use or not, each that is reset
    /// becomes inaccessible again, and loses its image. Default: an eighth of `vm.max_map_count`,
    /// so that after a burst the pool leaves most mappings to the rest of the process: an
    /// accessible slot takes 2, and up to 4 with an image.
    ///
    /// If more are in use all the time, each use costs two system calls more.
    #[must_use]
    pub fn max_accessible_slots(mut self, slots: usize) -> Self {
        self.max_accessible_slots = Some(slots);
        self
    }

    /// For how many CPUs the pool has lists of their own. CPUs beyond share the lists of others.
    /// Default: up to the highest number of a CPU that is online now, but so few that there are
    /// four batches of slots for each: what waits to be reset is then a quarter at most.
    #[must_use]
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Whether to reset each stretch of a batch by a system call of its own (`madvise(2)`) even if
    /// the kernel takes several at once (`process_madvise(2)`, since Linux 6.14). Default: no.
    #[must_use]
    pub fn single_calls(mut self, wanted: bool) -> Self {
        self.single_calls = wanted;
        self
    }

    /// Builds the pool. Reserves address space for all slots, and takes 96 bytes of memory for
    /// each.
    ///
    /// # Errors
    ///
    /// [`PoolError::BadSetting`] with the setting that cannot be met; [`PoolError::Map`];
    /// [`PoolError::Cpus`] if the machine's CPUs are not given, and cannot be read.
    pub fn build(self) -> Result<Pool, PoolError> {
        let bad = |setting, reason| Err(PoolError::BadSetting { setting, reason });
        let page = page_bytes();
        let pages = |bytes: usize| bytes.checked_next_multiple_of(page);
        if self.slots == 0 || self.slots == u32::MAX {
            return bad("slots", format!("{} is not in 1 to {}", self.slots, u32::MAX - 1));
        }
        if !(1..=BATCH_SLOTS_MAX).contains(&self.batch_slots) {
            let reason = format!("{} is not in 1 to {BATCH_SLOTS_MAX}", self.batch_slots);
            return bad("batch_slots", reason);
        }
        let Some(slot_bytes) = pages(self.slot_bytes).filter(|&bytes| bytes > 0) else {
            return bad("slot_bytes", format!("a slot cannot have {} bytes", self.slot_bytes));
        };
        let stride = pages(self.guard_bytes).and_then(|guard| slot_bytes.checked_add(guard));
        let all = stride.and_then(|stride| stride.checked_mul(self.slots as usize));
        let Some(stride) = stride.filter(|_| all.is_some_and(|all| isize::try_from(all).is_ok()))
        else {
            let reason = format!(
                "{} slots of {slot_bytes} bytes with {} of guard are more than there are addresses",
                self.slots, self.guard_bytes
            );
            return bad("slots", reason);
        };
        let Some(keep_resident) = pages(self.keep_resident_bytes).filter(|&b| b <= slot_bytes)
        else {
            let (keep, slot) = (self.keep_resident_bytes, slot_bytes);
            return bad("keep_resident_bytes", format!("{keep} is more than a slot has: {slot}"));
        };
        let online = || {
            let topology = Topology::discover().map_err(PoolError::Cpus)?;
            let highest = topology.online_cpus().iter().max().map(|cpu| cpu.index());
            let cpus = highest.map_or(1, |highest| highest + 1);
            Ok::<_, PoolError>(cpus.min(cpus_for(self.slots, self.batch_slots)))
        };
        let cpus = self.cpus.map_or_else(online, Ok)?;
        if cpus == 0 || cpus > freehold::geometry::CPUS_MAX {
            let reason = format!("{cpus} is not in 1 to {}", freehold::geometry::CPUS_MAX);
            return bad("cpus", reason);
        }
        let settings = SlotsSettings {
            slots: self.slots,
            batch_slots: self.batch_slots,
            warm_slots_max: self.max_unused_warm_slots,
        };
        let host = Host::new();
        let slots = Slots::new(host, settings, Home::new(host, settings, cpus)?);
        let accessible_max = self.max_accessible_slots.unwrap_or_else(|| mappings_max() / 8);
        let content =
            Content::new(self.slots, stride, keep_resident, accessible_max, self.single_calls)
                .map_err(|source| PoolError::Map { bytes: stride * self.slots as usize, source })?;
        Ok(Pool { slots, content, slot_bytes, stride_bytes: stride })
    }
}

/// How many mappings a process may have.
fn mappings_max() -> usize {
    const KERNELS_DEFAULT: usize = 65530;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(KERNELS_DEFAULT)
}

/// For how many CPUs there are slots enough that each has lists of its own.
fn cpus_for(slots: u32, batch_slots: usize) -> usize {
    const BATCHES_PER_CPU: usize = 4;
    (slots as usize / (BATCHES_PER_CPU * batch_slots)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_slots_can_be_dirty_at_most() {
        assert_eq!(cpus_for(1000, 16), 15);
        assert_eq!(cpus_for(1000, 1), 250);
        assert_eq!(cpus_for(10, 16), 1);
    }
}

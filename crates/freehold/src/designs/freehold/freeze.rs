//! Holding up all callers while the metadata is copied.
//!
//! While the locks of all slots are held, nothing of what slots hold is half done. What
//! calls do without a lock goes on meanwhile, and may be torn in the copy: see `mend`.

use core::sync::atomic::Ordering::Relaxed;

use super::Freehold;
use super::guard::{ASKED, HELD};
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, RawLock, Word};

/// The zone in whose slot it is noted that the lock over all slots of a CPU is taken.
const ANY_ZONE: ZoneIndex = ZoneIndex(0);

impl<P: Platform> Freehold<P> {
    /// Takes all locks but those of leases that cannot be revoked. No call waits for one of them
    /// while it holds another, but for that under which memory is added.
    pub(super) fn hold_all(&self, context: Context<'_, P>) {
        self.hotplug.get(0).lock.lock();
        self.zones.iter().for_each(|zone| zone.hold_compaction());
        for cpu in 0..self.cpus() {
            let held = self.hold_home(context, cpu);
            self.slot(cpu, ANY_ZONE).set_frozen(held);
        }
    }

    /// Takes the lock of a CPU's slots, unless a lease keeps it; says whether it has it.
    fn hold_home(&self, context: Context<'_, P>, cpu: usize) -> bool {
        loop {
            let guard = self.lock_if_vacant(context, cpu, ANY_ZONE);
            if let Some(guard) = guard.or_else(|| self.revoke(context, cpu, ANY_ZONE)) {
                core::mem::forget(guard);
                return true;
            }
            // Relaxed: whether there is such a lease is for its owner to say.
            if matches!(self.home(cpu).lease.load(Relaxed), HELD | ASKED) {
                return false;
            }
        }
    }

    pub(super) fn let_all_go(&self, context: Context<'_, P>) {
        for cpu in 0..self.cpus() {
            if self.slot(cpu, ANY_ZONE).set_frozen(false) {
                // Unlocks and unpins.
                drop(self.guard(context.platform, cpu, ANY_ZONE));
            }
        }
        self.zones.iter().for_each(|zone| zone.let_compaction_go());
        self.hotplug.get(0).lock.unlock();
    }
}

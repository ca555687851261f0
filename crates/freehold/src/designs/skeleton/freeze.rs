//! Holding up all callers while the metadata is copied, and what a copy has to put right.
//!
//! What calls do to lists, marks and counts they do under a lock, so a copy that is made while all
//! locks are held finds these in order. Past the locks there is little: a block that is claimed by
//! one who is about to free it stays claimed in the copy, which is to say in use; what a policy
//! does past them, [`Policy::mend`] puts right.

use super::{LocalPages, PerCpu, Policy, Skeleton};
use crate::designs::Context;
use crate::memmap::block::{BlockType, ZoneIndex};
use crate::platform::{Platform, RawLock};

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// Takes all locks, in the order in which those who hold several take them.
    pub(super) fn hold_all(&self, context: Context<'_, P>) {
        self.hotplug.get(0).lock.lock();
        for zone in self.zone_indexes() {
            for cpu in 0..context.topology.cpus() {
                let PerCpu { pages, events, own } = self.per_cpu(cpu, zone);
                let pcp = pages.lock_for_check(context.platform);
                let pages = LocalPages { pcp, events, own, zone, cpu };
                // What comes to a queue from now on is lost to the copy.
                self.absorb(context.platform, &pages);
                core::mem::forget(pages);
            }
        }
        self.zones.iter().for_each(|zone| zone.hold());
    }

    pub(super) fn let_all_go(&self, context: Context<'_, P>) {
        self.zones.iter().for_each(|zone| zone.let_go());
        for zone in self.zone_indexes() {
            for cpu in 0..context.topology.cpus() {
                drop(self.per_cpu(cpu, zone).pages.adopt(context.platform));
            }
        }
        self.hotplug.get(0).lock.unlock();
    }

    /// The same in a copy.
    pub(super) fn let_all_go_mended(&self, context: Context<'_, P>) {
        for zone in self.zone_indexes() {
            Y::mend(self, context.platform, context.topology.cpus(), zone);
        }
        self.let_all_go(context);
        for zone in self.zone_indexes() {
            self.end_isolations(context, zone);
        }
    }

    /// Puts all pageblocks of a zone that somebody had out of circulation back there.
    fn end_isolations(&self, context: Context<'_, P>, zone: ZoneIndex) {
        for pageblock in self.pageblocks_of(zone) {
            if self.blocks.block_type(pageblock) == BlockType::Isolated {
                self.lock_zone(context.platform, zone).release(pageblock);
            }
        }
    }
}

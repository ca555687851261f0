//! Draining: blocks go from a CPU's lists back to the zone.

use super::{LocalPages, ZoneLock};
use crate::designs::Context;
use crate::designs::pcp::{LISTS, list_order};
use crate::designs::pcp_tuning::PcpMode;
use crate::platform::{Platform, SharedCell};
use crate::units::{CpuId, FrameCount, MigrateType};
use crate::zone::ZoneGuard;

/// After so many quiet ticks, a CPU gives back what it keeps of another node's zone.
pub(super) const EXPIRE_TICKS: u32 = 3;

/// A CPU's lists are emptied so many frames at a time, and the locks dropped in between, so that
/// nobody waits for a whole list.
const DRAIN_CHUNK_FRAMES: u32 = 2048;

impl<P: Platform> ZoneLock<P> {
    /// Returns at least `frames` frames to the zone, or all that there are, oldest first.
    /// `just_used` is the list that a block was put on last.
    #[cold]
    pub(super) fn drain_pages(
        &self,
        platform: &P,
        pages: &LocalPages<'_, P>,
        frames: u32,
        just_used: usize,
    ) {
        let LocalPages { pcp, events, zone } = pages;
        let wanted = frames.min(pcp.count.get());
        let guard = self.lock_zone(platform, *zone);
        let drained = match self.mode {
            PcpMode::Fixed { .. } => self.drain_round_robin(&guard, pages, wanted),
            PcpMode::Auto => self.drain_list_by_list(&guard, pages, wanted, just_used),
        };
        guard.add_free(drained);
        drop(guard);
        pcp.count.set(pcp.count.get() - drained.get() as u32);
        pcp.expire.set(EXPIRE_TICKS);
        events.note_drain(drained);
        self.zone(*zone).note_drained();
    }

    /// As in Linux 6.12: the list used last first, each list until it is empty.
    fn drain_list_by_list(
        &self,
        guard: &ZoneGuard<'_, P>,
        pages: &LocalPages<'_, P>,
        wanted: u32,
        just_used: usize,
    ) -> FrameCount {
        let mut drained = FrameCount::ZERO;
        for list in (just_used..LISTS).chain(0..just_used) {
            while drained.get() < u64::from(wanted) && self.drain_one(guard, pages, list) {
                drained += list_order(list).frames();
            }
        }
        drained
    }

    /// As in Linux 4.16: one block from each type's list in turn, more from a list the more
    /// empty ones were passed, so that nothing but a lone list is emptied at once.
    fn drain_round_robin(
        &self,
        guard: &ZoneGuard<'_, P>,
        pages: &LocalPages<'_, P>,
        wanted: u32,
    ) -> FrameCount {
        let (mut list, mut burst, mut drained) = (0, 0, 0);
        while drained < wanted {
            let next = (1..=MigrateType::COUNT)
                .find(|step| !pages.pcp.lists[(list + step) % MigrateType::COUNT].is_empty());
            let step = next.expect("the lists hold as many frames as the CPU counts");
            burst += step as u32;
            list = (list + step) % MigrateType::COUNT;
            if burst == MigrateType::COUNT as u32 {
                burst = wanted - drained;
            }
            while burst > 0 && drained < wanted && self.drain_one(guard, pages, list) {
                burst -= 1;
                drained += 1;
            }
        }
        FrameCount::new(u64::from(drained))
    }

    /// Returns the oldest block of a list to the zone; says whether there was one.
    fn drain_one(&self, guard: &ZoneGuard<'_, P>, pages: &LocalPages<'_, P>, list: usize) -> bool {
        let order = list_order(list);
        let list = &pages.pcp.lists[list];
        let Some(block) = list.last() else { return false };
        list.remove(&self.frames, block);
        guard.give(block, order, None);
        true
    }

    /// Empties all lists of one CPU.
    pub(super) fn drain_cpu(&self, platform: &P, cpu: usize) {
        for zone in self.zone_indexes() {
            loop {
                let pages = self.lock_pcp(platform, cpu, zone);
                if pages.pcp.count.get() == 0 {
                    break;
                }
                self.drain_pages(platform, &pages, DRAIN_CHUNK_FRAMES, 0);
            }
        }
    }

    /// Empties all lists of all CPUs.
    pub(super) fn drain_all_cpus(&self, context: Context<'_, P>) {
        for cpu in 0..context.topology.cpus() {
            self.drain_cpu(context.platform, cpu);
        }
    }

    /// Lets the high marks of a quiet CPU decay, and sends home what it keeps of other nodes.
    pub(super) fn tick_cpu(&self, context: Context<'_, P>, cpu: CpuId) {
        let home = context.topology.node_of(cpu);
        let cpu = context.topology.fold(cpu);
        for zone in self.zone_indexes() {
            let pages = self.lock_pcp(context.platform, cpu, zone);
            let mut excess = self.mode.decay(&pages.pcp);
            let batch = pages.pcp.batch.get();
            if self.zone(zone).node() != home && has_expired(&pages) {
                excess = excess.max(batch);
            }
            drop(pages);
            // A batch at a time, with the locks dropped in between.
            while excess > 0 {
                let pages = self.lock_pcp(context.platform, cpu, zone);
                if pages.pcp.count.get() == 0 {
                    break;
                }
                self.drain_pages(context.platform, &pages, excess.min(batch), 0);
                excess = excess.saturating_sub(batch);
            }
        }
    }
}

/// Counts down the quiet ticks of another node's pages; says whether they have run out.
fn has_expired<P: Platform>(pages: &LocalPages<'_, P>) -> bool {
    let expire = &pages.pcp.expire;
    if pages.pcp.count.get() == 0 || expire.get() == 0 {
        return false;
    }
    expire.set(expire.get() - 1);
    expire.get() == 0
}

//! Free page reporting: a hypervisor is told which whole pageblocks are free, and has their memory
//! until they are used again.
//!
//! Whether one was reported is in its state, as its order: a whole pageblock has none otherwise,
//! and whatever it is used for next sets another. So nothing else knows of it.
//!
//! Source: Linux 6.12 `mm/page_reporting.c`.

use super::Freehold;
use super::pageblocks::PageblockIndex;
use super::zones::Zones;
use crate::PageAllocator;
use crate::designs::Context;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::watermark::Watermark;

/// How many pageblocks are reported at once, at most: as many as Linux does.
const BATCH: usize = 32;

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Reports whole pageblocks that no CPU caches, that have not been reported since they were
    /// used, and without which their zones stay above the low watermark: at most 32 of them, by
    /// their first frames.
    /// They count as allocated until `report` returns; so it may take its time, and what they
    /// contain may be lost. If it returns that it did report them, they are not reported again
    /// before their next use. Returns how many were reported; 0 also if there are none.
    ///
    /// Cost, beside that of `report`: a cache line for each pageblock that was reported before, a
    /// few for each that is now.
    pub fn report_free(&self, report: impl FnOnce(&[Pfn]) -> bool) -> usize {
        let (zones, context) = (&self.design().zones, self.context());
        let (mut taken, mut many) = ([Pfn::default(); BATCH], 0);
        for zone in zones.indexes() {
            let mut from = 0;
            while many < BATCH
                && let Some(pageblock) = zones.take_unreported(context, zone, &mut from)
            {
                taken[many] = zones.pageblocks.pfn_of(pageblock.frame());
                many += 1;
            }
        }
        let taken = &taken[..many];
        let is_reported = many > 0 && report(taken);
        for &first in taken {
            zones.put_back(context, first, is_reported);
        }
        if is_reported { many } else { 0 }
    }
}

impl<P: Platform> Zones<P> {
    /// Allocates a pageblock of the pool that was not reported, from a place in the pool on, and
    /// moves that on.
    fn take_unreported(
        &self,
        context: Context<'_, P>,
        zone: ZoneIndex,
        from: &mut usize,
    ) -> Option<PageblockIndex> {
        let whole = Request::new(Order::PAGEBLOCK).migratetype(MigrateType::Unmovable);
        let pool = self.zone(zone).pool();
        loop {
            let bit = self.forest.next(pool, *from)?;
            *from = bit + 1;
            let pageblock = self.pageblock_at(zone, bit);
            if self.pageblocks.state(pageblock).is_reported() {
                continue;
            }
            if !self.allows(zone, &whole, Watermark::Low) {
                return None;
            }
            let section = self.section(context.cpu_here(), zone);
            if self.forest.remove(pool, bit) {
                let (order, migratetype) = (whole.order(), whole.content());
                self.hand_out_of_pool(context, zone, section, pageblock, order, migratetype);
                return Some(pageblock);
            }
        }
    }

    /// Frees a pageblock that this module has allocated.
    fn put_back(&self, context: Context<'_, P>, first: Pfn, is_reported: bool) {
        let pageblock = self.pageblocks.index_of(first).map(PageblockIndex::of_frame);
        let held = pageblock.map(|pageblock| {
            self.pageblocks.acquire_huge(context.platform, pageblock, Order::PAGEBLOCK)
        });
        let Some(Ok(Some(held))) = held else {
            debug_assert!(
                false,
                "{first:?} was allocated here, and only a wrong free can change that"
            );
            return;
        };
        let put = if is_reported { Self::put_reported_in_pool } else { Self::put_in_pool };
        self.release_huge(context, held.head, Order::PAGEBLOCK, put);
    }
}

//! When an allocation may fail: only if, at some moment of the call, no zone that it may use had a
//! free block for it.
//!
//! An allocation that has found nothing, even after a drain of all caches, must tell memory that is
//! used up from memory that another call has in hand. All free frames of a zone belong to one of
//! these, at any moment:
//!
//! 1. the level, in pageblocks that are in a tree;
//! 2. a cache, and then the zone is marked as cached, or a drain is under way;
//! 3. a call that moves them, in a *section*: between the two steps that account for the move;
//! 4. a lease that cannot be revoked, or a call that empties isolated pageblocks: no allocation is
//!    promised these;
//! 5. a free that has not returned yet: it counts as done when the frames come to 1, 2 or 3.
//!
//! Each CPU counts, in one word for each zone, the sections that it has begun and ended. Each zone
//! counts drains, and how often it was marked as cached. A look at all these words, then at levels
//! and trees, and then at the same words again has seen all free frames there are, if no word has
//! changed, no section and no drain was under way and the zone was not marked as cached: nothing
//! moved meanwhile, and frames can only have been added. If that look finds no block, there was
//! none when it began.
//!
//! What must hold for that, wherever frames move:
//!
//! * Frames leave the level, and pageblocks with free frames their tree or the pool, in a section,
//!   or under the lock of a cache after [`Zone::note_cached`](super::zone::Zone::note_cached).
//! * A cache lists a pageblock only after `note_cached`. The mark is cleared by the begin of a
//!   drain, which takes all that is listed from every cache. If it passes over caches, it sets the
//!   mark again.
//! * A call that holds a pageblock as a walker, or has marked it as queued and has not pushed it
//!   yet, is in a section: other frees rely on it already, and free frames without another word.
//!
//! Of many calls that fail at the same time, none may keep the others from seeing that there is
//! nothing. So an allocation moves something only after a look has shown it a block; one call
//! drains a zone at a time, and waits for locks of caches instead of passing over them; and a call
//! that has drained all zones by itself ignores other drains, if no zone has been marked since.
//!
//! So an allocation that fails has waited for every section that was under way when it began, and
//! for every lock of a cache that was taken. Such a stretch has a bounded number of steps and waits
//! for nothing, so where [`Platform::pin`] keeps other threads off the CPU, the wait is bounded as
//! well. Otherwise the allocation looks again only if other calls have moved frames meanwhile.

use core::sync::atomic::Ordering::{Release, SeqCst};

use super::Zones;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::request::Request;

/// A section under way, in the word of a CPU and zone. Below [`ENDED`] there is room for as many as
/// there can be threads on one CPU at a time.
const BEGUN: u64 = 1;
/// A section that has ended.
const ENDED: u64 = 1 << 20;

/// A stretch of a call in which free frames may be where only this call finds them. Ends when it is
/// dropped.
#[must_use]
pub(crate) struct Section<'a, P: Platform>(&'a P::U64);

impl<P: Platform> Drop for Section<'_, P> {
    fn drop(&mut self) {
        // Release: a CPU that sees that the section has ended sees where it has put the frames.
        self.0.fetch_add(ENDED - BEGUN, Release);
    }
}

impl<P: Platform> Zones<P> {
    /// Whether no call is in a section, of any CPU and zone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.indexes().all(|zone| {
            let word = |cpu| self.cpu_zone(cpu, zone).counters.sections().load(SeqCst);
            (0..self.cpus).all(|cpu| word(cpu) % ENDED == 0)
        })
    }

    /// Begins a section of a CPU. It must end before the call allocates or runs foreign code.
    pub(crate) fn section(&self, cpu: usize, zone: ZoneIndex) -> Section<'_, P> {
        let word = self.cpu_zone(cpu, zone).counters.sections();
        // SeqCst: before all that the section does, for a CPU that sees any of it.
        word.fetch_add(BEGUN, SeqCst);
        Section(word)
    }

    /// Whether there was a moment at which none of these zones had a free block that the request
    /// may have. If not, that is not known yet.
    ///
    /// A caller that has drained all of these zones by itself passes as `drained` how often they
    /// had been marked as cached before, all together. If none has been marked since, drains of
    /// other calls do not matter.
    pub(crate) fn is_short<Z: Iterator<Item = ZoneIndex>>(
        &self,
        zones: &impl Fn() -> Z,
        request: &Request,
        drained: Option<u64>,
    ) -> bool {
        let Some(before) = self.quiet(zones(), drained.is_some()) else { return false };
        if drained.is_some_and(|drained| drained != before.1) {
            return false;
        }
        let serves = |zone| self.serves(zone, request);
        !zones().any(serves) && self.quiet(zones(), drained.is_some()) == Some(before)
    }

    /// How many sections have ended in these zones, how often they were marked as cached, and how
    /// many drains have begun; `None` if one is marked as cached, a section is under way, or a
    /// drain is. Drains are left out if those of other calls do not matter.
    fn quiet(
        &self,
        zones: impl Iterator<Item = ZoneIndex>,
        without_drains: bool,
    ) -> Option<(u64, u64, u64)> {
        let (mut sections, mut notes, mut drains) = (0_u64, 0_u64, 0_u64);
        for zone in zones {
            for cpu in 0..self.cpus {
                // SeqCst: one of the looks that the module describes. Acquire: from the CPU that
                // has ended it.
                let word = self.cpu_zone(cpu, zone).counters.sections().load(SeqCst);
                if word % ENDED != 0 {
                    return None;
                }
                sections = sections.wrapping_add(word);
            }
            if !without_drains {
                drains = drains.wrapping_add(self.zone(zone).drains()?);
            }
            notes = notes.wrapping_add(self.zone(zone).notes()?);
        }
        Some((sections, notes, drains))
    }
}

//! When an allocation may fail: only if, at some moment of the call, no zone that it may use had a
//! free block for it; or, for more than a frame, none that other calls did not move
//! (`caches/last_resort.rs`).
//!
//! An allocation that has found nothing, even after a drain of all caches, must tell memory that is
//! used up from memory that another call has in hand. All free frames of a zone belong to one of
//! these, at any moment:
//!
//! 1. the level, in pageblocks that are in a tree;
//! 2. the cache of a CPU, which is then *marked*;
//! 3. a call that moves them, in a *section*: between the two steps that account for the move;
//! 4. the cache of a lease that could not be revoked, or a call that empties isolated pageblocks:
//!    no allocation is promised these;
//! 5. a free that has not returned yet: it counts as done when the frames come to 1, 2 or 3.
//!
//! Sections that move parts of pageblocks are counted apart: a request for whole ones does not look
//! at them. If the last frame of a pageblock is freed while such a call holds it, it is whole once
//! it comes to the pool.
//!
//! One word for each CPU and zone answers for 2 and 3: it has the mark, and counts the sections
//! that the CPU has begun and ended. A look at all these words, then at levels and trees, and then
//! at the same words again has seen all free frames there are, if no word has changed, and none had
//! a mark or a section under way: nothing moved meanwhile, and frames can only have been added. If
//! that look finds no block, there was none when it began.
//!
//! What must hold for that, wherever frames move:
//!
//! * Frames leave the level, and pageblocks with free frames their tree or the pool, in a section,
//!   or under the lock of a cache after [`mark_cached`](Zones::mark_cached).
//! * A cache lists a pageblock only after `mark_cached`. A drain, which takes all that is listed
//!   and queued from the cache, clears the mark, and in the same step begins a section.
//! * A call that holds a pageblock as a walker, or has marked it as queued and has not pushed it
//!   yet, is in a section: other frees rely on it already, and free frames without another word.
//!   Once it has pushed the pageblock, it marks the cache that has the queue.
//!
//! Of many calls that fail at the same time, none may keep the others from seeing that there is
//! nothing. So an allocation moves something only after a look has shown it a block, or a mark; of
//! caches without a mark it takes no lock.
//!
//! So an allocation that fails has waited for every such section that was under way when it began,
//! and for the lock of every cache that was marked. Such a stretch has a bounded number of steps
//! and waits for nothing, so where [`Platform::pin`] keeps other threads off the CPU, the wait is
//! bounded as well. Otherwise the allocation looks again only if other calls have moved frames
//! meanwhile.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::Zones;
use super::counters::CpuCounters;
use crate::designs::Context;
use crate::designs::freehold::pageblocks::FRAMES;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Platform, Word};
use crate::request::Request;
use crate::units::{FrameCount, Order};

/// A section under way, in the word of a CPU and zone, that moves a part of a pageblock.
const PART: u64 = 1;
/// One that may move a whole pageblock. If more threads of one CPU are in sections of parts than
/// there is room for, they count as some of these; of these, there is room for 4096.
const WHOLE: u64 = 1 << 10;
/// The mark: the cache may hold free frames.
const CACHED: u64 = 1 << 22;
/// A section that has ended, and may have moved a whole pageblock.
const WHOLE_ENDED: u64 = 1 << 23;
/// One that has moved a part.
const PART_ENDED: u64 = 1 << 43;

/// A stretch of a call in which free frames may be where only this call finds them. Ends when it is
/// dropped.
#[must_use]
pub(crate) struct Section<'a, P: Platform> {
    counters: &'a CpuCounters<P>,
    /// What its end adds.
    end: u64,
}

impl<P: Platform> Drop for Section<'_, P> {
    fn drop(&mut self) {
        // Release: a CPU that sees that the section has ended sees where it has put the frames.
        self.counters.sections().fetch_add(self.end, Release);
    }
}

impl<P: Platform> Section<'_, P> {
    /// Counts frames that were freed past all caches, and collected here.
    pub(super) fn note_freed(&self, frames: u32) {
        self.counters.note_freed(FrameCount::new(u64::from(frames)));
    }
}

impl<P: Platform> Zones<P> {
    fn in_hand(&self, cpu: usize, zone: ZoneIndex) -> &P::U64 {
        self.cpu_zone(cpu, zone).counters.sections()
    }

    /// Begins a section of a CPU. It must end before the call allocates or runs foreign code.
    pub(crate) fn section(&self, cpu: usize, zone: ZoneIndex) -> Section<'_, P> {
        self.section_of(cpu, zone, WHOLE, WHOLE_ENDED)
    }

    /// As `section`, for a call that acquires an orphan. Should that become whole meanwhile, it is
    /// one when it comes to the pool.
    pub(crate) fn section_of_part(&self, cpu: usize, zone: ZoneIndex) -> Section<'_, P> {
        self.section_of(cpu, zone, PART, PART_ENDED)
    }

    fn section_of(&self, cpu: usize, zone: ZoneIndex, begun: u64, ended: u64) -> Section<'_, P> {
        let counters = &self.cpu_zone(cpu, zone).counters;
        // SeqCst: before all that the section does, for a CPU that sees any of it.
        counters.sections().fetch_add(begun, SeqCst);
        Section { counters, end: ended - begun }
    }

    /// Marks the cache of a CPU, unless it is: with its lock taken, since it is about to acquire
    /// free frames, before the step by which it does; or after a pageblock came to its remote
    /// queue.
    pub(crate) fn mark_cached(&self, cpu: usize, zone: ZoneIndex) {
        let word = self.in_hand(cpu, zone);
        // Relaxed: a drain that has cleared the mark had the lock, or took the stack of the remote
        // queue, before the caller did. So the caller sees that the mark is gone.
        if word.load(Relaxed) & CACHED == 0 {
            // SeqCst: one of the steps that the looks of `quiet` are ordered with.
            word.fetch_or(CACHED, SeqCst);
        }
    }

    /// Whether the cache of a CPU may hold free frames: a hint.
    pub(crate) fn may_be_cached(&self, cpu: usize, zone: ZoneIndex) -> bool {
        self.in_hand(cpu, zone).load(Relaxed) & CACHED != 0
    }

    /// The CPUs whose caches may hold free frames: a hint.
    pub(crate) fn cached_on(&self, zone: ZoneIndex) -> impl Iterator<Item = usize> {
        (0..self.cpu_count()).filter(move |&cpu| self.may_be_cached(cpu, zone))
    }

    /// Whether the cache of a CPU may serve a request: it may have free frames, or may acquire a
    /// pageblock. A hint. Where memory is short, neither is so, and a look would be in vain.
    pub(crate) fn may_serve_from_cache(
        &self,
        cpu: usize,
        zone: ZoneIndex,
        request: &Request,
    ) -> bool {
        self.may_be_cached(cpu, zone) || self.zone(zone).may_cache(FRAMES, request)
    }

    /// Begins a drain of a cache, whose lock the caller has, in a section: clears the mark. `None`
    /// if there is no mark, and so nothing to drain.
    pub(crate) fn begin_drain(&self, cpu: usize, zone: ZoneIndex) -> Option<Section<'_, P>> {
        // The hint will do: the lock orders all marks but those of frees that have pushed a
        // pageblock, and a call that has seen one of these before sees it here.
        if !self.may_be_cached(cpu, zone) {
            return None;
        }
        let counters = &self.cpu_zone(cpu, zone).counters;
        // One step: at no time is there neither mark nor section. Only this clears the mark, and
        // only with the lock. SeqCst: as in `section`.
        counters.sections().fetch_add(WHOLE.wrapping_sub(CACHED), SeqCst);
        Some(Section { counters, end: WHOLE_ENDED - WHOLE })
    }

    /// Whether a CPU is seen in no section that may have moved a block of an order, or to have
    /// ended one between two looks.
    pub(crate) fn leaves_sections(
        &self,
        context: Context<'_, P>,
        order: Order,
        (cpu, zone): (usize, ZoneIndex),
    ) -> bool {
        let (begun, ended) = of_order(order);
        // Acquire: from the CPU that has ended a section, so what it has put somewhere is seen
        // there.
        let look = || self.in_hand(cpu, zone).load(Acquire);
        let first = look();
        first % CACHED < begun || {
            context.platform.relax();
            let now = look();
            now % CACHED < begun || (now ^ first) & ended != 0
        }
    }

    /// Ends every section of a CPU, and marks its cache. There is no other thread.
    pub(crate) fn forget_sections(&self, cpu: usize, zone: ZoneIndex) {
        // Relaxed: as the caller says.
        self.in_hand(cpu, zone).store(CACHED, Relaxed);
    }

    /// Whether no call is in a section, of any CPU and zone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.indexes().all(|zone| {
            // SeqCst: as in `quiet`.
            let word = |cpu| self.in_hand(cpu, zone).load(SeqCst);
            (0..self.cpus).all(|cpu| word(cpu) % CACHED == 0)
        })
    }

    /// Whether there was a moment at which none of these zones had a free block that the request
    /// may have. If not, that is not known yet. What the caches of a CPU hold does not matter if
    /// `is_exempt` says so.
    pub(crate) fn is_short<Z: Iterator<Item = ZoneIndex>>(
        &self,
        zones: &impl Fn() -> Z,
        request: &Request,
        is_exempt: impl Fn(usize) -> bool,
    ) -> bool {
        let order = request.order();
        let Some(before) = self.quiet(zones(), order, &is_exempt) else { return false };
        let serves = |zone| self.serves(zone, request);
        !zones().any(serves) && self.quiet(zones(), order, &is_exempt) == Some(before)
    }

    /// How many sections have ended in these zones that may have moved a block of an order; `None`
    /// if one is under way, or a cache is marked that is not exempt.
    fn quiet(
        &self,
        zones: impl Iterator<Item = ZoneIndex>,
        order: Order,
        is_exempt: impl Fn(usize) -> bool,
    ) -> Option<u64> {
        let (begun, ended) = of_order(order);
        let mut sum = 0_u64;
        for zone in zones {
            for cpu in 0..self.cpus {
                // SeqCst: one of the looks that the module describes. Acquire: from the CPU that
                // has ended the section.
                let word = self.in_hand(cpu, zone).load(SeqCst);
                if word % CACHED >= begun || word & CACHED != 0 && !is_exempt(cpu) {
                    return None;
                }
                sum = sum.wrapping_add((word & ended) / WHOLE_ENDED);
            }
        }
        Some(sum)
    }
}

/// Sections that may move a block of an order: the least count of them under way, and the bits that
/// count those that have ended. What is done to parts of pageblocks changes nothing for whole ones.
fn of_order(order: Order) -> (u64, u64) {
    if order < Order::PAGEBLOCK {
        (PART, !(WHOLE_ENDED - 1))
    } else {
        (WHOLE, PART_ENDED - WHOLE_ENDED)
    }
}

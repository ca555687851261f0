//! Many blocks in one call: a whole word of frames at a time.

use super::cache::Active;
use super::lock::LockedCache;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::run::WORD_FRAMES;
use crate::designs::freehold::pageblocks::state::State;
use crate::designs::freehold::pageblocks::{FrameRef, PageblockIndex};
use crate::designs::traits::{Alloc, Bulk, Free};
use crate::error::BulkFreeError;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, Order, Pfn};
use crate::zone::watermark::Watermark;

/// How many frames are taken at most before the lock of the caches is released.
const LOCKED_FRAMES: usize = 512;

impl<P: Platform> Bulk<P> for Freehold<P> {
    /// Allocates blocks until `out` is full or memory runs out; returns how many.
    fn alloc_bulk(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        out: &mut [Pfn],
    ) -> usize {
        let mut count = 0;
        while count < out.len() {
            if request.order() == Order::ZERO {
                count += self.alloc_words(context, zones, &request, &mut out[count..]);
            }
            if count < out.len() {
                // Any other source, one block at a time.
                let Ok(pfn) = self.alloc(context, zones, request) else { break };
                out[count] = pfn;
                count += 1;
            }
        }
        count
    }

    /// Allocates blocks from the best zone that stays above its low watermark, or the high one if
    /// the request asks for that, with `spare` blocks less. Stops when `out` is full or the zone
    /// cannot give more without a drain; returns how many.
    fn alloc_quickly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: Request,
        spare: usize,
        out: &mut [Pfn],
    ) -> usize {
        let request = &request.only_node();
        let class = request.depth().at_first();
        let frames = (spare as u64).saturating_mul(request.order().frames().get());
        let has_to_spare = |zone: ZoneIndex| {
            self.zones.zone(zone).may_take(frames, class, request.effective_limit())
        };
        let Some(zone) = self.zones.usable(zones, request).find(|&zone| has_to_spare(zone)) else {
            return 0;
        };
        // All from one node, so this makes no difference to the NUMA counters.
        let behind = zones.iter().position(|&other| ZoneIndex(other) == zone).unwrap_or(0);
        let mut count = 0;
        while count < out.len() {
            let words = match request.order() {
                Order::ZERO => {
                    self.alloc_words(context, &zones[behind..], request, &mut out[count..])
                }
                _ => 0,
            };
            count += words;
            if words == 0 {
                let Some(frame) = self.alloc_near(context, zone, request, class) else { break };
                self.zones.note_numa(
                    context.cpu_here(),
                    zones,
                    request,
                    zone,
                    request.order().frames(),
                );
                out[count] = self.pageblocks().pfn_of(frame);
                count += 1;
            }
        }
        count
    }

    /// Frees blocks up to the first that cannot be freed.
    fn free_bulk(
        &self,
        context: Context<'_, P>,
        pageblocks: &[Pfn],
        order: Order,
    ) -> Result<(), BulkFreeError> {
        let mut freed = 0;
        while let Some(&first) = pageblocks.get(freed) {
            let run = match order {
                Order::ZERO => self.free_word(context, &pageblocks[freed..]),
                _ => 0,
            };
            freed += run;
            if run == 0 {
                self.free(context, first, order).map_err(|error| BulkFreeError { freed, error })?;
                freed += 1;
            }
        }
        Ok(())
    }
}

impl<P: Platform> Freehold<P> {
    /// Takes single frames out of the running CPU's cache in the best zone, which may acquire more
    /// pageblocks for that; returns how many.
    fn alloc_words(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        out: &mut [Pfn],
    ) -> usize {
        let Some(zone) = self.may_take_words(zones, request) else { return 0 };
        let (cpu, pin) = context.pin();
        let Some(guard) = self.try_lock(pin, cpu, zone) else { return 0 };
        guard.take_words(zones, request, out)
    }

    /// The zone from which single frames are taken by words: the best one, if it is above its low
    /// watermark.
    fn may_take_words(&self, zones: &[u16], request: &Request) -> Option<ZoneIndex> {
        let zone = self.zones.usable(zones, request).next()?;
        let limit = request.effective_limit();
        let may = request.order() == Order::ZERO
            && request.is_unsparing()
            && self.zones.zone(zone).may_take(1, Watermark::Low, limit);
        may.then_some(zone)
    }

    /// Frees the first few frames, all at once, if they lie in one word and are allocations of
    /// their own; returns how many.
    fn free_word(&self, context: Context<'_, P>, frames: &[Pfn]) -> usize {
        let Some(run) = self.word_of(frames) else { return 0 };
        match self.put_in_word(context, run.state, run.word, run.mask) {
            Ok(()) => run.count,
            Err(_) => 0,
        }
    }

    /// The first few frames, if they lie in one word, are allocations of their own, and none is
    /// free.
    fn word_of(&self, frames: &[Pfn]) -> Option<WordOfFrames> {
        let first = self.pageblocks().index_of(frames[0])?;
        let word = first / WORD_FRAMES;
        let base = self.pageblocks().pfn_of(word * WORD_FRAMES).get();
        // Most often they come in the order in which they were allocated: adjacent.
        let room = (WORD_FRAMES - first % WORD_FRAMES) as usize;
        let mut count = run_len(&frames[..frames.len().min(room)]);
        let mut mask = match count {
            0 => 0,
            run => low(run as u32) << (first % WORD_FRAMES),
        };
        for pfn in &frames[count..] {
            let bit = pfn.get().wrapping_sub(base);
            if bit >= u64::from(WORD_FRAMES) || mask >> bit & 1 == 1 {
                break;
            }
            mask |= 1 << bit;
            count += 1;
        }
        let word = word as usize;
        // Reads the state first: see `free_single_fast`.
        let state = self.pageblocks().state(PageblockIndex::of_word(word));
        let free = self.pageblocks().free_or_remote(word);
        let single =
            state.is_split() && self.pageblocks().are_single(word, mask) && mask & free == 0;
        single.then_some(WordOfFrames { word, mask, count, state })
    }
}

impl<P: Platform> LockedCache<'_, P> {
    /// Takes single frames out of the cache; returns how many.
    fn take_words(&self, zones: &[u16], request: &Request, out: &mut [Pfn]) -> usize {
        let most = out.len().min(LOCKED_FRAMES);
        let (out, hot) = (&mut out[..most], self.cache.hot);
        let mut count = 0;
        while count < out.len() {
            let word = hot.active_word(Active::Singles, request.content_index());
            let frame_ref = self.pageblocks().lookup_word(word);
            let free = frame_ref.as_ref().map_or(0, FrameRef::free);
            let Some(frame_ref) = frame_ref.filter(|_| free != 0) else {
                if !self.refill(request) {
                    break;
                }
                continue;
            };
            if self.per_cpu.picks_at_random {
                let frame = self.take_active(request.content());
                out[count] = self.pageblocks().pfn_of(frame.expect("the word has a free frame"));
                count += 1;
                continue;
            }
            let left =
                fill(&mut out[count..], free, self.pageblocks().pfn_of(frame_ref.frame()).get());
            count += (free.count_ones() - left.count_ones()) as usize;
            frame_ref.set_free(left);
            self.pageblocks().begin_use(word as usize, free & !left);
        }
        hot.note_alloc(count as u64);
        self.zones().note_numa(
            self.cpu,
            zones,
            request,
            self.zone_index,
            FrameCount::new(count as u64),
        );
        count
    }
}

/// Frames of one word.
struct WordOfFrames {
    word: usize,
    mask: u64,
    count: usize,
    /// The state of the pageblock, which is split.
    state: State,
}

/// A run of fewer free frames is written frame by frame.
const RUN_MIN: u32 = 8;

/// The lowest bits of a word, 1 to 64 of them.
const fn low(bits: u32) -> u64 {
    !0 >> (WORD_FRAMES - bits)
}

/// Writes the numbers of the frames of a word into `out`, lowest first, until it is full; returns
/// the frames that are left.
fn fill(out: &mut [Pfn], free: u64, first: u64) -> u64 {
    let (mut left, mut out) = (free, out);
    while left != 0 && !out.is_empty() {
        let bit = left.trailing_zeros();
        let room = out.len().min(WORD_FRAMES as usize) as u32;
        let run = (!(left >> bit)).trailing_zeros().min(room);
        let run = if run < RUN_MIN { 1 } else { run };
        let (now, later) = out.split_at_mut(run as usize);
        for (nth, pfn) in now.iter_mut().enumerate() {
            *pfn = Pfn::new(first + u64::from(bit) + nth as u64);
        }
        left &= !(low(run) << bit);
        out = later;
    }
    left
}

/// How many of the first frames are adjacent, in this order.
fn run_len(frames: &[Pfn]) -> usize {
    const STEP: usize = 8;
    let (first, mut len) = (frames[0].get(), 0);
    // No branch within a step, so that it compiles to a few vector instructions.
    for step in frames.chunks_exact(STEP) {
        let expected = first.wrapping_add(len as u64);
        let differs = |(nth, pfn): (usize, &Pfn)| pfn.get() ^ expected.wrapping_add(nth as u64);
        if step.iter().enumerate().map(differs).fold(0, |all, one| all | one) != 0 {
            break;
        }
        len += STEP;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::freehold::tests::machine;

    #[test]
    fn adjacent_frames_are_found_eight_at_a_time() {
        let mut frames: [Pfn; 20] = core::array::from_fn(|nth| Pfn::new(100 + nth as u64));
        assert_eq!((run_len(&frames), run_len(&frames[..7])), (16, 0));
        frames[12] = Pfn::new(7);
        assert_eq!(run_len(&frames), 8);
        frames[0] = Pfn::new(7);
        assert_eq!(run_len(&frames), 0);
    }

    #[test]
    fn the_lowest_frames_of_a_word_are_written_first() {
        for free in [!0, 0xff00_00ff_0f0f_1111, 1 << 63, 0, 0x7ff << 7] {
            for len in [0, 1, 7, 8, 9, 30, 64, 70] {
                let mut out = [Pfn::new(0); 70];
                let left = fill(&mut out[..len], free, 640);
                let all = (0..64).filter(|bit| free >> bit & 1 == 1);
                let (taken, rest) = (all.clone().take(len), all.clone().skip(len));
                assert!(taken.zip(&out).all(|(bit, &pfn)| pfn == Pfn::new(640 + bit)), "{free:x}");
                assert_eq!(left, rest.fold(0, |left, bit| left | 1 << bit), "{free:x}, {len}");
            }
        }
    }

    #[test]
    fn the_first_frames_of_a_word_are_found_in_any_order() {
        let frames = machine(2);
        let held: [Pfn; 128] =
            core::array::from_fn(|_| frames.alloc(Request::default()).expect("memory is free"));
        let found = |numbers: &[usize]| {
            let mut list = [Pfn::default(); 128];
            numbers.iter().zip(&mut list).for_each(|(&nth, pfn)| *pfn = held[nth]);
            frames.design().word_of(&list[..numbers.len()]).map(|run| (run.count, run.mask))
        };
        assert_eq!(found(&[0, 1, 2]), Some((3, 0b111)));
        assert_eq!(found(&[5, 3, 4, 9]), Some((4, 0b10_0011_1000)));
        assert_eq!(found(&[5, 64, 3]), Some((1, 1 << 5)), "of one word");
        assert_eq!(found(&[5, 3, 5, 4]), Some((2, 0b10_1000)), "each of them once");
        frames.free(held[3], Order::ZERO).unwrap();
        assert_eq!(found(&[5, 3]), None, "none is free");
    }
}

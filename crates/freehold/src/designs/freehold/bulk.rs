//! Many blocks in one call: a whole word of frames at a time.

use super::Freehold;
use super::blocks::BlockIndex;
use super::runs::WORD_FRAMES;
use crate::designs::Context;
use crate::error::BulkFreeError;
use crate::memmap::block::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::{FrameCount, Order, Pfn};
use crate::zone::watermark::Watermark;

/// So many frames are taken under one hold of a slot's lock.
const HOLD_FRAMES: usize = 512;

impl<P: Platform> Freehold<P> {
    /// Allocates blocks until `out` is full or memory runs out; returns how many.
    pub(super) fn alloc_many(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        out: &mut [Pfn],
    ) -> usize {
        let mut count = 0;
        while count < out.len() {
            if request.order == Order::ZERO {
                count += self.alloc_words(context, zones, request, &mut out[count..]);
            }
            if count < out.len() {
                // Whatever else there is, one at a time.
                let Ok(frame) = self.alloc_slowly(context, zones, request) else { break };
                out[count] = self.blocks.pfn_of(frame);
                count += 1;
            }
        }
        count
    }

    /// Allocates blocks from the best zone that stays above its low watermark with `spare` blocks
    /// less, until `out` is full or that zone has no more at hand; returns how many.
    pub(super) fn alloc_many_quickly(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        spare: usize,
        out: &mut [Pfn],
    ) -> usize {
        let class = request.watermark.at_first();
        let frames = (spare as u64).saturating_mul(request.order.frames().get());
        let has_to_spare =
            |zone: ZoneIndex| self.zone(zone).may_take(frames, class, request.effective_limit());
        let Some(zone) = self.usable(zones, request).find(|&zone| has_to_spare(zone)) else {
            return 0;
        };
        // Of one node, so it makes no difference to what is counted.
        let behind = zones.iter().position(|&other| ZoneIndex(other) == zone).unwrap_or(0);
        let mut count = 0;
        while count < out.len() {
            let words = match request.order {
                Order::ZERO => {
                    self.alloc_words(context, &zones[behind..], request, &mut out[count..])
                }
                _ => 0,
            };
            count += words;
            if words == 0 {
                let Some(frame) = self.alloc_near(context, zone, request, class) else { break };
                self.note_numa(
                    self.cpu_here(context),
                    zones,
                    request,
                    zone,
                    request.order.frames(),
                );
                out[count] = self.blocks.pfn_of(frame);
                count += 1;
            }
        }
        count
    }

    /// Takes single frames out of the running CPU's slot in the best zone, which may fetch more
    /// pageblocks for that; returns how many.
    fn alloc_words(
        &self,
        context: Context<'_, P>,
        zones: &[u16],
        request: &Request,
        out: &mut [Pfn],
    ) -> usize {
        let Some(zone) = self.usable(zones, request).next() else { return 0 };
        let may_take = |zone: ZoneIndex| {
            let urgent = !matches!(request.watermark, Watermark::High | Watermark::Low);
            urgent && self.zone(zone).may_take(1, Watermark::Low, request.effective_limit())
        };
        if !may_take(zone) {
            return 0;
        }
        let cpu = context.topology.fold(context.platform.pin());
        let Some(guard) = self.try_lock_pinned(context.platform, cpu, zone) else { return 0 };
        let out = match out.len() {
            len @ 0..=HOLD_FRAMES => &mut out[..len],
            _ => &mut out[..HOLD_FRAMES],
        };
        let mut count = 0;
        while count < out.len() {
            let word = guard.slot.current(request.migratetype);
            let free = self.blocks.try_free(word as usize).unwrap_or(0);
            if free == 0 {
                if !self.refill(&guard, request) {
                    break;
                }
                continue;
            }
            if self.picks_at_random {
                let frame = self.take_current(guard.slot, request.migratetype);
                out[count] = self.blocks.pfn_of(frame.expect("the word has a free frame"));
                count += 1;
                continue;
            }
            let first = self.blocks.pfn_of(word * WORD_FRAMES).get();
            let left = fill(&mut out[count..], free, first);
            count += (free.count_ones() - left.count_ones()) as usize;
            self.blocks.set_free(word as usize, left);
        }
        guard.slot.note_alloc(count as u64);
        self.note_numa(cpu, zones, request, zone, FrameCount::new(count as u64));
        count
    }

    /// Frees blocks up to the first that cannot be freed.
    pub(super) fn free_many(
        &self,
        context: Context<'_, P>,
        blocks: &[Pfn],
        order: Order,
    ) -> Result<(), BulkFreeError> {
        let mut freed = 0;
        while let Some(&first) = blocks.get(freed) {
            let run = match order {
                Order::ZERO => self.free_word(context, &blocks[freed..]),
                _ => 0,
            };
            freed += run;
            if run == 0 {
                self.free_block(context, first, order)
                    .map_err(|error| BulkFreeError { freed, error })?;
                freed += 1;
            }
        }
        Ok(())
    }

    /// Frees the first few frames if they lie in one word and are allocations of their own, all of
    /// them at once; returns how many.
    fn free_word(&self, context: Context<'_, P>, frames: &[Pfn]) -> usize {
        let Some(first) = self.blocks.index_of(frames[0]) else { return 0 };
        let word = first / WORD_FRAMES;
        let base = self.blocks.pfn_of(word * WORD_FRAMES).get();
        let (mut mask, mut count) = (0_u64, 0);
        for pfn in frames {
            let bit = pfn.get().wrapping_sub(base);
            if bit >= u64::from(WORD_FRAMES) || mask >> bit & 1 == 1 {
                break;
            }
            mask |= 1 << bit;
            count += 1;
        }
        let word = word as usize;
        // The state first: see `free_block`.
        let state = self.blocks.state(BlockIndex::of_word(word));
        let free = self.blocks.free_or_remote(word);
        if !state.is_split() || !self.blocks.are_single(word, mask) || mask & free != 0 {
            return 0;
        }
        match self.free_single(context, state, word, mask) {
            Ok(()) => count,
            Err(_) => 0,
        }
    }
}

/// Writes the numbers of the frames of a word into `out`, lowest first, until it is full; returns
/// the frames that are left.
fn fill(out: &mut [Pfn], free: u64, first: u64) -> u64 {
    if free == !0 && out.len() >= WORD_FRAMES as usize {
        for (nth, pfn) in out[..WORD_FRAMES as usize].iter_mut().enumerate() {
            *pfn = Pfn::new(first + nth as u64);
        }
        return 0;
    }
    let mut left = free;
    for pfn in out {
        if left == 0 {
            break;
        }
        *pfn = Pfn::new(first + u64::from(left.trailing_zeros()));
        left &= left - 1;
    }
    left
}

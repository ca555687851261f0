//! How many frames a CPU caches, and how many move to or from the zone at a time.
//!
//! `auto` follows Linux 6.12 (`zone_batchsize`, `zone_highsize`, `nr_pcp_alloc`, `nr_pcp_free`,
//! `nr_pcp_high`, `decay_pcp_high`), and assumes that every CPU's share of the cache is large
//! (`PCPF_FREE_HIGH_BATCH`); from 6.16 it has the length of a run of small blocks that are returned
//! (Nikhil Dhama, *mm: pcp: increase pcp->free_count threshold to trigger free_high*, v3 of April
//! 2025), without which a program that forks and exits drains its lists again and again.
//! `fixed` follows 4.16: single frames only, with a constant batch and high mark.

use super::pcp::PerCpuPages;
use freehold::compact::COSTLY_ORDER;
use freehold::platform::{Platform, SharedCell};
use freehold::units::{FrameCount, FrameSize, Order};

/// How the per-CPU lists are sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpMode {
    /// Constants, for order 0 only, as in Linux 4.16.
    Fixed {
        /// Frames that move at a time.
        batch: u32,
        /// Number of frames at which a batch is returned.
        high: u32,
    },
    /// Tuned to the size of the zone and to recent events, as in Linux 6.12.
    Auto {
        /// The most powers of two by which a move exceeds a batch (`CONFIG_PCP_BATCH_SCALE_MAX`).
        batch_scale: u32,
    },
}

/// The bounds within which a CPU's lists of one zone are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) batch: u32,
    pub(crate) high_min: u32,
    pub(crate) high_max: u32,
}

impl PcpMode {
    /// Whether blocks of this order are cached as in Linux: orders 0 to 3 and a pageblock's, or
    /// only single frames if the lists are fixed.
    #[inline(always)]
    pub(crate) const fn caches(&self, order: Order) -> bool {
        match self {
            PcpMode::Fixed { .. } => order.get() == 0,
            PcpMode::Auto { .. } => {
                order.get() <= COSTLY_ORDER.get() || order.get() == Order::PAGEBLOCK.get()
            }
        }
    }

    /// Frames that move at a time to or from a zone of `managed` frames of this size.
    pub(crate) fn batch(&self, managed: FrameCount, frame_size: FrameSize) -> u32 {
        match *self {
            PcpMode::Fixed { batch, .. } => batch,
            PcpMode::Auto { .. } => batch_for(managed, frame_size),
        }
    }

    /// The most frames that move under one hold of the zone lock.
    pub(crate) fn hold_frames_max<P: Platform>(&self, pcp: &PerCpuPages<P>) -> u32 {
        match *self {
            PcpMode::Fixed { batch, .. } => batch,
            PcpMode::Auto { batch_scale } => pcp.batch.get() << batch_scale,
        }
    }

    /// Whether a drain takes from all lists in turn, rather than emptying one after the other.
    pub(crate) fn drains_in_turn(&self) -> bool {
        matches!(self, PcpMode::Fixed { .. })
    }

    /// The bounds for a zone of `managed` frames of this size, with a low watermark of `low` frames
    /// and so many CPUs near it.
    pub(crate) fn limits(
        &self,
        managed: FrameCount,
        low: FrameCount,
        cpus: usize,
        frame_size: FrameSize,
    ) -> Limits {
        match *self {
            PcpMode::Fixed { batch, high } => Limits { batch, high_min: high, high_max: high },
            PcpMode::Auto { .. } => {
                let batch = batch_for(managed, frame_size);
                let share = |frames: u64| {
                    let share = frames / (cpus.max(1) as u64);
                    u32::try_from(share).unwrap_or(u32::MAX / 2).max(batch * 4)
                };
                // Up to an eighth of the zone may be on per-CPU lists.
                let (min, max) = (share(low.get()), share(managed.get() / 8));
                Limits { batch, high_min: min, high_max: max.max(min) }
            }
        }
    }

    /// How many blocks to take from the zone for a list that has run empty.
    pub(crate) fn refill<P: Platform>(
        &self,
        pcp: &PerCpuPages<P>,
        order: Order,
        below_high: bool,
    ) -> u32 {
        let batch = pcp.batch.get();
        let PcpMode::Auto { batch_scale } = *self else { return batch };
        let (high_min, high_max) = (pcp.high_min.get(), pcp.high_max.get());
        let mut high = pcp.high.get();
        let mut count = if order == Order::ZERO { batch << pcp.alloc_factor.get() } else { batch };
        if high_min != high_max && !below_high {
            high = (high + count).min(high_max);
        }
        pcp.high.set(high);
        if order == Order::ZERO {
            let most = high.saturating_sub(pcp.count.get()).saturating_sub(batch).max(batch);
            // Allocations without frees in between double the refill.
            if count <= most && pcp.alloc_factor.get() < batch_scale {
                pcp.alloc_factor.set(pcp.alloc_factor.get() + 1);
            }
            count = count.min(most);
        }
        if count > 1 { (count >> order.get()).max(2) } else { count }
    }

    /// Notes that so many blocks were allocated.
    #[inline]
    pub(crate) fn note_alloc<P: Platform>(&self, pcp: &PerCpuPages<P>, blocks: usize) {
        if let PcpMode::Auto { .. } = self {
            pcp.free_count.set(halve(pcp.free_count.get(), blocks));
        }
    }

    /// Notes that so many blocks were freed and put on a list; returns how many frames to drain,
    /// if any.
    #[inline]
    pub(crate) fn note_free<P: Platform>(
        &self,
        pcp: &PerCpuPages<P>,
        order: Order,
        blocks: usize,
        below_high: impl FnOnce() -> bool,
    ) -> Option<u32> {
        match *self {
            PcpMode::Fixed { batch, high } => {
                let count = pcp.count.get();
                (count >= high).then(|| batch.max(count - high + 1))
            }
            PcpMode::Auto { batch_scale } => tune_free(pcp, order, blocks, batch_scale, below_high),
        }
    }

    /// Lowers the high mark of an idle CPU; returns how many frames exceed it.
    pub(crate) fn decay<P: Platform>(&self, pcp: &PerCpuPages<P>) -> u32 {
        let (count, high, high_min) = (pcp.count.get(), pcp.high.get(), pcp.high_min.get());
        if let PcpMode::Auto { .. } = self
            && high > high_min
        {
            let most = self.hold_frames_max(pcp);
            pcp.high.set(count.saturating_sub(most).max(high - (high >> 3)).max(high_min));
        }
        count.saturating_sub(pcp.high.get())
    }
}

/// `value` halved so many times.
#[inline]
fn halve(value: u32, times: usize) -> u32 {
    value >> times.min(31)
}

#[inline]
fn tune_free<P: Platform>(
    pcp: &PerCpuPages<P>,
    order: Order,
    blocks: usize,
    batch_scale: u32,
    below_high: impl FnOnce() -> bool,
) -> Option<u32> {
    pcp.alloc_factor.set(halve(pcp.alloc_factor.get(), blocks));
    let (batch, count) = (pcp.batch.get(), pcp.count.get());
    let small_block = order != Order::ZERO && order <= COSTLY_ORDER;
    // A run of frees of small blocks, as when a process that used them exits: return them all, so
    // that other CPUs can use them while they are still in a shared cache.
    let run = batch + pcp.high_min.get() / 2;
    let run_of_blocks = small_block
        && pcp.free_count.get() >= run
        && pcp.freed_high_order.get() != 0
        && count >= batch;
    pcp.freed_high_order.set(u32::from(small_block));
    let most = batch << batch_scale;
    if pcp.free_count.get() < most {
        pcp.free_count.set(pcp.free_count.get() + ((blocks as u32) << order.get()));
    }
    let high = tune_high(pcp, most, count, run_of_blocks, below_high);
    if count < high {
        return None;
    }
    Some(if run_of_blocks {
        count.min(most)
    } else if high < batch {
        1
    } else {
        // Keep a batch, and free more the longer the run of frees has been.
        let most = (high - batch).max(batch);
        pcp.free_count.get().clamp(batch, most).max(count - high)
    })
}

/// The mark above which frames are returned, after adapting it to what was just freed.
#[inline]
fn tune_high<P: Platform>(
    pcp: &PerCpuPages<P>,
    most: u32,
    count: u32,
    run_of_blocks: bool,
    below_high: impl FnOnce() -> bool,
) -> u32 {
    let batch = pcp.batch.get();
    let (high_min, high_max, high) = (pcp.high_min.get(), pcp.high_max.get(), pcp.high.get());
    if run_of_blocks {
        pcp.high.set(high.saturating_sub(most).max(high_min));
        return 0;
    }
    if high_min == high_max {
        return high;
    }
    let freed = pcp.free_count.get();
    if below_high() {
        pcp.high.set(high.saturating_sub(freed.max(batch)).max(high_min));
        return count.max(high_min);
    }
    if count >= high && high < freed + batch {
        // The mark should leave room for a whole run of frees next time.
        pcp.high.set((freed + batch).clamp(high_min, high_max));
    }
    high
}

/// Linux's `zone_batchsize`: a thousandth of the zone or 1 MiB, whichever is less, as frames; of
/// that a quarter and an eighth, rounded down to one less than a power of two. 63 for zones of
/// 1 GiB and more with frames of 4 KiB, 15 with 16 KiB, 3 with 64 KiB; 1 at the least.
fn batch_for(managed: FrameCount, frame_size: FrameSize) -> u32 {
    const MOST_BYTES: usize = 1 << 20;
    let most = (MOST_BYTES / frame_size.bytes()) as u64;
    let quarter = ((managed.get() >> 10).min(most) / 4).max(1);
    let batch = quarter + quarter / 2;
    (((1u64 << batch.ilog2()) - 1) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;

    const GIB: u64 = 1 << 18;

    const AUTO: PcpMode = PcpMode::Auto { batch_scale: 5 };

    #[test]
    fn orders_0_to_3_and_pageblocks_are_cached_or_single_frames_alone() {
        let orders = |mode: PcpMode| {
            Order::ZERO.to(Order::BUDDY_MAX).filter(move |&order| mode.caches(order))
        };
        let largest = Order::PAGEBLOCK.get();
        assert!(orders(AUTO).map(Order::get).eq([0, 1, 2, 3, largest]));
        assert!(orders(PcpMode::Fixed { batch: 1, high: 1 }).map(Order::get).eq([0]));
    }

    fn pages(limits: Limits) -> PerCpuPages<TestPlatform> {
        let pcp: PerCpuPages<TestPlatform> = PerCpuPages::new();
        pcp.batch.set(limits.batch);
        pcp.high_min.set(limits.high_min);
        pcp.high_max.set(limits.high_max);
        pcp.high.set(limits.high_min);
        pcp
    }

    fn auto_limits() -> Limits {
        AUTO.limits(FrameCount::new(16 * GIB), FrameCount::new(16 * 1024), 8, FrameSize::MIN)
    }

    #[test]
    fn batches_follow_the_size_of_the_zone() {
        let batch = |frames| batch_for(FrameCount::new(frames), FrameSize::MIN);
        // Of a thousandth, at most 256 frames, a quarter and an eighth.
        assert_eq!([GIB, 64 * GIB, GIB / 16, 100].map(batch), [63, 63, 3, 1]);
    }

    #[test]
    fn batches_of_larger_frames_have_as_many_bytes() {
        let batch = |frames, frame_kib: usize| {
            batch_for(FrameCount::new(frames), FrameSize::new(frame_kib << 10).unwrap())
        };
        // 1 MiB is 64 frames of 16 KiB: 16 + 8 = 24, so 16 - 1.
        assert_eq!([GIB / 4, 64 * GIB, GIB / 8].map(|frames| batch(frames, 16)), [15, 15, 7]);
        // 1 MiB is 16 frames of 64 KiB: 4 + 2 = 6, so 4 - 1.
        assert_eq!([GIB / 16, 64 * GIB, GIB / 64].map(|frames| batch(frames, 64)), [3, 3, 1]);
        // Half a frame.
        assert_eq!(batch(64 * GIB, 2048), 1);
    }

    #[test]
    fn limits_share_the_zone_between_the_cpus_near_it() {
        let limits = auto_limits();
        assert_eq!(limits, Limits { batch: 63, high_min: 2048, high_max: 65_536 });
        let fixed = PcpMode::Fixed { batch: 31, high: 186 };
        let limits = fixed.limits(FrameCount::new(GIB), FrameCount::new(1), 8, FrameSize::MIN);
        assert_eq!(limits, Limits { batch: 31, high_min: 186, high_max: 186 });
    }

    #[test]
    fn refills_double_while_only_allocations_come() {
        let pcp = pages(auto_limits());
        let refills: [u32; 7] = core::array::from_fn(|_| AUTO.refill(&pcp, Order::ZERO, false));
        assert_eq!(refills, [63, 126, 252, 504, 1008, 2016, 2016]);
        // 2048 + 63 * (1 + 2 + 4 + 8 + 16 + 32 + 32)
        assert_eq!(pcp.high.get(), 2048 + 63 * 95);
    }

    #[test]
    fn the_scale_bounds_what_moves_at_a_time() {
        let pcp = pages(auto_limits());
        assert_eq!(AUTO.hold_frames_max(&pcp), 2016);
        let small = PcpMode::Auto { batch_scale: 0 };
        assert_eq!(small.hold_frames_max(&pcp), 63);
        let refills: [u32; 3] = core::array::from_fn(|_| small.refill(&pcp, Order::ZERO, false));
        assert_eq!(refills, [63; 3]);
    }

    #[test]
    fn a_zone_that_runs_low_gets_no_larger_lists() {
        let pcp = pages(auto_limits());
        AUTO.refill(&pcp, Order::ZERO, true);
        assert_eq!(pcp.high.get(), 2048);
    }

    #[test]
    fn larger_blocks_come_in_smaller_numbers() {
        let pcp = pages(auto_limits());
        assert_eq!(AUTO.refill(&pcp, Order::new(3), false), 7);
        assert_eq!(AUTO.refill(&pcp, Order::PAGEBLOCK, false), 2);
    }

    #[test]
    fn drains_grow_with_the_run_of_frees() {
        let pcp = pages(auto_limits());
        let mut drained = None;
        for count in 1..=2048 {
            pcp.count.set(count);
            drained = AUTO.note_free(&pcp, Order::ZERO, 1, || false);
            assert!(drained.is_none() || count == 2048, "{count}");
        }
        // free_count stops at 2016; one batch stays.
        assert_eq!(drained, Some(2048 - 63));
        assert_eq!(pcp.high.get(), 2016 + 63);
    }

    #[test]
    fn a_run_of_small_blocks_goes_back_at_once() {
        let pcp = pages(auto_limits());
        let mut drained = None;
        for blocks in 1..=137 {
            assert_eq!(drained, None);
            pcp.count.set(blocks * 8);
            drained = AUTO.note_free(&pcp, Order::new(3), 1, || false);
        }
        // 136 blocks make free_count 1088, at least a batch of 63 and half of 2048 when the next
        // one comes.
        assert_eq!(drained, Some(137 * 8));
    }

    #[test]
    fn quiet_lists_decay() {
        let pcp = pages(auto_limits());
        pcp.high.set(8000);
        pcp.count.set(8000);
        assert_eq!(AUTO.decay(&pcp), 1000);
        pcp.count.set(0);
        assert_eq!(AUTO.decay(&pcp), 0);
        assert_eq!(pcp.high.get(), 7000 - 875);
    }

    #[test]
    fn fixed_mode_drains_a_batch_at_the_mark() {
        let mode = PcpMode::Fixed { batch: 31, high: 186 };
        let limits = mode.limits(FrameCount::new(GIB), FrameCount::ZERO, 1, FrameSize::MIN);
        let pcp = pages(limits);
        pcp.count.set(185);
        assert_eq!(mode.note_free(&pcp, Order::ZERO, 1, || false), None);
        pcp.count.set(186);
        assert_eq!(mode.note_free(&pcp, Order::ZERO, 1, || false), Some(31));
        assert_eq!(mode.refill(&pcp, Order::ZERO, false), 31);
    }
}

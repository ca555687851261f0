//! How much of a zone is kept back, and from whom.
//!
//! After Linux 6.12 (`__setup_per_zone_wmarks`, `setup_per_zone_lowmem_reserve`,
//! `__zone_watermark_ok`).

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{Platform, Word};
use crate::units::{FrameCount, FrameSize, ZoneKind};

/// How deep a request may dip into a zone's reserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Watermark {
    /// Down to the high watermark: what stays free when nothing presses.
    High,
    /// Down to the low watermark: for work that can wait until memory is reclaimed.
    Low,
    /// Down to the minimum, after every zone has been tried down to its low watermark: the
    /// ordinary request.
    #[default]
    Min,
    /// Down to half of the minimum (Linux's `GFP_HIGH`, and tasks that exit to free memory).
    MinHalf,
    /// Down to three eighths of the minimum (`GFP_ATOMIC`): urgent requests that cannot wait.
    Atomic,
    /// Everything (`PF_MEMALLOC`): for work that frees memory in order to free memory.
    Ignore,
}

const _: () = assert!(
    Watermark::ALL.len() == Watermark::Ignore as usize + 1,
    "a class is missing in `Watermark::ALL`"
);

impl Watermark {
    /// All classes, from the one that leaves most.
    pub const ALL: [Self; 6] =
        [Self::High, Self::Low, Self::Min, Self::MinHalf, Self::Atomic, Self::Ignore];

    /// The class of the first round: everybody leaves the low watermark alone while another zone
    /// can serve.
    #[inline]
    pub const fn at_first(self) -> Self {
        match self {
            Watermark::High => Watermark::High,
            _ => Watermark::Low,
        }
    }
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Watermark::High => "high",
            Watermark::Low => "low",
            Watermark::Min => "min",
            Watermark::MinHalf => "min/2",
            Watermark::Atomic => "atomic",
            Watermark::Ignore => "none",
        })
    }
}

/// The marks of one zone, in frames. Written under the hotplug lock; read by everybody.
pub struct Watermarks<P: Platform> {
    min: P::U64,
    low: P::U64,
    high: P::U64,
    /// By the zone limit of a request: how much is kept for requests that cannot use the zones
    /// above this one.
    reserve: [P::U64; ZoneKind::COUNT],
}

/// The marks of one zone as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Below it, only urgent requests are served.
    pub min: FrameCount,
    /// Below it, reclaim should start.
    pub low: FrameCount,
    /// Up to it, reclaim should go on.
    pub high: FrameCount,
    /// By zone limit: how much is kept for requests that cannot use higher zones.
    pub lowmem_reserve: [FrameCount; ZoneKind::COUNT],
}

impl<P: Platform> Watermarks<P> {
    pub fn new() -> Self {
        let zero = || P::U64::new(0);
        let reserve = core::array::from_fn(|_| zero());
        Watermarks { min: zero(), low: zero(), high: zero(), reserve }
    }

    // Relaxed throughout: marks change only when memory is added, and a request that still sees
    // the old ones is as good as one that came a moment earlier.

    pub fn set(&self, marks: &Marks) {
        self.min.store(marks.min.get(), Relaxed);
        self.low.store(marks.low.get(), Relaxed);
        self.high.store(marks.high.get(), Relaxed);
        for (word, reserve) in self.reserve.iter().zip(marks.lowmem_reserve) {
            word.store(reserve.get(), Relaxed);
        }
    }

    #[inline]
    pub fn get(&self) -> Marks {
        let count = |word: &P::U64| FrameCount::new(word.load(Relaxed));
        Marks {
            min: count(&self.min),
            low: count(&self.low),
            high: count(&self.high),
            lowmem_reserve: core::array::from_fn(|limit| count(&self.reserve[limit])),
        }
    }

    /// How many frames must stay free after a request of this class; `None` if none need to.
    #[inline]
    pub fn floor(&self, class: Watermark, limit: ZoneKind) -> Option<u64> {
        let mark = match class {
            Watermark::High => self.high.load(Relaxed),
            Watermark::Low => self.low.load(Relaxed),
            Watermark::Ignore => return None,
            Watermark::Min => self.min.load(Relaxed),
            Watermark::MinHalf => half(self.min.load(Relaxed)),
            Watermark::Atomic => {
                let half = half(self.min.load(Relaxed));
                half - half / 4
            }
        };
        Some(mark + self.reserve[limit.index()].load(Relaxed))
    }
}

const fn half(min: u64) -> u64 {
    min - min / 2
}

/// What the marks are computed from: a zone's kind and size.
#[derive(Clone, Copy, Debug)]
pub struct ZoneSize {
    pub kind: ZoneKind,
    pub managed: FrameCount,
}

/// How many frames the minimum watermarks keep back over all zones: the square root of 16 times
/// the memory in KiB, in KiB, at least 128 KiB and at most 256 MiB, rounded down to whole frames
/// (Linux's `calculate_min_free_kbytes`).
pub fn min_free(lowmem: FrameCount, frame_size: FrameSize) -> FrameCount {
    let min_free_kib = lowmem.get().saturating_mul(frame_size.kib() * 16).isqrt();
    FrameCount::new(min_free_kib.clamp(128, 262_144) / frame_size.kib())
}

/// The marks of one zone. `min_free` is shared out over `lowmem`, all memory outside the movable
/// zones, and is at most that; `of_node` gives the managed size of the zones of the same node, by
/// kind.
pub fn marks(
    zone: ZoneSize,
    min_free: FrameCount,
    lowmem: FrameCount,
    of_node: [FrameCount; ZoneKind::COUNT],
) -> Marks {
    let managed = zone.managed.get();
    let min = if zone.kind == ZoneKind::Movable {
        // Nothing but movable content comes here, so a token reserve does.
        if min_free == FrameCount::ZERO { 0 } else { (managed / 1024).clamp(32, 128) }
    } else {
        share(min_free.min(lowmem).get(), managed, lowmem.get())
    };
    // A thousandth of the zone, Linux's `watermark_scale_factor`, if that is more.
    let gap = if min == 0 { 0 } else { (min / 4).max(managed / 1000) };
    let mut above = 0;
    let mut lowmem_reserve = [FrameCount::ZERO; ZoneKind::COUNT];
    for limit in ZoneKind::ALL.into_iter().filter(|&limit| limit > zone.kind) {
        above += of_node[limit.index()].get();
        if let Some(ratio) = reserve_ratio(zone.kind) {
            lowmem_reserve[limit.index()] = FrameCount::new(above / ratio);
        }
    }
    Marks {
        min: FrameCount::new(min),
        low: FrameCount::new(min + gap),
        high: FrameCount::new(min + 2 * gap),
        lowmem_reserve,
    }
}

/// `amount * part / whole`, or 0 if there is nothing. `amount` and `part` are at most `whole`, a
/// number of frames: below 2^32, as indexes of frames are.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    (amount * part).checked_div(whole).unwrap_or(0)
}

/// Linux's `sysctl_lowmem_reserve_ratio`: one frame is kept for so many in the zones above.
const fn reserve_ratio(kind: ZoneKind) -> Option<u64> {
    match kind {
        ZoneKind::Dma | ZoneKind::Dma32 => Some(256),
        ZoneKind::Normal => Some(32),
        ZoneKind::Movable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 18;

    #[test]
    fn min_free_follows_the_square_root_within_bounds() {
        let frames = |kib: usize, frame_kib: usize| {
            let size = FrameSize::new(frame_kib << 10).unwrap();
            min_free(FrameCount::new((kib / frame_kib) as u64), size).get()
        };
        // 1 GiB: sqrt(16 * 1048576 KiB) = 4096 KiB.
        assert_eq!([4, 16, 64].map(|size| frames(1 << 20, size)), [1024, 256, 64]);
        // 8 GiB: sqrt(16 * 8388608 KiB) = 11585 KiB, rounded down to whole frames.
        assert_eq!([4, 16, 64].map(|size| frames(8 << 20, size)), [2896, 724, 181]);
        // The least is 128 KiB, the most 256 MiB.
        assert_eq!([4, 16, 64].map(|size| frames(256, size)), [32, 8, 2]);
        assert_eq!([4, 16, 64].map(|size| frames(64 << 30, size)), [65_536, 16_384, 4096]);
        // A frame larger than what is kept back: nothing is.
        assert_eq!(frames(4 << 20, 1 << 20), 0);
    }

    #[test]
    fn marks_share_min_free_and_keep_lower_zones_for_those_who_need_them() {
        let of_node = [0, GIB, 3 * GIB, GIB].map(FrameCount::new);
        let lowmem = FrameCount::new(4 * GIB);
        let min_free = FrameCount::new(2048);
        let size = |kind, managed| ZoneSize { kind, managed: FrameCount::new(managed) };
        let dma32 = marks(size(ZoneKind::Dma32, GIB), min_free, lowmem, of_node);
        assert_eq!(dma32.min, FrameCount::new(512));
        // The gap is a thousandth of the zone, which is more than a quarter of min.
        assert_eq!(dma32.low, FrameCount::new(512 + 262));
        assert_eq!(dma32.high, FrameCount::new(512 + 524));
        let expected = [0, 0, 3 * GIB / 256, 4 * GIB / 256].map(FrameCount::new);
        assert_eq!(dma32.lowmem_reserve, expected);
        let movable = marks(size(ZoneKind::Movable, GIB), min_free, lowmem, of_node);
        assert_eq!(movable.min, FrameCount::new(128));
        assert_eq!(movable.lowmem_reserve, [FrameCount::ZERO; 4]);
    }

    #[test]
    fn no_reserve_at_all_when_none_is_wanted() {
        let of_node = [FrameCount::ZERO; 4];
        let zone = ZoneSize { kind: ZoneKind::Movable, managed: FrameCount::new(GIB) };
        let marks = marks(zone, FrameCount::ZERO, FrameCount::ZERO, of_node);
        assert_eq!(marks, Marks::default());
    }

    #[test]
    fn more_than_there_is_is_all_there_is() {
        let of_node = [FrameCount::ZERO; 4];
        let zone = ZoneSize { kind: ZoneKind::Normal, managed: FrameCount::new(1000) };
        let of = |min_free| marks(zone, FrameCount::new(min_free), FrameCount::new(4000), of_node);
        let marks = of(4000);
        let frames = [marks.min, marks.low, marks.high].map(FrameCount::get);
        assert_eq!(frames, [1000, 1250, 1500]);
        assert_eq!([4001, 1 << 60, u64::MAX].map(of), [marks; 3]);
    }
}

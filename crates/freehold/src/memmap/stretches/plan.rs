//! Which stretches a configuration has, and where their indexes begin.

use super::grow::SLOT_FRAMES;
use super::{ALIGNED_FRAMES, Stretch};
use crate::config::{Config, MemoryRange};
use crate::error::Error;
use crate::memmap::index::FrameRange;
use crate::units::{FrameCount, Order, Pfn};

/// Ranges with a gap of so many frames between them are in stretches of their own: more than the
/// indexes that another stretch may cost for its alignment.
const GAP_FRAMES: u64 = 2 * ALIGNED_FRAMES;

/// The stretches of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct StretchesPlan {
    pub(super) near: Stretch,
    /// How many far ones there are or may come to be.
    pub(super) far: usize,
    /// One more than the last index.
    pub(super) frames: u64,
}

impl StretchesPlan {
    /// Looks at all ranges for each stretch.
    ///
    /// # Errors
    ///
    /// [`Error::BadTopology`] if there is no memory, nor a span, nor room; [`Error::SpanTooLarge`]
    /// if there are more than 2^32 indexes.
    pub fn new(config: &Config<'_>) -> Result<Self, Error> {
        let longer = |near: (u64, u64), span: (u64, u64)| {
            if span.1 - span.0 > near.1 - near.0 { span } else { near }
        };
        let (room, slots) = config.room.unwrap_or((FrameCount::ZERO, 0));
        // With nothing but room, no stretch is near.
        let none = config.room.map(|_| (0, 0));
        let (first, end) = spans(config).reduce(longer).or(none).ok_or(Error::BadTopology)?;
        let near = Stretch { first: Pfn::new(first), frames: end - first, index: 0 };
        let (far, frames) =
            stretches(config, near).fold((0, 0), |(count, _), stretch| (count + 1, stretch.end()));
        let far = (far - 1_usize).saturating_add(slots);
        let block = Order::BUDDY_MAX.frames().get();
        let of_slots = SLOT_FRAMES.saturating_mul(slots as u64);
        let room = room.get().checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let frames = frames.saturating_add(of_slots).saturating_add(room);
        let is_too_high = spans(config).any(|(_, end)| end == u64::MAX);
        // Links are 32 bits wide, and one value ends a list.
        if is_too_high || frames >= u64::from(u32::MAX) {
            return Err(Error::SpanTooLarge);
        }
        Ok(StretchesPlan { near, far, frames })
    }

    /// The frame of index 0.
    pub fn first(&self) -> Pfn {
        self.near.first
    }

    /// One more than the last index.
    pub fn frames(&self) -> FrameCount {
        FrameCount::new(self.frames)
    }

    /// The ranges of the configuration with their indexes, by stretches. Looks at all ranges for
    /// each stretch.
    pub fn places<'a>(
        &self,
        config: &'a Config<'a>,
    ) -> impl Iterator<Item = (&'a MemoryRange, FrameRange)> + use<'a> {
        stretches(config, self.near).flat_map(|stretch| {
            let place = move |range: &MemoryRange| stretch.locate(range.start, range.frames.get());
            config.ranges.iter().filter_map(move |range| Some((range, place(range)?)))
        })
    }
}

/// All stretches, the near one first, and the others by rising numbers.
pub(super) fn stretches<'a>(
    config: &'a Config<'a>,
    near: Stretch,
) -> impl Iterator<Item = Stretch> + use<'a> {
    let mut taken = near.frames;
    let far = spans(config).filter(move |span| span.0 != near.first.get());
    let far = far.map(move |(first, end)| {
        let index = index_behind(taken, first, near.first);
        let stretch = Stretch { first: Pfn::new(first), frames: end - first, index };
        taken = stretch.end();
        stretch
    });
    core::iter::once(near).chain(far)
}

/// The index at which a stretch begins whose first frame is given, behind `taken` indexes, if that
/// of index 0 is `near`.
pub(super) fn index_behind(taken: u64, first: u64, near: Pfn) -> u64 {
    let least = taken.saturating_add(Order::BUDDY_MAX.frames().get());
    let offset = first.wrapping_sub(near.get()) % ALIGNED_FRAMES;
    least.saturating_add(offset.wrapping_sub(least) % ALIGNED_FRAMES)
}

/// The first frame of each stretch and the one behind it, rounded outwards to the largest block of
/// a buddy system, by rising numbers. One that ends too high for that ends at `u64::MAX`.
fn spans<'a>(config: &'a Config<'a>) -> impl Iterator<Item = (u64, u64)> + 'a {
    let span = config.span.filter(|_| config.room.is_none());
    let given = span.map(|(first, frames)| (first.get(), first.get() + frames.get()));
    let next = move |from: u64| match given {
        Some(given) => (from == 0).then_some(given),
        None => span_of_ranges(config, from),
    };
    core::iter::successors(next(0), move |&(_, end)| next(end)).map(|(first, end)| {
        let block = Order::BUDDY_MAX.frames().get();
        (first / block * block, end.checked_next_multiple_of(block).unwrap_or(u64::MAX))
    })
}

/// The ranges from a frame on that have no large gap between them.
fn span_of_ranges(config: &Config<'_>, from: u64) -> Option<(u64, u64)> {
    let ends = || config.ranges.iter().map(|range| (range.start.get(), range.end().get()));
    let first = ends().map(|(start, _)| start).filter(|&start| start >= from).min()?;
    let mut end = first;
    loop {
        let before = end;
        for (start, to) in ends() {
            if start >= first && start.saturating_sub(end) < GAP_FRAMES && to > end {
                end = to;
            }
        }
        if end == before {
            return Some((first, end));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::memmap::index::FrameIndex;
    use crate::units::NodeId;

    const GIB: u64 = ALIGNED_FRAMES;

    fn range(first: u64, frames: u64) -> MemoryRange {
        MemoryRange::new(Pfn::new(first), FrameCount::new(frames))
    }

    fn checked(ranges: &[MemoryRange]) -> Vec<Stretch> {
        let cpus = [NodeId::new(0)];
        let config = Config::new(ranges, &cpus);
        let plan = StretchesPlan::new(&config).unwrap();
        let all: Vec<_> = stretches(&config, plan.near).collect();
        assert_eq!(plan.frames(), FrameCount::new(all.last().unwrap().end()));
        assert_eq!((all.len(), all[0].index), (plan.far + 1, 0));
        // All of it that code on indexes relies on.
        assert_eq!(plan.places(&config).count(), ranges.len());
        for (range, place) in plan.places(&config) {
            let last = FrameIndex(place.end.0 - 1);
            let both = [(range.start, place.first), (Pfn::new(range.end().get() - 1), last)];
            for (pfn, index) in both {
                let offset = pfn.get().wrapping_sub(plan.first().get());
                assert_eq!(u64::from(index.0) % GIB, offset % GIB);
            }
        }
        for pair in all.windows(2) {
            assert!(pair[0].end() + Order::BUDDY_MAX.frames().get() <= pair[1].index);
        }
        all
    }

    #[test]
    fn near_ranges_are_one_stretch_with_what_lies_between() {
        let block = Order::BUDDY_MAX.frames().get();
        let all = checked(&[range(5, 7), range(GIB, 100), range(2 * GIB, 1)]);
        let whole = Stretch { first: Pfn::new(0), frames: 2 * GIB + block, index: 0 };
        assert_eq!(all, [whole]);
    }

    #[test]
    fn what_lies_far_apart_has_stretches_of_its_own_the_longest_from_index_0_on() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let ranges = [
                range(GIB / 2, GIB),
                range(2048 * GIB, 254 * GIB),
                range(2048 * GIB + 300 * GIB, GIB),
                range((1 << 40) - GIB, GIB),
            ];
            let all = checked(&order.map(|nth: usize| ranges[nth]));
            assert_eq!(all.len(), 4);
            assert_eq!((all[0].first, all[0].frames), (Pfn::new(2048 * GIB), 254 * GIB));
            assert!(all[1..].is_sorted_by_key(|stretch| stretch.first));
            assert!(all[3].end() < 262 * GIB, "the gaps cost next to nothing");
        }
    }

    #[test]
    fn room_costs_what_is_asked_for_whatever_the_span() {
        let (cpus, ranges) = ([NodeId::new(0)], [range(0, GIB)]);
        let frames = |config: &Config<'_>| StretchesPlan::new(config).unwrap().frames().get();
        let roomy = |span| Config::new(&ranges, &cpus).span(span).room((FrameCount::new(GIB), 3));
        for span in [None, Some((Pfn::new(0), FrameCount::new(1 << 40)))] {
            assert_eq!(frames(&roomy(span)), 2 * GIB + 3 * SLOT_FRAMES);
        }
        let too_much = (FrameCount::new(u64::MAX), usize::MAX);
        let refused = StretchesPlan::new(&Config::new(&ranges, &cpus).room(too_much));
        assert_eq!(refused.unwrap_err(), Error::SpanTooLarge);
    }

    #[test]
    fn the_highest_frames_are_refused_only_if_there_are_too_many() {
        let ranges = [range(0, 1 << 31), range(1 << 45, 1 << 31)];
        let config = Config::new(&ranges, &[]);
        assert_eq!(StretchesPlan::new(&config).unwrap_err(), Error::SpanTooLarge);
        checked(&[range(0, 1 << 30), range(1 << 45, 1 << 30), range(u64::MAX - (1 << 20), 512)]);
    }
}

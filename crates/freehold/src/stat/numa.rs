//! Whether frames came from the preferred node.

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{Platform, Word};
use crate::request::Request;
use crate::units::{FrameCount, NodeId};

/// Linux's NUMA events for one zone: where its frames were wanted, and by which CPUs. All are
/// counted in frames, where Linux counts calls whatever the order.
///
/// Exact whenever no call is under way. Otherwise each CPU may lag by what its last call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaEvents {
    /// Came from this zone, and its node was the preferred one, or the nearest to that with memory
    /// of the kind wanted.
    pub hit: FrameCount,
    /// Came from this zone, although another node was preferred.
    pub miss: FrameCount,
    /// Were preferred from this zone, and came from another node.
    pub foreign: FrameCount,
    /// Came from this zone to a CPU of its node.
    pub local: FrameCount,
    /// Came from this zone to a CPU of another node.
    pub other: FrameCount,
    /// Came from this zone because interleaving chose its node.
    pub interleave_hit: FrameCount,
}

impl NumaEvents {
    /// The names of the counts: Linux's, in its order.
    pub const NAMES: [&'static str; 6] =
        ["numa_hit", "numa_miss", "numa_foreign", "numa_interleave", "numa_local", "numa_other"];

    /// All counts with their names.
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        let NumaEvents { hit, miss, foreign, local, other, interleave_hit } = *self;
        let counts = [hit, miss, foreign, interleave_hit, local, other];
        core::array::from_fn(|nth| (Self::NAMES[nth], counts[nth].get()))
    }

    /// Hits are frames taken that are not misses. The two are not read at one moment, and a CPU
    /// mistaken about its number counts them in two places, so only the sums are meaningful.
    #[doc(hidden)]
    pub fn count_hits(&mut self) {
        let taken = self.local + self.other;
        self.hit = FrameCount::new(taken.get().saturating_sub(self.miss.get()));
    }

    /// Adds the events of another zone to these.
    pub fn add(&mut self, zone: &NumaEvents) {
        self.hit += zone.hit;
        self.miss += zone.miss;
        self.foreign += zone.foreign;
        self.local += zone.local;
        self.other += zone.other;
        self.interleave_hit += zone.interleave_hit;
    }
}

/// What one CPU counts of them for one zone: the exceptions. Everything else follows from what the
/// CPU took from the zone, which is known anyway, so an allocation without an exception counts
/// nothing. Words, since nothing guards them.
#[doc(hidden)]
pub struct NumaExceptions<P: Platform> {
    miss: P::U64,
    foreign: P::U64,
    interleave_hit: P::U64,
}

impl<P: Platform> NumaExceptions<P> {
    #[doc(hidden)]
    pub fn new() -> Self {
        let zero = || P::U64::new(0);
        NumaExceptions { miss: zero(), foreign: zero(), interleave_hit: zero() }
    }

    /// Counts frames that came from a zone other than the preferred one, each of these with its
    /// node, or from the node that interleaving chose: the request's, which is filled in.
    #[doc(hidden)]
    pub fn note(
        request: &Request,
        (preferred, wanted): (NodeId, &Self),
        (node, from): (NodeId, &Self),
        frames: FrameCount,
    ) {
        // Relaxed: counters that order nothing.
        let count = |word: &P::U64| {
            word.fetch_add(frames.get(), Relaxed);
        };
        if node != preferred {
            count(&from.miss);
            count(&wanted.foreign);
        }
        if request.is_interleaved() && request.preferred_node() == Some(node) {
            count(&from.interleave_hit);
        }
    }

    /// Adds the events of a CPU that took so many frames from the zone, and is near it or not.
    /// [`NumaEvents::count_hits`] computes the hits once all CPUs have been added.
    #[doc(hidden)]
    pub fn add_to(&self, events: &mut NumaEvents, taken: FrameCount, is_near: bool) {
        // Relaxed: as in `note`.
        let frames = |word: &P::U64| FrameCount::new(word.load(Relaxed));
        events.miss += frames(&self.miss);
        events.foreign += frames(&self.foreign);
        events.interleave_hit += frames(&self.interleave_hit);
        *if is_near { &mut events.local } else { &mut events.other } += taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_of_zones_add_up_and_have_linuxs_names() {
        let frames = FrameCount::new;
        let one = NumaEvents {
            hit: frames(1),
            miss: frames(2),
            foreign: frames(3),
            local: frames(4),
            other: frames(5),
            interleave_hit: frames(6),
        };
        let mut sum = one;
        sum.add(&one);
        let expected = [
            ("numa_hit", 2),
            ("numa_miss", 4),
            ("numa_foreign", 6),
            ("numa_interleave", 12),
            ("numa_local", 8),
            ("numa_other", 10),
        ];
        assert_eq!(sum.by_name(), expected);
    }
}

//! What is left of content that was evicted: a word, for its owner to keep.

use crate::id::Place;
use crate::kind::Kind;

/// What is left of content that was evicted, for its owner to keep in the index in place of the
/// frame: which list it was on, and how much was evicted before. When the content is read again,
/// [`Lru::refault`](crate::Lru::refault) tells from it whether the content should have stayed.
///
/// A word of 62 bits. Owners that keep all of them forget the oldest at some point: those of as
/// many frames as the group may have are useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shadow(u64);

const CLOCK_BITS: u32 = 28;
const CLOCK: u32 = (1 << CLOCK_BITS) - 1;

impl Shadow {
    /// A shadow of nothing, which refaults from nowhere.
    pub(crate) const NONE: Self = Shadow((1 << 62) - 1);

    /// The word, whose two highest bits are clear.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The shadow of this word. Any word is safe: a wrong one is no shadow, or makes a wrong guess.
    pub const fn from_bits(bits: u64) -> Self {
        Shadow(bits)
    }

    pub(crate) fn new(place: Place, generation: u8, kind: Kind, active: bool, clock: u32) -> Self {
        let marks = (kind as u64) << 1 | u64::from(active);
        let place = u64::from(place.slot) << 8 | u64::from(place.node);
        let clock = u64::from(clock & CLOCK);
        Shadow(((place << 8 | u64::from(generation)) << 2 | marks) << CLOCK_BITS | clock)
    }

    pub(crate) fn place(self) -> Place {
        let place = self.0 >> (CLOCK_BITS + 10);
        Place { slot: (place >> 8) as u16, node: (place & 0xff) as u16 }
    }

    pub(crate) fn generation(self) -> u8 {
        (self.0 >> (CLOCK_BITS + 2)) as u8
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> (CLOCK_BITS + 1) & 1) as usize]
    }

    pub(crate) fn was_active(self) -> bool {
        self.0 >> CLOCK_BITS & 1 != 0
    }

    /// The evictions, up to this reading of the clock.
    pub(crate) fn distance(self, clock: u32) -> u64 {
        u64::from(clock.wrapping_sub(self.0 as u32) & CLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SLOTS_MAX;

    #[test]
    fn a_shadow_keeps_what_it_is_told() {
        for (slot, node, generation, active) in [(65_534, 255, 255, true), (1, 0, 7, false)] {
            let place = Place { slot, node };
            for kind in Kind::ALL {
                let shadow = Shadow::new(place, generation, kind, active, u32::MAX - 3);
                assert_eq!((shadow.place(), shadow.generation()), (place, generation));
                assert_eq!((shadow.kind(), shadow.was_active()), (kind, active));
                assert_eq!((shadow.to_bits() >> 62, shadow.distance(6)), (0, 10));
                assert_eq!(Shadow::from_bits(shadow.to_bits()), shadow);
            }
        }
        assert_eq!(usize::from(Shadow::NONE.place().slot), SLOTS_MAX);
    }
}

//! Turns: places, each the lists of a group on a node, are visited one after the other, and a hunt
//! begins where the last one within the same group stopped on the same CPU. So CPUs that reclaim at
//! once do so at different places, and each by itself takes from all in proportion.

use core::sync::atomic::Ordering::Relaxed;

use super::hunt::Hunt;
use crate::groups::table::Groups;
use crate::id::Place;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::platform::{Platform, Word};

/// Whose turn it is: where a hunt stops, and the next one within the same group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) place: Place,
    /// How many frames of this place's share the last hunt has left; 0 for a new share.
    pub(super) left: u64,
}

impl Turn {
    fn of_bits(bits: u64) -> Self {
        let place = Place { slot: (bits >> 48) as u16, node: (bits >> 32) as u16 };
        Turn { place, left: bits & u64::from(u32::MAX) }
    }

    fn bits(self) -> u64 {
        let left = self.left.min(u64::from(u32::MAX));
        u64::from(self.place.slot) << 48 | u64::from(self.place.node) << 32 | left
    }
}

impl<P: Platform> Groups<P> {
    /// Where the next reclaim within a group begins on a CPU that knows of none.
    fn shared_turn(&self, slot: u16) -> Turn {
        // Relaxed: any place is correct, and so is any rest of a share.
        Turn::of_bits(self.get(slot).turn.load(Relaxed))
    }

    fn share_turn(&self, slot: u16, bits: u64) {
        // Relaxed: as in `shared_turn`.
        self.get(slot).turn.store(bits, Relaxed);
    }
}

impl Hunt {
    /// The place that comes first.
    pub(super) fn first(&self) -> Place {
        Place { slot: self.above, node: self.nodes.start }
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Where the next hunt within a group begins on the running CPU.
    pub(super) fn turn(&self, above: u16) -> Option<Turn> {
        self.cpus.turn(&self.platform, above).map(Turn::of_bits)
    }

    /// Sets where the next hunt within a group begins on the running CPU.
    pub(super) fn set_turn(&self, above: u16, turn: Turn) {
        if let Some((above, bits)) = self.cpus.set_turn(&self.platform, above, turn.bits()) {
            self.groups.share_turn(above, bits);
        }
    }

    /// Where a hunt begins.
    pub(super) fn begin(&self, hunt: &Hunt) -> Turn {
        let known = self.turn(hunt.above);
        let turn = known.unwrap_or_else(|| self.groups.shared_turn(hunt.above));
        let place = turn.place;
        let exists = usize::from(place.slot) < self.groups.len();
        let turn = match exists && self.groups.is_below(place.slot, hunt.above) {
            true if hunt.nodes.contains(&place.node) => turn,
            true => Turn { place: Place { node: hunt.nodes.start, ..place }, left: 0 },
            false => Turn { place: hunt.first(), left: 0 },
        };
        if known.is_none() {
            // The next CPU that knows of none begins elsewhere.
            self.groups.share_turn(hunt.above, self.turn_after(turn.place, hunt).bits());
        }
        turn
    }

    /// The turn of the place that comes after another: all groups on one node, and then those on
    /// the next.
    pub(super) fn turn_after(&self, place: Place, hunt: &Hunt) -> Turn {
        let place = match self.groups.after(place.slot, hunt.above) {
            Some(slot) => Place { slot, ..place },
            None if place.node + 1 < hunt.nodes.end => {
                Place { slot: hunt.above, node: place.node + 1 }
            }
            None => hunt.first(),
        };
        Turn { place, left: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_fits_its_word() {
        for (slot, node, left) in [(0, 0, 0), (65_534, 255, u32::MAX.into()), (7, 1, 31)] {
            let turn = Turn { place: Place { slot, node }, left };
            assert_eq!(Turn::of_bits(turn.bits()), turn);
        }
    }
}

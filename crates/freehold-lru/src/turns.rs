//! Which groups reclaim takes frames from, and in what order: they take turns, and bear in
//! proportion to their size, however much is reclaimed at a time.

use core::sync::atomic::Ordering::Relaxed;

use super::balance::{Carry, Level, PRIORITY};
use super::group::Groups;
use super::kind::List;
use super::protect::Protection;
use super::reclaim::{Hunt, Progress};
use super::vec::Place;
use super::{Lru, Owner};
use freehold::platform::{Platform, Word};

/// In a round, as many frames are scanned as are wanted, but at least so many for each place. So a
/// hunt for few frames visits few places, and what a place pays at a time is still little.
const FRAMES_A_PLACE: u64 = 2;

/// What is within reach is counted again once so many frames for each place, or this part of them,
/// were reclaimed: so counting costs little for each frame, and the count is not old.
const REACH_PLACES: u32 = 4;
const REACH_PART: u32 = 16;

/// Of lists whose frames were all refused by their owner, a hunt scans about this part of what is
/// within reach, or so many frames: it notices if the owner has changed its mind.
const REFUSED_PRIORITY: u32 = 10;
const REFUSED_FRAMES: u64 = 256;

/// A round of a hunt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) pass: usize,
    pub(super) priority: u32,
    /// Whether it scans no more of a list than what its owner has not just refused.
    pub(super) skips_refused: bool,
}

/// Where a reclaim stops, and the next one within the same group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    place: Place,
    /// How many frames of the part that this place was to bear were not scanned.
    left: u64,
}

impl Turn {
    fn of_bits(bits: u64) -> Self {
        let place = Place { slot: (bits >> 48) as u16, node: (bits >> 32) as usize & 0xffff };
        Turn { place, left: bits & u64::from(u32::MAX) }
    }

    fn bits(self) -> u64 {
        let left = self.left.min(u64::from(u32::MAX));
        u64::from(self.place.slot) << 48 | (self.place.node as u64) << 32 | left
    }
}

/// What there is within reach of a hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    frames: u32,
    /// Lruvecs, empty ones included.
    places: u32,
}

/// How many frames are on lists that reclaim takes from.
fn evictable(sizes: &[u32; List::COUNT]) -> u64 {
    List::EVICTABLE.iter().map(|&list| u64::from(sizes[list as usize])).sum()
}

impl<P: Platform> Groups<P> {
    /// Where the next reclaim within a group begins.
    fn turn(&self, slot: u16) -> Turn {
        // Relaxed: any place is correct, and so is any part.
        Turn::of_bits(self.get(slot).turn.load(Relaxed))
    }

    /// Sets where the next reclaim within a group begins.
    fn set_turn(&self, slot: u16, turn: Turn) {
        // Relaxed: as in `turn`.
        self.get(slot).turn.store(turn.bits(), Relaxed);
    }

    /// What was within reach of hunts of a kind when it was last counted, unless much was reclaimed
    /// since then, or hunts of another kind came between.
    fn reach(&self, slot: u16, kind: u32) -> Option<Reach> {
        let record = self.get(slot);
        // Relaxed: an estimate. Should another CPU be changing it, the next hunt finds a better
        // one.
        if record.reach_left.load(Relaxed) == 0 || record.reach_of.load(Relaxed) != kind {
            return None;
        }
        let bits = record.reach.load(Relaxed);
        Some(Reach { frames: bits as u32, places: (bits >> 32) as u32 })
    }

    /// Remembers what is within reach: for as many reclaimed frames as the count is worth.
    fn set_reach(&self, slot: u16, kind: u32, reach: Reach) {
        let record = self.get(slot);
        // Relaxed: as in `reach`.
        record.reach.store(u64::from(reach.places) << 32 | u64::from(reach.frames), Relaxed);
        record.reach_of.store(kind, Relaxed);
        let most = reach.places.saturating_mul(REACH_PLACES);
        record.reach_left.store(most.min(reach.frames / REACH_PART).max(reach.places / 4), Relaxed);
    }

    /// Notes that frames within reach were reclaimed.
    pub(super) fn spend_reach(&self, slot: u16, frames: u64) {
        let left = &self.get(slot).reach_left;
        // Relaxed: as in `reach`.
        let rest = u64::from(left.load(Relaxed)).saturating_sub(frames);
        left.store(rest as u32, Relaxed);
    }
}

impl Hunt {
    /// Tells hunts apart that have different frames within reach.
    fn kind(&self) -> u32 {
        (self.nodes.start as u32) << 12 | (self.nodes.end as u32) << 2 | self.zone as u32
    }

    /// The place that comes after another: all groups on one node, and then those on the next.
    fn next<P: Platform>(&self, groups: &Groups<P>, place: Place) -> Place {
        match groups.after(place.slot, self.above) {
            Some(slot) => Place { slot, ..place },
            None if place.node + 1 < self.nodes.end => {
                Place { slot: self.above, node: place.node + 1 }
            }
            None => Place { slot: self.above, node: self.nodes.start },
        }
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// The priority at which one round scans as many frames as are wanted. Linux begins with the
    /// highest, and scans twice as much from round to round; then those who come first in the last
    /// round of a hunt pay more than others.
    ///
    /// The second one is the last priority at which refused frames are scanned again.
    pub(super) fn priorities(&self, hunt: &Hunt) -> (u32, u32) {
        let kind = hunt.kind();
        let reach = self.groups.reach(hunt.above, kind).unwrap_or_else(|| {
            let reach = self.count_reach(hunt);
            self.groups.set_reach(hunt.above, kind, reach);
            reach
        });
        let least = hunt.wanted.max(u64::from(reach.places) * FRAMES_A_PLACE).max(1);
        let log2 = |least: u64| (u64::from(reach.frames) / least).checked_ilog2().unwrap_or(0);
        let first = log2(least).min(PRIORITY);
        (first, log2(REFUSED_FRAMES).min(REFUSED_PRIORITY).min(first))
    }

    fn count_reach(&self, hunt: &Hunt) -> Reach {
        // If the lock is held, another call is most likely counting, or will before long.
        if self.groups.is_any_protected()
            && let Some(tree) = self.groups.try_tree(&self.platform)
        {
            tree.count_protected(hunt.above);
        }
        let (mut frames, mut places) = (0, 0);
        for slot in self.groups.walk(hunt.above) {
            for node in hunt.nodes.clone() {
                frames += evictable(&self.vecs.sizes(Place { slot, node }, hunt.zone));
                places += 1;
            }
        }
        Reach { frames: frames.min(u32::MAX.into()) as u32, places }
    }

    /// Scans a part of each lruvec that the hunt may take frames of, in proportion to its size,
    /// beginning where the last hunt in this group stopped; returns whether there are enough.
    pub(super) fn round(&self, hunt: &Hunt, round: Round, progress: &mut Progress) -> bool {
        let first = Place { slot: hunt.above, node: hunt.nodes.start };
        let (mut place, left) = self.begin(hunt);
        if progress.done.reclaimed >= hunt.wanted {
            return true;
        }
        // Scans at a place; returns whether that is enough.
        let mut visit = |place, left| {
            let part = self.part(place, hunt, round, left, &mut progress.spared);
            let left = match part.iter().sum::<u64>() {
                0 => return false,
                _ => self.shrink(place, part, hunt, round.pass, progress),
            };
            let is_enough = progress.done.reclaimed >= hunt.wanted;
            if is_enough {
                let next = if left > 0 { place } else { hunt.next(&self.groups, place) };
                self.groups.set_turn(hunt.above, Turn { place: next, left });
            }
            is_enough
        };
        // What the last hunt has left over is no part of this round.
        if left > 0 {
            if visit(place, left) {
                return true;
            }
            place = hunt.next(&self.groups, place);
        }
        let (begin, mut laps) = (place, 0);
        loop {
            if visit(place, 0) {
                return true;
            }
            place = hunt.next(&self.groups, place);
            laps += u32::from(place == first);
            // Where a hunt has begun may be removed before it comes there again: then the second
            // lap is the last one.
            if laps > 0 && (place == begin || laps > 1) {
                self.groups.set_turn(hunt.above, Turn { place, left: 0 });
                return false;
            }
        }
    }

    /// Where a hunt begins, and how much of the part of that place is left to scan.
    fn begin(&self, hunt: &Hunt) -> (Place, u64) {
        let Turn { place, left } = self.groups.turn(hunt.above);
        let exists = usize::from(place.slot) < self.groups.len();
        match exists && self.groups.is_below(place.slot, hunt.above) {
            true if hunt.nodes.contains(&place.node) => (place, left),
            true => (Place { node: hunt.nodes.start, ..place }, 0),
            false => (Place { slot: hunt.above, node: hunt.nodes.start }, 0),
        }
    }

    /// How many frames of each list at a place to scan: of what an earlier hunt was to scan, or
    /// else of its size, without what is protected. Notes whether frames are spared because of a
    /// `low`.
    fn part(
        &self,
        place: Place,
        hunt: &Hunt,
        round: Round,
        rest: u64,
        spared: &mut bool,
    ) -> [u64; List::COUNT] {
        let mut sizes = self.vecs.sizes(place, hunt.zone);
        // A walk may leave the tree below `above` when groups come and go.
        if evictable(&sizes) == 0 || !self.groups.is_below(place.slot, hunt.above) {
            return [0; List::COUNT];
        }
        let Protection { min, low } = self.groups.protection(place.slot, hunt.above);
        let spares = if hunt.heeds_low { low.max(min) } else { min };
        if spares > 0 {
            *spared |= hunt.heeds_low && low > min;
            let charged = self.groups.charged(place.slot).max(1);
            let open = charged.saturating_sub(spares);
            sizes = sizes.map(|size| (u64::from(size) * open / charged) as u32);
        }
        let priority = round.priority;
        if round.skips_refused {
            for list in List::EVICTABLE {
                let size = &mut sizes[list as usize];
                *size = (*size).min(self.vecs.not_refused(place, list));
            }
        }
        if rest > 0 {
            let level = self.level(place, sizes);
            let part = level.targets(self.swappiness, priority, &mut Carry::default());
            let sum = part.iter().sum::<u64>().max(1);
            return part.map(|frames| (frames * rest).div_ceil(sum).min(frames));
        }
        let mut carry = self.vecs.carry(place);
        let mut part = |list: List| carry.part(list, sizes[list as usize].into(), priority);
        let part = match List::EVICTABLE.iter().map(|&list| part(list)).sum::<u64>() {
            // Without a look at the costs.
            0 => [0; List::COUNT],
            _ => {
                carry = self.vecs.carry(place);
                self.level(place, sizes).targets(self.swappiness, priority, &mut carry)
            }
        };
        self.vecs.set_carry(place, carry);
        // At the last priority, everything is scanned whatever was scanned before.
        if priority == 0 {
            return part;
        }
        let mut part = part;
        for list in List::EVICTABLE {
            part[list as usize] = self.vecs.less_debt(place, list, part[list as usize]);
        }
        part
    }

    fn level(&self, place: Place, sizes: [u32; List::COUNT]) -> Level {
        Level { sizes, costs: self.vecs.costs(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ROOT_0, Says, fill, lru};
    use super::super::{GroupId, LruSettings, Verdict};
    use super::*;
    use freehold::units::ZoneKind;

    #[test]
    fn what_is_within_reach_is_counted_again_after_a_part_of_it() {
        let lru = lru(Says(Verdict::Drop), LruSettings::default());
        let groups = &lru.groups;
        // Four for each place, but at most a sixteenth, and at least one for four places.
        for (frames, places, left) in [(160_000, 10, 40), (320, 10, 20), (1600, 1000, 250)] {
            let reach = Reach { frames, places };
            groups.set_reach(0, 7, reach);
            groups.spend_reach(0, left - 1);
            assert_eq!((groups.reach(0, 7), groups.reach(0, 8)), (Some(reach), None));
            groups.spend_reach(0, 1);
            assert_eq!(groups.reach(0, 7), None, "{frames} frames, {places} places");
        }
    }

    #[test]
    fn hunts_of_other_nodes_and_zones_have_another_reach() {
        let mut kinds: [u32; 12] = core::array::from_fn(|nth| {
            let nodes = [0..1, 1..2, 0..2, 1..256][nth / 3].clone();
            let zone = [ZoneKind::Dma, ZoneKind::Normal, ZoneKind::Movable][nth % 3];
            Hunt { above: 0, nodes, zone, wanted: 1, heeds_low: true }.kind()
        });
        kinds.sort_unstable();
        assert!(kinds.windows(2).all(|pair| pair[0] != pair[1]), "{kinds:?}");
    }

    /// A hunt that has what it wanted leaves the rest of the part for the next one.
    #[test]
    fn a_place_bears_all_of_its_part() {
        let lru = lru(Says(Verdict::Drop), LruSettings::default());
        fill(&lru, 0..2000, GroupId::ROOT);
        fill(&lru, 4096..6096, GroupId::ROOT);
        let hunt = lru.hunt_within(0, 1);
        lru.hunt(&hunt).expect("it is the only one");
        let turn = lru.groups.turn(0);
        assert_eq!((turn.place, turn.left > 0), (ROOT_0, true), "{turn:?}");
        while lru.groups.turn(0).place == ROOT_0 {
            lru.hunt(&hunt).expect("it is the only one");
        }
        // Of 4,000 frames at two places, a round scans a 512th.
        let left = lru.vecs.sizes(ROOT_0, ZoneKind::Movable).iter().sum::<u32>();
        assert_eq!(left, 2000 - 2000 / 512);
    }

    #[test]
    fn a_turn_fits_its_word() {
        for (slot, node, left) in [(0, 0, 0), (65_534, 255, u32::MAX.into()), (7, 1, 31)] {
            let turn = Turn { place: Place { slot, node }, left };
            assert_eq!(Turn::of_bits(turn.bits()), turn);
        }
    }
}

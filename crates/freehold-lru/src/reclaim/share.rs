//! How many frames each group bears of what a reclaim asks for.
//!
//! # The rule
//!
//! *Groups bear in proportion to their size beyond what is protected*, however much is reclaimed at
//! a time. A hunt wants a number of frames from the places within its reach; a place is one group
//! on one node, and has the lists of that group there.
//!
//! 1. **Reach.** Count the frames on lists that reclaim takes from, and the places.
//! 2. **Priority.** At priority p, a round scans one frame in 2^p of each list. The first round has
//!    the highest priority, up to 12, at which that is as many frames as are wanted, and two for
//!    each place. So a hunt for few frames visits few places.
//! 3. **Open frames.** A list is open but for its part of what is protected of its group. Rounds at
//!    low priorities leave out what its owner has just refused.
//! 4. **Share.** The share of a place is one in 2^p of the open frames of each list, weighed by
//!    kind. What is left over, less than a frame, is carried to the next visit, so that small lists
//!    bear as well. What was scanned beyond an earlier share is taken off: blocks are scanned as a
//!    whole.
//! 5. **Turns.** Places take turns, and each scans its share. The hunt stops as soon as it has
//!    enough. The next one within the same group begins there, with what is left of the share.
//! 6. **More rounds.** The first round passes by places whose lock another call holds: a later
//!    share has what they did not bear, a batch at most. If that was not enough, another one waits
//!    for locks. A round that was not enough is followed by another one: like it, if it got a
//!    quarter of what was missing, or else at the next lower priority, down to 0, at which all that
//!    is open is scanned. What comes then is in `passes`.
//!
//! # Example
//!
//! On one node, group A has 3,000 frames that nobody uses. B has 1,000, and a `min` of 500; the
//! root has none. A hunt wants 32.
//!
//! 1. Within reach are 4,000 frames at three places.
//! 2. One in 2^6 is 62 frames, one in 2^7 only 31: the priority is 6.
//! 3. All 3,000 frames of A are open, and of B 1,000 * (1,000 - 500) / 1,000 = 500.
//! 4. A's share is 3,000 / 64 = 46 frames, and 56/64 are carried; B's is 7, and 52/64 are carried.
//! 5. B comes first and gives 7, then A gives 25 of its 46, and the hunt has 32. The next hunt
//!    begins with the other 21 of A. The root has nothing to give. B has 493 open frames: 493 / 64
//!    and 52/64 are 8 to give. The last 3 come from A's next share.
//!
//! So of seven frames, A gives six, and B one.

use super::hunt::{Hunt, Progress, Round};
use super::reach::evictable;
use super::turn::Turn;
use super::weights::Level;
use crate::groups::bounds::Protection;
use crate::id::Place;
use crate::kind::{List, PerList};
use crate::lists::carry::{Carry, PRIORITY_MAX};
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::LruPolicy;
use freehold::platform::Platform;

/// A round scans at least so many frames for each place: what a place gives at a time is still
/// little.
const FRAMES_A_PLACE: u64 = 2;

/// Of lists whose frames were all refused by their owner, a hunt scans about this part of what is
/// within reach, or so many frames: it notices if the owner has changed its mind.
const REFUSED_PRIORITY: u32 = 10;
const REFUSED_FRAMES: u64 = 256;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Steps 1 and 2: the priority of the first round; and the last one at which refused frames are
    /// scanned again.
    ///
    /// Linux begins with the highest priority, and scans twice as much from round to round; then
    /// those who come first in the last round of a hunt bear more than others.
    pub(super) fn priorities(&self, hunt: &Hunt) -> (u32, u32) {
        let reach = self.reach(hunt);
        let least = hunt.wanted.max(u64::from(reach.places) * FRAMES_A_PLACE).max(1);
        // The highest priority at which a round scans so many frames.
        let highest = |least: u64| (u64::from(reach.frames) / least).checked_ilog2().unwrap_or(0);
        let first = highest(least).min(PRIORITY_MAX);
        (first, highest(REFUSED_FRAMES).min(REFUSED_PRIORITY).min(first))
    }

    /// Step 5: the places within reach take turns; returns whether there are enough.
    pub(super) fn round(&self, hunt: &Hunt, round: Round, progress: &mut Progress) -> bool {
        let mut turn = self.begin(hunt);
        if progress.done.reclaimed >= hunt.wanted {
            return true;
        }
        // What the last hunt has left over is no part of this round.
        if turn.left > 0 {
            if self.visit(turn, hunt, round, progress) {
                return true;
            }
            turn = self.turn_after(turn.place, hunt);
        }
        let (begin, mut laps) = (turn.place, 0);
        loop {
            if self.visit(turn, hunt, round, progress) {
                return true;
            }
            turn = self.turn_after(turn.place, hunt);
            laps += u32::from(turn.place == hunt.first());
            // Where a hunt has begun may be removed before it comes there again: then the second
            // lap is the last one.
            if laps > 0 && (turn.place == begin || laps > 1) {
                self.set_turn(hunt.above, turn);
                return false;
            }
        }
    }

    /// Scans the share of the place whose turn it is; returns whether there are enough, and notes
    /// then where the next hunt begins.
    fn visit(&self, turn: Turn, hunt: &Hunt, round: Round, progress: &mut Progress) -> bool {
        let place = turn.place;
        let share = self.share(turn, hunt, round, &mut progress.spared);
        if share.iter().sum::<u64>() == 0 {
            return false;
        }
        let left = self.scan(place, share, hunt, round, progress);
        if progress.done.reclaimed < hunt.wanted {
            return false;
        }
        let turn = if left > 0 { Turn { place, left } } else { self.turn_after(place, hunt) };
        self.set_turn(hunt.above, turn);
        true
    }

    /// Scans the share of a place, until there are enough; returns how many frames of it are left
    /// then.
    fn scan(
        &self,
        place: Place,
        share: PerList<u64>,
        hunt: &Hunt,
        round: Round,
        progress: &mut Progress,
    ) -> u64 {
        let _scan = self.vecs.shard(place.shard(self.near())).begin_scan();
        match self.policy {
            LruPolicy::TwoLists => self.shrink_two_lists(place, share, hunt, round, progress),
            LruPolicy::ScanResistant => self.shrink_resistant(place, share, hunt, round, progress),
        }
    }

    /// How many frames of each list of a place to scan: its share, or what an earlier hunt has left
    /// of it. Notes whether frames are spared because of a `low`.
    fn share(&self, turn: Turn, hunt: &Hunt, round: Round, spared: &mut bool) -> PerList<u64> {
        let (place, priority) = (turn.place, round.priority);
        let Some(open) = self.open(place, hunt, round, spared) else { return [0; List::COUNT] };
        match turn.left {
            0 => self.new_share(place, open, priority),
            left => self.left_of_share(place, open, priority, left),
        }
    }

    /// Step 3: the open frames of each list, if any frames there can be reclaimed.
    fn open(
        &self,
        place: Place,
        hunt: &Hunt,
        round: Round,
        spared: &mut bool,
    ) -> Option<PerList<u32>> {
        // When all of it is scanned, to the last frame.
        let mut open = match round.priority {
            0 => self.vecs.exact_sizes(place, hunt.zone),
            _ => self.vecs.sizes(place, hunt.zone),
        };
        // A walk may leave the tree below `above` when groups come and go.
        if evictable(&open) == 0 || !self.groups.is_below(place.slot, hunt.above) {
            return None;
        }
        let Protection { min, low } = self.groups.protection(place.slot, hunt.above);
        let protected = if hunt.heeds_low { low.max(min) } else { min };
        if protected > 0 {
            *spared |= hunt.heeds_low && low > min;
            let charged = self.groups.charged(place.slot).max(1);
            let rest = charged.saturating_sub(protected);
            for size in &mut open {
                *size = (u64::from(*size) * rest / charged) as u32;
            }
        }
        if round.skips_refused {
            for list in List::EVICTABLE {
                let open = &mut open[list as usize];
                *open = (*open).min(self.vecs.not_refused(place, list));
            }
        }
        Some(open)
    }

    /// Step 4: one in 2^p of the open frames, weighed by kind, with what was carried, less what was
    /// scanned beyond earlier shares.
    fn new_share(&self, place: Place, open: PerList<u32>, priority: u32) -> PerList<u64> {
        // What is left over stays with the CPU, if the lists are divided.
        let near = self.vecs.shard(place.shard(self.near()));
        let mut carry = near.carry();
        let mut share = carry.divide(&open, priority);
        // Without a whole frame, there is nothing to weigh.
        if share.iter().sum::<u64>() > 0 {
            carry = near.carry();
            share = carry.divide(&self.weighed(place, open, priority), priority);
        }
        near.set_carry(carry);
        // At the last priority, everything is scanned whatever was scanned before.
        if priority > 0 {
            for list in List::EVICTABLE {
                let part = near.less_debt(list, share[list as usize]);
                share[list as usize] = part.min(open[list as usize].into());
            }
        }
        share
    }

    /// What is left of a share, spread over the lists as a new share is.
    fn left_of_share(
        &self,
        place: Place,
        open: PerList<u32>,
        priority: u32,
        left: u64,
    ) -> PerList<u64> {
        let share = Carry::default().divide(&self.weighed(place, open, priority), priority);
        let sum = share.iter().sum::<u64>().max(1);
        share.map(|frames| (frames * left).div_ceil(sum).min(frames))
    }

    fn weighed(&self, place: Place, open: PerList<u32>, priority: u32) -> PerList<u64> {
        let level = Level { open, costs: self.vecs.costs(place) };
        level.weighed(self.swappiness, priority == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPlatform;
    use crate::tests::{ROOT_0, Says, fill, lru};
    use crate::{GroupId, LruSettings, Verdict};
    use freehold::units::{FrameCount, ZoneKind};

    /// Groups of 3,000 and of 1,000 frames.
    fn two_groups(lru: &Lru<TestPlatform, Says>) -> [GroupId; 2] {
        [0..3000, 3000..4000].map(|frames| {
            let group = lru.create_group(GroupId::ROOT, None).expect("there is room");
            fill(lru, frames, group);
            group
        })
    }

    /// How many frames each of them has given since.
    fn given(lru: &Lru<TestPlatform, Says>, groups: [GroupId; 2]) -> [u64; 2] {
        let [a, b] = groups.map(|group| lru.group_stats(group).unwrap().charged.get());
        [3000 - a, 1000 - b]
    }

    /// The example at the head of this file.
    #[test]
    fn groups_bear_in_proportion_to_what_is_open() {
        let lru = lru(Says(Verdict::Drop), LruSettings::default());
        let groups @ [_, b] = two_groups(&lru);
        lru.set_min(b, FrameCount::new(500)).expect("it is there");
        let hunt = Hunt { nodes: 0..1, ..lru.hunt_within(0, 32) };
        let reach = lru.reach(&hunt);
        assert_eq!((reach.frames, reach.places, lru.priorities(&hunt).0), (4000, 3, 6));
        let given_after = |hunts| {
            (0..hunts).for_each(|_| _ = lru.hunt(&hunt).expect("it is the only one"));
            given(&lru, groups)
        };
        assert_eq!((given_after(1), given_after(1)), ([25, 7], [25 + 24, 7 + 8]));
        let [of_a, of_b] = given_after(68);
        assert_eq!(of_a + of_b, 70 * 32);
        assert!(of_b.abs_diff(70 * 32 / 7) < 8, "{of_b}: within a share");
    }

    /// Of a place whose lock another call holds, the share is borne later.
    #[test]
    fn a_locked_place_is_passed_by_and_bears_later() {
        let lru = lru(Says(Verdict::Drop), LruSettings::default());
        let groups @ [_, b] = two_groups(&lru);
        let hunt = Hunt { nodes: 0..1, ..lru.hunt_within(0, 33) };
        assert_eq!(lru.priorities(&hunt).0, 6, "shares are 46 and 15 frames, and some 64ths");
        let given_after_hunt = || {
            lru.hunt(&hunt).expect("it is the only one");
            given(&lru, groups)
        };
        let locked = lru.vecs.lock_at(&TestPlatform, Place { slot: b.slot(), node: 0 }.shard(0));
        assert_eq!(given_after_hunt(), [33, 0]);
        drop(locked);
        assert_eq!(given_after_hunt(), [46, 20], "what A has left, and then of 16 + 15");
        assert_eq!(given_after_hunt(), [68, 31]);
    }

    /// A hunt that has what it wanted leaves the rest of the part for the next one.
    #[test]
    fn a_place_bears_all_of_its_part() {
        let lru = lru(Says(Verdict::Drop), LruSettings::default());
        fill(&lru, 0..2000, GroupId::ROOT);
        fill(&lru, 4096..6096, GroupId::ROOT);
        let hunt = lru.hunt_within(0, 1);
        lru.hunt(&hunt).expect("it is the only one");
        let turn = lru.turn(0).expect("a hunt has stopped");
        assert_eq!((turn.place, turn.left > 0), (ROOT_0, true), "{turn:?}");
        while lru.turn(0).expect("as before").place == ROOT_0 {
            lru.hunt(&hunt).expect("it is the only one");
        }
        // Of 4,000 frames at two places, a round scans a 512th.
        let left = lru.vecs.sizes(ROOT_0, ZoneKind::Movable).iter().sum::<u32>();
        assert_eq!(left, 2000 - 2000 / 512);
    }
}

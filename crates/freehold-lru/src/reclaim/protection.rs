//! How much of a group is protected from a reclaim: of what it asks for, as much as the groups
//! above it have (Linux's `effective_protection`, without recursive protection).
//!
//! # The rule
//!
//! 1. A reclaim within a group does not heed what that group asks for itself.
//! 2. Those right below it have what they ask for, up to what is charged to them.
//! 3. Further down, a group shares what it has. If those below ask for no more than that, as far as
//!    they use it, each has what it asks for; or else a part in proportion to what it asks for and
//!    uses.
//!
//! # Example
//!
//! A reclaim of everything finds a group with a `min` of 100, and below it X, which asks for 80 and
//! uses all of it, and Y, which asks for 120 and uses 40. They use 120 of 100: so X has 80 * 100 /
//! 120 = 66, and Y 40 * 100 / 120 = 33.

use core::sync::atomic::Ordering::Relaxed;

use crate::groups::bounds::Protection;
use crate::groups::table::Groups;
use crate::groups::tree::TreeGuard;
use crate::id::NO_SLOT;
use freehold::platform::{Platform, Word};

impl<P: Platform> Groups<P> {
    /// How many frames of a group a reclaim in `above` leaves alone.
    ///
    /// Cost: with the square of the depth, once a group is protected.
    pub(super) fn protection(&self, slot: u16, above: u16) -> Protection {
        if slot == above || !self.is_any_protected() {
            return Protection::default();
        }
        let chain = || self.chain(slot).take(self.len()).take_while(|&at| at != above);
        let mut shared = None;
        // From the top down.
        for height in (0..chain().count()).rev() {
            let Some(at) = chain().nth(height) else { break };
            let usage = self.charged(at);
            let mine = match shared {
                None => self.get(at).wanted(),
                Some(shared) => self.part(at, shared),
            };
            shared = Some(mine.up_to(usage));
        }
        shared.unwrap_or_default()
    }

    /// A group's part of what the group above it has.
    fn part(&self, slot: u16, shared: Protection) -> Protection {
        let record = self.get(slot);
        let (used, by_all) = (record.used(), self.get(self.parent(slot)).used_below());
        let wanted = record.wanted();
        Protection {
            min: part(wanted.min, used.min, by_all.min, shared.min),
            low: part(wanted.low, used.low, by_all.low, shared.low),
        }
    }
}

/// A group's part of what is shared: what it asks for, or a part in proportion to what it asked for
/// and used when that was last counted, if all of them used more than there is.
fn part(wanted: u64, used: u64, used_by_all: u64, shared: u64) -> u64 {
    match used_by_all > shared {
        // All are numbers of frames: below 2^32, as indexes of frames are.
        true => used * shared / used_by_all,
        false => wanted.min(shared),
    }
}

impl<P: Platform> TreeGuard<'_, P> {
    /// Counts what the groups below each group ask for and use.
    pub(super) fn count_protected(&self, above: u16) {
        let groups = self.groups();
        for slot in groups.walk(above) {
            let (mut min, mut low) = (0, 0);
            // Relaxed: only holders of this lock write links; recent values will do for the rest.
            let mut at = groups.get(slot).first_below.load(Relaxed) as u16;
            while at != NO_SLOT {
                let (record, usage) = (groups.get(at), groups.charged(at));
                let used = record.wanted().up_to(usage);
                record.min_used.store(used.min, Relaxed);
                record.low_used.store(used.low, Relaxed);
                min += used.min;
                low += used.low;
                at = groups.get(at).next.load(Relaxed) as u16;
            }
            groups.get(slot).min_below.store(min, Relaxed);
            groups.get(slot).low_below.store(low, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn groups_that_ask_for_too_much_share_what_there_is() {
        // The example at the head of this file.
        assert_eq!((part(80, 80, 120, 100), part(120, 40, 120, 100)), (66, 33));
        assert_eq!((part(30, 30, 50, 50), part(30, 30, 60, 40), part(30, 30, 60, 0)), (30, 20, 0));
        assert_eq!(part(u64::MAX, u32::MAX.into(), u32::MAX.into(), 7), 7);
        assert_eq!((part(0, 0, 0, 0), part(9, 0, 0, 5)), (0, 5));
    }
}

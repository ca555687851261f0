//! How long a call that needs frames tries: while reclaim finds some, and while other calls have
//! what there is isolated.

use crate::error::LruError;
use crate::id::Place;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::reclaim::hunt::{Hunt, Reclaimed};
use freehold::platform::Platform;

/// How often a request is retried that fails although reclaim freed something: other CPUs may take
/// what was reclaimed.
const ROUNDS: usize = 256;

/// The attempts of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    /// How many reclaims found something.
    rounds: usize,
    /// How often the call has waited since.
    waits: u32,
    /// Whether it has looked again since, without a reason to wait.
    looked_again: bool,
}

impl Attempts {
    /// Counts an attempt that made progress; returns whether there may be another one.
    pub(crate) fn again(&mut self) -> bool {
        *self = Attempts { rounds: self.rounds + 1, ..Attempts::default() };
        self.rounds < ROUNDS
    }
}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Whether a call may try again after this reclaim: it found something, or frames within its
    /// reach are isolated by others, for which the call waits.
    pub(crate) fn may_try_again(
        &self,
        hunt: &Hunt,
        done: Result<Reclaimed, LruError>,
        attempts: &mut Attempts,
    ) -> bool {
        let Ok(done) = done else { return false };
        if done.reclaimed > 0 {
            return attempts.again();
        }
        if self.is_any_scanned(hunt) {
            self.platform.relax();
            attempts.waits += 1;
            return self.owner.wait(attempts.waits - 1);
        }
        // Those that had frames isolated meanwhile may be done since.
        let looks_again = done.scanned == 0 && !attempts.looked_again;
        attempts.looked_again = true;
        looks_again
    }

    /// Whether other calls scan what is within reach, or began to before its group was removed.
    fn is_any_scanned(&self, hunt: &Hunt) -> bool {
        let is_scanned =
            |slot| hunt.nodes.clone().any(|node| self.vecs.is_scanned(Place { slot, node }));
        if self.groups.walk(hunt.above).any(is_scanned) {
            return true;
        }
        // If the lock is held, a group may just be leaving.
        self.groups.try_tree(&self.platform).is_none_or(|tree| {
            let is_below = |slot: &u16| self.groups.is_below(*slot, hunt.above);
            tree.removed().filter(is_below).any(is_scanned)
        })
    }
}

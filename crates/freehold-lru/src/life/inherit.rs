//! Frames of removed groups, which keep the number of their group until they are put on a list.

use crate::error::LruError;
use crate::frames::few::Few;
use crate::frames::state::{Motion, State};
use crate::id::{Place, ShardId};
use crate::kind::List;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use crate::settings::BATCH_MAX;
use freehold::platform::Platform;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Gives all frames of removed groups to the groups that inherited them, except those that are
    /// isolated right now, so that no slot stays taken for their sake.
    pub(crate) fn settle_removed(&self) {
        for slot in 1..self.groups.len() as u16 {
            let state = self.groups.state(slot);
            if state.is_live() || state.charged() == 0 {
                continue;
            }
            for node in 0..self.vecs.nodes() {
                let at = self.vecs.resolve(Place { slot, node }.shard(0), &self.groups);
                for id in self.vecs.shards(at.place) {
                    List::ALL.iter().for_each(|&list| self.settle_list(id, list));
                }
            }
        }
    }

    /// Turns a list once, so that its order stays, and puts frames of removed groups on it anew.
    fn settle_list(&self, at: ShardId, list: List) {
        let mut left = self.vecs.shard(at).size(list) as usize;
        while left > 0 {
            let mut gone = Few::new();
            let (few, turned) = self.take_inherited(at, list, left.min(BATCH_MAX));
            if turned == 0 {
                break; // another call has taken the last ones
            }
            self.put_back_all(few.iter().map(|frame| (frame, Motion::Keep)), &mut gone);
            self.release_few(&gone);
            left = left.saturating_sub(turned);
        }
    }

    /// Turns a list by so many frames, or somewhat more if the last one is a block; isolates those
    /// that are not of the group whose list it is. Returns them, and how many frames were turned.
    fn take_inherited(&self, at: ShardId, list: List, count: usize) -> (Few, usize) {
        let (lock, mut few) = (self.vecs.lock_at(&self.platform, at), Few::new());
        let mut turned = 0;
        if !lock.is_of(at.place) {
            return (few, 0);
        }
        let isolate = |state: State| match state.slot() == lock.id().place.slot {
            true => Err(LruError::FrameBusy),
            false => state.isolate(),
        };
        while turned < count {
            let Some(frame) = lock.oldest(list) else { break };
            turned += self.frames.state(frame).frames() as usize;
            match self.frames.change(frame, isolate) {
                Ok((before, _)) => {
                    lock.unlink(&self.frames, frame, before);
                    self.frames.update(frame, |state| self.frames.sharding.whole(state));
                    few.push(frame);
                }
                Err(_) => lock.rotate(&self.frames, frame, list),
            }
        }
        (few, turned)
    }
}

//! Eviction: isolates frames of a list, asks the owner about them, takes those that go, and puts
//! the others back.

use core::cell::Cell;

use super::hunt::{Reclaimed, Round, Taken};
use crate::error::LruError;
use crate::frames::few::Few;
use crate::frames::state::{Motion, State};
use crate::id::Place;
use crate::kind::{Kind, List};
use crate::lists::lock::ShardGuard;
use crate::lists::turns::Portion;
use crate::lru::Lru;
use crate::owner::claim::{Claim, Stage, Subject};
use crate::owner::protocol::{Owner, Verdict};
use crate::owner::shadow::Shadow;
use crate::settings::BATCH_MAX;
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::{Pfn, ZoneKind};

/// The cost of writing back a frame, in units of a frame put back unreclaimed (Linux's
/// `SWAP_CLUSTER_MAX`).
const WRITE_COST: u64 = 32;

/// The most frames of a list that are looked at during one hold of its lock.
const LOOKS_MAX: usize = 512;

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Isolates up to `count` of the frames that have been on a list longest, or somewhat more if
    /// the last one is a block. Frames that another call is isolating or releasing go to the other
    /// end, and so do those of zones that do not help, which are not counted (as in Linux), up to a
    /// bound for one hold of the lock. Frames of an active list that were used get another turn in
    /// their shard: between those of others, they would come up too early or too late.
    ///
    /// If the round [passes by](Round::passes_by) places whose lock is held, nothing is taken then,
    /// and a later part of the list is that much larger.
    pub(crate) fn take(
        &self,
        place: Place,
        list: List,
        zone: ZoneKind,
        round: Round,
        count: usize,
    ) -> Taken {
        let (mut taken, mut counted, near) = (Taken::default(), 0, self.near());
        // As often as there are shards, of which each may have a few.
        for _ in self.vecs.shards(place) {
            let wanted = count - counted;
            let Some(portion) = self.vecs.portion(place, list, near, wanted) else { break };
            let Some(lock) = self.lock_of(&portion, near, round) else {
                self.vecs.shard(place.shard(near)).note_missed(list, wanted as u32);
                taken.is_missed = true;
                break;
            };
            counted += self.take_of(&lock, portion, list, zone, &mut taken);
            if counted >= count {
                break;
            }
        }
        if counted > count {
            self.vecs.shard(place.shard(near)).add_debt(list, (counted - count) as u32);
        }
        taken
    }

    /// The lock for a portion, or for one of the CPU's own shard; none if a round passes by.
    fn lock_of(&self, portion: &Portion, near: usize, round: Round) -> Option<ShardGuard<'_, P>> {
        let try_lock = |id| self.vecs.try_lock_at(&self.platform, id);
        let own = match portion.is_distant {
            // No CPU waits for the lock of another shard as long as its own has frames.
            true => match try_lock(portion.id) {
                Some(lock) => return Some(lock),
                None => portion.id.place.shard(near),
            },
            false => portion.id,
        };
        match round.passes_by {
            true => try_lock(own),
            false => Some(self.vecs.lock_at(&self.platform, own)),
        }
    }

    /// Isolates frames of a list of one shard; returns how many, with those that were not.
    fn take_of(
        &self,
        lock: &ShardGuard<'_, P>,
        portion: Portion,
        list: List,
        zone: ZoneKind,
        taken: &mut Taken,
    ) -> usize {
        let count = portion.frames;
        if !lock.is_of(portion.id.place) {
            return 0;
        }
        self.vecs.note_turns(lock.id(), list, count);
        let isolate = |state: State| state.isolate().map(|held| self.frames.sharding.whole(held));
        let (mut counted, mut looked) = (0, 0);
        while counted < count && looked < LOOKS_MAX {
            let Some(frame) = lock.oldest(list) else { break };
            looked += 1;
            let state = self.frames.state(frame);
            if !state.is_within(zone) {
                lock.rotate(&self.frames, frame, list);
                continue;
            }
            counted += state.frames() as usize;
            if list.is_active() && state.is_used_since(self.policy) {
                self.frames.update(frame, |state| state.spared(self.policy));
                taken.spared += state.frames();
                lock.rotate(&self.frames, frame, list);
                continue;
            }
            match self.frames.change(frame, isolate) {
                Ok((before, _)) => {
                    lock.unlink_oldest(&self.frames, frame, before);
                    taken.few.push(frame);
                }
                Err(_) => lock.rotate(&self.frames, frame, list),
            }
        }
        counted
    }

    /// Asks the owner to drop frames of an lruvec, all of one list.
    pub(crate) fn evict(&self, place: Place, kind: Kind, few: Few) -> Reclaimed {
        let mut batch = Eviction::new(self, place, kind, few);
        let verdicts = batch.ask();
        // Those that waited longest are decided on last, and go back first, behind the others.
        for &verdict in verdicts[..few.iter().count()].iter().rev() {
            batch.decide(verdict);
        }
        let done = batch.done;
        drop(batch);
        if done.reclaimed > 0 {
            self.vecs.forget_refused(&self.platform, place, kind);
        }
        let cost = WRITE_COST * done.written + done.scanned - done.reclaimed;
        self.vecs.note_cost(place, kind, cost);
        done
    }
}

/// Isolated frames being decided on. In any case, even if the owner panics, those that were not
/// evicted go back on their lists.
struct Eviction<'a, P: Platform, O: Owner> {
    lru: &'a Lru<P, O>,
    /// The lruvec that they come from.
    place: Place,
    undecided: Few,
    /// Frames that stay. The last of them is the one being decided on, until it goes.
    keep: Few,
    activate: Few,
    /// How far the owner has come with the frame being decided on.
    stage: Cell<Stage>,
    /// Evicted frames, which are frozen.
    gone: Few,
    /// How many frames the owner has committed, of the inactive and of the active list. The
    /// history, which all CPUs of the group share, is told once for all.
    committed: [Cell<u32>; 2],
    kind: Kind,
    done: Reclaimed,
}

impl<'a, P: Platform, O: Owner> Eviction<'a, P, O> {
    fn new(lru: &'a Lru<P, O>, place: Place, kind: Kind, undecided: Few) -> Self {
        Eviction {
            lru,
            place,
            undecided,
            keep: Few::new(),
            activate: Few::new(),
            stage: Cell::new(Stage::Open),
            gone: Few::new(),
            committed: Default::default(),
            kind,
            done: Reclaimed::default(),
        }
    }

    /// Asks the owner about all frames that are unused at once; returns the verdicts on all frames,
    /// in their order.
    fn ask(&self) -> [Verdict; BATCH_MAX] {
        let frames = &self.lru.frames;
        let (mut pfns, mut at, mut len) = ([Pfn::new(0); BATCH_MAX], [0; BATCH_MAX], 0);
        for (nth, frame) in self.undecided.iter().enumerate() {
            // A pre-check that spares the owner questions about frames in use.
            if can_go(frames.state(frame)).is_ok() {
                (pfns[len], at[len]) = (frames.pfn_of(frame), nth);
                len += 1;
            }
        }
        let mut answers = [Verdict::Keep; BATCH_MAX];
        if len > 0 {
            self.lru.owner.reclaim_bulk(&pfns[..len], &mut answers[..len]);
        }
        let mut verdicts = [Verdict::Keep; BATCH_MAX];
        for (nth, answer) in at[..len].iter().zip(answers) {
            verdicts[*nth] = answer;
        }
        verdicts
    }

    /// Decides on the next frame.
    fn decide(&mut self, verdict: Verdict) {
        let Some(frame) = self.undecided.pop() else { return };
        self.keep.push(frame);
        let frames = u64::from(self.lru.frames.state(frame).frames());
        self.done.scanned += frames;
        match verdict {
            Verdict::Drop => {}
            Verdict::Written => self.done.written += frames,
            Verdict::Keep => return self.done.kept += frames,
            Verdict::Failed => return self.done.failed += frames,
            Verdict::Activate => {
                self.done.kept += frames;
                self.keep.pop();
                return self.activate.push(frame);
            }
        }
        self.lru.owner.forget(self.lru.frames.pfn_of(frame), Claim::new(self));
        match self.conclude() {
            true => self.done.reclaimed += frames,
            false => self.done.kept += frames,
        }
    }

    /// Ends the claim to the frame being decided on; returns whether the frame goes.
    fn conclude(&mut self) -> bool {
        match self.stage.get() {
            Stage::Open => return false,
            // The owner has leaked the claim, which does not last longer than the call.
            Stage::Frozen => {
                self.thaw();
                return false;
            }
            Stage::Committed => self.stage.set(Stage::Open),
        }
        self.keep.pop().map(|frame| self.gone.push(frame)).is_some()
    }

    /// The frame being decided on.
    fn current(&self) -> Option<FrameIndex> {
        self.keep.iter().next_back()
    }
}

/// The state of an isolated frame once its owner has control of it, if it is unused.
fn can_go(state: State) -> Result<State, LruError> {
    match state.pins() {
        0 => state.freeze(),
        _ => Err(LruError::FrameBusy),
    }
}

impl<P: Platform, O: Owner> Subject for Eviction<'_, P, O> {
    fn freeze(&self) -> bool {
        let frozen = |frame| self.lru.frames.change(frame, can_go).is_ok();
        let is_frozen = self.current().is_some_and(frozen);
        self.stage.set(if is_frozen { Stage::Frozen } else { Stage::Open });
        is_frozen
    }

    fn thaw(&self) {
        if let Some(frame) = self.current() {
            self.lru.frames.update(frame, State::thaw);
        }
        self.stage.set(Stage::Open);
    }

    fn commit(&self) -> Shadow {
        self.stage.set(Stage::Committed);
        let Some(frame) = self.current() else { return Shadow::NONE };
        let (state, place) = (self.lru.frames.state(frame), self.place);
        let active = state.is_active();
        let committed = &self.committed[usize::from(active)];
        committed.set(committed.get() + state.frames());
        let generation = self.lru.groups.short_generation(place.slot);
        let history = self.lru.vecs.history(place, self.kind);
        let untold = [self.committed[0].get(), self.committed[1].get()];
        let clock = history.clock(self.lru.policy, active, untold);
        Shadow::new(place, generation, self.kind, active, clock)
    }
}

impl<P: Platform, O: Owner> Drop for Eviction<'_, P, O> {
    fn drop(&mut self) {
        // After a panic, a claim may be left that the owner has committed, or leaked.
        self.conclude();
        let history = self.lru.vecs.history(self.place, self.kind);
        for active in [false, true] {
            match self.committed[usize::from(active)].get() {
                0 => {}
                frames => history.note_eviction(active, frames),
            }
        }
        // The owner is called last: it may panic. No more frames than were taken.
        let mut gone = self.gone;
        for (few, motion) in [
            (&self.undecided, Motion::Keep),
            (&self.keep, Motion::Refuse),
            (&self.activate, Motion::Activate),
        ] {
            self.lru.put_back_all(few.iter().rev().map(|frame| (frame, motion)), &mut gone);
        }
        self.lru.release_few(&gone);
    }
}

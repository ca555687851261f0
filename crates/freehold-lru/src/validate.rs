//! A consistency check of every list and every count.

use core::fmt;

use crate::cpu::Batch;
use crate::id::{Place, ShardId};
use crate::kind::List;
use crate::lru::Lru;
use crate::owner::protocol::Owner;
use freehold::memmap::list::LinkTable;
use freehold::platform::{Platform, SharedCell};
use freehold::units::{FrameCount, Pfn};

/// Where every frame is, as found by a consistency check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruCensus {
    /// Frames that were added and not released.
    pub used: FrameCount,
    /// Of these, frames on each kind of list, by [`List`].
    pub listed: [FrameCount; List::COUNT],
    /// Of these, frames on no list: in a batch for the first time, or isolated.
    pub unlisted: FrameCount,
    /// Frames that wait in batches, counted once for every batch that they wait in.
    pub batched: FrameCount,
    /// Frames that CPUs have charged ahead.
    pub stocked: FrameCount,
}

/// A violated invariant of the LRU's metadata: a defect of the LRU, or of other code that writes to
/// its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LruViolation {
    /// The invariant that does not hold.
    pub rule: LruRule,
    /// The frame at which it was detected; for counters, the number of the group's slot.
    pub at: Pfn,
}

/// An invariant of the LRU's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LruRule {
    /// The links of a list agree in both directions, and it ends.
    LinksAgree,
    /// A frame is on the list that its marks name, in its group and on its node.
    ListMatchesMarks,
    /// The size of a list equals the number of its frames.
    SizeCounted,
    /// A frame with the LRU mark is on a list.
    MarkedIsListed,
    /// All frames of a block belong to it, and to no other.
    BlockWhole,
    /// A frame that was added has a reference.
    UsedIsReferenced,
    /// A group's charge covers its frames, those below, and what is charged ahead.
    ChargeCounted,
    /// A group's count of pinned frames is right.
    PinsCounted,
    /// A group that was removed has no lists.
    RemovedHasNoLists,
    /// Every group is linked below its parent.
    TreeLinked,
}

impl fmt::Display for LruViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            LruRule::LinksAgree => "the links of a list disagree",
            LruRule::ListMatchesMarks => "a frame is on the wrong list",
            LruRule::SizeCounted => "the size of a list is wrong",
            LruRule::MarkedIsListed => "a frame has the LRU mark and is on no list",
            LruRule::BlockWhole => "a block is in parts",
            LruRule::UsedIsReferenced => "a frame is in use and has no reference",
            LruRule::ChargeCounted => "the charge of a group is wrong",
            LruRule::PinsCounted => "a group's count of frames locked in memory is wrong",
            LruRule::RemovedHasNoLists => "a group that was removed has lists",
            LruRule::TreeLinked => "the links of the groups are wrong",
        };
        write!(f, "{rule}, seen at {}", self.at)
    }
}

impl core::error::Error for LruViolation {}

impl<P: Platform, O: Owner> Lru<P, O> {
    /// Checks every invariant of the metadata and reports where the frames are.
    ///
    /// Call it only while no other call is under way, not even on another CPU: it would take
    /// transient states for violations. Frames may wait in batches and be isolated. Cost: visits
    /// every frame.
    ///
    /// # Errors
    ///
    /// The first [`LruViolation`] found.
    pub fn validate(&self) -> Result<LruCensus, LruViolation> {
        let tree = self.groups.tree(&self.platform);
        let mut census = LruCensus::default();
        for node in 0..self.vecs.nodes() {
            for slot in 0..self.groups.len() as u16 {
                let place = Place { slot, node };
                for id in self.vecs.shards(place) {
                    self.check_lists(id, &mut census)?;
                }
                let at = Pfn::new(u64::from(slot));
                expect(self.vecs.sums_agree(place), LruRule::SizeCounted, at)?;
            }
        }
        expect(tree.links_agree(), LruRule::TreeLinked, Pfn::new(0))?;
        tree.clear_counts();
        let (mut tails, mut tails_due) = (0, 0);
        for frame in self.frames.iter() {
            let (state, at) = (self.frames.state(frame), self.frames.pfn_of(frame));
            if !state.is_used() {
                continue;
            }
            if state.is_tail() {
                tails += 1;
                continue;
            }
            expect(state.refs() > 0, LruRule::UsedIsReferenced, at)?;
            let frames = FrameCount::new(state.frames().into());
            expect(self.frames.has_tails(frame, state.order()), LruRule::BlockWhole, at)?;
            tails_due += frames.get() - 1;
            census.used += frames;
            census.unlisted += if state.is_listed() { FrameCount::ZERO } else { frames };
            tree.count(state.slot(), state.frames(), state.pins() > 0);
        }
        expect(tails == tails_due, LruRule::BlockWhole, Pfn::new(0))?;
        let listed: FrameCount = census.listed.iter().copied().sum();
        let marked = census.used.get() - census.unlisted.get();
        expect(listed.get() == marked, LruRule::MarkedIsListed, Pfn::new(0))?;
        for cpu in 0..self.cpus.len() {
            let cpu = self.cpus.of(&self.platform, cpu);
            let batched = Batch::ALL.map(|batch| u64::from(cpu.len(batch)));
            census.batched += FrameCount::new(batched.iter().sum());
            if let Some((slot, stock)) = cpu.stock() {
                census.stocked += FrameCount::new(u64::from(stock));
                tree.count(slot, stock, false);
            }
        }
        for slot in 0..self.groups.len() as u16 {
            let (charged, pinned) = tree.counts_agree(slot);
            let at = Pfn::new(u64::from(slot));
            expect(charged, LruRule::ChargeCounted, at)?;
            expect(pinned, LruRule::PinsCounted, at)?;
        }
        Ok(census)
    }

    fn check_lists(&self, id: ShardId, census: &mut LruCensus) -> Result<(), LruViolation> {
        let lock = self.vecs.lock_at(&self.platform, id);
        let removed = !lock.is_of(id.place);
        for list in List::ALL {
            let (mut before, mut count) = (None, 0);
            for frame in lock.frames(&self.frames, list) {
                let (state, at) = (self.frames.state(frame), self.frames.pfn_of(frame));
                expect(!removed, LruRule::RemovedHasNoLists, at)?;
                let links_back = self.frames.links(frame).prev.get();
                let is_behind = before.map_or(u32::MAX, |before| before);
                let ends = count <= lock.size(list);
                expect(links_back == is_behind && ends, LruRule::LinksAgree, at)?;
                let named = self.frames.sharding.shard(state);
                let home = self.vecs.resolve(named, &self.groups);
                let fits = state.is_listed() && state.list() == list && home == id;
                expect(fits, LruRule::ListMatchesMarks, at)?;
                before = Some(frame.0);
                count += state.frames();
            }
            let at = Pfn::new(u64::from(id.place.slot));
            expect(count == lock.size(list), LruRule::SizeCounted, at)?;
            census.listed[list as usize] += FrameCount::new(u64::from(count));
        }
        Ok(())
    }
}

fn expect(holds: bool, rule: LruRule, at: Pfn) -> Result<(), LruViolation> {
    if holds { Ok(()) } else { Err(LruViolation { rule, at }) }
}

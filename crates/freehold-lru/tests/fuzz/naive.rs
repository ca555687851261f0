//! A naive model of the LRU: what each call should return, and which list each frame should be on.
//!
//! It has no batches: it predicts an LRU whose batches hold one frame.

use std::collections::BTreeMap;
use std::ops::Range;

use freehold::Order;
use freehold_lru::{GroupId, Kind, List, LruError};

/// A frame in use, or a block by its first frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) order: Order,
    pub(crate) group: usize,
    pub(crate) kind: Kind,
    pub(crate) refs: u32,
    pub(crate) pins: u32,
    pub(crate) active: bool,
    pub(crate) referenced: bool,
    pub(crate) isolated: bool,
    /// Whether it was pinned when it last came to a list.
    pub(crate) unevictable: bool,
}

impl Frame {
    /// How many frames it has.
    pub(crate) fn frames(&self) -> u64 {
        self.order.frames().get()
    }

    pub(crate) fn list(&self) -> Option<List> {
        if self.isolated {
            return None;
        }
        Some(match (self.unevictable, self.kind, self.active) {
            (true, ..) => List::Unevictable,
            (_, Kind::Anon, false) => List::InactiveAnon,
            (_, Kind::Anon, true) => List::ActiveAnon,
            (_, Kind::File, false) => List::InactiveFile,
            (_, Kind::File, true) => List::ActiveFile,
        })
    }

    fn put_back(&mut self) {
        self.isolated = false;
        self.unevictable = self.pins > 0;
        self.active &= !self.unevictable;
    }

    fn go(&mut self, active: bool) {
        if !self.isolated {
            self.active = active;
            self.referenced = false;
            self.put_back();
        }
    }
}

/// A group. Removed ones stay, since their frames count in them until they are released.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) parent: usize,
    pub(crate) live: bool,
    pub(crate) readers: u32,
    pub(crate) limit: Option<u64>,
}

pub(crate) struct Naive {
    pub(crate) frames: BTreeMap<u64, Frame>,
    pub(crate) groups: Vec<Group>,
    pub(crate) memory: u64,
    pub(crate) slots: usize,
}

impl Naive {
    pub(crate) fn new(memory: u64, slots: usize) -> Self {
        let root = Group { id: GroupId::ROOT, parent: 0, live: true, readers: 0, limit: None };
        Naive { frames: BTreeMap::new(), groups: vec![root], memory, slots }
    }

    fn chain(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        let above = |&group: &usize| (group != 0).then(|| self.groups[group].parent);
        std::iter::successors(Some(group), above)
    }

    /// The group that holds the frames of this one.
    pub(crate) fn holder(&self, group: usize) -> usize {
        self.chain(group).find(|&group| self.groups[group].live).expect("the root is live")
    }

    pub(crate) fn is_below(&self, group: usize, above: usize) -> bool {
        self.chain(group).any(|group| group == above)
    }

    fn below(&self, group: usize) -> impl Iterator<Item = &Frame> + '_ {
        self.frames.values().filter(move |frame| self.is_below(frame.group, group))
    }

    pub(crate) fn charged(&self, group: usize) -> u64 {
        self.below(group).map(Frame::frames).sum()
    }

    pub(crate) fn pinned(&self, group: usize) -> u64 {
        self.below(group).filter(|frame| frame.pins > 0).map(Frame::frames).sum()
    }

    pub(crate) fn live(&self, group: usize) -> Result<(), LruError> {
        let live = self.groups.get(group).is_some_and(|group| group.live);
        if live { Ok(()) } else { Err(LruError::UnknownGroup) }
    }

    fn check_charge(&self, group: usize, frames: u64) -> Result<(), LruError> {
        self.live(group)?;
        let full = |&above: &usize| {
            let limit = self.groups[above].limit;
            limit.is_some_and(|limit| self.charged(above) + frames > limit)
        };
        match self.chain(group).find(full) {
            Some(full) => Err(LruError::GroupLimit(self.groups[full].id)),
            None => Ok(()),
        }
    }

    fn used(&mut self, pfn: u64) -> Result<&mut Frame, LruError> {
        if pfn >= self.memory {
            return Err(LruError::ForeignFrame);
        }
        self.frames.get_mut(&pfn).ok_or(LruError::NotAdded)
    }

    /// Whether a frame is in use, as part of a block as well.
    pub(crate) fn is_used(&self, pfn: u64) -> bool {
        let before = self.frames.range(..=pfn).next_back();
        before.is_some_and(|(head, frame)| pfn - head < frame.frames())
    }

    /// Whether these frames are all free, and memory.
    fn check_free(&self, frames: Range<u64>) -> Result<(), LruError> {
        frames.into_iter().try_for_each(|pfn| match pfn < self.memory {
            false => Err(LruError::ForeignFrame),
            true if self.is_used(pfn) => Err(LruError::AlreadyAdded),
            true => Ok(()),
        })
    }

    pub(crate) fn add(
        &mut self,
        pfn: u64,
        order: Order,
        group: usize,
        kind: Kind,
    ) -> Result<(), LruError> {
        self.check_free(pfn..pfn + 1)?;
        let frames = order.frames().get();
        if !pfn.is_multiple_of(frames) {
            return Err(LruError::Misaligned);
        }
        self.check_free(pfn..pfn + frames)?;
        self.check_charge(group, frames)?;
        let (refs, pins) = (1, 0);
        let (active, referenced, isolated, unevictable) = (false, false, false, false);
        let frame =
            Frame { order, group, kind, refs, pins, active, referenced, isolated, unevictable };
        self.frames.insert(pfn, frame);
        Ok(())
    }

    pub(crate) fn get(&mut self, pfn: u64) -> Result<(), LruError> {
        self.used(pfn).map(|frame| frame.refs += 1)
    }

    /// Says whether it was the last reference.
    pub(crate) fn put(&mut self, pfn: u64) -> Result<bool, LruError> {
        let frame = self.used(pfn)?;
        frame.refs -= 1;
        let last = frame.refs == 0;
        if last {
            self.frames.remove(&pfn);
        }
        Ok(last)
    }

    pub(crate) fn mark_accessed(&mut self, pfn: u64) -> Result<(), LruError> {
        let frame = self.used(pfn)?;
        if frame.active || frame.unevictable || !frame.referenced {
            frame.referenced = true;
        } else if frame.isolated {
            (frame.active, frame.referenced) = (true, false);
        } else {
            frame.go(true);
        }
        Ok(())
    }

    pub(crate) fn go(&mut self, pfn: u64, active: bool) -> Result<(), LruError> {
        self.used(pfn).map(|frame| frame.go(active))
    }

    pub(crate) fn pin(&mut self, pfn: u64) -> Result<(), LruError> {
        let frame = self.used(pfn)?;
        frame.pins += 1;
        if frame.pins == 1 && !frame.isolated {
            frame.put_back();
        }
        Ok(())
    }

    pub(crate) fn unpin(&mut self, pfn: u64) -> Result<(), LruError> {
        let frame = self.used(pfn)?;
        frame.pins = frame.pins.checked_sub(1).ok_or(LruError::NotPinned)?;
        if frame.pins == 0 && !frame.isolated {
            frame.put_back();
        }
        Ok(())
    }

    pub(crate) fn isolate(&mut self, pfn: u64) -> Result<(), LruError> {
        let frame = self.used(pfn)?;
        if frame.isolated {
            return Err(LruError::FrameBusy);
        }
        frame.isolated = true;
        frame.refs += 1;
        Ok(())
    }

    /// Says whether the reference of the isolation was the last one.
    pub(crate) fn put_back(&mut self, pfn: u64) -> bool {
        self.used(pfn).expect("it is isolated").put_back();
        self.put(pfn).expect("it is isolated")
    }

    pub(crate) fn move_to(&mut self, pfn: u64, group: usize) -> Result<(), LruError> {
        let frames = self.used(pfn)?.frames();
        self.check_charge(group, frames)?;
        self.used(pfn)?.group = group;
        Ok(())
    }

    /// Moves a block of an order; returns whether it can be.
    pub(crate) fn migrate(&mut self, from: u64, to: u64, order: Order) -> bool {
        let can_go = |frame: &Frame| frame.order == order && frame.refs == 1 && !frame.isolated;
        let frames = order.frames().get();
        let has_room = to.is_multiple_of(frames) && self.check_free(to..to + frames).is_ok();
        if !has_room || !self.frames.get(&from).is_some_and(can_go) {
            return false;
        }
        let mut frame = self.frames.remove(&from).expect("seen above");
        frame.unevictable = frame.pins > 0;
        self.frames.insert(to, frame);
        true
    }

    /// Whether there are as many groups as slots.
    pub(crate) fn is_full(&self) -> bool {
        self.groups.iter().filter(|group| group.live).count() == self.slots
    }

    /// Whether there is a slot for another group in any case: removed groups need theirs for frames
    /// that are isolated, and perhaps not even for all of those.
    pub(crate) fn has_room(&self) -> bool {
        let is_held = |group| self.below(group).any(|frame| frame.isolated);
        let taken = |&group: &usize| self.groups[group].live || is_held(group);
        (0..self.groups.len()).filter(taken).count() < self.slots
    }

    pub(crate) fn create(&mut self, id: GroupId, parent: usize, limit: Option<u64>) {
        self.groups.push(Group { id, parent, live: true, readers: 0, limit });
    }

    pub(crate) fn remove(&mut self, group: usize) -> Result<(), LruError> {
        self.live(group)?;
        let has_child = |other: &Group| other.live && other.parent == group;
        let below = self.groups.iter().skip(1).any(has_child);
        if group == 0 || below || self.groups[group].readers > 0 {
            return Err(LruError::GroupInUse);
        }
        self.groups[group].live = false;
        Ok(())
    }

    pub(crate) fn set_max(&mut self, group: usize, limit: Option<u64>) -> Result<(), LruError> {
        self.live(group)?;
        if group == 0 {
            return Err(LruError::GroupInUse);
        }
        if limit.is_some_and(|limit| limit < self.pinned(group)) {
            return Err(LruError::LimitBelowPinned);
        }
        self.groups[group].limit = limit;
        Ok(())
    }
}

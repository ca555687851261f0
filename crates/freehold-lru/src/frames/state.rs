//! The state of a frame, or of a block by its first frame: one word with references, pins, order,
//! marks, home and group.
//!
//! Linux keeps references and marks in two words, so isolating a frame takes two atomics, in an
//! order that matters: first the reference, then the mark. Here one word holds both, and each step
//! of a frame's life is one compare-exchange on it.

use crate::error::LruError;
use crate::kind::{Kind, List};
use crate::settings::LruPolicy;
use freehold::memmap::list::End;
use freehold::units::{Order, ZoneKind};

const REFS: u64 = (1 << 18) - 1;
const PIN_SHIFT: u32 = 18;
const PINS: u64 = ((1 << 8) - 1) << PIN_SHIFT;
/// The order of the block that begins with the frame, or [`TAIL`].
const ORDER_SHIFT: u32 = 26;
const ORDER: u64 = 0xf << ORDER_SHIFT;
/// The frame is part of a block that begins with another one.
const TAIL: u64 = ORDER;
/// The frame is on the list that the other marks and the group name, or the put that dropped its
/// last reference is just unlinking it (Linux's `PG_lru`).
const LISTED: u64 = 1 << 30;
const ACTIVE: u64 = 1 << 31;
const FILE: u64 = 1 << 32;
const UNEVICTABLE: u64 = 1 << 33;
/// The frame was used since it last changed lists.
const REFERENCED: u64 = 1 << 34;
/// The frame was added and has not been released.
const USED: u64 = 1 << 35;
/// The frame is memory. A state of zero is a hole, for the table begins with holes.
const MEMORY: u64 = 1 << 36;
const ZONE_SHIFT: u32 = 37;
const ZONE: u64 = 3 << ZONE_SHIFT;
/// With the scan-resistant policy, the frame was used at least twice, and [`REFERENCED`] counts one
/// use more.
const OFTEN: u64 = 1 << 39;
const MARK: u64 = REFERENCED | OFTEN;
/// The frame's node, and the shard whose lists it is on: see [`Sharding`](super::sharding).
const HOME_SHIFT: u32 = 40;
const HOME: u64 = 0xff << HOME_SHIFT;
/// The frame's location, and that it is memory: of an unused frame, no state change affects it.
const GIVEN: u64 = MEMORY | HOME | ZONE;
const SLOT_SHIFT: u32 = 48;

/// More than any machine has nodes; keeps what tells homes apart within 8 bits.
pub(crate) const HOMES_MAX: usize = 256;

/// The largest blocks.
pub(crate) const ORDER_MAX: Order = Order::new(14);

/// The maximum number of references to one frame.
const REFS_MAX: u32 = REFS as u32;

/// The state of a frame.
///
/// The marks that name a list, and the group, change only while the frame is not listed. So
/// clearing `LISTED` reveals in the same step which list the frame is linked to. The shard changes
/// only then, too, or under the lock of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

/// Where a frame goes when it is put on a list, and how that changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// To the front of the list that its marks name.
    Keep,
    /// As `Keep`: the owner was asked for it in vain.
    Refuse,
    /// To the front of the active list.
    Activate,
    /// To the front of the inactive list.
    Deactivate,
    /// To the back of the inactive list, to be reclaimed next.
    Rotate,
}

impl State {
    pub(crate) const HOLE: Self = State(0);

    /// An unused frame.
    pub(crate) fn unused(home: u8, zone: ZoneKind) -> Self {
        State(MEMORY | u64::from(home) << HOME_SHIFT | (zone as u64) << ZONE_SHIFT)
    }

    /// The same frame, unused.
    pub(crate) fn released(self) -> Self {
        State(self.0 & GIVEN)
    }

    /// The same frame, added to the group in `slot` with so many references, as the first of a
    /// block.
    pub(crate) fn added(self, order: Order, slot: u16, kind: Kind, refs: u32) -> Self {
        let file = if kind == Kind::File { FILE } else { 0 };
        let order = u64::from(order.get()) << ORDER_SHIFT;
        State(
            self.0 & GIVEN | USED | file | order | u64::from(slot) << SLOT_SHIFT | u64::from(refs),
        )
    }

    /// An unused frame as part of a block that begins with another one.
    pub(crate) fn joined(self) -> Result<Self, LruError> {
        match (self.is_hole(), self.is_used()) {
            (true, _) => Err(LruError::ForeignFrame),
            (_, true) => Err(LruError::AlreadyAdded),
            _ => Ok(State(self.0 | USED | TAIL)),
        }
    }

    /// The frame `to` with all of this state except its location.
    pub(crate) fn moved_to(self, to: State) -> Self {
        State(self.0 & !GIVEN | to.0 & GIVEN)
    }

    /// An unused frame that is no memory any more. Keeps its place, in case others are in use.
    pub(crate) fn removed(self) -> Result<Self, LruError> {
        match (self.is_hole(), self.is_used()) {
            (true, _) => Err(LruError::ForeignFrame),
            (_, true) => Err(LruError::FrameBusy),
            _ => Ok(State(self.0 & !MEMORY)),
        }
    }

    /// The frame before it was removed.
    pub(crate) fn restored(self) -> Self {
        State(self.0 | MEMORY)
    }

    pub(crate) const fn is_hole(self) -> bool {
        self.0 & MEMORY == 0
    }

    pub(crate) const fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    pub(crate) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    pub(crate) const fn is_active(self) -> bool {
        self.0 & ACTIVE != 0
    }

    pub(crate) const fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    pub(crate) const fn is_unevictable(self) -> bool {
        self.0 & UNEVICTABLE != 0
    }

    pub(crate) const fn refs(self) -> u32 {
        (self.0 & REFS) as u32
    }

    pub(crate) const fn pins(self) -> u32 {
        ((self.0 & PINS) >> PIN_SHIFT) as u32
    }

    /// Whether the frame is part of a block that begins with another one.
    pub(crate) const fn is_tail(self) -> bool {
        self.0 & ORDER == TAIL
    }

    /// The order of the block that begins with the frame.
    pub(crate) const fn order(self) -> Order {
        Order::new(((self.0 & ORDER) >> ORDER_SHIFT) as u8)
    }

    /// How many frames the block that begins with the frame has.
    pub(crate) const fn frames(self) -> u32 {
        1 << self.order().get()
    }

    pub(crate) const fn home(self) -> u8 {
        (self.0 >> HOME_SHIFT) as u8
    }

    /// With another home.
    pub(crate) const fn with_home(self, home: u8) -> Self {
        State(self.0 & !HOME | (home as u64) << HOME_SHIFT)
    }

    /// The number of the frame's kind of zone.
    pub(crate) const fn zone(self) -> usize {
        ((self.0 & ZONE) >> ZONE_SHIFT) as usize
    }

    /// Whether the frame's zone is of this kind, or of a lower one.
    pub(crate) const fn is_within(self, highest: ZoneKind) -> bool {
        self.zone() <= highest as usize
    }

    pub(crate) const fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    pub(crate) const fn kind(self) -> Kind {
        if self.0 & FILE != 0 { Kind::File } else { Kind::Anon }
    }

    /// The list that the marks name.
    pub(crate) const fn list(self) -> List {
        if self.is_unevictable() {
            return List::Unevictable;
        }
        match (self.kind(), self.is_active()) {
            (Kind::Anon, false) => List::InactiveAnon,
            (Kind::Anon, true) => List::ActiveAnon,
            (Kind::File, false) => List::InactiveFile,
            (Kind::File, true) => List::ActiveFile,
        }
    }

    /// One more reference, unless there is none or are too many.
    pub(crate) const fn get(self) -> Result<Self, LruError> {
        match self.refs() {
            0 => Err(LruError::NotAdded),
            REFS_MAX => Err(LruError::TooManyReferences),
            _ => Ok(State(self.0 + 1)),
        }
    }

    /// One reference less.
    pub(crate) const fn put(self) -> Result<Self, LruError> {
        if self.refs() == 0 { Err(LruError::NotAdded) } else { Ok(State(self.0 - 1)) }
    }

    /// Isolated by a caller without a reference: it gets one in the same step.
    pub(crate) const fn isolate(self) -> Result<Self, LruError> {
        match self.get() {
            Ok(State(held)) if self.is_listed() => Ok(State(held & !LISTED)),
            Ok(_) => Err(LruError::FrameBusy),
            Err(error) => Err(error),
        }
    }

    /// Isolated by a caller that holds a reference.
    pub(crate) const fn isolate_held(self) -> Result<Self, LruError> {
        if self.is_listed() { Ok(State(self.0 & !LISTED)) } else { Err(LruError::FrameBusy) }
    }

    /// Put on a list, dropping the isolating caller's reference. If that was the last one, the
    /// frame goes on no list: the caller releases it.
    pub(crate) const fn put_back(self, motion: Motion) -> Self {
        let state = State(self.0 - 1);
        if state.refs() == 0 {
            return state;
        }
        let state = match motion {
            Motion::Keep | Motion::Refuse => state,
            Motion::Activate => State((state.0 | ACTIVE) & !MARK),
            Motion::Deactivate | Motion::Rotate => State(state.0 & !(ACTIVE | MARK)),
        };
        let state = match state.pins() {
            0 => State(state.0 & !UNEVICTABLE),
            _ => State((state.0 | UNEVICTABLE) & !ACTIVE),
        };
        State(state.0 | LISTED)
    }

    /// Without references, if the owner and the caller, which has it isolated, hold the only ones.
    pub(crate) const fn freeze(self) -> Result<Self, LruError> {
        if self.refs() == 2 { Ok(State(self.0 & !REFS)) } else { Err(LruError::FrameBusy) }
    }

    /// The state before it was frozen.
    pub(crate) const fn thaw(self) -> Self {
        State(self.0 | 2)
    }

    /// Whether the next use requests activation.
    pub(crate) const fn awaits_activation(self) -> bool {
        let inactive = !self.is_active() && !self.is_unevictable();
        inactive && self.is_referenced() && self.is_listed()
    }

    /// Used once more. The second use of an inactive frame activates it if it is on no list;
    /// otherwise a batch does that.
    pub(crate) const fn accessed(self) -> Self {
        if self.is_unevictable() || self.is_active() || !self.is_referenced() {
            return State(self.0 | REFERENCED);
        }
        if self.is_listed() { self } else { State((self.0 | ACTIVE) & !REFERENCED) }
    }

    /// How often the frame was used, with the scan-resistant policy: 0 to 3.
    pub(crate) const fn mark(self) -> u8 {
        (self.0 & OFTEN != 0) as u8 * 2 + (self.0 & REFERENCED != 0) as u8
    }

    const fn with_mark(self, mark: u8) -> Self {
        let often = if mark & 2 != 0 { OFTEN } else { 0 };
        let referenced = if mark & 1 != 0 { REFERENCED } else { 0 };
        State(self.0 & !MARK | often | referenced)
    }

    /// Used once more, with the scan-resistant policy.
    pub(crate) const fn more_marked(self) -> Self {
        let mark = self.mark();
        if mark == 3 { self } else { self.with_mark(mark + 1) }
    }

    /// With content that should have stayed: active, unless the frame is on a list, which its marks
    /// name.
    pub(crate) const fn restored_content(self) -> Result<Self, LruError> {
        match (self.refs(), self.is_listed() || self.is_unevictable()) {
            (0, _) => Err(LruError::NotAdded),
            (_, true) => Ok(self),
            _ => Ok(State(self.0 | ACTIVE)),
        }
    }

    /// Whether an active frame was used since reclaim last came to it.
    pub(crate) const fn is_used_since(self, policy: LruPolicy) -> bool {
        match policy {
            LruPolicy::TwoLists => self.is_referenced(),
            LruPolicy::ScanResistant => self.mark() > 0,
        }
    }

    /// With one use less: it was worth a turn.
    pub(crate) const fn spared(self, policy: LruPolicy) -> Self {
        match policy {
            LruPolicy::TwoLists => State(self.0 & !REFERENCED),
            LruPolicy::ScanResistant => self.with_mark(self.mark().saturating_sub(1)),
        }
    }

    /// Pinned once more.
    pub(crate) const fn pin(self) -> Result<Self, LruError> {
        if self.refs() == 0 {
            return Err(LruError::NotAdded);
        }
        if self.0 & PINS == PINS {
            return Err(LruError::TooManyReferences);
        }
        Ok(State(self.0 + (1 << PIN_SHIFT)))
    }

    /// Pinned once less.
    pub(crate) const fn unpin(self) -> Result<Self, LruError> {
        if self.refs() == 0 {
            return Err(LruError::NotAdded);
        }
        if self.pins() == 0 {
            Err(LruError::NotPinned)
        } else {
            Ok(State(self.0 - (1 << PIN_SHIFT)))
        }
    }

    /// In the group of another slot.
    pub(crate) const fn in_slot(self, slot: u16) -> Self {
        State(self.0 & !(0xffff << SLOT_SHIFT) | (slot as u64) << SLOT_SHIFT)
    }
}

impl Motion {
    /// The end of the list that the frame goes to.
    pub(crate) const fn end(self) -> End {
        if matches!(self, Motion::Rotate) { End::Back } else { End::Front }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_use_activates() {
        let unused = State::unused(3, ZoneKind::Normal);
        let first = unused.added(Order::new(9), 513, Kind::File, 2).accessed();
        assert!(first.is_referenced() && !first.is_active());
        let second = first.accessed();
        assert!(second.is_active() && !second.is_referenced());
        // A listed frame is left to the batch, which moves it.
        let listed = first.put_back(Motion::Keep);
        assert_eq!((listed.accessed(), listed.awaits_activation()), (listed, true));
    }
}

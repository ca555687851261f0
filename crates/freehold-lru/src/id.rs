//! Numbers of groups and of lists: the slot that a group occupies, and the place of its lists on a
//! node.

use core::fmt;

/// The identifier of a group: 16 bits for its slot, and 48 for the generation, which differs from
/// group to group in a slot. So the identifier of a removed group stays invalid for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId(u64);

impl GroupId {
    /// The root of the tree. It has no limit and cannot be removed.
    pub const ROOT: Self = GroupId(0);

    pub(crate) const fn new(slot: u16, generation: u64) -> Self {
        GroupId(generation << 16 | slot as u64)
    }

    pub(crate) const fn slot(self) -> u16 {
        self.0 as u16
    }

    pub(crate) const fn generation(self) -> u64 {
        self.0 >> 16
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        GroupId(bits)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut group = f.debug_struct("GroupId");
        group.field("slot", &self.slot()).field("generation", &self.generation()).finish()
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GroupId::ROOT => f.write_str("the root group"),
            _ => write!(f, "group {}.{}", self.slot(), self.generation()),
        }
    }
}

/// The most slots: numbers below [`NO_SLOT`].
pub(crate) const SLOTS_MAX: usize = NO_SLOT as usize;

/// The number of no slot.
pub(crate) const NO_SLOT: u16 = u16::MAX;

/// The place of an lruvec: its group's slot and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: u16,
    pub(crate) node: u16,
}

/// A shard of an lruvec: a part of its frames, with lists and a lock of their own. Shard 0 is there
/// always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardId {
    pub(crate) place: Place,
    pub(crate) shard: u16,
}

impl Place {
    /// A shard of the lruvec.
    pub(crate) const fn shard(self, shard: usize) -> ShardId {
        ShardId { place: self, shard: shard as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_keeps_slot_and_generation() {
        let group = GroupId::new(65_534, (1 << 48) - 1);
        assert_eq!((group.slot(), group.generation()), (65_534, (1 << 48) - 1));
        assert_eq!(GroupId::from_bits(group.bits()), group);
        assert_eq!((GroupId::ROOT.slot(), GroupId::ROOT.generation()), (0, 0));
    }
}

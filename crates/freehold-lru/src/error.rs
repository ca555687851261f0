//! Why an LRU refuses a call.

use core::fmt;

use crate::id::GroupId;

/// Why a call of an [`Lru`](crate::Lru) was refused. A call that returns an error has changed
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LruError {
    /// The frame was added to the LRU already.
    AlreadyAdded,
    /// The frame is not in the LRU, or its last reference is gone.
    NotAdded,
    /// The frame is isolated, or on its way to a list.
    FrameBusy,
    /// The frame is not locked in memory.
    NotPinned,
    /// The frame has the maximum number of references or pins.
    TooManyReferences,
    /// The block is larger than order 14.
    OrderTooLarge,
    /// The frame number is not a multiple of the block's size.
    Misaligned,
    /// There is no such group, or it was removed.
    UnknownGroup,
    /// The group has readers, has child groups, or is the root.
    GroupInUse,
    /// This group has reached its limit: the one that was asked for, or one above it.
    GroupLimit(GroupId),
    /// The group has more frames locked in memory than the limit allows.
    LimitBelowPinned,
    /// The number of groups has reached the configured maximum.
    TooManyGroups,
    /// As many reclaims as there may be at a time, 32, began on this CPU and are under way: the
    /// owner reclaims from within its own methods, or many threads share the CPU.
    TooManyReclaims,
    /// The frame is not one that the LRU knows.
    ForeignFrame,
    /// There is no node with this number.
    UnknownNode,
    /// There is no CPU with this number.
    UnknownCpu,
}

impl fmt::Display for LruError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LruError::GroupLimit(group) => {
                return write!(f, "{group} has all the frames that it may have");
            }
            LruError::AlreadyAdded => "the frame was added to the LRU already",
            LruError::NotAdded => "the frame is not in the LRU, or its last reference is gone",
            LruError::FrameBusy => "the frame is isolated, or on its way to a list",
            LruError::NotPinned => "the frame is not locked in memory",
            LruError::TooManyReferences => "the frame has too many references or pins",
            LruError::OrderTooLarge => "the block is larger than order 14",
            LruError::Misaligned => "the frame number is not a multiple of the block size",
            LruError::UnknownGroup => "there is no such group",
            LruError::GroupInUse => "the group has readers or groups below it, or is the root",
            LruError::LimitBelowPinned => "more frames than that are locked in memory",
            LruError::TooManyGroups => "there are as many groups as the settings allow",
            LruError::TooManyReclaims => "too many reclaims that began on the CPU are under way",
            LruError::ForeignFrame => "the frame is not one that the LRU knows",
            LruError::UnknownNode => "there is no such node",
            LruError::UnknownCpu => "there is no such CPU",
        })
    }
}

impl core::error::Error for LruError {}

/// A [`put_bulk`](crate::Lru::put_bulk) that stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutBulkError {
    /// How many references from the front were dropped. The next one is at fault; it and all later
    /// ones are unchanged.
    pub put: usize,
    /// What is wrong with that frame.
    pub error: LruError,
}

impl fmt::Display for PutBulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} of the bulk: {}", self.put, self.error)
    }
}

impl core::error::Error for PutBulkError {}

//! Why a call can be refused.

use core::fmt;

/// Why a call was refused. A call that returns an error has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// No zone that the request may use has a free block of this order, or a place for this range:
    /// see [`PageAllocator::alloc`](crate::PageAllocator::alloc).
    OutOfMemory,
    /// Free blocks exist, but a watermark or a lowmem reserve keeps them from this request.
    BelowWatermark,
    /// Frames may be free, but a call under way has them in hand, and the request does not wait:
    /// see [`Request::nowait`](crate::Request::nowait).
    WouldWait,
    /// The order is larger than the design serves.
    OrderTooLarge,
    /// There is no node with this number.
    UnknownNode,
    /// The node has no zone of the kind asked for, nor one that may stand in for it.
    UnknownZone,
    /// There is no CPU with this number.
    UnknownCpu,
    /// Another thread has a lease of the CPU's caches.
    Leased,
    /// The machine has no barrier that makes all CPUs execute a fence. Leases need one.
    NoBarrier,
    /// The frame number is not a multiple of the block's size.
    Misaligned,
    /// The frame is not managed by this allocator.
    ForeignFrame,
    /// The frame is free already.
    DoubleFree,
    /// The frame belongs to an allocation smaller than the order given.
    WrongOrder,
    /// A range is empty, ends beyond the last frame number, or reaches from one zone into another.
    BadRange,
    /// An alignment is not a power of two.
    BadAlignment,
    /// Every place for the range holds content that cannot be moved, or whose owner refuses to.
    RangeBusy,
    /// A range of memory overlaps memory that is managed already.
    RangeOverlaps,
    /// A range of memory lies outside the span that the metadata was laid out for.
    OutsideSpan,
    /// Two ranges of different zones share a pageblock.
    SharedPageblock,
    /// The memory spans more frames than 32-bit links can name, or includes one of the last
    /// possible frame numbers, or the metadata would be larger than the address space.
    SpanTooLarge,
    /// A configuration names no memory, no CPU, more than 4,096 zones, or more CPUs than
    /// [`CPUS_MAX`](crate::geometry::CPUS_MAX).
    BadTopology,
    /// The caller's room for ranges of memory is too short for those of the map.
    TooManyRanges,
    /// A distance table whose length is not the square of the number of nodes.
    BadDistances,
    /// The caller's metadata buffer is smaller than the layout requires:
    /// [`MetadataLayout::size`](crate::MetadataLayout::size).
    MetadataTooSmall,
    /// The caller's metadata buffer is large enough, but not from its first aligned byte on: align
    /// it to [`MetadataLayout::align`](crate::MetadataLayout::align), or make it
    /// [`MetadataLayout::size_unaligned`](crate::MetadataLayout::size_unaligned) bytes long.
    MetadataMisaligned,
    /// A setting's value is out of its range, for example a batch of zero.
    BadSetting,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::OutOfMemory => "no free block of this size in any zone that the request may use",
            Error::BelowWatermark => "the free blocks left are reserved by a watermark",
            Error::WouldWait => {
                "another call has the free frames in hand, and this one may not wait"
            }
            Error::OrderTooLarge => "the order is larger than this design serves",
            Error::UnknownNode => "there is no such node",
            Error::UnknownZone => "the node has no zone that the request may use",
            Error::UnknownCpu => "there is no such CPU",
            Error::Leased => "another thread has a lease of the CPU's caches",
            Error::NoBarrier => "the machine has no barrier for leases",
            Error::Misaligned => "the frame number is not a multiple of the block size",
            Error::ForeignFrame => "the frame is not managed by this allocator",
            Error::DoubleFree => "the frame is free already",
            Error::WrongOrder => "the frame was allocated with a smaller order",
            Error::BadRange => {
                "the range is empty, ends beyond the last frame number, or spans two zones"
            }
            Error::BadAlignment => "the alignment is not a power of two",
            Error::RangeBusy => "every place for the range holds content that cannot be moved",
            Error::RangeOverlaps => "the range overlaps memory that is managed already",
            Error::OutsideSpan => "the range lies outside the span of the metadata",
            Error::SharedPageblock => "two zones share a pageblock",
            Error::SpanTooLarge => {
                "the memory spans more frames than 32 bits can number, or ends too high"
            }
            Error::BadTopology => {
                "the configuration has no memory, no CPU, or too many CPUs or zones"
            }
            Error::TooManyRanges => "the map has more ranges of memory than there is room for",
            Error::BadDistances => "the distance table is not nodes x nodes",
            Error::MetadataTooSmall => "the metadata buffer is too small",
            Error::MetadataMisaligned => {
                "the metadata buffer is too small from its first aligned byte on"
            }
            Error::BadSetting => "a setting is out of its range",
        })
    }
}

impl core::error::Error for Error {}

/// A bulk free that stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkFreeError {
    /// How many blocks from the front were freed. The next one is at fault; it and all later ones
    /// are unchanged.
    pub freed: usize,
    /// What is wrong with that block.
    pub error: Error,
}

impl fmt::Display for BulkFreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of the bulk: {}", self.freed, self.error)
    }
}

impl core::error::Error for BulkFreeError {}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::units::NodeId;
    use std::string::ToString;

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let freed = BulkFreeError { freed: 3, error: Error::DoubleFree };
        assert_eq!(freed.to_string(), "block 3 of the bulk: the frame is free already");
        assert_eq!(NodeId::new(2).to_string(), "node 2");
    }
}

//! The parts of a configuration, whatever they are.

use freehold::{
    Config, Error, FrameCount, FrameSize, MemoryRange, MetadataLayout, NodeId, Pfn, ZoneKind,
};

use crate::bytes::Bytes;

/// Metadata and memory beyond these are not built: it takes long.
const METADATA_BYTES_MAX: usize = 4 << 20;
const FRAMES_MAX: u64 = 1 << 15;

/// A number that is likely to be a limit of something, or near one.
pub(crate) fn number(bytes: &mut Bytes<'_>) -> u64 {
    let small = bytes.number(2);
    match bytes.byte() {
        0..150 => small,
        150..200 => small << 9,
        200..220 => (1_u64 << (small >> 2 & 63)).wrapping_add(small & 3).wrapping_sub(2),
        220..240 => u64::MAX - small,
        _ => bytes.number(8),
    }
}

fn node(bytes: &mut Bytes<'_>) -> NodeId {
    NodeId::new(match bytes.byte() {
        250.. => bytes.number(2) as u16,
        byte => u16::from(byte % 4),
    })
}

fn pfn(bytes: &mut Bytes<'_>) -> Pfn {
    Pfn::new(number(bytes))
}

fn count(bytes: &mut Bytes<'_>) -> FrameCount {
    FrameCount::new(number(bytes))
}

pub(crate) struct Parts {
    ranges: Vec<MemoryRange>,
    cpus: Vec<NodeId>,
    distances: Vec<u8>,
    spare: Vec<(NodeId, ZoneKind)>,
}

impl Parts {
    pub(crate) fn new(bytes: &mut Bytes<'_>) -> Self {
        let range = |bytes: &mut Bytes<'_>| {
            MemoryRange::new(pfn(bytes), count(bytes))
                .on_node(node(bytes))
                .in_zone(bytes.one_of(&ZoneKind::ALL))
        };
        let cpus = match bytes.byte() {
            250.. => vec![node(bytes); bytes.number(2) as usize],
            byte => (0..byte % 5).map(|_| node(bytes)).collect(),
        };
        Parts {
            cpus,
            ranges: (0..bytes.below(5)).map(|_| range(bytes)).collect(),
            distances: (0..bytes.below(17)).map(|_| bytes.byte()).collect(),
            spare: (0..bytes.below(3))
                .map(|_| (node(bytes), bytes.one_of(&ZoneKind::ALL)))
                .collect(),
        }
    }

    pub(crate) fn config(&self, bytes: &mut Bytes<'_>) -> Config<'_> {
        let form = bytes.byte();
        let size = FrameSize::new(4096 << bytes.below(8)).expect("a power of two");
        Config::new(&self.ranges, &self.cpus)
            .distances(&self.distances)
            .spare_zones(&self.spare)
            .span((form & 1 != 0).then(|| (pfn(bytes), count(bytes))))
            .min_free((form & 2 != 0).then(|| count(bytes)))
            .frame_size(if form & 4 == 0 { FrameSize::DEFAULT } else { size })
            .frame_record_bytes(if form & 8 == 0 { 0 } else { number(bytes) as usize })
    }

    pub(crate) fn frames(&self) -> u64 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.frames.get()))
    }
}

/// Whether what was laid out is small enough to be built here.
pub(crate) fn is_small(layout: Result<MetadataLayout, Error>, parts: &Parts) -> bool {
    layout.is_ok_and(|layout| layout.size() <= METADATA_BYTES_MAX) && parts.frames() <= FRAMES_MAX
}

//! Walking the frames of a zone, pageblock by pageblock.

use super::{Policy, Skeleton};
use freehold::memmap::index::{FrameIndex, ZoneIndex};
use freehold::platform::Platform;

/// The zone lock is dropped after visiting so many records.
pub(super) const WINDOW_FRAMES: u32 = 32;

/// A walk over the frames of a zone, during which their marks are reliable. Ends when dropped.
pub(super) struct Walk<'a, P: Platform, Y: Policy<P>> {
    design: &'a Skeleton<P, Y>,
    platform: &'a P,
    zone: ZoneIndex,
}

impl<'a, P: Platform, Y: Policy<P>> Walk<'a, P, Y> {
    pub(super) fn new(design: &'a Skeleton<P, Y>, platform: &'a P, zone: ZoneIndex) -> Self {
        Y::begin_walk(design, platform, zone);
        Walk { design, platform, zone }
    }
}

impl<P: Platform, Y: Policy<P>> Drop for Walk<'_, P, Y> {
    fn drop(&mut self) {
        Y::end_walk(self.design, self.platform, self.zone);
    }
}

impl<P: Platform, Y: Policy<P>> Skeleton<P, Y> {
    /// The pageblocks of a zone, lowest first.
    pub(crate) fn pageblocks_of(&self, zone: ZoneIndex) -> impl Iterator<Item = FrameIndex> {
        self.blocks.pageblocks().filter(move |&at| self.blocks.zone(at) == Some(zone))
    }
}

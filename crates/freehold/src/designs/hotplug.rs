//! Hotplug: what both families do as memory comes into use.

use core::ops::Deref;

use crate::config::{Config, MemoryRange};
use crate::error::Error;
use crate::memmap::index::{FrameRange, ZoneIndex};
use crate::memmap::region::Table;
use crate::memmap::stretches::Stretches;
use crate::platform::{LockClass, Pin, Platform, RawLock};
use crate::topology::Topology;
use crate::units::{FrameCount, NodeId, ZoneKind};
use crate::zone::watermark::{self, Watermarks, ZoneSize};

/// The lock under which memory is added, and what watermarks are computed from.
pub struct Hotplug<P: Platform> {
    lock: P::Lock,
    /// The configured `min_free`.
    min_free: Option<FrameCount>,
}

impl<P: Platform> Hotplug<P> {
    pub fn new(config: &Config<'_>) -> Self {
        Hotplug { lock: P::Lock::new(LockClass::Hotplug), min_free: config.min_free }
    }

    /// Takes the lock: one addition at a time.
    pub fn begin<'a>(&'a self, platform: &'a P) -> HotplugGuard<'a, P> {
        let (_, pin) = Pin::new(platform);
        self.lock.lock();
        HotplugGuard { hotplug: self, _pin: pin }
    }

    /// The lock alone, for a freeze.
    pub fn lock(&self) -> &P::Lock {
        &self.lock
    }
}

/// The lock under which memory is added, held. Unlocks when dropped.
pub struct HotplugGuard<'a, P: Platform> {
    hotplug: &'a Hotplug<P>,
    _pin: Pin<'a, P>,
}

impl<P: Platform> Deref for HotplugGuard<'_, P> {
    type Target = Hotplug<P>;

    fn deref(&self) -> &Hotplug<P> {
        self.hotplug
    }
}

impl<P: Platform> Drop for HotplugGuard<'_, P> {
    fn drop(&mut self) {
        self.hotplug.lock.unlock();
    }
}

/// Where a range of new memory lies in the tables, and in which zone. Frames that have no records
/// yet get some, if there is room.
///
/// # Errors
///
/// [`Error::BadRange`], [`Error::UnknownNode`], [`Error::UnknownZone`], [`Error::OutsideSpan`].
pub fn place_of<P: Platform>(
    range: MemoryRange,
    topology: &Topology,
    stretches: &Stretches<P>,
    _: &HotplugGuard<'_, P>,
) -> Result<(FrameRange, ZoneIndex), Error> {
    range.check()?;
    topology.zonelist(range.node, ZoneKind::Movable)?;
    let zone = topology.zone(range.node, range.zone).ok_or(Error::UnknownZone)?;
    let place = stretches.cover(range.start, range.frames).ok_or(Error::OutsideSpan)?;
    Ok((place, zone))
}

/// What the watermarks of a zone follow from, and these.
pub struct Marked<'a, P: Platform> {
    pub node: NodeId,
    pub kind: ZoneKind,
    pub managed: FrameCount,
    pub watermarks: &'a Watermarks<P>,
}

/// Recomputes the watermarks and reserves of all zones of a table, which is in the order of the
/// topology.
pub fn update_watermarks<P: Platform, Z>(
    zones: &Table<Z>,
    marked: impl Fn(&Z) -> Marked<'_, P>,
    topology: &Topology,
    hotplug: &HotplugGuard<'_, P>,
) {
    let all = || zones.iter().map(&marked);
    let lowmem = all().filter(|zone| zone.kind != ZoneKind::Movable);
    let lowmem: FrameCount = lowmem.map(|zone| zone.managed).sum();
    let computed = || watermark::min_free(lowmem, topology.frame_size);
    let min_free = hotplug.min_free.unwrap_or_else(computed);
    for zone in all() {
        let of_node = ZoneKind::ALL.map(|kind| {
            let index = topology.zone(zone.node, kind);
            index.map_or(FrameCount::ZERO, |index| marked(zones.get(index.index())).managed)
        });
        let size = ZoneSize { kind: zone.kind, managed: zone.managed };
        zone.watermarks.set(&watermark::marks(size, min_free, lowmem, of_node));
    }
}

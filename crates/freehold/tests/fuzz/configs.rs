//! Configurations: none makes a panic, and an allocator works on all that are accepted.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::common::{TestPlatform, run_on};
use crate::machine::Machine;
use freehold::designs::{Design, Freehold, Settings, ZoneLock};
use freehold::lru::{Lru, LruSettings};
use freehold::{
    Config, Error, FrameCount, FrameSize, MemoryRange, MetadataLayout, MigrateType, NodeId, Order,
    PageAllocator, Pfn, Request, Watermark, ZoneKind,
};

use crate::shelf::Shelf;

/// Metadata and memory beyond these are not built: it takes long.
const METADATA_BYTES_MAX: usize = 4 << 20;
const FRAMES_MAX: u64 = 1 << 15;

/// A number that is likely to be a limit of something, or near one.
fn number(bytes: &mut Bytes<'_>) -> u64 {
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

struct Parts {
    ranges: Vec<MemoryRange>,
    cpus: Vec<NodeId>,
    distances: Vec<u8>,
    spare: Vec<(NodeId, ZoneKind)>,
}

impl Parts {
    fn new(bytes: &mut Bytes<'_>) -> Self {
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

    fn config(&self, bytes: &mut Bytes<'_>) -> Config<'_> {
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

    fn frames(&self) -> u64 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.frames.get()))
    }
}

/// Whether what was laid out is small enough to be built here.
fn is_small(layout: Result<MetadataLayout, Error>, parts: &Parts) -> bool {
    layout.is_ok_and(|layout| layout.size() <= METADATA_BYTES_MAX) && parts.frames() <= FRAMES_MAX
}

/// All memory can be had, in the end frame by frame, and comes back.
fn works<D: Design<TestPlatform>>(config: &Config<'_>, parts: &Parts, settings: &D::Settings) {
    let layout = PageAllocator::<TestPlatform, D>::layout(config, settings);
    if !is_small(layout, parts) {
        return;
    }
    run_on(0);
    // What a layout was made for may still be refused, where memory is looked at.
    let machine = Machine::<TestPlatform, D>::try_new(TestPlatform, config, settings);
    let machine = machine.expect("what can be laid out can be built");
    let managed = machine.validate().expect("a new allocator is in order").managed;
    assert_eq!(managed.get(), parts.frames());
    let mut held = Vec::new();
    for migratetype in [MigrateType::Movable, MigrateType::Unmovable] {
        for order in [9, 3, 0].map(Order::new) {
            let request = Request::new(order).migratetype(migratetype);
            let request = request.watermark(Watermark::Ignore);
            while let Ok(pfn) = machine.alloc(request) {
                held.push((pfn, order));
            }
        }
    }
    let sum: FrameCount = held.iter().map(|(_, order)| order.frames()).sum();
    assert_eq!(sum, managed, "all memory can be had");
    machine.validate().expect("the books are right");
    for (pfn, order) in held {
        machine.free(pfn, order).expect("it is held");
    }
    machine.drain_all();
    assert_eq!(machine.validate().expect("the books are right").free, managed);
}

fn check<D: Design<TestPlatform>>(bytes: &[u8]) {
    let bytes = &mut Bytes(bytes);
    let mut settings = D::Settings::default();
    for setting in D::Settings::TABLE {
        let values: Vec<_> = setting.values.split('|').collect();
        let value = match bytes.byte() {
            0..128 => continue,
            128..192 => bytes.one_of(&values).to_owned(),
            _ => number(bytes).to_string(),
        };
        // Values are refused, or do no harm.
        let _ = settings.set(setting.name, &value);
    }
    let parts = Parts::new(bytes);
    let config = parts.config(bytes);
    works::<D>(&config, &parts, &settings);
}

#[test]
fn zone_lock() {
    bolero::check!()
        .with_test_time(Duration::from_millis(300))
        .for_each(|bytes: &[u8]| check::<ZoneLock<TestPlatform>>(bytes));
}

#[test]
fn freehold() {
    bolero::check!()
        .with_test_time(Duration::from_millis(300))
        .for_each(|bytes: &[u8]| check::<Freehold<TestPlatform>>(bytes));
}

#[test]
fn lru() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(|bytes: &[u8]| {
        let bytes = &mut Bytes(bytes);
        let parts = Parts::new(bytes);
        let config = parts.config(bytes);
        let (batch, groups) = (number(bytes) as u32, number(bytes) as u32);
        let settings = LruSettings::default().batch(batch).groups(groups);
        let layout = Lru::<TestPlatform, Shelf>::layout(&config, &settings);
        if is_small(layout, &parts) {
            run_on(0);
            let room = crate::room::Room::new(TestPlatform, &config, &settings, Shelf::default());
            let census = room.check();
            assert_eq!(census.used, FrameCount::ZERO);
        }
    });
}

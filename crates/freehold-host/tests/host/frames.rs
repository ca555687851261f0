//! Bare frames on real memory: growth, memory nodes, and bytes written through numbers.

use freehold::{FrameCount, Immovable, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_host::{Arena, HostError, Placement};
use freehold_lru::{LruError, LruSettings};

use crate::calls::{Idle, take_all};
use crate::two_nodes::two_nodes;

const MIB: usize = 1 << 20;

#[test]
fn every_frame_has_a_byte_of_its_own() {
    let frames = Arena::builder().bytes(8 * MIB).cpus(1).nodes(1).build_frames().unwrap();
    let pfns = take_all(&frames);
    for pfn in &pfns {
        assert_eq!(frames.load_byte(*pfn), 0, "{pfn} is fresh");
        frames.store_byte(*pfn, pfn.get() as u8 | 1);
    }
    for pfn in &pfns {
        assert_eq!(frames.load_byte(*pfn), pfn.get() as u8 | 1, "{pfn}");
        frames.allocator().free(*pfn, Order::ZERO).unwrap();
    }
    assert!(pfns.len() > 1500, "{} of 2048 frames", pfns.len());
}

#[test]
#[should_panic(expected = "beyond the mapping")]
fn a_frame_beyond_the_arena_has_no_byte() {
    let frames = Arena::builder().bytes(8 * MIB).cpus(1).nodes(1).build_frames().unwrap();
    frames.store_byte(Pfn::new(u64::MAX), 1);
}

#[test]
fn an_arena_grows_up_to_its_capacity() {
    let builder = Arena::builder().bytes(8 * MIB).capacity_bytes(16 * MIB);
    let frames = builder.cpus(1).nodes(1).build_frames().unwrap();
    let before = take_all(&frames).len();
    let grown = frames.grow(8 * MIB).unwrap();
    assert_eq!(grown, [MemoryRange::new(Pfn::new(2048), FrameCount::new(2048))]);
    assert_eq!(frames.total_frames(), FrameCount::new(4096));
    let gained = take_all(&frames).len();
    assert!(gained > 1500, "{gained} more frames after {before}");
    assert_eq!(frames.grow(0).unwrap(), []);
    let error = frames.grow(1).unwrap_err();
    assert!(matches!(error, HostError::CapacityExceeded { bytes: 1, left: 0 }), "{error}");
}

#[test]
fn each_node_has_its_own_part() {
    let builder = Arena::builder().bytes(16 * MIB).topology(two_nodes());
    let frames = builder.build_frames().unwrap();
    for (node, part) in [(0, 0..2048), (1, 2048..4096)] {
        let request = Request::new(Order::ZERO).node(NodeId::new(node));
        let pfn = frames.allocator().alloc(request).unwrap();
        assert!(part.contains(&pfn.get()), "{pfn} on node {node}");
        frames.store_byte(pfn, 1);
    }
    assert!(!matches!(frames.placement(), Placement::OneNode));
}

#[test]
fn an_arena_can_be_opened() {
    let arena = Arena::builder().bytes(8 * MIB).cpus(1).nodes(1).build().unwrap();
    let mut pages = arena.allocate(Order::new(2)).unwrap();
    pages[0] = 9;
    let (pfn, order) = pages.into_raw();
    let frames = arena.into_frames();
    assert_eq!(frames.load_byte(pfn), 9);
    frames.allocator().free(pfn, order).unwrap();
}

#[test]
fn addresses_lead_to_frames_and_back() {
    let builder = Arena::builder().bytes(8 * MIB).capacity_bytes(16 * MIB).cpus(1).nodes(1);
    let frames = builder.build_frames().unwrap();
    let base: *const u8 = frames.base().as_ptr();
    assert_eq!(frames.capacity_bytes(), 16 * MIB);
    for (offset, expected) in [(0, Some(0)), (4095, Some(0)), (4096, Some(1)), (16 * MIB, None)] {
        let address = base.wrapping_add(offset);
        assert_eq!(frames.pfn_of(address), expected.map(Pfn::new), "{offset}");
        assert_eq!(frames.contains(address), expected.is_some(), "{offset}");
    }
    assert_eq!(frames.pfn_of(base.wrapping_sub(1)), None);
    let order = Order::new(3);
    let pfn = frames.alloc(Request::new(order)).unwrap();
    let address = frames.address_of(pfn).as_ptr();
    // As in a `free` that is given an address only.
    let found = frames.pfn_of(address).unwrap();
    frames.free(found, frames.allocator().order_of(found).unwrap()).unwrap();
    assert!(frames.allocator().is_free(pfn));
}

#[test]
fn what_is_free_at_the_end_can_go() {
    let frames = Arena::builder().bytes(16 * MIB).cpus(1).nodes(1).build_frames().unwrap();
    let lowest = frames.alloc(Request::new(Order::ZERO)).unwrap();
    frames.store_byte(lowest, 7);
    let last = Pfn::new(4095);
    frames.store_byte(last, 9);
    let gone = frames.shrink(8 * MIB, &Immovable).unwrap();
    assert_eq!(gone, [MemoryRange::new(Pfn::new(2048), FrameCount::new(2048))]);
    assert_eq!(frames.ranges(), [MemoryRange::new(Pfn::new(0), FrameCount::new(2048))]);
    assert_eq!((frames.load_byte(lowest), frames.load_byte(last)), (7, 0), "given back");
    let error = frames.shrink(8 * MIB, &Immovable).unwrap_err();
    assert!(matches!(error, HostError::Allocator(_)), "{error:?}");
    assert_eq!(frames.total_frames(), FrameCount::new(2048));
    let error = frames.shrink(10 * MIB, &Immovable).unwrap_err();
    let expected = "shrink: node 0 has 2048 frames, and 2560 frames are to go";
    assert_eq!(error.to_string(), expected);
    assert_eq!(frames.grow(8 * MIB).unwrap(), gone);
    frames.allocator().validate().unwrap();
}

#[test]
fn an_lru_knows_frames_that_come_later() {
    let builder = Arena::builder().bytes(8 * MIB).capacity_bytes(16 * MIB).cpus(1).nodes(1);
    let frames = builder.build_frames().unwrap();
    let lru = frames.lru(&LruSettings::default(), Idle).unwrap();
    let late = Pfn::new(3000);
    assert_eq!(lru.frame_stats(late), Err(LruError::ForeignFrame));
    for range in frames.grow(8 * MIB).unwrap() {
        lru.add_memory(range).unwrap();
    }
    assert_eq!(lru.frame_stats(late), Err(LruError::NotAdded), "it is known, and unused");
    for range in frames.shrink(8 * MIB, &Immovable).unwrap() {
        lru.remove_memory(range.start, range.frames).unwrap();
    }
    assert_eq!(lru.frame_stats(late), Err(LruError::ForeignFrame));
}

//! The suite, on every design.

use freehold::designs::Design;
use freehold::{Error, Order, Pfn, Request};
use freehold_conformance::suite;

use crate::machine::{Platform, machine};

test_designs!(Platform: [
    it_conforms,
    it_conforms_when_memory_is_small,
    it_conforms_beside_frames_in_use,
]);

fn it_conforms<D: Design<Platform>>() {
    let (allocator, memory) = machine::<D>(4, 16_384);
    let report = suite::run(&allocator, &memory, &mut [Pfn::new(0); 512]);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.free.get(), 16_384);
    assert!(report.orders > Order::BUDDY_MAX.get(), "{report:?}");
    // Eleven orders in turn, of which 8 rounds have 16,376 frames.
    assert!(report.blocks > 60, "{report:?}");
    assert_eq!((report.ranges, report.checks), (5, 11));
}

fn it_conforms_when_memory_is_small<D: Design<Platform>>() {
    let (allocator, memory) = machine::<D>(2, 1024 + 300);
    let report = suite::run(&allocator, &memory, &mut [Pfn::new(0); 16]);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.orders > 8 && report.ranges >= 3, "{report:?}");
}

/// A kernel has frames in use before it runs the suite.
fn it_conforms_beside_frames_in_use<D: Design<Platform>>() {
    let (allocator, memory) = machine::<D>(2, 4096);
    let orders = [0, 1, 0, 3, 0, 5, 0].map(Order::new);
    let held = orders.map(|order| (allocator.alloc(Request::new(order)).expect("memory"), order));
    allocator.free(held[2].0, Order::ZERO).expect("it is ours");
    let report = suite::run(&allocator, &memory, &mut [Pfn::new(0); 100]);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.free.get(), 4096 - (4 + 2 + 8 + 32 - 1));
    assert_eq!(allocator.free(held[2].0, Order::ZERO), Err(Error::DoubleFree));
    for (nth, (first, order)) in held.into_iter().enumerate() {
        assert!(nth == 2 || allocator.free(first, order).is_ok());
    }
}

#[test]
#[should_panic(expected = "room for 16 frame numbers")]
fn the_suite_asks_for_enough_scratch() {
    let (allocator, memory) = machine::<freehold::designs::Freehold<Platform>>(1, 2048);
    let _report = suite::run(&allocator, &memory, &mut [Pfn::new(0); 15]);
}

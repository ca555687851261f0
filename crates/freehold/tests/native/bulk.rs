//! Bulk allocation in the two ways of the kernel, into an array and onto a list, and in Freehold's.

use crate::common::TestPlatform;
use crate::tested::{TestDesign, Tested, build, check_whole, range};
use freehold::{Error, NodeId, Order, Pfn, Request, Watermark};

const FRAMES: u64 = 4096;

/// Two nodes of 16 MiB and a CPU near each, with a reserve of so many frames over all.
fn machine<D: TestDesign>(min_free: u64) -> Tested<D> {
    build(&[range(0, FRAMES), range(FRAMES, FRAMES).on_node(NodeId::new(1))], &[0, 1], min_free)
}

/// Fills `slots` as `full` says, with frames of the machine.
fn slots<D: TestDesign>(machine: &Tested<D>, full: &[bool]) -> Vec<Option<Pfn>> {
    let one = || machine.alloc(Request::default()).expect("there is memory");
    full.iter().map(|&full| full.then(one)).collect()
}

/// Frees everything in the slots, which proves that no frame occurs twice.
fn free_all<D: TestDesign>(machine: &Tested<D>, slots: impl IntoIterator<Item = Option<Pfn>>) {
    slots.into_iter().flatten().for_each(|pfn| machine.free(pfn, Order::ZERO).unwrap());
}

fn only_empty_slots_are_filled<D: TestDesign>() {
    let machine = machine::<D>(0);
    for full in [0b0000_0000_u32, 0b0000_0111, 0b1010_0110, 0b1000_0000, 0b0111_1111] {
        let full: Vec<_> = (0..8).map(|bit| full >> bit & 1 != 0).collect();
        let mut slots = slots(&machine, &full);
        let before = slots.clone();
        assert_eq!(machine.alloc_into_slots(Request::default(), &mut slots), Ok(8));
        for (before, after) in before.iter().zip(&slots) {
            assert!(before.is_none() || before == after, "a full slot stays as it was");
        }
        free_all(&machine, slots);
    }
    check_whole(&machine);
}

fn full_and_empty_arrays_need_nothing<D: TestDesign>() {
    let machine = machine::<D>(0);
    assert_eq!(machine.alloc_into_slots(Request::default(), &mut []), Ok(0));
    assert_eq!(machine.alloc_onto_list(Request::default(), 0, &mut vec![]), Ok(0));
    let mut slots = slots(&machine, &[true; 5]);
    let events = machine.events();
    assert_eq!(machine.alloc_into_slots(Request::default(), &mut slots), Ok(5));
    assert_eq!(machine.events(), events);
}

fn a_list_grows_by_what_is_added<D: TestDesign>() {
    let machine = machine::<D>(0);
    let mut list = vec![machine.alloc(Request::default()).unwrap()];
    assert_eq!(machine.alloc_onto_list(Request::default(), 300, &mut list), Ok(300));
    assert_eq!(list.len(), 301);
    let order = Order::new(3);
    let mut blocks = Vec::new();
    assert_eq!(machine.alloc_onto_list(Request::new(order), 9, &mut blocks), Ok(9));
    list.iter().for_each(|&pfn| machine.free(pfn, Order::ZERO).unwrap());
    blocks.iter().for_each(|&pfn| machine.free(pfn, order).unwrap());
    check_whole(&machine);
}

fn a_node_without_enough_to_spare_gives_one<D: TestDesign>() {
    // A quarter of all memory is reserved, and the rest of node 0 is in use but for 100 frames.
    let machine = machine::<D>(2 * FRAMES / 4);
    let low = machine.zones().next().unwrap().marks.low.get();
    let own = Request::default().only_node().watermark(Watermark::Low);
    let room = FRAMES - low - 100;
    (0..room).for_each(|_| assert!(machine.alloc(own).is_ok()));
    machine.drain_all();
    let mut slots = [None; 200];
    let filled = machine.alloc_into_slots(Request::default(), &mut slots).unwrap();
    let full = slots.iter().flatten().count();
    assert_eq!(filled, full);
    // The check counts all 200.
    assert_eq!(filled, 1, "{}", D::NAME);
    assert_eq!(machine.alloc_into_slots(Request::default(), &mut slots), Ok(2));
    let mut few = [None; 60];
    assert_eq!(machine.alloc_into_slots(Request::default(), &mut few), Ok(60));
    // Freehold's continues on other nodes and below the low watermark.
    let mut all = [Pfn::default(); 200];
    assert_eq!(machine.alloc_bulk(Request::default(), &mut all), Ok(200));
}

fn without_memory_what_is_there_is_counted<D: TestDesign>() {
    let machine = machine::<D>(0);
    let mut slots = slots(&machine, &[true, true, false, true, false]);
    while machine.alloc(Request::default()).is_ok() {}
    assert_eq!(machine.alloc_into_slots(Request::default(), &mut slots), Ok(2));
    assert_eq!(machine.alloc_onto_list(Request::default(), 5, &mut vec![]), Ok(0));
    let too_large = Request::new(Order::new(60));
    assert_eq!(machine.alloc_into_slots(too_large, &mut slots), Err(Error::OrderTooLarge));
}

fn no_count_is_too_large<D: TestDesign>() {
    for (order, count) in [(0, usize::MAX), (0, usize::MAX - 5000), (9, 1 << 55), (3, 1 << 61)] {
        let (machine, mut list) = (machine::<D>(1000), vec![]);
        // No zone can spare so much.
        let request = Request::new(Order::new(order));
        assert_eq!(machine.alloc_onto_list(request, count, &mut list), Ok(1));
    }
}

test_designs!(TestPlatform: [
    only_empty_slots_are_filled,
    full_and_empty_arrays_need_nothing,
    a_list_grows_by_what_is_added,
    a_node_without_enough_to_spare_gives_one,
    without_memory_what_is_there_is_counted,
    no_count_is_too_large,
]);
